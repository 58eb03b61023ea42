"""One worker at a time drives a thread, and a lease that is left behind says that the thread is unfinished."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.contract.stores import Store, answer_claim, pause_row, told

LONG = timedelta(minutes=5)
OVER = timedelta(seconds=-1)
LEASES = "SELECT graph, thread_id, owner FROM interrupt_thread_leases ORDER BY graph, thread_id"


async def take(store: Store, owner: str, ttl: timedelta = LONG, graph: str = "default", thread_id: str = "t1"):
    taken = await store.do(store.operations.leasing.take_lease, graph, thread_id, owner, ttl)
    return None if taken is None else taken[0]


async def is_live(store: Store) -> bool:
    """Whether the lease is in force: whether another worker is refused, seen without taking it."""
    _, lapsed, _ = await store.do(
        store.operations.upkeep.list_unfinished, "default", created_before=datetime(2000, 1, 1, tzinfo=UTC), most=1
    )
    return lapsed == []


async def test_a_held_thread_is_busy_for_everybody_else(store: Store) -> None:
    lease = await take(store, "one")

    assert (lease.graph, lease.thread_id, lease.owner, lease.taken_over) == ("default", "t1", "one", False)
    assert await take(store, "two") is None
    assert await take(store, "one") is None
    assert (await take(store, "two", thread_id="t2")).owner == "two"
    assert (await take(store, "two", graph="other")).owner == "two"
    assert store.rows(LEASES) == [("default", "t1", "one"), ("default", "t2", "two"), ("other", "t1", "two")]


async def test_one_of_24_workers_at_once_gets_the_thread(store: Store) -> None:
    calls = [(store.operations.leasing.take_lease, ("default", "t1", f"worker-{n}", LONG)) for n in range(24)]

    results = await store.race(calls)

    (winner,) = [taken[0].owner for taken in results if taken is not None]
    assert store.rows(LEASES) == [("default", "t1", winner)]


async def test_one_of_24_workers_at_once_takes_over_a_lapsed_lease(store: Store) -> None:
    await take(store, "dead", OVER)
    calls = [(store.operations.leasing.take_lease, ("default", "t1", f"worker-{n}", LONG)) for n in range(24)]

    results = await store.race(calls)

    (winner,) = [taken[0] for taken in results if taken is not None]
    assert winner.taken_over is True
    assert store.rows(LEASES) == [("default", "t1", winner.owner)]


async def test_taking_a_thread_reads_its_open_and_answered_pauses(store: Store) -> None:
    rows = await store.open(pause_row(), pause_row(), pause_row(), pause_row(thread_id="t2"))
    await store.do(store.operations.claiming.answer, rows[1], answer_claim(), told("answered"))
    store.execute(f"UPDATE interrupt_pauses SET state = 'applied' WHERE jti = '{rows[2]['jti']}'")

    _, found = await store.do(store.operations.leasing.take_lease, "default", "t1", "one", LONG)

    assert [(row["jti"], row["state"], row["answer_response"]) for row in found] == [
        (rows[0]["jti"], "pending", None),
        (rows[1]["jti"], "answered", '{"approved":true}'),
    ]


async def test_renewing_makes_a_lease_last(store: Store) -> None:
    lease = await take(store, "one", OVER)
    assert not await is_live(store)

    assert await store.do(store.operations.leasing.renew_lease, lease, LONG) is True

    assert await is_live(store)
    assert await take(store, "two") is None


async def test_a_lapsed_lease_is_taken_over_and_its_old_owner_can_do_nothing(store: Store) -> None:
    old = await take(store, "one", OVER)
    new = await take(store, "two")
    assert (new.owner, new.taken_over) == ("two", True)

    assert await store.do(store.operations.leasing.renew_lease, old, LONG) is False
    await store.do(store.operations.leasing.end_lease, old, clean=True)
    await store.do(store.operations.leasing.end_lease, old, clean=False)

    assert store.rows(LEASES) == [("default", "t1", "two")]
    assert await is_live(store)
    assert await take(store, "three") is None


async def test_a_clean_end_leaves_no_row_and_the_next_worker_takes_nothing_over(store: Store) -> None:
    lease = await take(store, "one")

    await store.do(store.operations.leasing.end_lease, lease, clean=True)

    assert store.rows(LEASES) == []
    assert await store.do(store.operations.leasing.renew_lease, lease, LONG) is False
    assert (await take(store, "two")).taken_over is False


async def test_an_unclean_end_leaves_the_lease_lapsed(store: Store) -> None:
    lease = await take(store, "one")

    await store.do(store.operations.leasing.end_lease, lease, clean=False)

    assert store.rows(LEASES) == [("default", "t1", "one")]
    assert not await is_live(store)
    assert (await take(store, "two")).taken_over is True
