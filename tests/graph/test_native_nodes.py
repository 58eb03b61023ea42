"""Nodes that call LangGraph's own `interrupt()` and that a registration covers with `nodes`."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, RootModel

from symfonic_interrupts import PauseSuperseded, PayloadInvalid, ResponseInvalid, ResumeRefused, TokenConsumed
from symfonic_interrupts.canonical import canonical_json
from tests.harness import Bench, Decision, Refund, answers, pauses, thread


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


class Text(RootModel[str]):
    """A question or an answer that is plain text."""


class Anything(RootModel[Any]):
    """Any JSON value."""


class Numbers(RootModel[list[int]]):
    """A list of numbers."""


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


async def test_a_native_interrupt_two_subgraphs_down_that_asks_twice(bench: Bench) -> None:
    register(bench, "outer:inner:ask", payload=Text, response=Text)
    inner = StateGraph(State).add_node("ask", asking("deep?", times=2)).add_edge(START, "ask").compile()
    outer = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile()
    graph, adapter = bench.compile(StateGraph(State).add_node("outer", outer).add_edge(START, "outer"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    seen = []
    for text in ("first", "second"):
        (event,) = await bench.call(adapter, "pending")
        seen.append(event.interrupt_id)
        chunks = await bench.collect(adapter, "stream", event.pause_token, text, stream_mode="custom")
        assert [e.interrupt_id for e in answers(chunks)] == [event.interrupt_id]

    assert (await bench.call(graph, "get_state", thread())).values == {"log": ["first", "second"]}
    assert len(set(seen)) == 2
    assert bench.states() == ["applied", "applied"]


async def test_a_node_of_the_same_name_elsewhere_is_not_covered(bench: Bench) -> None:
    register(bench, "sub:ask", payload=Text, response=Text)
    child = StateGraph(State).add_node("ask", asking("below")).add_edge(START, "ask").compile()
    builder = StateGraph(State).add_node("sub", child).add_node("ask", asking("above"))
    graph, adapter = bench.compile(builder.add_edge(START, "sub").add_edge(START, "ask"))

    result = await bench.call(graph, "invoke", {"log": []}, thread())

    assert sorted(i.value for i in result["__interrupt__"]) == ["above", "below"]
    assert [event.payload for event in await bench.call(adapter, "pending")] == ["below"]


async def test_each_of_a_fan_out_in_a_subgraph_gets_its_own_two_answers_in_any_order(bench: Bench) -> None:
    register(bench, "sub:review", payload=Text, response=Text)

    def review(state: State) -> dict[str, Any]:
        (who,) = state["log"]
        return {"log": [(who, interrupt(f"{who} one"), interrupt(f"{who} two"))]}

    child = StateGraph(State).add_node("review", review)
    child.add_conditional_edges(START, lambda state: [Send("review", {"log": [who]}) for who in "abc"], ["review"])
    builder = StateGraph(State).add_node("sub", child.compile()).add_edge(START, "sub")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread())
    first = {event.payload: event for event in await bench.call(adapter, "pending")}
    assert sorted(first) == ["a one", "b one", "c one"]

    for question in ("c one", "a one", "b one"):
        await bench.call(adapter, "invoke", first[question].pause_token, question.upper())
    second = {event.payload: event for event in await bench.call(adapter, "pending")}
    assert sorted(second) == ["a two", "b two", "c two"]
    for question in ("b two", "c two", "a two"):
        await bench.call(adapter, "answer", second[question].pause_token, question.upper())
    delivery = await bench.call(adapter, "deliver", "t1")

    assert sorted(tuple(found) for found in delivery.output["log"]) == [
        ("a", "A ONE", "A TWO"),
        ("b", "B ONE", "B TWO"),
        ("c", "C ONE", "C TWO"),
    ]
    assert bench.states() == ["applied"] * 6


async def test_an_entrypoint_is_a_node_and_its_tasks_pass_as_they_are(bench: Bench) -> None:
    register(bench, "flow", payload=Text, response=Text)
    saver = bench.interrupts.checkpointer(bench.saver)

    if bench.mode == "async":

        @task
        async def work(question: str) -> str:
            found: str = interrupt(question)
            return found

        @entrypoint(checkpointer=saver)
        async def flow(_: str) -> list[str]:
            return [interrupt("flow one"), await work("task"), interrupt("flow two")]
    else:

        @task
        def work(question: str) -> str:
            found: str = interrupt(question)
            return found

        @entrypoint(checkpointer=saver)
        def flow(_: str) -> list[str]:
            return [interrupt("flow one"), work("task").result(), interrupt("flow two")]

    adapter = bench.interrupts.resume_adapter(flow)
    await bench.call(flow, "invoke", "go", thread())
    (first,) = await bench.call(adapter, "pending")
    assert first.payload == "flow one"

    shown = await bench.call(adapter, "invoke", first.pause_token, "1")
    (of_task,) = shown["__interrupt__"]
    assert of_task.value == "task"
    assert await bench.call(adapter, "pending") == []
    await bench.call(flow, "invoke", Command(resume={of_task.id: "2"}), thread())
    (second,) = await bench.call(adapter, "pending")
    assert second.payload == "flow two"
    assert await bench.call(adapter, "invoke", second.pause_token, "3") == ["1", "2", "3"]
    assert bench.states() == ["applied", "applied"]


async def test_a_model_shown_by_interrupt_is_the_payload(bench: Bench) -> None:
    register(bench, "gate")
    builder = StateGraph(State).add_node("gate", asking(Refund(order="A1", amount=5))).add_edge(START, "gate")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread())

    (event,) = await bench.call(adapter, "pending")
    assert event.payload == {"order": "A1", "amount": 5}

    result = await bench.call(adapter, "invoke", event.pause_token, Decision(approved=True, note="n"))
    assert result["log"] == [{"approved": True, "note": "n"}]


async def test_plain_values_are_payloads_of_a_root_model(bench: Bench) -> None:
    register(bench, "gate", payload=Numbers, response=Numbers)
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking([1, 2])).add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    assert event.payload == [1, 2]

    with pytest.raises(ResponseInvalid, match="1: Input should be a valid integer"):
        await bench.call(adapter, "invoke", event.pause_token, [1, "two"])
    assert (await bench.call(adapter, "invoke", event.pause_token, []))["log"] == [[]]


HEX = "0123456789abcdef0123456789abcdef"
AWKWARD: dict[str, Any] = {
    "null": None,
    "false": False,
    "zero": 0,
    "an empty text": "",
    "an empty object": {},
    "an empty list": [],
    "an object that looks like a map of interrupt ids": {HEX: "yes"},
    "a nested one": {"a": [{"b": None}]},
}


@pytest.mark.parametrize("what", AWKWARD)
async def test_any_json_value_arrives_as_it_was_sent(bench: Bench, what: str) -> None:
    register(bench, "gate", payload=Anything, response=Anything)
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking(AWKWARD[what])).add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    assert event.payload == AWKWARD[what]

    result = await bench.call(adapter, "invoke", event.pause_token, AWKWARD[what])

    assert result["log"] == [AWKWARD[what]]
    assert bench.states() == ["applied"]


async def test_a_value_in_a_subgraph_that_does_not_fit_names_the_path_and_the_thread_asks_once_it_fits(
    bench: Bench,
) -> None:
    register(bench, "sub:ask")
    shown: list[Any] = [{"order": "A1", "amount": "much"}]

    def ask(state: State) -> dict[str, Any]:
        return {"log": [interrupt(shown[-1])]}

    child = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
    graph, adapter = bench.compile(StateGraph(State).add_node("sub", child).add_edge(START, "sub"))

    with pytest.raises(PayloadInvalid, match=r"'sub:ask' does not fit Refund: amount") as refused:
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert "much" not in str(refused.value)
    assert [item["loc"] for item in refused.value.errors] == [("amount",)]
    shown.append({"order": "A1", "amount": 5})
    await bench.call(graph, "invoke", None, thread())
    (event,) = await bench.call(adapter, "pending")
    assert event.payload == {"order": "A1", "amount": 5}


@pytest.mark.parametrize("first", ["covered", "free"])
async def test_beside_a_covered_question_an_uncovered_one_is_resumed_raw_in_any_order(bench: Bench, first: str) -> None:
    register(bench, "gate", payload=Text, response=Text)
    builder = StateGraph(State).add_node("gate", asking("covered")).add_node("free", asking("free"))
    graph, adapter = bench.compile(builder.add_edge(START, "gate").add_edge(START, "free"))
    result = await bench.call(graph, "invoke", {"log": []}, thread())
    (free,) = [i for i in result["__interrupt__"] if i.value == "free"]
    (event,) = await bench.call(adapter, "pending")

    for turn in (first, "free" if first == "covered" else "covered"):
        if turn == "covered":
            result = await bench.call(adapter, "invoke", event.pause_token, "by token")
        else:
            result = await bench.call(graph, "invoke", Command(resume={free.id: "raw"}), thread())

    assert sorted(result["log"]) == ["by token", "raw"]
    assert (await bench.call(graph, "get_state", thread())).next == ()
    assert bench.states() == ["applied"]


async def test_a_raw_resume_of_a_covered_question_is_refused_and_its_token_still_works(bench: Bench) -> None:
    register(bench, "gate", payload=Text, response=Text)
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", asking("q")).add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    with pytest.raises(ResumeRefused, match="answered with its token"):
        await bench.call(graph, "invoke", Command(resume="raw"), thread())

    assert await bench.call(adapter, "pending") == [event]
    assert bench.rows("SELECT body FROM interrupt_events WHERE type = 'interrupt_refused'") == [
        (canonical_json({"code": "resume_refused", "count": 1, "name": "native"}),)
    ]
    assert (await bench.call(adapter, "invoke", event.pause_token, "by token"))["log"] == ["by token"]
    assert bench.states() == ["applied"]


async def test_a_point_and_a_native_question_in_one_node_both_get_their_answers(bench: Bench) -> None:
    register(bench, "gate", payload=Text, response=Text)
    point = bench.refunds()

    def gate(state: State) -> dict[str, Any]:
        before = interrupt("before?")
        decision = point.pause(Refund(order="A1", amount=5))
        return {"log": [before, decision.note, interrupt("after?")]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    result = await bench.call(graph, "invoke", {"log": []}, thread())
    for response in ("first", {"approved": True, "note": "second"}, "third"):
        (event,) = await bench.call(adapter, "pending")
        result = await bench.call(adapter, "invoke", event.pause_token, response)

    assert result["log"] == ["first", "second", "third"]
    assert bench.rows() == [("native", "applied"), ("approval", "applied"), ("native", "applied")]


async def test_a_name_with_the_graphs_name_covers_the_node_of_that_graph_only(bench: Bench) -> None:
    register(bench, "left/gate", payload=Text, response=Text)
    builder = StateGraph(State).add_node("gate", asking("q")).add_edge(START, "gate")
    left, left_adapter = bench.compile(builder, graph="left")
    right, right_adapter = bench.compile(builder, graph="right")
    await bench.call(left, "invoke", {"log": []}, thread("l"))
    await bench.call(right, "invoke", {"log": []}, thread("r"))

    assert [event.thread_id for event in await bench.call(left_adapter, "pending")] == ["l"]
    assert await bench.call(right_adapter, "pending") == []
    assert (await bench.call(right, "invoke", Command(resume="raw"), thread("r")))["log"] == ["raw"]


async def test_a_value_that_drifts_gets_the_answer_to_the_earlier_one_as_without_this_library(bench: Bench) -> None:
    register(bench, "gate", payload=Text, response=Text)
    questions = iter(["10 euro?", "1000 euro?"])

    def gate(state: State) -> dict[str, Any]:
        question = next(questions)
        return {"log": [(question, interrupt(question))]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    assert event.payload == "10 euro?"

    result = await bench.call(adapter, "invoke", event.pause_token, "yes")

    assert [tuple(found) for found in result["log"]] == [("1000 euro?", "yes")]
