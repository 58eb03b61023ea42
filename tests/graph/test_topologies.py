"""Wherever a graph can ask: side by side, twice in a node, in subgraphs, fan-outs, tools. Only the asking node runs again."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import Command, Send, StreamWriter

from tests.harness import Bench, Decision, Refund, answers, events, open_bench, pauses, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def ran(name: str) -> dict[str, Any]:
    return {"log": [name]}


async def ask(bench: Bench, graph: Any) -> list[Any]:
    """Run a thread from its start; the pauses it announced, oldest first."""
    return pauses(await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode=["updates", "custom"]))


def side_by_side(bench: Bench, joins: list[str]) -> StateGraph[State]:
    builder = StateGraph(State)
    for name in ("left", "right"):
        point = bench.refunds(name)

        @point.node(payload=lambda state, name=name: Refund(order=name, amount=1))
        def gate(state: State, decision: Decision, name: str = name) -> dict[str, Any]:
            return ran(f"{name}={decision.note}")

        builder.add_node(name, gate)
        builder.add_edge(START, name)

    def join(state: State) -> dict[str, Any]:
        joins.append("join")
        return ran("join")

    builder.add_node("join", join)
    builder.add_edge(["left", "right"], "join")
    return builder


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_points_side_by_side_are_answered_in_either_order_and_join_once(
    bench: Bench, order: tuple[int, int]
) -> None:
    joins: list[str] = []
    graph, adapter = bench.compile(side_by_side(bench, joins))
    asked = sorted(await ask(bench, graph), key=lambda event: event.name)
    assert [event.name for event in asked] == ["left", "right"]
    assert asked[0].pause_token != asked[1].pause_token

    for n in order:
        result = await bench.call(adapter, "invoke", asked[n].pause_token, {"approved": True, "note": str(n)})

    assert sorted(result["log"]) == ["join", "left=0", "right=1"]
    assert joins == ["join"]
    assert bench.states() == ["applied", "applied"]


async def test_two_answers_and_one_delivery_run_each_body_twice(bench: Bench) -> None:
    joins: list[str] = []
    graph, adapter = bench.compile(side_by_side(bench, joins))
    asked = await ask(bench, graph)
    for event in asked:
        await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": event.name})

    delivery = await bench.call(adapter, "deliver", "t1")

    assert sorted(delivery.output["log"]) == ["join", "left=left", "right=right"]
    assert delivery.applied == tuple(sorted(event.interrupt_id for event in asked))
    assert (delivery.unused, delivery.open, delivery.error) == ((), (), None)
    assert joins == ["join"]


async def test_two_questions_in_one_node_each_get_their_own_answer(bench: Bench) -> None:
    point = bench.refunds()
    passes: list[int] = []

    def node(state: State) -> dict[str, Any]:
        passes.append(1)
        first = point.pause(Refund(order="first", amount=1))
        second = point.pause(Refund(order="second", amount=2))
        return ran(f"{first.note}{second.note}")

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    (first,) = await ask(bench, graph)
    assert first.payload["order"] == "first"
    chunks = await bench.collect(
        adapter, "stream", first.pause_token, {"approved": True, "note": "A"}, stream_mode=["updates", "custom"]
    )
    (second,) = pauses(chunks)
    assert second.payload["order"] == "second"
    assert [event.interrupt_id for event in answers(chunks)] == [first.interrupt_id]
    chunks = await bench.collect(
        adapter, "stream", second.pause_token, {"approved": True, "note": "B"}, stream_mode=["updates", "custom"]
    )

    assert [event.interrupt_id for event in events(chunks)] == [second.interrupt_id]
    assert (await bench.call(graph, "get_state", thread())).values == {"log": ["AB"]}
    assert len(passes) == 3
    assert bench.states() == ["applied", "applied"]


async def test_a_loop_that_asks_until_the_answer_is_right_asks_the_same_payload_anew_each_time(bench: Bench) -> None:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        tries = 0
        while not (decision := point.pause(Refund(order="same", amount=1))).approved:
            tries += 1
        return ran(f"{decision.note} after {tries}")

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    asked = await ask(bench, graph)
    seen = set()
    for answer in ({"approved": False}, {"approved": False}, {"approved": True, "note": "yes"}):
        (event,) = asked
        seen.add(event.interrupt_id)
        chunks = await bench.collect(adapter, "stream", event.pause_token, answer, stream_mode=["custom"])
        asked = pauses(chunks)

    assert len(seen) == 3
    assert asked == []
    assert (await bench.call(graph, "get_state", thread())).values == {"log": ["yes after 2"]}


def counted(bench: Bench, runs: list[str], name: str = "approval") -> Any:
    point = bench.refunds(name)

    def node(state: State) -> dict[str, Any]:
        runs.append(name)
        return ran(point.pause(Refund(order=name, amount=1)).note)

    return node


def step(runs: list[str], name: str) -> Any:
    def node(state: State) -> dict[str, Any]:
        runs.append(name)
        return ran(name)

    return node


@pytest.mark.parametrize("nesting", ["compiled in", "nested twice", "called in a node", "checkpointer=True"])
async def test_a_pause_in_a_subgraph_resumes_there_and_only_the_asking_node_runs_again(
    bench: Bench, nesting: str
) -> None:
    runs: list[str] = []
    child = StateGraph(State)
    child.add_node("before", step(runs, "before")).add_node("ask", counted(bench, runs)).add_node(
        "after", step(runs, "after")
    )
    child.add_edge(START, "before").add_edge("before", "ask").add_edge("ask", "after")
    inner: Any = child.compile(checkpointer=True if nesting == "checkpointer=True" else None)
    if nesting == "nested twice":
        inner = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile()
    if nesting == "called in a node":
        called = inner

        def outer(state: State) -> dict[str, Any]:
            return {"log": called.invoke({"log": []})["log"]}

        async def aouter(state: State) -> dict[str, Any]:
            return {"log": (await called.ainvoke({"log": []}))["log"]}

        inner = aouter if bench.mode == "async" else outer
    parent = (
        StateGraph(State)
        .add_node("first", step(runs, "first"))
        .add_node("sub", inner)
        .add_node("last", step(runs, "last"))
    )
    parent.add_edge(START, "first").add_edge("first", "sub").add_edge("sub", "last")
    graph, adapter = bench.compile(parent)
    (event,) = await ask(bench, graph)
    runs.clear()

    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})

    assert runs == ["approval", "after", "last"]
    assert [entry for entry in result["log"] if entry in ("yes", "after", "last")] == ["yes", "after", "last"]
    assert bench.states() == ["applied"]


async def test_two_parallel_questions_in_a_subgraph_are_two_pauses(bench: Bench) -> None:
    runs: list[str] = []
    child = StateGraph(State).add_node("one", counted(bench, runs, "one")).add_node("two", counted(bench, runs, "two"))
    child.add_edge(START, "one").add_edge(START, "two")
    graph, adapter = bench.compile(StateGraph(State).add_node("sub", child.compile()).add_edge(START, "sub"))
    asked = sorted(await ask(bench, graph), key=lambda event: event.name)
    assert [event.name for event in asked] == ["one", "two"]

    for event in asked:
        result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": event.name})

    assert sorted(result["log"]) == ["one", "two"]
    assert bench.states() == ["applied", "applied"]


async def test_two_subgraphs_called_in_one_node_ask_one_after_the_other(bench: Bench) -> None:
    runs: list[str] = []
    children = [
        StateGraph(State).add_node("ask", counted(bench, runs, name)).add_edge(START, "ask").compile()
        for name in ("one", "two")
    ]

    def outer(state: State) -> dict[str, Any]:
        return {"log": [entry for child in children for entry in child.invoke({"log": []})["log"]]}

    async def aouter(state: State) -> dict[str, Any]:
        return {"log": [entry for child in children for entry in (await child.ainvoke({"log": []}))["log"]]}

    node = aouter if bench.mode == "async" else outer
    graph, adapter = bench.compile(StateGraph(State).add_node("outer", node).add_edge(START, "outer"))
    asked = await ask(bench, graph)
    for name in ("one", "two"):
        (event,) = asked
        assert event.name == name
        delivered = await bench.collect(
            adapter, "stream", event.pause_token, {"approved": True, "note": name}, stream_mode=["custom"]
        )
        asked = pauses(delivered)

    assert (await bench.call(graph, "get_state", thread())).values == {"log": ["one", "two"]}
    assert bench.states() == ["applied", "applied"]


async def test_a_fan_out_of_20_is_answered_out_of_order_with_40_bodies_in_all(bench: Bench) -> None:
    point = bench.refunds()
    bodies: list[int] = []

    def review(item: dict[str, Any]) -> dict[str, Any]:
        bodies.append(item["n"])
        return ran(f"{item['n']}:{point.pause(Refund(order='same', amount=item['n'])).note}")

    builder = StateGraph(State).add_node("review", review).add_node("join", lambda state: ran("join"))
    builder.add_conditional_edges(START, lambda state: [Send("review", {"n": n}) for n in range(20)], ["review"])
    builder.add_edge("review", "join")
    graph, adapter = bench.compile(builder)
    asked = await ask(bench, graph)
    assert len({event.pause_token for event in asked}) == 20

    for event in reversed(asked):
        await bench.call(
            adapter, "answer", event.pause_token, {"approved": True, "note": f"for {event.payload['amount']}"}
        )
    delivery = await bench.call(adapter, "deliver", "t1")

    assert len(bodies) == 40
    assert delivery.output["log"] == [f"{n}:for {n}" for n in range(20)] + ["join"]
    assert len(delivery.applied) == 20


def tool_calls(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    listed = [
        {"name": name, "args": args, "id": f"call-{n}", "type": "tool_call"} for n, (name, args) in enumerate(calls)
    ]
    return {"messages": [AIMessage(content="", tool_calls=listed)]}


def refund_tool(bench: Bench) -> Any:
    point = bench.refunds()

    @tool
    def refund(order: str) -> str:
        """Refund an order."""
        return f"{order}: {point.pause(Refund(order=order, amount=1)).note}"

    return refund


async def test_a_tool_asks_and_its_result_stands_under_its_own_call(bench: Bench) -> None:
    builder = StateGraph(MessagesState).add_node("tools", ToolNode([refund_tool(bench)])).add_edge(START, "tools")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", tool_calls(("refund", {"order": "A"})), thread())
    (event,) = await bench.call(adapter, "pending")

    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "done"})

    message = result["messages"][-1]
    assert (message.tool_call_id, message.content) == ("call-0", "A: done")


@pytest.mark.parametrize("orders", [("A", "B", "C"), ("A", "A", "A")], ids=["different", "identical"])
async def test_parallel_tool_calls_get_their_own_answers(bench: Bench, orders: tuple[str, ...]) -> None:
    builder = StateGraph(MessagesState).add_node("tools", ToolNode([refund_tool(bench)])).add_edge(START, "tools")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", tool_calls(*(("refund", {"order": order}) for order in orders)), thread())
    answered: dict[str, str] = {}
    for _ in range(4):  # a call that was slower than the task's write asks in the next pass
        open_ = await bench.call(adapter, "pending")
        if not open_:
            break
        for event in open_:
            assert event.interrupt_id not in answered
            answered[event.interrupt_id] = event.payload["order"]
            note = f"for {event.payload['order']}"
            await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": note})
        delivery = await bench.call(adapter, "deliver", "t1")

    assert sorted(answered.values()) == sorted(orders)
    found = {message.tool_call_id: message.content for message in delivery.output["messages"][1:]}
    assert found == {f"call-{n}": f"{order}: for {order}" for n, order in enumerate(orders)}
    assert bench.states() == ["applied"] * 3


async def test_the_functional_api_asks_in_a_task_and_in_the_entrypoint(bench: Bench) -> None:
    point = bench.refunds()
    saver = bench.interrupts.checkpointer(bench.saver)

    if bench.mode == "async":

        @task
        async def work(order: str) -> str:
            return point.pause(Refund(order=order, amount=1)).note

        @entrypoint(checkpointer=saver)
        async def flow(_: str) -> list[str]:
            return [await work("task"), point.pause(Refund(order="flow", amount=1)).note]
    else:

        @task
        def work(order: str) -> str:
            return point.pause(Refund(order=order, amount=1)).note

        @entrypoint(checkpointer=saver)
        def flow(_: str) -> list[str]:
            return [work("task").result(), point.pause(Refund(order="flow", amount=1)).note]

    adapter = bench.interrupts.resume_adapter(flow)
    await bench.call(flow, "invoke", "go", thread())
    result = None
    for order in ("task", "flow"):
        (event,) = await bench.call(adapter, "pending")
        assert event.payload["order"] == order
        result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": order})

    assert result == ["task", "flow"]
    assert bench.states() == ["applied", "applied"]


async def test_a_node_asks_only_when_it_should(bench: Bench) -> None:
    point = bench.refunds()

    @point.node(payload=lambda state: Refund(order="A", amount=1), when=lambda state: "ask" in state["log"])
    def gate(state: State, decision: Decision | None) -> dict[str, Any]:
        return ran("asked" if decision else "not asked")

    graph, _ = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))

    assert (await bench.call(graph, "invoke", {"log": []}, thread()))["log"] == ["not asked"]
    assert "__interrupt__" in await bench.call(graph, "invoke", {"log": ["ask"]}, thread("t2"))


async def test_a_decorated_node_keeps_its_injections_and_its_command_edges(bench: Bench) -> None:
    point = bench.refunds()
    seen: list[Any] = []

    @point.node(payload=lambda state: Refund(order="A", amount=1))
    def gate(
        state: State, decision: Decision, config: RunnableConfig, runtime: Runtime, writer: StreamWriter
    ) -> Command[Literal["yes"]]:
        seen.extend([config["configurable"]["thread_id"], runtime.execution_info is not None, callable(writer)])
        return Command(goto="yes", update=ran("gate"))

    builder = StateGraph(State).add_node("gate", gate).add_node("yes", lambda state: ran("yes"))
    builder.add_edge(START, "gate").add_edge("yes", END)
    graph, adapter = bench.compile(builder)
    assert ("gate", "yes") in {(edge.source, edge.target) for edge in graph.get_graph().edges}
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True})

    assert result["log"] == ["gate", "yes"]
    assert seen == ["t1", True, True]


async def test_an_async_node_may_compute_its_payload_with_await(store_url: str, tmp_path: Path) -> None:
    async def payload(state: State) -> Refund:
        return Refund(order="awaited", amount=1)

    async with open_bench("async", store_url, tmp_path) as bench:
        point = bench.refunds()

        @point.node(payload=payload)
        async def gate(state: State, decision: Decision) -> dict[str, Any]:
            return ran(decision.note)

        graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
        (event,) = await ask(bench, graph)
        assert event.payload["order"] == "awaited"
        assert (await adapter.ainvoke(event.pause_token, {"approved": True, "note": "ok"}))["log"] == ["ok"]
