"""Nobody answers in time: the janitor closes the pause, tells of it, and delivers the default where there is one."""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from symfonic_interrupts import TokenConsumed, TokenExpired
from tests.harness import ACME, Bench, Decision, Refund, pauses, thread

HOUR = timedelta(hours=1)


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def overdue(bench: Bench, *threads: str, **options: Any) -> tuple[Any, Any, list[Any]]:
    """Threads that asked two hours ago, with an hour to answer. (PostgreSQL decides by its own clock.)"""
    point = bench.refunds(ttl=HOUR, **options)

    @point.node(payload=lambda state: Refund(order="A1", amount=90))
    def gate(state: State, decision: Decision) -> dict[str, Any]:
        return {"log": [f"{decision.approved}:{decision.note}"]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    bench.clock.move(-2 * HOUR)
    events = []
    for thread_id in threads or ("t1",):
        events += pauses(await bench.collect(graph, "stream", {"log": []}, thread(thread_id), stream_mode="custom"))
    bench.clock.move(2 * HOUR)
    return graph, adapter, events


async def test_a_default_answer_is_delivered_before_the_sweep_returns(bench: Bench) -> None:
    default = Decision(approved=False, note="no answer in time")
    graph, adapter, (asked,) = await overdue(bench, on_expire=default)
    told: list[Any] = []
    unsubscribe = bench.interrupts.subscribe(told.append)

    report = await bench.call(bench.interrupts.janitor(adapter), "sweep")

    assert (await bench.call(graph, "get_state", thread())).values == {"log": ["False:no answer in time"]}
    assert report.defaulted == (asked.interrupt_id,)
    (event,) = report.events
    assert (event.type, event.name, event.interrupt_id) == ("interrupt_expired", "approval", asked.interrupt_id)
    assert (event.scope_hash, event.expired_at, event.thread_id) == (ACME.scope_hash, asked.expires_at, "t1")
    assert event.swept_at >= event.expired_at
    assert told == [event]
    assert bench.states() == ["applied"]
    with pytest.raises(TokenExpired):
        await bench.call(adapter, "answer", asked.pause_token, {"approved": True})
    kinds = bench.rows("SELECT type FROM interrupt_events ORDER BY id")
    assert kinds == [("interrupt",), ("interrupt_expired",), ("interrupt_resolved",)]

    unsubscribe()
    assert (await bench.call(bench.interrupts.janitor(adapter), "sweep")).events == ()
    assert len(told) == 1


async def test_without_a_default_the_pause_expires_and_the_thread_keeps_standing(bench: Bench) -> None:
    graph, adapter, (asked,) = await overdue(bench)

    report = await bench.call(bench.interrupts.janitor(adapter), "sweep")

    assert [event.interrupt_id for event in report.events] == [asked.interrupt_id]
    assert (report.defaulted, report.deliveries) == ((), ())
    assert bench.states() == ["expired"]
    assert (await bench.call(graph, "get_state", thread())).next == ("gate",)
    assert await bench.call(adapter, "pending") == []


async def test_the_event_of_a_default_answer_says_so(bench: Bench) -> None:
    _, adapter, (asked,) = await overdue(bench, on_expire=Decision(approved=False))
    await bench.call(bench.interrupts.janitor(adapter), "sweep")
    ((body,),) = bench.rows("SELECT body FROM interrupt_events WHERE type='interrupt_resolved'")

    assert '"defaulted":true' in body
    assert asked.interrupt_id in body


async def test_a_pause_in_time_is_left_alone(bench: Bench) -> None:
    point = bench.refunds(ttl=HOUR, on_expire=Decision(approved=False))
    node = point.node(payload=lambda state: Refund(order="A1", amount=90))
    builder = StateGraph(State).add_node("gate", node(lambda state, decision: {"log": ["answered"]}))
    graph, adapter = bench.compile(builder.add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())

    report = await bench.call(bench.interrupts.janitor(adapter), "sweep")

    assert (report.events, report.deliveries) == ((), ())
    assert bench.states() == ["pending"]


async def test_one_threads_failure_stands_in_its_delivery_and_the_others_go_on(bench: Bench) -> None:
    point = bench.refunds(ttl=HOUR, on_expire=Decision(approved=False))

    def gate(state: State) -> dict[str, Any]:
        decision = point.pause(Refund(order=state["log"][0], amount=90))
        if state["log"][0] == "broken":
            raise LookupError("the ledger is away")
        return {"log": [str(decision.approved)]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    bench.clock.move(-2 * HOUR)
    for thread_id in ("broken", "whole"):
        await bench.call(graph, "invoke", {"log": [thread_id]}, thread(thread_id))
    bench.clock.move(2 * HOUR)

    report = await bench.call(bench.interrupts.janitor(adapter), "sweep")

    found = {delivery.thread_id: delivery for delivery in report.deliveries}
    assert isinstance(found["broken"].error, LookupError)
    assert found["whole"].output == {"log": ["whole", "False"]}
    assert bench.states() == ["answered", "applied"]


async def test_many_overdue_pauses_are_all_closed_in_one_sweep(bench: Bench) -> None:
    threads = [f"t{n}" for n in range(105)]  # more than the janitor's batch
    _, adapter, asked = await overdue(bench, *threads)

    report = await bench.call(bench.interrupts.janitor(adapter), "sweep")

    assert sorted(event.interrupt_id for event in report.events) == sorted(event.interrupt_id for event in asked)
    assert set(bench.states()) == {"expired"}


async def test_an_answer_given_in_time_beats_a_later_sweep(bench: Bench) -> None:
    point = bench.refunds(ttl=HOUR, on_expire=Decision(approved=False, note="default"))
    node = point.node(payload=lambda state: Refund(order="A1", amount=90))
    builder = StateGraph(State).add_node("gate", node(lambda state, decision: {"log": [decision.note]}))
    graph, adapter = bench.compile(builder.add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (asked,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "answer", asked.pause_token, {"approved": True, "note": "in time"})
    bench.clock.move(2 * HOUR)

    await bench.call(bench.interrupts.janitor(adapter), "sweep")
    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output == {"log": ["in time"]}
    with pytest.raises((TokenConsumed, TokenExpired)):
        await bench.call(adapter, "answer", asked.pause_token, {"approved": True})
