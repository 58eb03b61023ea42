"""What can be seen of a pause without a token, and who sees it."""

from __future__ import annotations

import operator
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from symfonic_interrupts import FrameworkTenantScope, ScopeRequired, UnknownInterrupt, UsageError
from tests.harness import ACME, Bench, Refund, pauses, thread

OTHER = FrameworkTenantScope("globex")
TEAM = FrameworkTenantScope("acme", "billing")


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def asking(point: Any) -> Any:
    return lambda state: {"log": [point.pause(Refund(order="A", amount=1)).note]}


async def ask(bench: Bench, graph: Any, thread_id: str = "t1", **configurable: Any) -> Any:
    """The event of a new pause."""
    config = thread(thread_id, **configurable)
    (event,) = pauses(await bench.collect(graph, "stream", {"log": []}, config, stream_mode="custom"))
    return event


async def test_a_pause_is_seen_by_its_id_in_its_own_scope_and_in_no_other(bench: Bench) -> None:
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking(bench.refunds())).add_edge(START, "gate"))
    event = await ask(bench, graph)
    bench.clock.move(timedelta(hours=1))

    view = await bench.call(adapter, "view", event.interrupt_id, scope=ACME)

    assert (view.name, view.payload, view.state) == ("approval", {"order": "A", "amount": 1}, "pending")
    assert view.response_schema["required"] == ["approved"]
    assert 23 * 3600 - 1 <= view.seconds_left <= 23 * 3600 + 1
    assert view == await bench.call(adapter, "inspect", event.pause_token, scope=ACME)
    for asked, scope in ((event.interrupt_id, OTHER), (event.interrupt_id, TEAM), ("i-000000000000", ACME)):
        with pytest.raises(UnknownInterrupt, match="no pause of this graph and scope"):
            await bench.call(adapter, "view", asked, scope=scope)


async def test_the_view_says_how_a_pause_ended(bench: Bench) -> None:
    point = bench.refunds(ttl=timedelta(minutes=1))
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking(point)).add_edge(START, "gate"))
    answered, late = await ask(bench, graph, "t1"), await ask(bench, graph, "t2")
    await bench.call(adapter, "invoke", answered.pause_token, {"approved": True})
    bench.clock.move(timedelta(minutes=2))

    seen = {e.thread_id: await bench.call(adapter, "view", e.interrupt_id) for e in (answered, late)}

    assert {key: (view.state, view.seconds_left) for key, view in seen.items() if key == "t1"} == {
        "t1": ("applied", 0.0)
    }
    assert seen["t2"].seconds_left == 0.0


async def test_a_point_that_may_be_answered_across_scopes_is_seen_by_id_from_above_and_not_from_beside(
    bench: Bench,
) -> None:
    point = bench.refunds(cross_scope_allowed=True)
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking(point)).add_edge(START, "gate"))
    event = await ask(bench, graph, sub_tenant_id="billing")

    for scope in (TEAM, ACME):
        seen = await bench.call(adapter, "view", event.interrupt_id, scope=scope)
        assert seen.interrupt_id == event.interrupt_id
    for scope in (OTHER, FrameworkTenantScope("acme", "sales")):  # with its token they may answer; an id is no secret
        with pytest.raises(UnknownInterrupt):
            await bench.call(adapter, "view", event.interrupt_id, scope=scope)


async def test_one_pause_is_listed_by_its_id(bench: Bench) -> None:
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking(bench.refunds())).add_edge(START, "gate"))
    first, _ = await ask(bench, graph, "t1"), await ask(bench, graph, "t2")

    (found,) = await bench.call(adapter, "pending", interrupt_id=first.interrupt_id)

    assert found == first
    assert await bench.call(adapter, "pending", interrupt_id=first.interrupt_id, scope=OTHER) == []


async def test_events_are_read_in_pages_oldest_first_by_scope_and_thread(bench: Bench) -> None:
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking(bench.refunds())).add_edge(START, "gate"))
    begin = await bench.call(adapter, "event_cursor")
    event = await ask(bench, graph, "t1")
    await ask(bench, graph, "t2", tenant_id="globex")
    await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "fine"}, actor="kim")
    await bench.call(graph, "invoke", {"log": []}, thread("t3"))
    await bench.call(graph, "invoke", {"log": []}, thread("t3"))

    seen: list[Any] = []
    cursor: str | None = begin
    while page := await bench.call(adapter, "events", scope=ACME, after=cursor, limit=2):
        seen += page
        cursor = page[-1].cursor

    assert [(e.thread_id, e.type) for e in seen] == [
        ("t1", "interrupt"),
        ("t1", "interrupt_resolved"),
        ("t3", "interrupt"),
        ("t3", "interrupt_superseded"),
        ("t3", "interrupt"),
    ]
    assert seen == await bench.call(adapter, "events", scope=ACME)
    assert seen[0].body["payload"] == {"order": "A", "amount": 1}
    assert "pause_token" not in seen[0].body
    assert seen[1].body["response"] == {"approved": True, "note": "fine"}
    assert {e.scope for e in seen} == {ACME}
    assert [e.type for e in await bench.call(adapter, "events", scope=OTHER)] == ["interrupt"]
    assert [e.thread_id for e in await bench.call(adapter, "events", thread_id="t3")] == ["t3"] * 3
    assert await bench.call(adapter, "events", after=await bench.call(adapter, "event_cursor")) == []


async def test_sub_scopes_are_seen_only_of_points_that_may_be_answered_across(bench: Bench) -> None:
    shared, own = bench.refunds("shared", cross_scope_allowed=True), bench.refunds("own")
    builder = StateGraph(State).add_node("a", asking(shared)).add_node("b", asking(own))
    graph, adapter = bench.compile(builder.add_edge(START, "a").add_edge(START, "b"))
    await bench.call(graph, "invoke", {"log": []}, thread("t1", sub_tenant_id="billing"))

    assert await bench.call(adapter, "events", scope=ACME) == []
    found = await bench.call(adapter, "events", scope=ACME, include_sub_scopes=True)
    assert [(e.name, e.scope) for e in found] == [("shared", TEAM)]
    assert {e.name for e in await bench.call(adapter, "events", scope=TEAM)} == {"shared", "own"}


@pytest.mark.parametrize("cursor", ["", "7", "1-2-3", "-1-2", "x-y", "1-2 ", "9" * 19 + "-0", "١-٢", 7])
async def test_what_is_no_cursor_is_refused(bench: Bench, cursor: Any) -> None:
    _, adapter = bench.compile(StateGraph(State).add_node("gate", asking(bench.refunds())).add_edge(START, "gate"))

    with pytest.raises(UsageError, match="after must be a cursor that events"):
        await bench.call(adapter, "events", after=cursor)


async def test_views_and_events_need_a_scope_where_there_is_no_default(bench: Bench) -> None:
    bench.interrupts._hub.config = replace(bench.interrupts.config, default_scope=None)
    _, adapter = bench.compile(StateGraph(State).add_node("gate", asking(bench.refunds())).add_edge(START, "gate"))

    for method, args in (("view", ["i-000000000000"]), ("events", []), ("pending", [])):
        with pytest.raises(ScopeRequired):
            await bench.call(adapter, method, *args)
