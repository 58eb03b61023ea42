"""A thread that moves on leaves its older questions and answers behind, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
import sqlalchemy as sa

from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Operations
from symfonic_interrupts.store.schema import metadata
from tests.contract.stores import ASKED, Store, answer_claim, checkpoint, pause_row, told, wait_until_blocked

EVENTS = "SELECT type, interrupt_id, thread_id FROM interrupt_events WHERE type <> 'interrupt' ORDER BY id"


async def answered(store: Store, *, used: bool = False, **changes: object) -> dict:
    (row,) = await store.open(pause_row(**changes))
    await store.do(store.operations.claiming.answer, row, answer_claim(), told("interrupt_resolved"))
    if used:
        await store.do(store.operations.settling.mark_used, [row["jti"]])
    return row


async def test_what_the_thread_leaves_behind_is_superseded_applied_or_unused(store: Store) -> None:
    (asked,) = await store.open(pause_row(checkpoint_id=checkpoint(1)))
    used = await answered(store, used=True, checkpoint_id=checkpoint(1))
    unused = await answered(store, checkpoint_id=checkpoint(2))
    store.execute("DELETE FROM interrupt_events")

    changed = await store.do(store.operations.settling.advance, "default", "t1", checkpoint(3))

    assert {row["jti"]: row["state"] for row in changed} == {
        asked["jti"]: "superseded",
        used["jti"]: "applied",
        unused["jti"]: "unused",
    }
    assert store.states() == {asked["jti"]: "superseded", used["jti"]: "applied", unused["jti"]: "unused"}
    assert sorted(store.rows(EVENTS)) == [
        ("interrupt_superseded", asked["interrupt_id"], "t1"),
        ("interrupt_unused", unused["interrupt_id"], "t1"),
    ]
    assert store.rows(f"SELECT outcome FROM interrupt_consumed_tokens WHERE jti = '{asked['jti']}'") == [
        ("superseded",)
    ]


async def test_the_questions_and_answers_of_the_newest_checkpoint_stay(store: Store) -> None:
    (asked,) = await store.open(pause_row(checkpoint_id=checkpoint(2)))
    used = await answered(store, used=True, checkpoint_id=checkpoint(2))
    unused = await answered(store, checkpoint_id=checkpoint(2))
    (newer,) = await store.open(pause_row(checkpoint_id=checkpoint(3)))
    store.execute("DELETE FROM interrupt_events")

    assert await store.do(store.operations.settling.advance, "default", "t1", checkpoint(2)) == []

    assert store.states() == {
        asked["jti"]: "pending",
        used["jti"]: "answered",
        unused["jti"]: "answered",
        newer["jti"]: "pending",
    }
    assert store.rows(EVENTS) == []


async def test_other_threads_and_other_graphs_are_not_touched(store: Store) -> None:
    elsewhere = await store.open(pause_row(thread_id="t2"), pause_row(graph="other"), pause_row(thread_id="T1"))
    kept = await answered(store, thread_id="t10")
    (here,) = await store.open(pause_row())

    changed = await store.do(store.operations.settling.advance, "default", "t1", checkpoint(9))

    assert [row["jti"] for row in changed] == [here["jti"]]
    assert {jti for jti, state in store.states().items() if state == "pending"} == {row["jti"] for row in elsewhere}
    assert store.states()[kept["jti"]] == "answered"


async def test_moving_on_again_changes_nothing_more(store: Store) -> None:
    await store.open(pause_row())
    await store.do(store.operations.settling.advance, "default", "t1", checkpoint(2))

    assert await store.do(store.operations.settling.advance, "default", "t1", checkpoint(3)) == []

    assert store.event_types() == ["interrupt_superseded"]


async def test_a_superseded_question_is_not_answered(store: Store) -> None:
    (row,) = await store.open(pause_row())
    await store.do(store.operations.settling.advance, "default", "t1", checkpoint(2))

    assert await store.do(store.operations.claiming.answer, row, answer_claim(), told("answered")) is None

    assert store.states() == {row["jti"]: "superseded"}


async def test_an_answer_and_a_thread_that_moves_on_at_once_agree_on_one_outcome(store: Store) -> None:
    rows = await store.open(*(pause_row() for _ in range(6)))
    calls = [(store.operations.claiming.answer, (row, answer_claim(), told("answered"))) for row in rows]
    calls += [(store.operations.settling.advance, ("default", "t1", checkpoint(2)))] * 6

    results = await store.race(calls)

    outcomes = dict(store.rows("SELECT jti, outcome FROM interrupt_consumed_tokens"))
    states = store.states()
    superseded = [row["jti"] for changed in results[6:] for row in changed if row["state"] == "superseded"]
    for row, at in zip(rows, results[:6], strict=True):
        assert outcomes[row["jti"]] == ("superseded" if at is None else "answered")
        assert states[row["jti"]] in (("superseded",) if at is None else ("answered", "unused"))
        assert superseded.count(row["jti"]) == (1 if at is None else 0)


async def test_a_deleted_thread_has_its_tokens_revoked_and_its_answers_unused(store: Store) -> None:
    (asked,) = await store.open(pause_row())
    given = await answered(store)
    (other,) = await store.open(pause_row(thread_id="t2"))

    changed = await store.do(store.operations.settling.revoke_thread, "default", "t1")

    assert {row["jti"]: row["state"] for row in changed} == {asked["jti"]: "revoked", given["jti"]: "unused"}
    assert store.states() == {asked["jti"]: "revoked", given["jti"]: "unused", other["jti"]: "pending"}
    assert store.event_types() == ["interrupt_resolved", "interrupt_revoked", "interrupt_unused"]


def test_an_answer_that_comes_while_its_thread_is_deleted_does_not_stay_on_it(store_url: str) -> None:
    operations = Operations(system_clock)
    row = pause_row()
    deleting, answering = Database(store_url, clock=system_clock), Database(store_url, clock=system_clock)
    deleting.create_schema()
    deleting.run(operations.opening.open_pauses, [(row, ASKED)], lambda found: found)
    with ThreadPoolExecutor(1) as pool:
        coming: list[Any] = []

        def answer_now(*_: Any) -> None:
            if not coming:
                coming.append(
                    pool.submit(answering.run, operations.claiming.answer, row, answer_claim(), told("answered"))
                )
                wait(coming, timeout=0.5)  # it waits for the other transaction, or is stored before that one ends

        assert deleting.connections.sync is not None
        sa.event.listen(deleting.connections.sync, "after_cursor_execute", answer_now)
        deleting.run(operations.settling.revoke_thread, "default", "t1")
        coming[0].result(20)
        left = answering.run(operations.reading.load_thread, "default", "t1")
    deleting.close()
    answering.close()

    assert left == []


@pytest.mark.postgres
@pytest.mark.parametrize("leaving", ["advance", "revoke_thread"])
def test_answers_to_many_questions_and_what_closes_them_all_do_not_wait_for_each_other(
    postgres_url: str, leaving: str
) -> None:
    """Both spend the same tokens. The one has spent the first and is about to spend the second when the other begins."""
    operations = Operations(system_clock)
    tasks = ("z", "a")  # an index finds them in the other order
    rows = [pause_row(leaf_task_id=task, checkpoint_id=checkpoint(1)) for task in tasks]
    answering, closing = sa.create_engine(postgres_url), sa.create_engine(postgres_url)
    metadata.create_all(answering)
    with answering.begin() as connection:
        operations.opening.open_pauses(connection, [(row, ASKED) for row in rows], lambda found: found)
    others = {"advance": ("default", "t1", checkpoint(2)), "revoke_thread": ("default", "t1")}

    def close() -> Any:
        with closing.begin() as connection:
            return getattr(operations.settling, leaving)(connection, *others[leaving])

    def close_now(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO interrupt_consumed_tokens") and not other:
            other.append(pool.submit(close))
            wait_until_blocked(postgres_url, other[0], "INSERT INTO interrupt_consumed_tokens%")

    other: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        sa.event.listen(answering, "after_cursor_execute", close_now)
        with answering.begin() as connection:
            answers = [(row, answer_claim(), told("answered")) for row in rows]
            times = operations.claiming.answer_all(connection, answers)
        other[0].result(20)
    answering.dispose()
    closing.dispose()

    assert len(times) == 2


async def test_settling_moves_answered_rows_only_and_tells_how_the_thread_stands(store: Store) -> None:
    first, second = await answered(store), await answered(store)
    (asked,) = await store.open(pause_row())

    moved, left = await store.do(
        store.operations.settling.settle, "default", "t1", [first["jti"], asked["jti"]], [second["jti"], first["jti"]]
    )

    assert {row["jti"]: row["state"] for row in moved} == {first["jti"]: "applied", second["jti"]: "unused"}
    assert [row["jti"] for row in left] == [asked["jti"]]
    assert store.event_types() == ["interrupt_resolved", "interrupt_resolved", "interrupt_unused"]
