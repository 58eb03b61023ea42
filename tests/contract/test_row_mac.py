"""The MAC of a pause row fits after a round trip through either database, and not after anybody edited the row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa

from symfonic_interrupts import FrameworkTenantScope, KeyRing
from symfonic_interrupts.store.row_mac import row_is_authentic, seal_row
from symfonic_interrupts.store.rows import PauseRow
from symfonic_interrupts.store.schema import pauses
from tests.contract.stores import HOUR, KEYS, Store, answer_claim, checkpoint, open_store, pause_row, told

OTHER_KEY = b"another key of thirty-two bytes."

# Every column that says what is asked, where, of whom and until when; and an SQL expression that changes it.
EDITS = {
    "interrupt_id": "'i-other'",
    "jti": "'other'",
    "graph": "'other'",
    "audience": "'other'",
    "name": "'other'",
    "thread_id": "'other'",
    "checkpoint_id": f"'{checkpoint(9)}'",
    "task_id": "'other'",
    "leaf_ns": "'sub:1'",
    "leaf_checkpoint_id": f"'{checkpoint(9)}'",
    "leaf_task_id": "'other'",
    "langgraph_id": "'other'",
    "slot": "slot + 1",
    "occurrence": "occurrence + 1",
    "native": "NOT native",
    "payload": '\'{"amount":9000,"order":"A1"}\'',
    "request_hash": "'other'",
    "tenant_id": "'globex'",
    "sub_tenant_id": "'eu'",
    "namespace": "'night'",
    "scope_hash": "'other'",
    "run_id": "'other'",
    "created_at": {"sqlite": "'2031-05-04 03:02:01.000002'", "postgresql": "created_at + interval '1 microsecond'"},
    "expires_at": {"sqlite": "'2031-05-05 03:02:02.000000'", "postgresql": "expires_at + interval '1 second'"},
    "requested_by": "'other'",
    "trace_context": "'other'",
    "mac": "'" + "0" * 64 + "'",
    "mac_kid": "'" + "0" * 16 + "'",
}
FREE = {
    "state": "'answered'",
    "used_at": "created_at",
    "skipped_at": "created_at",
    "confirmed_at": "created_at",
    "drifts": "2",
}
MICROSECOND = datetime(2031, 5, 4, 3, 2, 1, 1, tzinfo=UTC)
TIMES = [
    MICROSECOND,
    datetime(2031, 5, 4, 3, 2, 1, 999_999, tzinfo=UTC),
    datetime(2031, 5, 4, 3, 2, 1, 0, tzinfo=UTC),
    datetime(2031, 5, 4, 3, 2, 1, 120_000, tzinfo=UTC),
    datetime(2031, 10, 26, 2, 30, 0, 7, tzinfo=timezone(timedelta(hours=5, minutes=45))),
]


async def read_back(store: Store, row: PauseRow) -> PauseRow:
    found, _ = await store.do(store.operations.reading.load_pause, row["jti"])
    return dict(found)


@pytest.mark.parametrize("created_at", TIMES, ids=str)
async def test_a_row_is_authentic_after_a_round_trip_whatever_its_time(url_store: Store, created_at: datetime) -> None:
    (row,) = await url_store.open(pause_row(created_at=created_at, expires_at=created_at + HOUR))

    found = await read_back(url_store, row)

    assert found["created_at"] == created_at
    assert found["created_at"].utcoffset() == timedelta(0)
    assert row_is_authentic(found, KEYS)


async def test_a_row_of_unusual_values_is_authentic_from_every_way_of_reading_it(store: Store) -> None:
    (row,) = await store.open(
        pause_row(
            scope=FrameworkTenantScope("ácme 🦊", "e'u", 'n"1'),
            payload='{"text":"line\\nfeed 🦊 \'quoted\' % :x"}',
            native=True,
            slot=3,
            run_id="",
            leaf_ns="sub:1|deep:2",
        )
    )
    operations = store.operations
    await store.do(operations.claiming.answer, row, answer_claim(), told("answered"))

    found = [await read_back(store, row), *await store.do(operations.reading.load_thread, "default", "t1")]
    found.append(await store.do(operations.reading.load_latest, "default", "t1"))
    found += await store.do(operations.reading.find_pauses, "default", row["interrupt_id"])

    assert [each["jti"] for each in found] == [row["jti"]] * 4
    assert [row_is_authentic(each, KEYS) for each in found] == [True] * 4


@pytest.mark.postgres
async def test_the_session_time_zone_of_postgresql_changes_nothing(postgres_url: str) -> None:
    url = sa.make_url(postgres_url)
    there = url.update_query_dict({"options": url.query["options"] + " -ctimezone=Asia/Kathmandu"})
    async with open_store("url", there.render_as_string(hide_password=False)) as store:
        await store.create_schema()
        (row,) = await store.open(pause_row(created_at=MICROSECOND, expires_at=MICROSECOND + HOUR))

        found = await read_back(store, row)

        assert store.rows("SELECT to_char(created_at, 'HH24:MI:SS.US') FROM interrupt_pauses") == [("08:47:01.000001",)]
        assert (found["created_at"], found["expires_at"]) == (MICROSECOND, MICROSECOND + HOUR)
        assert row_is_authentic(found, KEYS)


def edited(store: Store, column: str, change: str) -> PauseRow:
    """The only row as it reads after an UPDATE by hand, which is then taken back."""
    engine = sa.create_engine(store.url)
    try:
        with engine.connect() as connection, connection.begin() as transaction:
            connection.exec_driver_sql(f"UPDATE interrupt_pauses SET {column} = {change}".replace("%", "%%"))
            found: dict[str, Any] = dict(connection.execute(sa.select(pauses)).mappings().one())
            transaction.rollback()
    finally:
        engine.dispose()
    return found


async def test_every_edit_of_what_is_asked_is_noticed(url_store: Store) -> None:
    (row,) = await url_store.open(pause_row(created_at=MICROSECOND, expires_at=MICROSECOND + HOUR))
    unnoticed = []
    for column, change in EDITS.items():
        found = edited(url_store, column, change[url_store.database.dialect] if isinstance(change, dict) else change)
        assert found[column] != row[column], column
        if row_is_authentic(found, KEYS):
            unnoticed.append(column)

    assert unnoticed == []
    assert row_is_authentic(await read_back(url_store, row), KEYS)


async def test_how_far_a_pause_has_come_is_not_part_of_what_was_asked(url_store: Store) -> None:
    (row,) = await url_store.open(pause_row())

    for column, change in FREE.items():
        found = edited(url_store, column, change)
        assert found[column] != row.get(column)
        assert row_is_authentic(found, KEYS), column


def test_no_column_is_left_out_of_the_list_of_edits() -> None:
    reserved = {"votes", "seal"}

    assert {column.name for column in pauses.columns} == {"id"} | reserved | set(EDITS) | set(FREE)


@pytest.mark.parametrize(
    ("first", "second"), [("task_id", "leaf_task_id"), ("graph", "audience"), ("sub_tenant_id", "namespace")]
)
def test_values_that_changed_places_are_noticed(first: str, second: str) -> None:
    row = pause_row(**{first: "x", second: "y"})

    assert row_is_authentic(row, KEYS)
    assert not row_is_authentic({**row, first: "y", second: "x"}, KEYS)


@pytest.mark.parametrize("column", ["sub_tenant_id", "namespace", "run_id", "requested_by", "trace_context"])
def test_nothing_and_an_empty_text_are_not_the_same(column: str) -> None:
    assert not row_is_authentic({**pause_row(), column: ""}, KEYS)


def test_a_row_is_authentic_under_a_retired_key_and_under_no_unknown_one() -> None:
    row = pause_row()

    assert row_is_authentic(row, KeyRing([OTHER_KEY], retired=[b"a test key of thirty-two bytes.."]))
    assert not row_is_authentic(row, KeyRing([OTHER_KEY]))
    assert not row_is_authentic(seal_row(row, KeyRing([OTHER_KEY])), KEYS)
