"""A question is opened once, keeps its token when it moves, and is asked anew when it was superseded."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from symfonic_interrupts import StoreError
from symfonic_interrupts.store.operations import Claim
from symfonic_interrupts.store.row_mac import row_is_authentic
from tests.contract.stores import (
    ASKED,
    KEYS,
    Store,
    answer_claim,
    asked_again,
    pause_row,
    reseal,
    told,
)

PENDING = "SELECT jti FROM interrupt_pauses WHERE state = 'pending' ORDER BY id"


async def test_a_question_asked_again_is_the_same_row_with_one_event(store: Store) -> None:
    row = pause_row()
    await store.open(row)

    (again,) = await store.open(asked_again(row))

    assert again["jti"] == row["jti"]
    assert store.states() == {row["jti"]: "pending"}
    assert store.rows("SELECT type, interrupt_id, tenant_id, body FROM interrupt_events") == [
        ("interrupt", row["interrupt_id"], "acme", '{"name":"approval"}')
    ]


async def test_16_runs_that_ask_the_same_question_at_once_open_one_row(store: Store) -> None:
    row = pause_row()
    calls = [(store.operations.opening.open_pauses, ([(asked_again(row), ASKED)], reseal)) for _ in range(16)]

    results = await store.race(calls)

    found = {opened[0]["jti"] for opened, _ in results}
    assert len(found) == 1
    assert store.states() == {found.pop(): "pending"}
    assert store.rows("SELECT count(*) FROM interrupt_events") == [(1,)]


async def test_a_question_that_moved_to_another_slot_keeps_its_jti_and_is_sealed_again(store: Store) -> None:
    row = pause_row(langgraph_id="slot-0", slot=0)
    await store.open(row)

    (moved,) = await store.open(asked_again(row, langgraph_id="slot-1", slot=1))

    assert (moved["jti"], moved["langgraph_id"], moved["slot"]) == (row["jti"], "slot-1", 1)
    (stored,) = await store.do(store.operations.reading.load_thread, "default", "t1")
    assert (stored["jti"], stored["langgraph_id"], stored["slot"]) == (row["jti"], "slot-1", 1)
    assert stored["mac"] != row["mac"]
    assert row_is_authentic(stored, KEYS)
    assert store.rows("SELECT count(*) FROM interrupt_events") == [(1,)]


async def test_a_question_whose_row_was_superseded_is_opened_anew(store: Store) -> None:
    row = pause_row()
    await store.open(row)
    await store.do(
        store.operations.claiming.close, row, Claim("superseded", "superseded"), ("interrupt_superseded", {})
    )
    anew = asked_again(row)

    (opened,) = await store.open(anew)

    assert opened["jti"] == anew["jti"]
    assert store.states() == {row["jti"]: "superseded", anew["jti"]: "pending"}
    assert store.rows("SELECT count(*) FROM interrupt_events WHERE type = 'interrupt'") == [(2,)]


@pytest.mark.parametrize("state", ["answered", "applied", "unused", "expired", "revoked"])
async def test_a_question_that_is_no_longer_open_is_not_opened_again_in_its_slot(url_store: Store, state: str) -> None:
    row = pause_row()
    await url_store.open(row)
    url_store.execute(f"UPDATE interrupt_pauses SET state = '{state}'")

    (found,) = await url_store.open(asked_again(row))

    assert (found["jti"], found["state"]) == (row["jti"], state)
    assert url_store.states() == {row["jti"]: state}


async def test_an_answered_question_is_not_opened_again_in_a_later_slot(store: Store) -> None:
    row = pause_row(langgraph_id="slot-0")
    await store.open(row)
    await store.do(store.operations.claiming.answer, row, answer_claim(), told("answered"))
    later = asked_again(row, langgraph_id="slot-1", slot=1)

    (opened,) = await store.open(later)

    assert (opened["jti"], opened["state"], opened["langgraph_id"]) == (row["jti"], "answered", "slot-0")
    assert store.states() == {row["jti"]: "answered"}


async def test_a_task_has_one_pending_row_for_a_question_and_others_for_other_questions(store: Store) -> None:
    row = pause_row()
    different = [
        asked_again(row, occurrence=1),
        asked_again(row, request_hash="another-hash"),
        asked_again(row, name="review"),
        asked_again(row, leaf_task_id="another-task", langgraph_id="another-slot"),
        asked_again(row, thread_id="t2"),
        asked_again(row, graph="other"),
    ]

    await store.open(row, *different, *(asked_again(same) for same in (row, *different)))

    assert store.rows(PENDING) == [(each["jti"],) for each in (row, *different)]


async def test_the_tables_themselves_refuse_a_second_pending_row_of_a_task(url_store: Store) -> None:
    row = pause_row()
    await url_store.open(row)
    columns = [name for (name,) in _columns(url_store) if name not in ("id", "jti", "langgraph_id")]
    copy = ", ".join(columns)
    values = f"SELECT 'x', 'elsewhere', {copy} FROM interrupt_pauses"
    statement = f"INSERT INTO interrupt_pauses (jti, langgraph_id, {copy}) {values}"

    with pytest.raises(sa.exc.IntegrityError):
        url_store.execute(statement)

    assert url_store.states() == {row["jti"]: "pending"}


async def test_a_batch_of_questions_is_opened_whole_or_not_at_all(store: Store) -> None:
    good = pause_row()
    bad = pause_row(state="no such state")

    with pytest.raises(StoreError):
        await store.open(good, bad)

    assert store.rows("SELECT * FROM interrupt_pauses") == []
    assert store.rows("SELECT * FROM interrupt_events") == []


async def test_answers_that_the_asking_execution_used_are_marked_with_it_once(store: Store) -> None:
    used, unused = await store.open(pause_row(), pause_row())
    for row in (used, unused):
        await store.do(store.operations.claiming.answer, row, answer_claim(), told("answered"))
    next_question = pause_row()
    asked = ([(next_question, ASKED)], reseal)

    opened, marked = await store.do(
        store.operations.opening.open_pauses, *asked, used=[used["jti"]], unused=[unused["jti"]]
    )
    _, marked_again = await store.do(store.operations.opening.open_pauses, *asked, used=[used["jti"]])

    assert [row["jti"] for row in opened] == [next_question["jti"]]
    assert (marked, marked_again) == ([used["jti"]], [])
    assert store.rows("SELECT jti FROM interrupt_pauses WHERE used_at IS NOT NULL") == [(used["jti"],)]

    await store.do(store.operations.settling.mark_used, [], [used["jti"]])

    assert store.rows("SELECT jti FROM interrupt_pauses WHERE used_at IS NOT NULL") == []


def _columns(store: Store) -> list[tuple[str]]:
    if store.database.dialect == "sqlite":
        return store.rows("SELECT name FROM pragma_table_info('interrupt_pauses')")
    return store.rows(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND table_name = 'interrupt_pauses'"
    )
