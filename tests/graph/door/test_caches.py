"""What a person answered in one tenant never serves another: a question whose answer would go into a cache is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy

from symfonic_interrupts import RegistrationError
from tests.graph.door.gates import YES, Gate, State
from tests.harness import Bench, thread

Build = Callable[[Bench, Gate, Any], Any]
"""From a bench, a gate and a cache policy or None, a graph with a cache."""


def cached_node_of_a_subgraph(bench: Bench, gate: Gate, policy: Any) -> Any:
    child = StateGraph(State).add_node("gate", gate.node).add_edge(START, "gate").compile()
    builder = StateGraph(State).add_node("sub", child, cache_policy=policy).add_edge(START, "sub")
    return builder.compile(checkpointer=bench.interrupts.checkpointer(bench.saver), cache=InMemoryCache())


def cached_gate_of_a_subgraph(bench: Bench, gate: Gate, policy: Any) -> Any:
    child = StateGraph(State).add_node("gate", gate.node, cache_policy=policy).add_edge(START, "gate").compile()
    builder = StateGraph(State).add_node("sub", child).add_edge(START, "sub")
    return builder.compile(checkpointer=bench.interrupts.checkpointer(bench.saver), cache=InMemoryCache())


def cached_node_that_calls_a_graph(bench: Bench, gate: Gate, policy: Any) -> Any:
    child = StateGraph(State).add_node("gate", gate.node).add_edge(START, "gate").compile()

    def call(state: State) -> Any:
        return child.invoke({"log": []})

    async def acall(state: State) -> Any:
        return await child.ainvoke({"log": []})

    chosen: Any = acall if bench.mode == "async" else call
    builder = StateGraph(State).add_node("sub", chosen, cache_policy=policy).add_edge(START, "sub")
    return builder.compile(checkpointer=bench.interrupts.checkpointer(bench.saver), cache=InMemoryCache())


def cached_gate_of_a_graph_that_is_called(bench: Bench, gate: Gate, policy: Any) -> Any:
    child = StateGraph(State).add_node("gate", gate.node, cache_policy=policy).add_edge(START, "gate").compile()

    def call(state: State) -> Any:
        return child.invoke({"log": []})

    async def acall(state: State) -> Any:
        return await child.ainvoke({"log": []})

    builder = StateGraph(State).add_node("sub", acall if bench.mode == "async" else call).add_edge(START, "sub")
    return builder.compile(checkpointer=bench.interrupts.checkpointer(bench.saver), cache=InMemoryCache())


def cached_task(bench: Bench, gate: Gate, policy: Any, *, outer: Any = None, whole: Any = None) -> Any:
    saver = bench.interrupts.checkpointer(bench.saver)
    if bench.mode == "async":

        @task(cache_policy=policy)
        async def inner() -> Any:
            return gate.node({"log": []})

        @task(cache_policy=outer)
        async def between() -> Any:
            return await inner()

        @entrypoint(checkpointer=saver, cache=InMemoryCache(), cache_policy=whole)
        async def flow(_: Any) -> Any:
            return await between()

        return flow

    @task(cache_policy=policy)
    def sinner() -> Any:
        return gate.node({"log": []})

    @task(cache_policy=outer)
    def sbetween() -> Any:
        return sinner().result()

    @entrypoint(checkpointer=saver, cache=InMemoryCache(), cache_policy=whole)
    def sflow(_: Any) -> Any:
        return sbetween().result()

    return sflow


def task_of_a_cached_task(bench: Bench, gate: Gate, policy: Any) -> Any:
    return cached_task(bench, gate, None, outer=policy)


def task_of_a_cached_entrypoint(bench: Bench, gate: Gate, policy: Any) -> Any:
    return cached_task(bench, gate, None, whole=policy)


def cached_task_called_by_a_node(bench: Bench, gate: Gate, policy: Any) -> Any:
    if bench.mode == "async":

        @task(cache_policy=policy)
        async def work() -> Any:
            return gate.node({"log": []})

        async def node(state: State) -> Any:
            return await work()

        chosen: Any = node
    else:

        @task(cache_policy=policy)
        def swork() -> Any:
            return gate.node({"log": []})

        def snode(state: State) -> Any:
            return swork().result()

        chosen = snode
    builder = StateGraph(State).add_node("sub", chosen).add_edge(START, "sub")
    return builder.compile(checkpointer=bench.interrupts.checkpointer(bench.saver), cache=InMemoryCache())


POINTS: list[Build] = [
    cached_node_of_a_subgraph,
    cached_gate_of_a_subgraph,
    cached_node_that_calls_a_graph,
    cached_gate_of_a_graph_that_is_called,
    cached_task,
    task_of_a_cached_task,
    task_of_a_cached_entrypoint,
    cached_task_called_by_a_node,
]
NATIVE: list[Build] = [cached_node_of_a_subgraph, cached_gate_of_a_subgraph]
CASES = [("point", build) for build in POINTS] + [("native", build) for build in NATIVE]
IDS = [f"{kind}-{build.__name__}" for kind, build in CASES]


async def adapted_and_started(bench: Bench, graph: Any) -> None:
    bench.interrupts.resume_adapter(graph)
    await start(bench, graph, "acme")


async def start(bench: Bench, graph: Any, tenant: str) -> Any:
    return await bench.call(graph, "invoke", {"log": []}, thread(tenant, tenant_id=tenant))


@pytest.mark.parametrize(("kind", "build"), CASES, ids=IDS)
async def test_a_question_whose_answer_would_go_into_a_cache_is_refused_in_every_tenant(
    bench: Bench, kind: str, build: Build
) -> None:
    gate = Gate(bench, kind, "sub:gate")
    graph = build(bench, gate, CachePolicy())
    with pytest.raises(RegistrationError, match="CachePolicy"):
        await adapted_and_started(bench, graph)
    graph = build(bench, gate, CachePolicy())
    for tenant in ("acme", "globex"):
        with pytest.raises(RegistrationError, match=r"CachePolicy|resume_adapter"):
            await start(bench, graph, tenant)

    assert bench.states() == []
    assert gate.told == []


@pytest.mark.parametrize(("kind", "build"), CASES, ids=IDS)
async def test_where_no_policy_is_each_tenant_is_asked_and_nothing_refused(
    bench: Bench, kind: str, build: Build
) -> None:
    gate = Gate(bench, kind, "sub:gate", cross_scope_allowed=True)
    graph = build(bench, gate, None)
    adapter = bench.interrupts.resume_adapter(graph)
    for n, tenant in enumerate(("acme", "globex"), start=1):
        await start(bench, graph, tenant)
        (event,) = await bench.call(adapter, "pending", thread_id=tenant, scope=_scope(tenant))
        assert len(gate.told) == n - 1
        await bench.call(adapter, "invoke", event.pause_token, YES, scope=_scope(tenant))
        assert gate.told == [YES] * n


async def test_a_covered_entrypoint_with_a_cache_policy_is_refused(bench: Bench) -> None:
    gate = Gate(bench, "native", "flow")

    @entrypoint(
        checkpointer=bench.interrupts.checkpointer(bench.saver), cache=InMemoryCache(), cache_policy=CachePolicy()
    )
    def flow(_: Any) -> Any:
        return gate.ask()

    with pytest.raises(RegistrationError, match="CachePolicy"):
        bench.interrupts.resume_adapter(flow)


async def test_a_node_beside_a_cached_one_asks_as_always(bench: Bench) -> None:
    gate = Gate(bench, "point")
    builder = gate.builder().add_node("cheap", lambda state: {"log": ["x"]}, cache_policy=CachePolicy())
    graph, adapter = bench.compile(builder.add_edge(START, "cheap"), cache=InMemoryCache())
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "invoke", event.pause_token, YES)
    assert gate.told == [YES]


def _scope(tenant: str) -> Any:
    from symfonic_interrupts import FrameworkTenantScope

    return FrameworkTenantScope(tenant)
