"""What asked and was not told is not done: a question that its node swallowed is asked after all, or the run ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy

from symfonic_interrupts import PauseSwallowed
from tests.graph.door.gates import PLACES, YES, Gate, State, finish
from tests.graph.door.swallowing import EVENTS, FORMS, SWALLOWED, Swallower, except_exception, run, values
from tests.harness import CONFIG, Bench, Refund, open_bench, thread


@pytest.fixture
async def warning_bench(mode: str, store_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench on which a swallowed pause is only told of."""
    async with open_bench(mode, store_url, tmp_path, replace(CONFIG, on_swallowed="warn")) as found:
        yield found


@pytest.mark.parametrize("place", ["root", "sub"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_swallowed_question_of_a_point_is_asked_after_all_and_its_token_works(
    bench: Bench, form: str, place: str
) -> None:
    swallower = Swallower(bench, "point", form)
    graph, adapter = bench.compile(swallower.gate.builder(place))
    told: list[str] = []

    await run(bench, graph, "invoke", {"log": ["begun"]}, thread(), told=told)

    assert (await values(bench, graph), swallower.gate.passed) == (["begun"], 0)
    (event,) = await bench.call(adapter, "pending", thread_id="t1")
    assert event.payload == {"order": "A1", "amount": 5}
    ((name, body),) = bench.rows(EVENTS)
    assert (name, json.loads(body)) == ("approval", {"name": "approval", "interrupt_id": event.interrupt_id})
    assert told == ["approval"]

    result = await run(bench, adapter, "invoke", event.pause_token, YES, told=told)

    assert result["log"][-1] == "by token"
    assert (swallower.ran, swallower.gate.told, swallower.gate.passed) == (2, [SWALLOWED, YES], 1)
    assert (bench.states(), len(bench.rows(EVENTS)), told) == (["applied"], 1, ["approval"])


@pytest.mark.parametrize("place", ["root", "sub"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_swallowed_question_of_a_covered_node_ends_the_run_for_only_its_node_knows_it(
    bench: Bench, form: str, place: str
) -> None:
    swallower = Swallower(bench, "native", form, PLACES[place])
    graph, adapter = bench.compile(swallower.gate.builder(place))
    told: list[str] = []

    with pytest.raises(PauseSwallowed, match="approval"):
        await run(bench, graph, "invoke", {"log": ["begun"]}, thread(), told=told)
    with pytest.raises(PauseSwallowed):
        await run(bench, graph, "invoke", None, thread(), told=told)

    assert (await values(bench, graph), swallower.gate.passed) == (["begun"], 0)
    assert await bench.call(adapter, "pending", thread_id="t1") == []
    ((name, body),) = bench.rows(EVENTS)
    assert (name, json.loads(body), told) == ("approval", {"name": "approval", "node": PLACES[place]}, ["approval"])

    swallower.form = None  # mended
    await run(bench, graph, "invoke", None, thread(), told=told)
    (event,) = await bench.call(adapter, "pending", thread_id="t1")
    result = await run(bench, adapter, "invoke", event.pause_token, YES, told=told)

    assert result["log"][-1] == "by token"
    assert (swallower.ran, swallower.gate.told, swallower.gate.passed) == (4, [SWALLOWED, SWALLOWED, YES], 1)
    assert (bench.states(), len(bench.rows(EVENTS)), told) == (["applied"], 1, ["approval"])


async def test_the_second_question_of_a_covered_node_is_missed_too_and_the_first_answer_is_not_lost(
    bench: Bench,
) -> None:
    gate = Gate(bench, "native")
    swallows = [True]

    def node(state: State) -> dict[str, Any]:
        first = gate.ask()
        second = except_exception(gate.ask) if swallows[0] else gate.ask()
        gate.told += [first, second]
        return {"log": []}

    gate.node = node  # type: ignore[method-assign]
    graph, adapter = bench.compile(gate.builder())
    told: list[str] = []
    await run(bench, graph, "invoke", {"log": []}, thread(), told=told)
    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(PauseSwallowed):
        await run(bench, adapter, "invoke", event.pause_token, YES, told=told)
    assert (gate.passed, bench.states(), told) == (0, ["answered"], ["approval"])
    assert [failed.thread_id for failed in await bench.call(adapter, "failed")] == ["t1"]

    swallows[0] = False
    gate.told = []
    await bench.call(adapter, "deliver", "t1")
    (second,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "invoke", second.pause_token, YES)

    assert (gate.told, gate.passed, bench.states()) == ([YES, YES], 1, ["applied", "applied"])


async def test_all_that_a_node_swallowed_is_asked_at_once_beside_what_it_was_told(bench: Bench) -> None:
    point = bench.refunds()
    told: list[str] = []
    notes: list[list[str]] = []

    def ask(order: str) -> Any:
        return except_exception(lambda: point.pause(Refund(order=order, amount=1)).note)

    def gate(state: State) -> dict[str, Any]:
        notes.append([ask("a"), ask("b"), ask("b")])
        return {"log": notes[-1]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    await run(bench, graph, "invoke", {"log": []}, thread(), told=told)
    asked = await bench.call(adapter, "pending")
    assert sorted(event.payload["order"] for event in asked) == ["a", "b", "b"]
    assert told == ["approval"] * 3

    first = next(event for event in asked if event.payload["order"] == "a")
    await run(bench, adapter, "invoke", first.pause_token, {"approved": True, "note": "first"}, told=told)
    assert notes[-1] == ["first", SWALLOWED, SWALLOWED]
    await finish(bench, graph, adapter)

    assert await values(bench, graph) == ["first", "by token", "by token"]
    assert (bench.states(), told, len(bench.rows(EVENTS))) == (["applied"] * 3, ["approval"] * 3, 3)


async def test_a_swallowed_question_is_asked_after_all_before_the_node_goes_elsewhere_or_a_branch_is_chosen(
    bench: Bench,
) -> None:
    point = bench.refunds()
    chosen: list[str] = []
    told: list[str] = []

    def gate(state: State) -> Command[str]:
        note = except_exception(lambda: point.pause(Refund(order="A1", amount=1)).note)
        return Command(goto="there", update={"log": [note]})

    def branch(state: State) -> str:
        chosen.append(state["log"][-1])
        return "end"

    builder = (
        StateGraph(State)
        .add_node("gate", gate, destinations=("there",))
        .add_node("there", lambda s: {"log": ["there"]})
    )
    builder.add_node("end", lambda s: {"log": ["end"]}).add_edge(START, "gate")
    graph, adapter = bench.compile(builder.add_conditional_edges("gate", branch, ["end"]))
    await run(bench, graph, "invoke", {"log": []}, thread(), told=told)
    assert (await values(bench, graph), chosen, told) == ([], [], ["approval"])

    await finish(bench, graph, adapter)

    assert sorted(await values(bench, graph)) == ["by token", "end", "there"]
    assert chosen == ["by token"]


@pytest.mark.parametrize("place", ["root", "sub"])
async def test_a_swallowed_question_goes_past_error_handler_and_retry_policy(bench: Bench, place: str) -> None:
    swallower = Swallower(bench, "point", "except Exception")
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=Exception)
    handled: list[Any] = []

    def handler(state: State) -> dict[str, Any]:
        handled.append(state)
        return {"log": ["handled"]}

    graph, adapter = bench.compile(swallower.gate.builder(place, error_handler=handler, retry_policy=policy))
    told: list[str] = []
    await run(bench, graph, "invoke", {"log": []}, thread(), told=told)
    assert (swallower.ran, swallower.gate.passed, handled) == (1, 0, [])

    await finish(bench, graph, adapter)

    assert (swallower.gate.told[-1], swallower.gate.passed, handled, told) == (YES, 1, [], ["approval"])


@pytest.mark.parametrize("place", ["root", "sub"])
@pytest.mark.parametrize("kind", ["point", "native"])
async def test_where_it_is_only_warned_of_the_run_goes_on_and_it_is_told_once(
    warning_bench: Bench, kind: str, place: str
) -> None:
    bench = warning_bench
    swallower = Swallower(bench, kind, "except Exception", PLACES[place] if kind == "native" else "gate")
    graph, adapter = bench.compile(swallower.gate.builder(place))
    told: list[str] = []

    result = await run(bench, graph, "invoke", {"log": []}, thread(), told=told)

    assert (result["log"][-1], swallower.ran, swallower.gate.passed) == (SWALLOWED, 1, 1)
    assert (told, [name for name, _ in bench.rows(EVENTS)]) == (["approval"], ["approval"])
    assert (await bench.call(adapter, "pending"), bench.states()) == ([], [])


async def test_a_point_in_a_covered_node_is_told_of_once_and_under_its_own_name(warning_bench: Bench) -> None:
    bench = warning_bench
    bench.refunds("cover", nodes=("gate",))
    swallower = Swallower(bench, "point", "except Exception")
    graph, _ = bench.compile(swallower.gate.builder())
    told: list[str] = []

    await run(bench, graph, "invoke", {"log": []}, thread(), told=told)

    assert (told, [name for name, _ in bench.rows(EVENTS)]) == (["approval"], ["approval"])


@pytest.mark.parametrize("place", ["root", "sub"])
async def test_where_no_adapter_was_made_it_is_only_told_of(bench: Bench, place: str) -> None:
    swallower = Swallower(bench, "point", "except Exception")
    graph = swallower.gate.builder(place).compile(checkpointer=bench.interrupts.checkpointer(bench.saver))
    told: list[str] = []

    result = await run(bench, graph, "invoke", {"log": []}, thread(), told=told)

    assert (result["log"][-1], swallower.gate.passed) == (SWALLOWED, 1)
    assert (told, [name for name, _ in bench.rows(EVENTS)], bench.states()) == (["approval"], ["approval"], [])


async def test_a_question_is_asked_after_all_where_an_application_has_warnings_raised(bench: Bench) -> None:
    swallower = Swallower(bench, "point", "except Exception")
    graph, adapter = bench.compile(swallower.gate.builder())

    await bench.call(graph, "invoke", {"log": []}, thread())  # pytest has them raised

    assert [event.name for event in await bench.call(adapter, "pending")] == ["approval"]
    assert (len(bench.rows(EVENTS)), swallower.gate.passed) == (1, 0)
