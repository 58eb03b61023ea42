"""The thread moves on, or the node asks something else, while a question stands: no answer reaches another question."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from symfonic_interrupts import AnswerUnused, PauseSuperseded
from tests.harness import Bench, Refund, answers, pauses, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def drifting(bench: Bench, shown: list[str]) -> tuple[Any, Any]:
    """A node that shows whatever `shown` holds, beside one that keeps the thread paused and makes it run again."""
    point, other = bench.refunds(), bench.refunds("other")

    def node(state: State) -> dict[str, Any]:
        decision = point.pause(Refund(order=shown[0], amount=1))
        return {"log": [f"{shown[0]}={decision.note}"]}

    def beside(state: State) -> dict[str, Any]:
        for n in range(3):
            other.pause(Refund(order="beside", amount=n))
        return {"log": ["beside"]}

    builder = StateGraph(State).add_node("node", node).add_node("beside", beside)
    return bench.compile(builder.add_edge(START, "node").add_edge(START, "beside"))


async def run_again(bench: Bench, adapter: Any) -> None:
    """Answer the node beside, so that the drifting node is asked again."""
    (event,) = await bench.call(adapter, "pending", name="other")
    await bench.call(adapter, "invoke", event.pause_token, {"approved": True})


async def live(bench: Bench, adapter: Any, order: str) -> list[str]:
    return [e.pause_token for e in await bench.call(adapter, "pending", name="approval") if e.payload["order"] == order]


async def test_a_drift_asks_again_and_the_answer_to_the_old_payload_is_never_applied(bench: Bench) -> None:
    shown = ["A"]
    graph, adapter = drifting(bench, shown)
    await bench.call(graph, "invoke", {"log": []}, thread())
    (old,) = await live(bench, adapter, "A")
    shown[0] = "B"
    with pytest.warns(
        UserWarning, match="approval: an answer did not fit what was asked next, which differs in: order;"
    ):
        await bench.call(adapter, "invoke", old, {"approved": True, "note": "to A"})
    assert "A=to A" not in str((await bench.call(graph, "get_state", thread())).values)

    (new,) = await live(bench, adapter, "B")
    for _ in range(3):
        await run_again(bench, adapter)
    result = await bench.call(adapter, "invoke", new, {"approved": True, "note": "to B"})

    assert sorted(result["log"]) == ["B=to B", "beside"]
    assert dict(zip(("A", "B"), await _states_of(bench, "approval"), strict=True)) == {"A": "unused", "B": "applied"}


async def _states_of(bench: Bench, name: str) -> list[str]:
    return [state for n, state in bench.rows() if n == name]


async def test_after_a_b_a_the_payload_now_asked_has_exactly_one_live_token(bench: Bench) -> None:
    shown = ["A"]
    graph, adapter = drifting(bench, shown)
    await bench.call(graph, "invoke", {"log": []}, thread())
    first = await live(bench, adapter, "A")
    shown[0] = "B"
    await run_again(bench, adapter)
    (meanwhile,) = await live(bench, adapter, "B")
    shown[0] = "A"
    await run_again(bench, adapter)

    assert await live(bench, adapter, "A") == first
    await bench.call(adapter, "invoke", meanwhile, {"approved": True, "note": "to B"})
    (again,) = await live(bench, adapter, "A")
    assert again == first[0]
    await run_again(bench, adapter)
    result = await bench.call(adapter, "invoke", again, {"approved": True, "note": "to A"})

    assert sorted(result["log"]) == ["A=to A", "beside"]


async def test_an_answer_that_the_graph_finished_without_is_reported(bench: Bench) -> None:
    asks = [True]
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="A", amount=1)).note if asks[0] else "did not ask"]}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    asks[0] = False

    with pytest.raises(AnswerUnused):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "lost?"})

    assert bench.states() == ["unused"]
    assert [kind for (kind,) in bench.rows("SELECT type FROM interrupt_events ORDER BY id")] == [
        "interrupt",
        "interrupt_resolved",
        "interrupt_unused",
    ]


async def one_pause(bench: Bench) -> tuple[Any, Any, str]:
    point = bench.refunds()

    def gate(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="-".join(state["log"]), amount=1)).note]}

    builder = StateGraph(State).add_node("before", lambda state: {"log": ["before"]}).add_node("gate", gate)
    builder.add_node("after", lambda state: {"log": ["after"]})
    builder.add_edge(START, "before").add_edge("before", "gate").add_edge("gate", "after")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": ["one"]}, thread())
    (event,) = await bench.call(adapter, "pending")
    return graph, adapter, event.pause_token


async def new_input(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "invoke", {"log": ["two"]}, thread())


async def plain_update(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "update_state", thread(), {"log": ["edited"]})


async def update_as_the_gate(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "update_state", thread(), {"log": ["walked around"]}, as_node="gate")


async def fork(bench: Bench, graph: Any) -> None:
    if bench.mode == "async":
        history = [state async for state in graph.aget_state_history(thread())]
    else:
        history = await bench.collect(graph, "get_state_history", thread())
    await bench.call(graph, "update_state", history[1].config, {"log": ["forked"]})


@pytest.mark.parametrize("change", [new_input, plain_update, update_as_the_gate, fork], ids=lambda f: f.__name__)
async def test_a_thread_that_moved_on_supersedes_its_question(bench: Bench, change: Any) -> None:
    graph, adapter, token = await one_pause(bench)

    await change(bench, graph)

    assert token not in [event.pause_token for event in await bench.call(adapter, "pending")]
    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "answer", token, {"approved": True})
    assert bench.states()[0] == "superseded"
    assert ("interrupt_superseded",) in bench.rows("SELECT type FROM interrupt_events")


async def test_a_change_made_with_a_bare_saver_is_noticed_when_the_token_comes(bench: Bench) -> None:
    graph, adapter, token = await one_pause(bench)
    bare = graph.builder.compile(checkpointer=bench.saver)
    await bench.call(bare, "update_state", thread(), {"log": ["behind our back"]})

    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "answer", token, {"approved": True})
    assert await bench.call(adapter, "pending") == []


async def test_an_answer_stored_before_the_thread_moved_on_ends_unused(bench: Bench) -> None:
    graph, adapter, token = await one_pause(bench)
    await bench.call(adapter, "answer", token, {"approved": True})
    await new_input(bench, graph)

    delivery = await bench.call(adapter, "deliver", "t1")

    assert bench.states() == ["unused", "pending"]
    assert "__interrupt__" in delivery.output
    assert [event.payload["order"] for event in delivery.open] == ["one-before-two-before"]


async def test_a_new_run_that_asks_while_pending_announces_the_same_pause_again_with_the_same_token(
    bench: Bench,
) -> None:
    graph, _, token = await one_pause(bench)

    chunks = await bench.collect(graph, "stream", None, thread(), stream_mode=["custom"])

    assert [event.pause_token for event in pauses(chunks)] == [token]
    assert bench.states() == ["pending"]


async def test_a_node_that_raises_after_its_answer_keeps_it_and_is_tried_again_by_deliver(bench: Bench) -> None:
    point = bench.refunds()
    fails = [True]
    asked: list[str] = []

    def gate(state: State) -> dict[str, Any]:
        decision = point.pause(Refund(order="A", amount=1))
        asked.append(decision.note)
        if fails[0]:
            raise LookupError("the ledger is away")
        return {"log": [decision.note]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(LookupError):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "kept"})
    assert await bench.call(adapter, "pending") == []
    assert await bench.call(adapter, "recover") == []
    assert asked == ["kept"]

    fails[0] = False
    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output["log"] == ["kept"]
    assert asked == ["kept", "kept"]
    assert delivery.applied == (event.interrupt_id,)
    assert bench.states() == ["applied"]
    assert bench.rows("SELECT * FROM interrupt_thread_leases") == []


async def test_a_run_whose_answer_another_delivered_announces_the_next_question(bench: Bench) -> None:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order=order, amount=1)).note for order in ("first", "second")]}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (first,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "answer", first.pause_token, {"approved": True})
    await bench.call(adapter, "deliver", "t1")

    chunks = await bench.collect(adapter, "stream_delivery", "t1", stream_mode=["updates", "custom"])

    (second,) = pauses(chunks)
    assert second.payload["order"] == "second"
    assert answers(chunks) == []
    result = await bench.call(adapter, "deliver", "t1")
    assert [event.pause_token for event in result.open] == [second.pause_token]
    assert "__interrupt__" in result.output
