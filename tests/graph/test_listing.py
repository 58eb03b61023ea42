"""Open pauses are found by scope, point and thread, from the store alone, page by page, newest first."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
import sqlalchemy as sa
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from symfonic_interrupts import FrameworkTenantScope, UsageError
from tests.harness import Bench, Refund, pauses, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def asking(point: Any) -> Any:
    return lambda state: {"log": [point.pause(Refund(order="A", amount=1)).note]}


async def test_pages_go_from_newest_to_oldest_without_gap_or_repeat(bench: Bench) -> None:
    builder = StateGraph(State).add_node("gate", asking(bench.refunds())).add_edge(START, "gate")
    graph, adapter = bench.compile(builder)
    asked = []
    for n in range(7):
        found = pauses(await bench.collect(graph, "stream", {"log": []}, thread(f"t{n}"), stream_mode="custom"))
        asked += [event.interrupt_id for event in found]

    seen: list[str] = []
    after = None
    while page := await bench.call(adapter, "pending", limit=3, after=after):
        seen += [event.interrupt_id for event in page]
        after = page[-1].interrupt_id

    assert seen == asked[::-1]
    assert [e.thread_id for e in await bench.call(adapter, "pending", thread_id="t3")] == ["t3"]
    with pytest.raises(UsageError, match="limit"):
        await bench.call(adapter, "pending", limit=0)


async def test_a_tenant_sees_its_own_pauses_and_those_below_it_only_where_crossing_is_allowed(bench: Bench) -> None:
    open_, closed = bench.refunds("open", cross_scope_allowed=True), bench.refunds("closed")
    builder = StateGraph(State).add_node("open", asking(open_)).add_node("closed", asking(closed))
    graph, adapter = bench.compile(builder.add_edge(START, "open").add_edge(START, "closed"))
    scopes = [("acme", None, None), ("acme", "east", None), ("acme", "east", "n"), ("globex", None, None)]
    for n, scope in enumerate(scopes):
        keys = dict(zip(("tenant_id", "sub_tenant_id", "namespace"), scope, strict=True))
        config = {"configurable": {"thread_id": f"t{n}", **{k: v for k, v in keys.items() if v}}}
        await bench.call(graph, "invoke", {"log": []}, config)

    async def seen(*parts: str | None, below: bool = False) -> list[tuple[str, str]]:
        scope = FrameworkTenantScope(*parts)  # type: ignore[arg-type]
        found = await bench.call(adapter, "pending", scope=scope, include_sub_scopes=below)
        return sorted((event.thread_id, event.name) for event in found)

    assert await seen("acme") == [("t0", "closed"), ("t0", "open")]
    assert await seen("acme", below=True) == [("t0", "closed"), ("t0", "open"), ("t1", "open"), ("t2", "open")]
    assert await seen("acme", "east", below=True) == [("t1", "closed"), ("t1", "open"), ("t2", "open")]
    assert await seen("globex", below=True) == [("t3", "closed"), ("t3", "open")]
    assert await seen("acme", "west", below=True) == []


async def test_a_later_pause_of_the_thread_keeps_the_tenant_of_the_first(bench: Bench) -> None:
    point = bench.refunds()
    tenants: list[Any] = []

    def node(state: State, config: RunnableConfig) -> dict[str, Any]:
        tenants.append(config["configurable"].get("tenant_id"))
        return {"log": [point.pause(Refund(order=order, amount=1)).note for order in ("first", "second")]}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, {"configurable": {"thread_id": "t1", "tenant_id": "globex"}})
    globex = FrameworkTenantScope("globex")
    for order in ("first", "second"):
        (event,) = await bench.call(adapter, "pending", scope=globex)
        assert event.payload["order"] == order
        result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": order}, scope=globex)

    assert result["log"] == ["first", "second"]
    assert set(tenants) == {"globex"}


async def test_a_resolver_finds_the_scope_and_a_delivery_hands_it_on(mode: str, store_url: str, tmp_path: Any) -> None:
    from symfonic_interrupts import FrameworkConfig
    from tests.harness import open_bench

    def resolve(config: Any) -> FrameworkTenantScope | None:
        customer = config["configurable"].get("customer")
        return FrameworkTenantScope(f"customer-{customer}") if customer else None

    config = FrameworkConfig(experimental_interrupt=True, scope_resolver=resolve)
    async with open_bench(mode, store_url, tmp_path, config) as bench:
        point = bench.refunds()

        def node(state: State) -> dict[str, Any]:
            return {"log": [point.pause(Refund(order=order, amount=1)).note for order in ("first", "second")]}

        graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
        await bench.call(graph, "invoke", {"log": []}, {"configurable": {"thread_id": "t1", "customer": 7}})
        scope = FrameworkTenantScope("customer-7")
        for order in ("first", "second"):
            (event,) = await bench.call(adapter, "pending", scope=scope)
            result = await bench.call(
                adapter, "invoke", event.pause_token, {"approved": True, "note": order}, scope=scope
            )
        assert result["log"] == ["first", "second"]


async def test_altered_rows_are_left_out_and_hide_nothing_behind_them(bench: Bench) -> None:
    builder = StateGraph(State).add_node("gate", asking(bench.refunds())).add_edge(START, "gate")
    graph, adapter = bench.compile(builder)
    asked = []
    for n in range(5):
        found = pauses(await bench.collect(graph, "stream", {"log": []}, thread(f"t{n}"), stream_mode="custom"))
        asked += [event.interrupt_id for event in found]
    engine = sa.create_engine(bench.store_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE interrupt_pauses SET payload = '{}' WHERE thread_id IN ('t4', 't3', 't1')")
    engine.dispose()

    first = await bench.call(adapter, "pending", limit=1)
    rest = await bench.call(adapter, "pending", limit=1, after=first[0].interrupt_id)

    assert [event.interrupt_id for event in (*first, *rest)] == [asked[2], asked[0]]
    assert await bench.call(adapter, "pending", limit=1, after=asked[0]) == []
