"""Runs that end early in a process that lives on: cancelled, abandoned, failed, or still under way elsewhere."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Operations
from symfonic_interrupts.testing import failpoints
from tests.harness import Bench, Decision, Refund, open_bench, thread

LEASES = "SELECT thread_id FROM interrupt_thread_leases WHERE failed_at IS NULL"
QUESTIONS = "SELECT count(*) FROM interrupt_events WHERE type = 'interrupt'"
YES = {"approved": True, "note": "yes"}


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def sequence(bench: Bench, gate_body: Any, *after: Any) -> StateGraph[State]:
    """A gate with this body, then other nodes."""
    gate = bench.refunds().node(payload=lambda state: Refund(order="A1", amount=90))(gate_body)
    nodes = [("gate", gate), *((node.__name__, node) for node in after)]
    return StateGraph(State).add_sequence(nodes).add_edge(START, "gate")


async def pause(bench: Bench, graph: Any, adapter: Any) -> str:
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    return event.pause_token


@pytest.fixture
async def async_bench(store_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench("async", store_url, tmp_path) as bench:
        yield bench


async def test_a_cancelled_delivery_keeps_its_answer_and_the_next_one_finishes(async_bench: Bench) -> None:
    bench, in_body, may_go_on, bodies = async_bench, asyncio.Event(), asyncio.Event(), []

    async def gate(state: State, decision: Decision) -> dict[str, Any]:
        bodies.append(decision.note)
        in_body.set()
        await may_go_on.wait()
        return {"log": [decision.note]}

    graph, adapter = bench.compile(sequence(bench, gate))
    token = await pause(bench, graph, adapter)
    await adapter.aanswer(token, YES)
    delivering = asyncio.ensure_future(adapter.adeliver("t1"))
    await asyncio.wait_for(in_body.wait(), 20)

    delivering.cancel()

    with pytest.raises(asyncio.CancelledError):
        await delivering
    assert (bench.states(), bench.rows(LEASES)) == (["answered"], [("t1",)])
    may_go_on.set()
    delivery = await asyncio.wait_for(adapter.adeliver("t1"), 20)
    assert (delivery.output, len(delivery.applied), delivery.open) == ({"log": ["yes"]}, 1, ())
    assert bodies == ["yes", "yes"]
    assert (bench.states(), bench.rows(LEASES), bench.rows(QUESTIONS)) == (["applied"], [], [(1,)])


async def test_a_cancelled_delivery_is_finished_by_recovery(async_bench: Bench) -> None:
    bench, in_body, may_go_on = async_bench, asyncio.Event(), asyncio.Event()

    async def gate(state: State, decision: Decision) -> dict[str, Any]:
        in_body.set()
        await may_go_on.wait()
        return {"log": [decision.note]}

    graph, adapter = bench.compile(sequence(bench, gate))
    running = asyncio.ensure_future(adapter.ainvoke(await pause(bench, graph, adapter), YES))
    await asyncio.wait_for(in_body.wait(), 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    may_go_on.set()

    (delivery,) = await adapter.arecover()

    assert (delivery.error, delivery.output) == (None, {"log": ["yes"]})
    assert (bench.states(), bench.rows(LEASES), await adapter.arecover()) == (["applied"], [], [])


async def test_a_stream_abandoned_after_one_chunk_leaves_the_thread_to_recovery(bench: Bench) -> None:
    bodies: list[str] = []

    def gate(state: State, decision: Decision) -> dict[str, Any]:
        bodies.append("gate")
        return {"log": ["gate"]}

    def second(state: State) -> dict[str, Any]:
        return {"log": ["second"]}

    def third(state: State) -> dict[str, Any]:
        return {"log": ["third"]}

    graph, adapter = bench.compile(sequence(bench, gate, second, third))
    token = await pause(bench, graph, adapter)

    if bench.mode == "async":
        chunks = adapter.astream(token, YES, stream_mode="updates")
        first = await anext(chunks)
        await chunks.aclose()
    else:
        first = await asyncio.to_thread(_first_of, adapter.stream(token, YES, stream_mode="updates"))

    assert first == {"gate": {"log": ["gate"]}}
    assert bench.rows(LEASES) == [("t1",)]
    (delivery,) = await bench.call(adapter, "recover")
    assert (delivery.error, delivery.output) == (None, {"log": ["gate", "second", "third"]})
    assert bodies == ["gate"]
    assert (bench.states(), bench.rows(LEASES), bench.rows(QUESTIONS)) == (["applied"], [], [(1,)])
    assert await bench.call(adapter, "recover") == []


def _first_of(chunks: Any) -> Any:
    try:
        return next(chunks)
    finally:
        chunks.close()


async def test_recovery_leaves_a_thread_alone_while_another_worker_drives_it(bench: Bench) -> None:
    bodies: list[str] = []

    def gate(state: State, decision: Decision) -> dict[str, Any]:
        bodies.append(decision.note)
        return {"log": [decision.note]}

    graph, adapter = bench.compile(sequence(bench, gate))
    await bench.call(adapter, "answer", await pause(bench, graph, adapter), YES)
    elsewhere, operations = Database(bench.store_url, clock=bench.clock), Operations(bench.clock)
    try:
        lease, _ = elsewhere.run(operations.leasing.take_lease, "default", "t1", "another worker", timedelta(minutes=5))

        assert await bench.call(adapter, "recover") == []
        assert (bodies, bench.states()) == ([], ["answered"])

        elsewhere.run(operations.leasing.end_lease, lease, clean=False)
    finally:
        elsewhere.close()
    (delivery,) = await bench.call(adapter, "recover")
    assert (delivery.output, delivery.error) == ({"log": ["yes"]}, None)
    assert (bodies, bench.rows(LEASES)) == (["yes"], [])


async def test_a_node_that_raised_is_left_alone_by_recovery_and_retried_by_a_delivery_with_the_same_answer(
    bench: Bench,
) -> None:
    bodies: list[str] = []

    def gate(state: State, decision: Decision) -> dict[str, Any]:
        bodies.append(decision.note)
        if len(bodies) == 1:
            raise RuntimeError("the payment service is down")
        return {"log": [decision.note]}

    graph, adapter = bench.compile(sequence(bench, gate))
    token = await pause(bench, graph, adapter)
    with pytest.raises(RuntimeError, match="the payment service is down"):
        await bench.call(adapter, "invoke", token, YES)
    assert bench.rows(LEASES) == []

    assert [(d.ran, d.error) for d in await bench.call(adapter, "recover")] in ([], [(False, None)])
    assert bodies == ["yes"]
    assert bench.states() == ["answered"]

    delivery = await bench.call(adapter, "deliver", "t1")

    assert (delivery.output, len(delivery.applied)) == ({"log": ["yes"]}, 1)
    assert bodies == ["yes", "yes"]
    assert (bench.states(), bench.rows(LEASES), bench.rows(QUESTIONS)) == (["applied"], [], [(1,)])
    assert await bench.call(adapter, "pending") == []


async def test_one_thread_that_fails_does_not_keep_recovery_from_the_others(bench: Bench) -> None:
    def gate(state: State, decision: Decision) -> dict[str, Any]:
        if decision.note == "fail":
            raise RuntimeError("the payment service is down")
        return {"log": [decision.note]}

    graph, adapter = bench.compile(sequence(bench, gate))
    for thread_id, note in (("t1", "fail"), ("t2", "yes")):
        await bench.call(graph, "invoke", {"log": []}, thread(thread_id))
        (event,) = await bench.call(adapter, "pending", thread_id=thread_id)
        await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": note})

    first, second = await bench.call(adapter, "recover")

    assert (first.thread_id, repr(first.error)) == ("t1", "RuntimeError('the payment service is down')")
    assert (second.thread_id, second.output, second.error) == ("t2", {"log": ["yes"]}, None)
    assert bench.rows("SELECT thread_id, state FROM interrupt_pauses ORDER BY id") == [
        ("t1", "answered"),
        ("t2", "applied"),
    ]
    assert bench.rows(LEASES) == []


async def test_a_node_that_raised_is_left_alone_also_where_recovery_looks_at_its_thread_for_another_answer(
    bench: Bench,
) -> None:
    bodies: list[str] = []
    amounts = {"moving": 1}
    point = bench.refunds()

    @point.node(payload=lambda state: Refund(order="moving", amount=amounts["moving"]))
    def moving(state: State, decision: Decision) -> dict[str, Any]:
        return {"log": [f"moving:{decision.note}"]}

    @point.node(payload=lambda state: Refund(order="failing", amount=1))
    def failing(state: State, decision: Decision) -> dict[str, Any]:
        bodies.append(decision.note)
        if len(bodies) == 1:
            raise RuntimeError("the payment service is down")
        return {"log": [f"failing:{decision.note}"]}

    builder = StateGraph(State).add_node("moving", moving).add_node("failing", failing)
    graph, adapter = bench.compile(builder.add_edge(START, "moving").add_edge(START, "failing"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    tokens = {event.payload["order"]: event.pause_token for event in await bench.call(adapter, "pending")}
    amounts["moving"] = 2  # so its answer no longer fits: it is kept, unused, while the node asks anew
    with pytest.warns(UserWarning, match="an answer did not fit what was asked next, which differs in: amount;"):
        await bench.call(adapter, "invoke", tokens["moving"], {"approved": True, "note": "old"})
    with pytest.raises(RuntimeError, match="the payment service is down"):
        await bench.call(adapter, "invoke", tokens["failing"], YES)

    assert await bench.call(adapter, "recover") == []
    assert bodies == ["yes"]
    assert await bench.call(adapter, "failed") == ["t1"]
    (asked_anew,) = await bench.call(adapter, "pending")
    result = await bench.call(adapter, "invoke", asked_anew.pause_token, {"approved": True, "note": "new"})
    assert sorted(result["log"]) == ["failing:yes", "moving:new"]
    assert bodies == ["yes", "yes"]


async def test_work_that_no_delivery_began_is_left_to_the_application(bench: Bench) -> None:
    def first(state: State) -> dict[str, Any]:
        return {"log": ["first"]}

    def second(state: State) -> dict[str, Any]:
        return {"log": ["second"]}

    graph, adapter = bench.compile(
        StateGraph(State).add_sequence([("first", first), ("second", second)]).add_edge(START, "first")
    )
    await bench.call(graph, "update_state", thread(), {"log": ["by hand"]}, as_node="first")

    delivery = await bench.call(adapter, "deliver", "t1")

    assert (delivery.ran, delivery.output) == (False, {"log": ["by hand"]})
    assert await bench.call(adapter, "recover") == []


@pytest.mark.parametrize("change", ["update_state", "invoke"])
async def test_a_question_that_was_left_behind_is_closed_though_its_run_died_and_recovery_had_seen_it_before(
    bench: Bench, change: str
) -> None:
    class Died(BaseException):
        """The process died."""

    def die(place: str) -> None:
        if place == "checkpoint_written":
            raise Died

    graph, adapter = bench.compile(sequence(bench, lambda state, decision: {"log": [decision.note]}))
    await pause(bench, graph, adapter)
    bench.clock.move(timedelta(hours=1))
    assert await bench.call(adapter, "recover") == []  # the question stands in its checkpoint
    assert bench.rows("SELECT confirmed_at IS NOT NULL FROM interrupt_pauses") == [(True,)]
    with failpoints(bench.interrupts, die), pytest.raises(Died):
        await bench.call(
            graph, change, *((thread(), {"log": []}) if change == "update_state" else ({"log": []}, thread()))
        )

    assert await bench.call(adapter, "recover") == []

    assert bench.states() == ["superseded"]
    assert await bench.call(adapter, "pending") == []
