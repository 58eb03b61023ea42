"""What is listed: open pauses of a scope, overdue ones, and what a crash may have left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from symfonic_interrupts import FrameworkTenantScope
from tests.contract.stores import HOUR, MINUTE, Store, answer_claim, overdue_row, pause_row, told

ACME = FrameworkTenantScope("acme")
EU = FrameworkTenantScope("acme", "eu")
US = FrameworkTenantScope("acme", "us")
EU_NIGHT = FrameworkTenantScope("acme", "eu", "night")
NIGHT = FrameworkTenantScope("acme", None, "night")
GLOBEX = FrameworkTenantScope("globex")
GLOBEX_EU = FrameworkTenantScope("globex", "eu")


async def listed(store: Store, scope: FrameworkTenantScope = ACME, **changes: Any) -> list[str]:
    """The interrupt ids that `list_open` finds."""
    asked = {"sub_scope_names": None, "name": None, "thread_id": None, "limit": 50, "after": None, "graph": "default"}
    rows = await store.do(store.operations.reading.list_open, scope=scope, **{**asked, **changes})
    return [row["interrupt_id"] for row in rows]


async def open_named(store: Store, **rows: dict[str, Any]) -> None:
    """Open pauses whose interrupt ids are the keywords, oldest first."""
    await store.open(*(pause_row(interrupt_id=name, **changes) for name, changes in rows.items()))


async def test_a_scope_sees_exactly_its_own_pauses(store: Store) -> None:
    scopes = {"acme": ACME, "eu": EU, "us": US, "eu_night": EU_NIGHT, "night": NIGHT, "globex": GLOBEX}
    await open_named(store, **{name: {"scope": scope} for name, scope in scopes.items()})

    for name, scope in scopes.items():
        assert await listed(store, scope) == [name]
    assert await listed(store, FrameworkTenantScope("acm")) == []
    assert await listed(store, FrameworkTenantScope("acme", "night")) == []


async def test_sub_scopes_are_seen_for_the_named_points_only(store: Store) -> None:
    await open_named(
        store,
        acme={"scope": ACME, "name": "closed"},
        eu={"scope": EU, "name": "shared"},
        eu_closed={"scope": EU, "name": "closed"},
        eu_night={"scope": EU_NIGHT, "name": "shared"},
        us={"scope": US, "name": "shared"},
        night={"scope": NIGHT, "name": "shared"},
        globex_eu={"scope": GLOBEX_EU, "name": "shared"},
    )
    shared = ["shared", "also shared"]

    assert await listed(store, ACME, sub_scope_names=shared) == ["night", "us", "eu_night", "eu", "acme"]
    assert await listed(store, EU, sub_scope_names=shared) == ["eu_night", "eu_closed", "eu"]
    assert await listed(store, EU_NIGHT, sub_scope_names=shared) == ["eu_night"]
    assert await listed(store, NIGHT, sub_scope_names=shared) == ["night", "eu_night"]
    assert await listed(store, GLOBEX, sub_scope_names=shared) == ["globex_eu"]
    assert await listed(store, ACME, sub_scope_names=[]) == ["acme"]


async def test_a_name_a_thread_and_a_graph_narrow_the_list(store: Store) -> None:
    await open_named(
        store,
        refund={"name": "refund"},
        review={"name": "review"},
        elsewhere={"name": "refund", "thread_id": "t2"},
        other_graph={"name": "refund", "graph": "other"},
    )

    assert await listed(store) == ["elsewhere", "review", "refund"]
    assert await listed(store, name="refund") == ["elsewhere", "refund"]
    assert await listed(store, thread_id="t1") == ["review", "refund"]
    assert await listed(store, name="refund", thread_id="t1") == ["refund"]
    assert await listed(store, graph="other") == ["other_graph"]
    assert await listed(store, name="unknown") == []


async def test_only_pauses_that_can_still_be_answered_are_listed(store: Store) -> None:
    answered, _, still_open = await store.open(pause_row(), overdue_row(), pause_row())
    await store.do(store.operations.claiming.answer, answered, answer_claim(), told("answered"))

    assert await listed(store) == [still_open["interrupt_id"]]


async def test_pages_follow_each_other_newest_first_without_gaps_or_repeats(store: Store) -> None:
    await open_named(store, **{f"p{number}": {} for number in range(7)})

    assert await listed(store, limit=3) == ["p6", "p5", "p4"]
    assert await listed(store, limit=3, after="p4") == ["p3", "p2", "p1"]
    assert await listed(store, limit=3, after="p1") == ["p0"]
    assert await listed(store, limit=3, after="p0") == []


async def test_a_page_goes_on_after_a_pause_that_was_answered_meanwhile_and_is_not_moved_by_newer_ones(
    store: Store,
) -> None:
    rows = await store.open(*(pause_row(interrupt_id=f"p{number}") for number in range(5)))
    assert await listed(store, limit=2) == ["p4", "p3"]
    await store.do(store.operations.claiming.answer, rows[3], answer_claim(), told("answered"))
    await open_named(store, newer={})

    assert await listed(store, limit=2, after="p3") == ["p2", "p1"]


async def test_overdue_pauses_come_in_pages_the_longest_overdue_first(store: Store) -> None:
    now = datetime.now(UTC)
    rows = await store.open(
        overdue_row(expires_at=now - MINUTE),
        pause_row(),
        overdue_row(thread_id="t2", expires_at=now - MINUTE),  # at the same moment: by id
        overdue_row(graph="other"),
        overdue_row(),
        overdue_row(expires_at=now - 2 * MINUTE),
    )
    closed = rows[4]
    store.execute(f"UPDATE interrupt_pauses SET state = 'expired' WHERE jti = '{closed['jti']}'")
    due = [rows[5]["jti"], rows[0]["jti"], rows[2]["jti"]]

    first = await store.do(store.operations.reading.list_due, "default", most=2)
    second = await store.do(store.operations.reading.list_due, "default", after=first[-1], most=2)
    third = await store.do(store.operations.reading.list_due, "default", after=second[-1], most=2)

    assert [row["jti"] for row in first] == due[:2]
    assert [row["jti"] for row in second] == due[2:]
    assert third == []


async def unfinished(
    store: Store, *, most: int = 100, graph: str = "default"
) -> tuple[list[str], list[str], list[str]]:
    """Threads with undelivered answers, threads with a lapsed lease, threads of pauses not seen in their checkpoint."""
    before = datetime.now(UTC) - MINUTE
    undelivered, lapsed, unconfirmed = await store.do(
        store.operations.upkeep.list_unfinished, graph, created_before=before, most=most
    )
    return undelivered, lapsed, [row["thread_id"] for row in unconfirmed]


async def leave_unfinished(store: Store, thread_id: str) -> None:
    """An answer that is not delivered, a pause that was never seen, both long ago."""
    now = datetime.now(UTC)
    answered, _ = await store.open(
        pause_row(thread_id=thread_id), pause_row(thread_id=thread_id, created_at=now - HOUR)
    )
    await store.do(store.operations.claiming.answer, answered, answer_claim(), told("answered"))


async def test_all_three_kinds_of_unfinished_threads_are_found(store: Store) -> None:
    await leave_unfinished(store, "half")
    await store.do(store.operations.leasing.take_lease, "default", "died", "one", timedelta(seconds=-1))

    assert await unfinished(store) == (["half"], ["died"], ["half"])
    assert await unfinished(store, graph="other") == ([], [], [])


async def test_a_thread_that_is_being_driven_is_not_unfinished(store: Store) -> None:
    await leave_unfinished(store, "driven")
    await store.do(store.operations.leasing.take_lease, "default", "driven", "one", HOUR)
    await leave_unfinished(store, "same-name-elsewhere")
    await store.do(store.operations.leasing.take_lease, "other", "same-name-elsewhere", "one", HOUR)

    assert await unfinished(store) == (["same-name-elsewhere"], [], ["same-name-elsewhere"])


async def test_a_thread_whose_lease_lapsed_is_unfinished_in_every_way(store: Store) -> None:
    await leave_unfinished(store, "died")
    await store.do(store.operations.leasing.take_lease, "default", "died", "one", timedelta(seconds=-1))

    assert await unfinished(store) == (["died"], ["died"], ["died"])


async def test_used_answers_fresh_pauses_and_confirmed_ones_are_no_work(store: Store) -> None:
    now = datetime.now(UTC)
    used, fresh, confirmed = await store.open(
        pause_row(thread_id="used"),
        pause_row(thread_id="fresh"),
        pause_row(thread_id="confirmed", created_at=now - HOUR),
    )
    await store.do(store.operations.claiming.answer, used, answer_claim(), told("answered"))
    await store.do(store.operations.settling.mark_used, [used["jti"]])
    assert await unfinished(store) == ([], [], ["confirmed"])

    await store.do(store.operations.upkeep.confirm, [confirmed["jti"]])

    assert await unfinished(store) == ([], [], [])
    assert fresh["state"] == "pending"


async def test_threads_are_named_once_in_the_order_of_their_answers_and_pauses_by_age_up_to_the_limit(
    store: Store,
) -> None:
    for thread_id in ("b", "a", "b", "c"):
        await leave_unfinished(store, thread_id)

    assert await unfinished(store, most=3) == (["b", "a", "c"], [], ["b", "a", "b"])
