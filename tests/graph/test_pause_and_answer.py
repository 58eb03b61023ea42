"""A node asks; a person answers with the token; the graph goes on."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from symfonic_interrupts import ResponseInvalid, TokenConsumed
from tests.harness import Bench, Decision, Refund, answers, events, pauses, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def one_gate(bench: Bench, bodies: list[str] | None = None, **options: Any) -> StateGraph[State]:
    point = bench.refunds(**options)

    @point.node(payload=lambda state: Refund(order="A1", amount=90))
    def gate(state: State, decision: Decision) -> dict[str, Any]:
        if bodies is not None:
            bodies.append(decision.note)
        return {"log": [f"{decision.approved}:{decision.note}"]}

    return StateGraph(State).add_node("gate", gate).add_edge(START, "gate")


async def test_an_answer_moves_the_graph_on_and_the_body_runs_once(bench: Bench) -> None:
    bodies: list[str] = []
    graph, adapter = bench.compile(one_gate(bench, bodies))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending", thread_id="t1")

    result = await bench.call(adapter, "invoke", event.pause_token, Decision(approved=True, note="ok"))

    assert result == {"log": ["True:ok"]}
    assert bodies == ["ok"]
    assert bench.states() == ["applied"]
    assert await bench.call(adapter, "pending") == []


async def test_a_bad_answer_does_not_spend_the_token(bench: Bench) -> None:
    graph, adapter = bench.compile(one_gate(bench))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    with pytest.raises(ResponseInvalid) as refused:
        await bench.call(adapter, "answer", event.pause_token, {"approved": "perhaps"})

    assert [error["loc"] for error in refused.value.errors] == [("approved",)]
    assert bench.states() == ["pending"]
    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": False})
    assert result == {"log": ["False:"]}


async def test_a_second_answer_is_refused_and_changes_nothing(bench: Bench) -> None:
    bodies: list[str] = []
    graph, adapter = bench.compile(one_gate(bench, bodies))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "first"})

    with pytest.raises(TokenConsumed) as refused:
        await bench.call(adapter, "invoke", event.pause_token, {"approved": False, "note": "second"})

    assert refused.value.state == "applied"
    assert bodies == ["first"]
    assert (await bench.call(graph, "get_state", thread())).values == {"log": ["True:first"]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_the_event_comes_once_in_custom_after_the_interrupt_chunk(bench: Bench, durability: str) -> None:
    graph, adapter = bench.compile(one_gate(bench))
    modes = {"stream_mode": ["updates", "custom"], "durability": durability}

    chunks = await bench.collect(graph, "stream", {"log": []}, thread(), **modes)

    assert [kind for kind, _ in chunks] == ["updates", "custom"]
    assert "__interrupt__" in chunks[0][1]
    (event,) = pauses(chunks)
    assert (event.name, event.payload, event.thread_id) == ("approval", {"order": "A1", "amount": 90}, "t1")

    resumed = await bench.collect(adapter, "stream", event.pause_token, {"approved": True}, **modes)

    assert [chunk for kind, chunk in resumed if kind == "updates"] == [{"gate": {"log": ["True:"]}}]
    (answer,) = answers(resumed)
    assert (answer.interrupt_id, answer.response, answer.defaulted) == (event.interrupt_id, {"approved": True}, False)
    assert len(events(resumed)) == 1
    assert bench.states() == ["applied"]
