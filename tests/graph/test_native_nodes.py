"""Nodes that call LangGraph's own `interrupt()` and that a registration covers with `nodes`."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from pydantic import BaseModel, RootModel

from symfonic_interrupts import PauseSuperseded, PayloadInvalid, TokenConsumed
from tests.harness import Bench, Decision, Refund, answers, pauses, thread


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


class Text(RootModel[str]):
    """A question or an answer that is plain text."""


def register(
    bench: Bench, *nodes: str, payload: type[BaseModel] = Refund, response: type[BaseModel] = Decision
) -> None:
    bench.interrupts.register_interrupt("native", payload_schema=payload, response_schema=response, nodes=nodes)


def asking(value: Any, times: int = 1) -> Any:
    def node(state: State) -> dict[str, Any]:
        return {"log": [interrupt(value) for _ in range(times)]}

    return node


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_native_interrupt_is_answered_by_token_once_and_gets_plain_data(bench: Bench, durability: str) -> None:
    register(bench, "gate")
    builder = StateGraph(State).add_node("gate", asking({"order": "A1", "amount": 5})).add_edge(START, "gate")
    graph, adapter = bench.compile(builder)
    options = {"stream_mode": ["updates", "custom"], "durability": durability}
    (event,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread(), **options))
    assert (event.name, event.payload) == ("native", {"order": "A1", "amount": 5})

    chunks = await bench.collect(adapter, "stream", event.pause_token, {"approved": True, "note": "n"}, **options)

    assert (await bench.call(graph, "get_state", thread())).values == {"log": [{"approved": True, "note": "n"}]}
    assert [e.interrupt_id for e in answers(chunks)] == [event.interrupt_id]
    assert bench.states() == ["applied"]
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", event.pause_token, {"approved": True})


async def test_a_native_node_that_asks_twice_gets_both_answers_in_order(bench: Bench) -> None:
    register(bench, "gate", payload=Text, response=Text)
    builder = StateGraph(State).add_node("gate", asking("same?", times=2)).add_edge(START, "gate")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread())
    for text in ("first", "second"):
        (event,) = await bench.call(adapter, "pending")
        result = await bench.call(adapter, "invoke", event.pause_token, text)

    assert result["log"] == ["first", "second"]
    assert bench.states() == ["applied", "applied"]


async def test_a_native_interrupt_in_a_subgraph_and_in_a_fan_out(bench: Bench) -> None:
    register(bench, "sub:ask", "review", payload=Text, response=Text)
    child = StateGraph(State).add_node("ask", asking("sub?")).add_edge(START, "ask").compile()
    builder = StateGraph(State).add_node("sub", child).add_node("review", asking("review?")).add_edge(START, "sub")
    builder.add_conditional_edges(START, lambda state: [Send("review", {"log": []}) for _ in range(2)], ["review"])
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread())
    asked = await bench.call(adapter, "pending")
    assert sorted(event.payload for event in asked) == ["review?", "review?", "sub?"]

    for event in asked:
        await bench.call(adapter, "answer", event.pause_token, "to " + event.payload)
    delivery = await bench.call(adapter, "deliver", "t1")

    assert sorted(delivery.output["log"]) == ["to review?", "to review?", "to sub?"]
    assert bench.states() == ["applied"] * 3


async def test_a_value_that_does_not_fit_names_node_and_field(bench: Bench) -> None:
    register(bench, "gate")
    graph, _ = bench.compile(StateGraph(State).add_node("gate", asking({"order": "A1"})).add_edge(START, "gate"))

    with pytest.raises(PayloadInvalid, match=r"'gate'.*amount"):
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert bench.states() == []


async def test_an_interrupt_that_no_registration_covers_passes_as_it_is(bench: Bench) -> None:
    register(bench, "gate", payload=Text, response=Text)
    builder = StateGraph(State).add_node("gate", asking("covered")).add_node("free", asking("free"))
    graph, adapter = bench.compile(builder.add_edge(START, "gate").add_edge(START, "free"))

    result = await bench.call(graph, "invoke", {"log": []}, thread())

    assert sorted(i.value for i in result["__interrupt__"]) == ["covered", "free"]
    assert [event.payload for event in await bench.call(adapter, "pending")] == ["covered"]


async def test_new_input_supersedes_a_native_question_too(bench: Bench) -> None:
    register(bench, "gate", payload=Text, response=Text)
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking("q")).add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    await bench.call(graph, "invoke", {"log": ["more"]}, thread())

    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "answer", event.pause_token, "late")
    assert bench.states() == ["superseded", "pending"]
