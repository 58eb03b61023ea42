"""`point.interrupt`: a node as LangGraph's documentation has it, guarded by one line above it."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from symfonic_interrupts import FrameworkTenantScope
from symfonic_interrupts.errors import (
    PayloadInvalid,
    ResponseInvalid,
    ResumeRefused,
    ScopeMismatch,
    TokenConsumed,
    UsageError,
)
from tests.harness import Bench, Refund, thread

YES = {"approved": True, "note": "ok"}


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


class Typed(TypedDict):
    """What a node may ask LangGraph to parse the answer with."""

    approved: bool


class Narrow(BaseModel):
    """Accepts less than the point does."""

    approved: bool
    note: int


def in_a_node(bench: Bench, **options: Any) -> StateGraph[State]:
    interrupt = bench.refunds().interrupt

    def node(state: State) -> dict[str, Any]:
        return {"log": [interrupt({"order": "A", "amount": 1}, **options)]}

    return StateGraph(State).add_node("node", node).add_edge(START, "node")


def in_a_subgraph(bench: Bench) -> StateGraph[State]:
    return StateGraph(State).add_node("sub", in_a_node(bench).compile()).add_edge(START, "sub")


def in_a_graph_that_a_node_calls(bench: Bench) -> StateGraph[State]:
    below = in_a_node(bench).compile()

    def node(state: State) -> Any:
        return below.invoke({"log": []})

    return StateGraph(State).add_node("caller", node).add_edge(START, "caller")


def in_a_tool(bench: Bench) -> Any:
    interrupt = bench.refunds().interrupt

    @tool
    def pay(order: str) -> str:
        """Pay."""
        return str(interrupt({"order": order, "amount": 1}))

    call = {"name": "pay", "args": {"order": "A"}, "id": "c1", "type": "tool_call"}
    builder = StateGraph(MessagesState).add_node("model", lambda _: {"messages": [AIMessage("", tool_calls=[call])]})
    builder.add_node("tools", ToolNode([pay])).add_edge(START, "model").add_edge("model", "tools")
    return builder


PLACES: dict[str, Any] = {
    "node": in_a_node,
    "subgraph": in_a_subgraph,
    "called graph": in_a_graph_that_a_node_calls,
    "tool": in_a_tool,
}


def said(output: Any) -> list[Any]:
    return output["log"] if "log" in output else [output["messages"][-1].content]


@pytest.mark.parametrize("place", PLACES)
async def test_an_answer_comes_back_as_data_and_counts_once_wherever_it_was_asked(bench: Bench, place: str) -> None:
    graph, adapter = bench.compile(PLACES[place](bench))
    start = {"messages": []} if place == "tool" else {"log": []}
    output = await bench.call(graph, "invoke", start, thread())
    (marker,) = [i.value for i in output["__interrupt__"]]
    assert (marker["name"], marker["payload"]) == ("approval", {"order": "A", "amount": 1})
    (event,) = await bench.call(adapter, "pending")
    token = event.pause_token

    for raw in (YES, {output["__interrupt__"][0].id: YES}):
        with pytest.raises(ResumeRefused):
            await bench.call(graph, "invoke", Command(resume=raw), thread())
    with pytest.raises(ScopeMismatch):
        await bench.call(adapter, "answer", token, YES, scope=FrameworkTenantScope("globex"))
    with pytest.raises(ResponseInvalid):
        await bench.call(adapter, "answer", token, {"approved": "perhaps"})
    assert bench.states() == ["pending"]

    output = await bench.call(adapter, "invoke", token, YES)

    assert said(output) == [str(YES) if place == "tool" else YES]
    assert bench.states() == ["applied"]
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", token, YES)


async def test_a_value_that_does_not_fit_asks_nobody_and_the_error_names_node_and_field(bench: Bench) -> None:
    interrupt = bench.refunds().interrupt

    def node(state: State) -> dict[str, Any]:
        return {"log": [interrupt({"order": "A", "amount": "much"})]}

    graph, _ = bench.compile(StateGraph(State).add_node("pay", node).add_edge(START, "pay"))

    with pytest.raises(PayloadInvalid, match=r"approval: interrupt\(\) in node 'pay' does not fit Refund: amount"):
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert bench.states() == []


async def test_two_questions_of_one_node_take_their_own_answers_and_an_instance_may_be_shown(bench: Bench) -> None:
    interrupt = bench.refunds().interrupt

    def node(state: State) -> dict[str, Any]:
        first = interrupt(Refund(order="A", amount=1))
        return {"log": [first, interrupt({"order": "B", "amount": 2})]}

    graph, adapter = bench.compile(StateGraph(State).add_node("pay", node).add_edge(START, "pay"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (first,) = await bench.call(adapter, "pending")
    output = await bench.call(adapter, "invoke", first.pause_token, {"approved": True})
    (second,) = await bench.call(adapter, "pending")
    assert [i.value["payload"]["order"] for i in output["__interrupt__"]] == ["B"]

    output = await bench.call(adapter, "invoke", second.pause_token, {"approved": False})

    assert output["log"] == [{"approved": True}, {"approved": False}]


@pytest.mark.parametrize("schema", [Typed, {"type": "object"}], ids=["a type", "a JSON Schema"])
async def test_a_response_schema_is_taken_as_langgraph_takes_it(bench: Bench, schema: Any) -> None:
    graph, adapter = bench.compile(in_a_node(bench, response_schema=schema))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    output = await bench.call(adapter, "invoke", event.pause_token, YES)

    assert output["log"] == [{"approved": True} if schema is Typed else YES]


async def test_a_response_schema_that_is_narrower_than_the_points_own_is_told_without_the_answer(bench: Bench) -> None:
    graph, adapter = bench.compile(in_a_node(bench, response_schema=Narrow))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    with pytest.raises(ResponseInvalid, match=r"the response_schema of this interrupt\(\): note") as refused:
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "a secret"})
    assert "secret" not in str(refused.value)


def test_outside_of_a_graph_it_says_so(bench: Bench) -> None:
    with pytest.raises(UsageError, match="inside a node, task or tool"):
        bench.refunds().interrupt({"order": "A", "amount": 1})
