"""How a run of a delivery ends: what lies behind its checkpoint is closed, and a thread with nothing left is given back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.operations import Conclusion, Lease, Operations
from symfonic_interrupts.store.rows import PauseRow
from symfonic_interrupts.store.schema import metadata
from tests.contract.stores import ASKED, MINUTE, Store, answer_claim, checkpoint, pause_row, told

BEFORE, NOW = checkpoint(1), checkpoint(2)
LEASES = "SELECT owner FROM interrupt_thread_leases"


async def answered(store: Store, **changes: Any) -> PauseRow:
    """A pause that was answered."""
    (row,) = await store.open(pause_row(**changes))
    await store.do(store.operations.claiming.answer, row, answer_claim(), told("answered"))
    return row


async def held(store: Store, owner: str = "me") -> Lease:
    lease: Lease
    lease, _ = await store.do(store.operations.leasing.take_lease, "default", "t1", owner, MINUTE)
    return lease


async def concluded(
    store: Store, lease: Lease, *, seen: tuple[str, ...] = (), used: tuple[str, ...] = ()
) -> Conclusion:
    found: Conclusion = await store.do(store.operations.leasing.conclude, lease, NOW, list(seen), list(used))
    return found


async def test_where_nothing_is_left_the_thread_is_given_back(store: Store) -> None:
    used = await answered(store, checkpoint_id=BEFORE)
    skipped = await answered(store, checkpoint_id=BEFORE)
    lease = await held(store)

    end = await concluded(store, lease, used=(used["jti"],))

    assert (end.rows, end.over) == ([], True)
    assert end.states == {used["jti"]: "applied", skipped["jti"]: "unused"}
    assert {row["jti"]: row["state"] for row in end.moved} == end.states
    assert store.states() == {used["jti"]: "applied", skipped["jti"]: "unused"}
    assert store.rows(LEASES) == []


async def test_an_answer_at_the_checkpoint_keeps_the_thread(store: Store) -> None:
    waiting = await answered(store, checkpoint_id=NOW)
    lease = await held(store)

    end = await concluded(store, lease)

    assert [row["jti"] for row in end.rows] == [waiting["jti"]]
    assert (end.states, end.over) == ({waiting["jti"]: "answered"}, False)
    assert store.rows(LEASES) == [("me",)]


async def test_an_answer_used_at_the_checkpoint_is_noted_and_keeps_the_thread(store: Store) -> None:
    used = await answered(store, checkpoint_id=NOW)
    lease = await held(store)

    end = await concluded(store, lease, used=(used["jti"],))

    assert end.over is False
    assert store.rows("SELECT state, used_at IS NOT NULL FROM interrupt_pauses") == [("answered", True)]


async def test_a_question_at_the_checkpoint_stays_open_and_one_behind_it_does_not(store: Store) -> None:
    old, new = await store.open(pause_row(checkpoint_id=BEFORE), pause_row(checkpoint_id=NOW))
    lease = await held(store)

    end = await concluded(store, lease)

    assert [row["jti"] for row in end.rows] == [new["jti"]]
    assert (end.states, end.over) == ({old["jti"]: "superseded", new["jti"]: "pending"}, True)
    assert store.states() == {old["jti"]: "superseded", new["jti"]: "pending"}
    assert store.rows(LEASES) == []


async def test_it_tells_of_pauses_that_ended_before(store: Store) -> None:
    used = await answered(store, checkpoint_id=BEFORE)
    lease = await held(store)
    await store.do(store.operations.settling.advance, "default", "t1", NOW, used=[used["jti"]])

    end = await concluded(store, lease, seen=(used["jti"], "unknown"))

    assert (end.states, end.over) == ({used["jti"]: "applied"}, True)


async def test_a_thread_that_another_worker_has_taken_stays_its_own(store: Store) -> None:
    await held(store, "another")

    end = await concluded(store, Lease("default", "t1", "me", taken_over=False))

    assert end.over is True
    assert store.rows(LEASES) == [("another",)]


@pytest.mark.postgres
def test_a_thread_that_was_given_back_is_not_driven_on_whatever_is_answered_meanwhile(postgres_url: str) -> None:
    """The answer is stored between the statement that gives the thread back and the one that reads what is left."""
    operations = Operations(system_clock)
    engine, other = sa.create_engine(postgres_url), sa.create_engine(postgres_url)
    metadata.create_all(engine)
    row = pause_row(checkpoint_id=NOW)

    def answer(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT"):
            with other.begin() as connection:
                assert operations.claiming.answer(connection, row, answer_claim(), told("answered")) is not None

    with engine.begin() as connection:
        operations.opening.open_pauses(connection, [(row, ASKED)], lambda found: found)
        lease, _ = operations.leasing.take_lease(connection, "default", "t1", "me", MINUTE) or (None, [])
    assert lease is not None
    with engine.begin() as connection:
        sa.event.listen(engine, "before_cursor_execute", answer)
        end = operations.leasing.conclude(connection, lease, NOW, [], [])
    engine.dispose()
    other.dispose()

    assert [row["state"] for row in end.rows] == ["answered"]
    assert end.over is True


@pytest.mark.postgres
def test_an_answer_to_a_question_behind_and_the_end_of_the_delivery_do_not_wait_for_each_other(
    postgres_url: str,
) -> None:
    """The answer has spent its token and wants the thread; the delivery holds the thread and wants to close the question."""
    operations = Operations(system_clock)
    delivering, answering = sa.create_engine(postgres_url), sa.create_engine(postgres_url)
    metadata.create_all(delivering)
    behind = pause_row(checkpoint_id=BEFORE)
    with delivering.begin() as connection:
        operations.opening.open_pauses(connection, [(behind, ASKED)], lambda found: found)
        taken = operations.leasing.take_lease(connection, "default", "t1", "me", MINUTE)
    assert taken is not None
    spent, wants_question = threading.Event(), threading.Event()

    def after_answer(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO interrupt_consumed_tokens"):
            spent.set()
            wants_question.wait(20)

    def before_closing(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO interrupt_consumed_tokens"):
            wants_question.set()

    sa.event.listen(answering, "after_cursor_execute", after_answer)
    sa.event.listen(delivering, "before_cursor_execute", before_closing)

    def answer() -> Any:
        with answering.begin() as connection:
            return operations.claiming.answer_and_hold(
                connection, behind, answer_claim(), told("answered"), "other", MINUTE
            )

    with ThreadPoolExecutor(1) as pool:
        answered_at = pool.submit(answer)
        assert spent.wait(20)
        with delivering.begin() as connection:
            end = operations.leasing.conclude(connection, taken[0], NOW, [], [])
        at, held = answered_at.result(20)
    delivering.dispose()
    answering.dispose()

    assert (at is not None, held) == (True, None)  # the delivery still had the thread
    assert end.over is True  # whoever answered waits for the thread, and has it next
