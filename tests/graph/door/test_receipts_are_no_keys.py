"""A receipt is a proof: copied from the state, a trace, the saver or the tables, and sent raw, it opens nothing."""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
import sqlalchemy as sa
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy

from symfonic_interrupts import Interrupts, KeyRing, ReceiptInvalid, ResumeRefused, ThreadBusy
from symfonic_interrupts.canonical import canonical_json
from tests.graph.door.gates import PLACES, RAW, SHOWN, YES, Gate, State, counted, tried
from tests.harness import CONFIG, KEY, Bench, Refund, thread


class Trace(BaseCallbackHandler):
    """Keeps all inputs that it is shown, as a tracing service would."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self.seen.append(inputs)


def envelopes_in(found: Any) -> list[dict[str, Any]]:
    """Every envelope in nested data."""
    if isinstance(found, Command):
        return envelopes_in(found.resume)
    if isinstance(found, dict):
        if set(found) == {"answers"}:
            return [found] if found["answers"] else []
        return [e for value in found.values() for e in envelopes_in(value)]
    if isinstance(found, list | tuple):
        return [e for value in found for e in envelopes_in(value)]
    return []


async def answered(bench: Bench, place: str = "root", **options: Any) -> tuple[Any, Any, Any, list[Any], Any, Any]:
    """A thread whose gate has been answered, and its envelope as four thieves find it."""
    done: list[Any] = []
    point = bench.refunds(**options)

    def pay(state: State) -> dict[str, Any]:
        approval = point.ask(Refund(**SHOWN))
        done.append(approval.response.note)
        return {"log": [approval.model_dump(mode="json")]}

    builder = StateGraph(State).add_node("gate", pay).add_edge(START, "gate")
    for level in PLACES[place].split(":")[-2::-1]:
        builder = StateGraph(State).add_node(level, builder.compile()).add_edge(START, level)
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread())
    at = await bench.call(graph, "get_state", thread())
    (event,) = await bench.call(adapter, "pending")
    trace = Trace()
    await bench.call(adapter, "invoke", event.pause_token, YES, config={"callbacks": [trace]})
    assert done == ["by token"]

    (approval,) = (await bench.call(graph, "get_state", thread())).values["log"]
    receipt = dict(approval["receipt"])
    stored = await bench.collect(bench.saver, "list", {"configurable": {"thread_id": "t1"}})
    ((row, response),) = bench.rows("SELECT receipt, response FROM interrupt_consumed_tokens")
    of_state = {"answers": [{"response": receipt.pop("response"), "receipt": receipt}]}
    of_tables = {"answers": [{"response": response, "receipt": json.loads(row)}]}
    of_saver = envelopes_in([[w[2] for w in found.pending_writes] for found in stored])
    copies = [of_state, of_tables, *of_saver, *envelopes_in(trace.seen)]
    assert of_saver
    assert envelopes_in(trace.seen)
    raw = [*copies, [of_state], approval, approval["receipt"], row, {"answers": []}]
    return graph, adapter, at, done, raw, trace


@pytest.mark.parametrize("place", PLACES)
async def test_no_copy_of_a_used_receipt_runs_the_body_again_at_any_checkpoint_bare_or_by_id(
    bench: Bench, place: str
) -> None:
    graph, _, at, done, raw, _ = await answered(bench, place)
    history = await bench.collect(graph, "get_state_history", thread())

    for value in raw:
        for config in (at.config, thread(), *[state.config for state in history]):
            for resume in (value, {at.interrupts[0].id: value}):
                await tried(bench, graph, "invoke", Command(resume=resume), config)

    assert done == ["by token"]
    if place == "root":  # elsewhere LangGraph hands nothing to the node: it takes up the subgraph, or begins it anew
        assert counted(bench) > 0


@pytest.mark.parametrize("place", PLACES)
async def test_a_refused_copy_is_recorded_and_leaves_the_next_question_open_for_its_token(
    bench: Bench, place: str
) -> None:
    graph, adapter, _, done, raw, _ = await answered(bench, place)
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    (asked,) = (await bench.call(graph, "get_state", thread())).interrupts

    for n, value in enumerate(raw):
        for resume in (value, {asked.id: value}):
            with pytest.raises(ResumeRefused):
                await bench.call(graph, "invoke", Command(resume=resume), thread())
        assert counted(bench) == 2 * (n + 1)
        assert await bench.call(adapter, "pending") == [event]

    ((told, body),) = bench.rows("SELECT interrupt_id, body FROM interrupt_events WHERE type = 'interrupt_refused'")
    assert told == event.interrupt_id  # one row a minute for each pause, with a count
    assert json.loads(body) == {"code": "resume_refused", "count": 1, "name": "approval"}
    await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "again"})
    assert done == ["by token", "again"]


@pytest.mark.parametrize("when", ["expired", "purged", "its key retired"])
async def test_a_copy_is_worth_nothing_later_either(bench: Bench, when: str) -> None:
    graph, _, at, done, raw, _ = await answered(bench, ttl=timedelta(hours=1))
    bench.clock.move(timedelta(hours=2))
    if when == "purged":
        with sa.create_engine(bench.store_url, poolclass=sa.NullPool).begin() as connection:
            for table in ("interrupt_pauses", "interrupt_consumed_tokens"):
                connection.exec_driver_sql(f"DELETE FROM {table}")
        assert bench.states() == []
    hub = bench.interrupts
    if when == "its key retired":
        ring = KeyRing([sha256(b"new").digest()], retired=[KEY])
        hub = Interrupts(bench.store_url, keys=ring, config=CONFIG, clock=bench.clock)
        bench.interrupts.close()
        bench.interrupts = hub
        graph, _ = bench.compile(_again(bench, done))

    try:
        for value in raw:
            for resume in (value, {at.interrupts[0].id: value}):
                for config in (at.config, thread()):
                    await tried(bench, graph, "invoke", Command(resume=resume), config)
    finally:
        hub.close()
    assert done == ["by token"]


def _again(bench: Bench, done: list[Any]) -> StateGraph[State]:
    point = bench.refunds()

    def pay(state: State) -> dict[str, Any]:
        done.append(point.ask(Refund(**SHOWN)).response.note)
        return {"log": []}

    return StateGraph(State).add_node("gate", pay).add_edge(START, "gate")


async def test_an_answer_that_is_stored_and_not_yet_delivered_is_no_key_either(bench: Bench) -> None:
    gate = Gate(bench, "point")
    graph, adapter = bench.compile(gate.builder())
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    (asked,) = (await bench.call(graph, "get_state", thread())).interrupts
    await bench.call(adapter, "answer", event.pause_token, YES)
    ((row, response),) = bench.rows("SELECT receipt, response FROM interrupt_consumed_tokens")
    stolen = {"answers": [{"response": response, "receipt": json.loads(row)}]}

    for resume in (stolen, {asked.id: stolen}):
        assert await tried(bench, graph, "invoke", Command(resume=resume), thread()) == "ResumeRefused"
    assert gate.told == []
    await bench.call(adapter, "deliver", "t1")
    assert gate.told == [YES]


async def test_an_approval_in_the_state_still_proves_what_was_answered(bench: Bench) -> None:
    point = bench.refunds()
    seen: list[Any] = []

    def ask(state: State) -> dict[str, Any]:
        return {"log": [point.ask(Refund(**SHOWN)).model_dump(mode="json")]}

    def act(state: State) -> dict[str, Any]:
        seen.append(point.require(state["log"][0], Refund(**SHOWN)).note)
        with pytest.raises(ReceiptInvalid):
            point.require(state["log"][0], Refund(order="B2", amount=5))
        return {"log": []}

    builder = StateGraph(State).add_node("ask", ask).add_node("act", act).add_edge(START, "ask").add_edge("ask", "act")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "invoke", event.pause_token, YES)
    assert seen == ["by token"]


# -- what must go on working


class Crash(Exception):
    """What the test's node dies of."""


def failing(bench: Bench, kind: str, place: str, broken: list[bool]) -> tuple[Any, Any, Gate]:
    gate = Gate(bench, kind, PLACES[place])
    ask = gate.ask

    def once() -> Any:
        answer = ask()
        if broken:
            raise Crash
        return answer

    gate.ask = once
    graph, adapter = bench.compile(gate.builder(place))
    return graph, adapter, gate


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["native", "point"])
async def test_after_a_failure_the_applications_own_run_goes_on_with_the_answer_that_is_durable(
    bench: Bench, kind: str, place: str
) -> None:
    broken = [True]
    graph, adapter, _ = failing(bench, kind, place, broken)
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(Crash):
        await bench.call(adapter, "invoke", event.pause_token, YES)
    broken.clear()
    bench.interrupts.close()
    bench.interrupts = Interrupts(bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=bench.clock)
    graph, adapter, gate = failing(bench, kind, place, broken)  # another process, as far as memory goes

    try:
        await bench.call(graph, "invoke", None, thread())

        assert (gate.told, gate.passed) == ([YES], 1)
        assert (await bench.call(adapter, "deliver", "t1")).open == ()
        assert bench.states() == ["applied"]
    finally:
        bench.interrupts.close()


@pytest.mark.parametrize("kind", ["native", "point"])
async def test_a_stored_answer_that_was_changed_in_the_saver_is_asked_again(bench: Bench, kind: str) -> None:
    broken = [True]
    graph, adapter, gate = failing(bench, kind, "root", broken)
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(Crash):
        await bench.call(adapter, "invoke", event.pause_token, YES)
    broken.clear()
    state = await bench.call(graph, "get_state", thread())
    (task,) = state.tasks
    forged: Any = RAW
    if kind == "point":
        found = await bench.call(bench.saver, "get_tuple", thread())
        (forged,) = envelopes_in([w[2] for w in found.pending_writes])
        forged["answers"][0]["response"] = canonical_json(RAW)
    await bench.call(bench.saver, "put_writes", state.config, [("__resume__", [forged])], task.id)
    kept = await bench.call(bench.saver, "get_tuple", thread())
    assert ("__resume__", [forged]) in [(w[1], w[2]) for w in kept.pending_writes]

    await tried(bench, graph, "invoke", None, thread())
    assert gate.told == []
    await bench.call(adapter, "deliver", "t1")
    assert gate.told == [YES]


async def test_another_workers_live_lease_makes_the_applications_own_run_busy(bench: Bench) -> None:
    broken = [True]
    graph, adapter, gate = failing(bench, "point", "root", broken)
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(Crash):
        await bench.call(adapter, "invoke", event.pause_token, YES)
    broken.clear()
    take = bench.interrupts._hub.operations.leasing.take_lease
    taken = await _transact(bench, take, "default", "t1", "another", timedelta(minutes=5))
    assert taken is not None

    with pytest.raises(ThreadBusy):
        await bench.call(graph, "invoke", None, thread())
    assert gate.told == []
    await _transact(bench, bench.interrupts._hub.operations.leasing.end_lease, taken[0], clean=False)
    await bench.call(graph, "invoke", None, thread())
    assert gate.told == [YES]


async def _transact(bench: Bench, operation: Any, *args: Any, **kwargs: Any) -> Any:
    database = bench.interrupts._hub.database
    if bench.mode == "async":
        return await database.arun(operation, *args, **kwargs)
    return database.run(operation, *args, **kwargs)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("place", PLACES)
async def test_a_retried_node_that_asks_three_times_gets_all_its_answers(
    bench: Bench, place: str, durability: str
) -> None:
    point = bench.refunds()
    told: list[Any] = []
    tries: list[int] = []

    def gate(state: State) -> dict[str, Any]:
        notes = [point.pause(Refund(order=f"A{n}", amount=n)).note for n in range(3)]
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        told.append(notes)
        return {"log": notes}

    policy = RetryPolicy(initial_interval=0, max_attempts=2, jitter=False, retry_on=ValueError)
    builder = StateGraph(State).add_node("gate", gate, retry_policy=policy).add_edge(START, "gate")
    for level in PLACES[place].split(":")[-2::-1]:
        builder = StateGraph(State).add_node(level, builder.compile()).add_edge(START, level)
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread(), durability=durability)
    for note in ("one", "two", "three"):
        (event,) = await bench.call(adapter, "pending")
        response = {"approved": True, "note": note}
        await bench.call(adapter, "invoke", event.pause_token, response, durability=durability)

    assert told == [["one", "two", "three"]]
    assert bench.states() == ["applied"] * 3
