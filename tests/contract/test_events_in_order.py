"""A reader of events that goes on from its last cursor misses none, in whatever order the writers end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts import FrameworkTenantScope
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.operations import Operations
from tests.contract.stores import Store, open_store, pause_row

ACME = FrameworkTenantScope("acme")


async def read(store: Store, after: tuple[int, int] | None = None, **filters: Any) -> list[dict[str, Any]]:
    """What a reader of tenant `acme` finds after a cursor."""
    asked = {"graph": "default", "scope": ACME, "sub_scope_names": None, "thread_id": None, "limit": 100, **filters}
    rows: list[dict[str, Any]] = await store.do(store.operations.reading.list_events, after=after, **asked)
    return rows


def place(row: dict[str, Any]) -> tuple[int, int]:
    return row["xid"], row["id"]


async def test_an_event_whose_transaction_ends_late_is_not_skipped_by_a_reader_who_saw_a_later_id(
    postgres_url: str,
) -> None:
    async with open_store("url", postgres_url) as store:
        store.database.create_schema()
        await one_slow_and_one_quick_writer(store)


async def one_slow_and_one_quick_writer(store: Store) -> None:
    """SQLite has one writer at a time: there the case cannot be made."""
    slow = sa.create_engine(store.url)
    operations = Operations(system_clock)
    with slow.connect() as connection:
        begun = connection.begin()
        operations.recording.record(
            connection, pause_row(), ("slow", {})
        )  # takes the first id, and its transaction stays open
        await store.do(store.operations.recording.record, pause_row(), ("quick", {}))

        before = await read(store)
        start = await store.do(store.operations.reading.events_end)
        begun.commit()
    slow.dispose()

    after = await read(store)
    assert [row["type"] for row in before] == []  # the quick one waits for the slow one, whose place is before it
    assert [row["type"] for row in after] == ["slow", "quick"]
    assert [row["type"] for row in await read(store, place(after[0]))] == ["quick"]
    assert [row["type"] for row in await read(store, start)] == ["slow", "quick"]  # a cursor of then leaves none out


async def test_20_writers_at_once_and_a_reader_beside_them_that_sees_each_event_once(store: Store) -> None:
    writers = [(store.operations.recording.record, (pause_row(), (f"e{n}", {}))) for n in range(20)]
    race = asyncio.ensure_future(store.race(writers))
    seen: list[str] = []
    cursor: tuple[int, int] | None = None
    while True:
        over = race.done()
        rows = await read(store, cursor, limit=3)
        seen += [row["type"] for row in rows]
        cursor = place(rows[-1]) if rows else cursor
        if over and not rows:
            break
    await race

    assert sorted(seen) == sorted(f"e{n}" for n in range(20))


async def test_the_cursor_of_now_is_after_all_that_is_there_and_before_all_that_comes_also_after_a_purge(
    store: Store,
) -> None:
    await store.do(store.operations.recording.record, pause_row(), ("old", {}))
    now = await store.do(store.operations.reading.events_end)
    await store.do(store.operations.upkeep.purge, system_clock() + timedelta(hours=1), with_events=True)
    await store.do(store.operations.recording.record, pause_row(), ("new", {}))

    assert [row["type"] for row in await read(store, now)] == ["new"]
    assert [row["type"] for row in await read(store)] == ["new"]
