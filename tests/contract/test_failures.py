"""A failed thread in the store: kept with its lease, left alone by recovery, forgotten at a clean end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from symfonic_interrupts import FrameworkTenantScope
from symfonic_interrupts.store.operations import Failure
from symfonic_interrupts.store.rows import PauseRow
from tests.contract.stores import Store, answer_claim, pause_row, told

MINUTE = timedelta(minutes=1)


async def answered(store: Store, thread_id: str = "t1") -> PauseRow:
    (row,) = await store.open(pause_row(thread_id=thread_id))
    await store.do(store.operations.claiming.answer, row, answer_claim(), told("answered"))
    return row


async def fail(store: Store, row: PauseRow, message: str = "no") -> datetime:
    lease, _ = await store.do(store.operations.leasing.take_lease, "default", row["thread_id"], "one", MINUTE)
    failure = Failure("pay", "ValueError", message, row, (row["interrupt_id"],))
    at = await store.do(store.operations.leasing.end_lease, lease, clean=True, failure=failure)
    assert isinstance(at, datetime)
    return at


async def failed(store: Store, scope: FrameworkTenantScope | None = None) -> list[str]:
    leases, _ = await store.do(store.operations.reading.list_failed, "default", scope)
    return [lease["thread_id"] for lease in leases]


async def unfinished(store: Store) -> tuple[list[str], list[str]]:
    undelivered, lapsed, _ = await store.do(
        store.operations.upkeep.list_unfinished, "default", created_before=datetime(2000, 1, 1, tzinfo=UTC), most=9
    )
    return undelivered, lapsed


async def test_a_failed_thread_is_listed_with_what_was_raised_and_is_no_work_for_recovery(store: Store) -> None:
    row = await answered(store)
    assert await unfinished(store) == (["t1"], [])

    at = await fail(store, row)

    (lease,), _ = await store.do(store.operations.reading.list_failed, "default")
    kept = {key: lease[key] for key in ("failed_at", "failed_node", "failed_type", "failed_message", "tenant_id")}
    assert kept == {
        "failed_at": at,
        "failed_node": "pay",
        "failed_type": "ValueError",
        "failed_message": "no",
        "tenant_id": row["tenant_id"],
    }
    assert await unfinished(store) == ([], [])
    body = '{"error_type":"ValueError","message":"no","node":"pay"}'
    assert store.rows("SELECT type, body FROM interrupt_events WHERE type = 'delivery_failed'") == [
        ("delivery_failed", body)
    ]


async def test_failed_threads_are_listed_by_scope_the_longest_ago_first(store: Store) -> None:
    for thread_id in ("b", "a"):
        await fail(store, await answered(store, thread_id))

    assert await failed(store) == ["b", "a"]
    assert await failed(store, FrameworkTenantScope("somebody else")) == []


async def test_who_takes_a_failed_thread_is_told_and_a_clean_end_forgets_the_failure(store: Store) -> None:
    await fail(store, await answered(store))

    lease, _ = await store.do(store.operations.leasing.take_lease, "default", "t1", "two", MINUTE)
    assert (lease.failed, lease.taken_over) == (True, True)
    assert await failed(store) == []  # it is being driven

    await store.do(store.operations.leasing.end_lease, lease, clean=True)
    assert store.rows("SELECT * FROM interrupt_thread_leases") == []


async def test_a_failed_thread_that_is_given_back_untried_has_failed_as_before(store: Store) -> None:
    await fail(store, await answered(store))
    lease, _ = await store.do(store.operations.leasing.take_lease, "default", "t1", "two", MINUTE)

    await store.do(store.operations.leasing.end_lease, lease, clean=False)

    assert (await failed(store), await unfinished(store)) == (["t1"], ([], []))


async def test_a_failed_thread_whose_next_run_dies_is_work_for_recovery_again(store: Store) -> None:
    await fail(store, await answered(store))
    lease, _ = await store.do(store.operations.leasing.take_lease, "default", "t1", "two", MINUTE)
    await store.do(store.operations.leasing.try_again, lease)

    await store.do(store.operations.leasing.end_lease, lease, clean=False)

    assert (await failed(store), await unfinished(store)) == ([], (["t1"], ["t1"]))


async def test_a_failure_that_was_followed_by_another_is_not_forgotten_for_the_first(store: Store) -> None:
    row = await answered(store)
    first = await fail(store, row)
    second = await fail(store, row, "again")

    await store.do(store.operations.leasing.forget_failure, "default", "t1", first)
    assert await failed(store) == ["t1"]
    await store.do(store.operations.leasing.forget_failure, "default", "t1", second)
    assert await failed(store) == []


async def test_a_worker_that_lost_its_thread_cannot_say_that_it_failed(store: Store) -> None:
    row = await answered(store)
    lost, _ = await store.do(store.operations.leasing.take_lease, "default", "t1", "one", -MINUTE)
    await store.do(store.operations.leasing.take_lease, "default", "t1", "two", MINUTE)

    failure = Failure("pay", "ValueError", "no", row, (row["interrupt_id"],))
    assert await store.do(store.operations.leasing.end_lease, lost, clean=True, failure=failure) is None

    assert store.rows("SELECT owner, failed_at FROM interrupt_thread_leases") == [("two", None)]
    assert store.rows("SELECT type FROM interrupt_events WHERE type = 'delivery_failed'") == []


async def test_a_deleted_thread_has_not_failed(store: Store) -> None:
    await fail(store, await answered(store))

    await store.do(store.operations.settling.revoke_thread, "default", "t1")

    assert await failed(store) == []


async def test_the_breakpoints_of_a_run_that_died_hold_for_who_takes_its_thread_over(store: Store) -> None:
    stops = '{"interrupt_before":["pay"]}'
    await store.do(store.operations.leasing.take_lease, "default", "t1", "one", -MINUTE, stops)

    taken, _ = await store.do(store.operations.leasing.take_lease, "default", "t1", "two", -MINUTE)
    assert taken.breakpoints == stops
    others = '{"interrupt_before":"*"}'
    taken, _ = await store.do(store.operations.leasing.take_lease, "default", "t1", "three", MINUTE, others)
    assert taken.breakpoints == others


async def test_a_native_question_closes_those_that_its_task_asked_before_it(store: Store) -> None:
    native = {"native": True, "leaf_task_id": "task", "occurrence": 0}
    first, other = await store.open(
        pause_row(**native, slot=0), pause_row(native=True, leaf_task_id="other task", slot=0)
    )

    await store.open(pause_row(**{**native, "occurrence": 1}, slot=1, langgraph_id="second"))

    states = dict(store.rows("SELECT jti, state FROM interrupt_pauses"))
    assert (states[first["jti"]], states[other["jti"]]) == ("superseded", "pending")
    spent = store.rows("SELECT jti, outcome FROM interrupt_consumed_tokens")
    assert spent == [(first["jti"], "superseded")]
