"""The guards around a graph's nodes: put on once, of no effect elsewhere, and nothing passes by."""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda, RunnableSequence
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.errors import GraphInterrupt, NodeInterrupt
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from symfonic_interrupts import RegistrationError
from symfonic_interrupts.asking.guards import Entering, Leaving
from tests.graph.door.gates import PLACES, RAW, SHOWN, YES, Gate, State, finish, tried
from tests.harness import Bench, Refund, thread

KINDS = ["native", "point"]
WAIT_SECONDS = 30


def guards_of(node: Any) -> tuple[int, int]:
    """How many guards stand before a node's body, one within the other, and how many between it and its writes."""
    before, bound = 0, node.bound
    while isinstance(bound, Entering):
        before, bound = before + 1, bound.bound
    return before, sum(isinstance(writer, Leaving) for writer in node.writers)


async def answered(bench: Bench, graph: Any, adapter: Any, thread_id: str) -> Any:
    """Run a thread to its question, try without the token, and answer with it: the log."""
    await bench.call(graph, "invoke", {"log": []}, thread(thread_id))
    assert await tried(bench, graph, "invoke", Command(resume=RAW), thread(thread_id)) == "ResumeRefused"
    await finish(bench, graph, adapter, thread_id)
    return (await bench.call(graph, "get_state", thread(thread_id))).values["log"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_second_adapter_and_a_second_compile_guard_nothing_twice(bench: Bench, kind: str) -> None:
    gate = Gate(bench, kind)
    builder = StateGraph(State).add_node("gate", RunnableLambda(gate.node)).add_edge(START, "gate")
    first, adapter = bench.compile(builder)
    second, other = bench.compile(builder)
    again = bench.interrupts.resume_adapter(first)

    assert [guards_of(graph.nodes["gate"]) for graph in (first, second)] == [(1, 1), (1, 1)]
    for number, (graph, adapter_) in enumerate([(first, adapter), (second, other), (first, again)]):
        assert await answered(bench, graph, adapter_, f"t{number}") == ["by token"]
    assert gate.told == [YES] * 3


@pytest.mark.parametrize("kind", KINDS)
async def test_a_subgraph_that_two_graphs_share_is_guarded_once_and_in_both(bench: Bench, kind: str) -> None:
    gate = Gate(bench, kind, "sub:gate")
    child = StateGraph(State).add_node("gate", gate.node).add_edge(START, "gate").compile()
    builder = StateGraph(State).add_node("sub", child).add_edge(START, "sub")
    left, left_adapter = bench.compile(builder, graph="left")
    right, right_adapter = bench.compile(builder, graph="right")

    assert guards_of(child.nodes["gate"]) == (1, 1)
    assert await answered(bench, left, left_adapter, "t1") == ["by token"]
    assert await answered(bench, right, right_adapter, "t2") == ["by token"]


async def test_under_another_saver_and_without_one_a_guarded_graph_runs_as_if_it_were_not_guarded(bench: Bench) -> None:
    gate = Gate(bench, "native")
    swallowed: list[str] = []

    def after(state: State) -> dict[str, Any]:
        try:
            interrupt("swallowed")
        except Exception:
            swallowed.append("yes")
        return {"log": []}

    bench.refunds("after", nodes=("after",))
    gate.after = after  # type: ignore[method-assign, assignment]
    graph, _ = bench.compile(gate.builder())
    other = graph.copy(update={"checkpointer": InMemorySaver()})

    shown = await bench.call(other, "invoke", {"log": []}, thread())
    assert [i.value for i in shown["__interrupt__"]] == [SHOWN]
    assert (await bench.call(other, "invoke", Command(resume=RAW), thread()))["log"] == ["raw"]
    assert (gate.told, swallowed) == ([RAW], ["yes"])

    none = graph.copy(update={"checkpointer": None})
    assert [i.value for i in (await bench.call(none, "invoke", {"log": []}))["__interrupt__"]] == [SHOWN]
    assert (bench.rows(), bench.rows("SELECT type FROM interrupt_events")) == ([], [])


@pytest.mark.parametrize("kind", KINDS)
async def test_each_step_of_a_node_that_is_a_sequence_is_behind_the_door(bench: Bench, kind: str) -> None:
    gate = Gate(bench, kind)
    ran: list[str] = []

    def first(state: State) -> State:
        ran.append("first")
        return state

    def last(update: dict[str, Any]) -> dict[str, Any]:
        ran.append("last")
        return update

    node = RunnableSequence(RunnableLambda(first), RunnableLambda(gate.node), RunnableLambda(last))
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", node).add_edge(START, "gate"))

    assert await answered(bench, graph, adapter, "t1") == ["by token"]
    assert (gate.told, ran.count("last")) == ([YES], 1)


@pytest.mark.parametrize("first", ["gate", "imposter"])
async def test_a_native_question_in_the_form_of_a_points_gets_no_answer_of_it_whichever_is_recorded_first(
    bench: Bench, first: str
) -> None:
    point = bench.refunds()
    marker: list[Any] = []
    told: list[Any] = []

    async def stands() -> bool:
        found = await bench.call(bench.saver, "get_tuple", thread())
        return any(channel == INTERRUPT for _, channel, _ in found.pending_writes)

    async def gate(state: State) -> dict[str, Any]:
        try:
            decision = point.pause(Refund(**SHOWN))
        except GraphInterrupt as error:
            marker.append(error.args[0][0].value)
            while first == "imposter" and not await stands():  # noqa: ASYNC110 - a database is watched
                await asyncio.sleep(0.01)
            raise
        told.append(("gate", decision.note))
        return {"log": []}

    async def imposter(state: State) -> dict[str, Any]:
        while not marker or (first == "gate" and not await stands()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        told.append(("imposter", interrupt(marker[0])))
        return {"log": []}

    def fit(node: Any) -> Any:
        return node if bench.mode == "async" else lambda state: asyncio.run(node(state))

    builder = StateGraph(State).add_node("gate", fit(gate)).add_node("imposter", fit(imposter))
    graph, adapter = bench.compile(builder.add_edge(START, "gate").add_edge(START, "imposter"))
    async with asyncio.timeout(WAIT_SECONDS):
        shown = await bench.call(graph, "invoke", {"log": []}, thread())
    assert len({i.id for i in shown["__interrupt__"]}) == 2
    (event,) = await bench.call(adapter, "pending")

    await bench.call(adapter, "invoke", event.pause_token, YES)

    assert (told, bench.states()) == ([("gate", "by token")], ["applied"])
    state = await bench.call(graph, "get_state", thread())
    assert state.next == ("imposter",)
    (left,) = state.interrupts
    await bench.call(graph, "invoke", Command(resume={left.id: "raw"}), thread())
    assert told == [("gate", "by token"), ("imposter", "raw")]


@pytest.mark.filterwarnings("ignore:NodeInterrupt is deprecated")
@pytest.mark.parametrize("place", PLACES)
async def test_node_interrupt_in_a_covered_node_is_refused_and_says_what_to_call(bench: Bench, place: str) -> None:
    gate = Gate(bench, "native", PLACES[place])

    def ask() -> Any:
        raise NodeInterrupt(SHOWN)

    native, gate.ask = gate.ask, ask
    graph, adapter = bench.compile(gate.builder(place))

    with pytest.raises(RegistrationError, match=rf"{PLACES[place]}.*NodeInterrupt.*call interrupt\(\)"):
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert (bench.states(), gate.told, gate.passed) == ([], [], 0)

    gate.ask = native
    await bench.call(graph, "invoke", None, thread())
    await finish(bench, graph, adapter)
    assert (gate.told, gate.passed, bench.states()) == ([YES], 1, ["applied"])


UNCOVERED = "SELECT name, body FROM interrupt_events WHERE type = 'interrupt_uncovered' ORDER BY id"


@pytest.mark.parametrize("place", PLACES)
async def test_a_question_that_no_point_covers_beside_covered_ones_is_told_of_once_for_each_node(
    bench: Bench, place: str
) -> None:
    gate = Gate(bench, "point")
    bench.refunds("elsewhere", nodes=("covered",))
    gate.ask = lambda: interrupt("who?")
    builder = gate.builder(place).add_node("covered", lambda state: {"log": [interrupt(SHOWN)["note"]]})
    builder.add_node("other", lambda state: {"log": [interrupt("and?")]})
    graph, adapter = bench.compile(builder.add_edge(START, "covered").add_edge(START, "other"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for thread_id in ("t1", "t2"):
            shown = await bench.call(graph, "invoke", {"log": []}, thread(thread_id))
            assert len(shown["__interrupt__"]) == 3

    paths = sorted([PLACES[place], "other"])
    assert sorted(str(w.message).split("'")[1] for w in caught) == paths
    assert sorted((name, json.loads(body)["node"]) for name, body in bench.rows(UNCOVERED)) == [(p, p) for p in paths]
    assert sorted(event.name for event in await bench.call(adapter, "pending")) == ["elsewhere", "elsewhere"]


async def test_where_nothing_is_covered_native_questions_are_nobodys_concern(bench: Bench) -> None:
    gate = Gate(bench, "point")
    gate.ask = lambda: interrupt("who?")
    graph, _ = bench.compile(gate.builder())
    await bench.call(graph, "invoke", {"log": []}, thread())  # a warning would be an error
    result = await bench.call(graph, "invoke", Command(resume=RAW), thread())
    assert (result["log"], bench.rows("SELECT type FROM interrupt_events")) == (["raw"], [])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["no adapter", "an adapter for another compile"])
async def test_a_covered_question_that_no_guard_saw_is_refused_and_says_what_to_call(
    bench: Bench, place: str, elsewhere: bool
) -> None:
    gate = Gate(bench, "native", PLACES[place])
    saver = bench.interrupts.checkpointer(bench.saver)
    graph = gate.builder(place).compile(checkpointer=saver)
    if elsewhere:
        bench.interrupts.resume_adapter(gate.builder(place).compile(checkpointer=saver))

    with pytest.raises(RegistrationError, match=rf"{PLACES[place]}.*resume_adapter\(graph\)"):
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert (bench.states(), gate.told, gate.passed) == ([], [], 0)
    adapter = bench.interrupts.resume_adapter(graph)
    await tried(bench, graph, "invoke", None, thread())
    await finish(bench, graph, adapter)
    assert (gate.told, gate.passed, bench.states()[-1]) == ([YES], 1, "applied")


@pytest.mark.parametrize("place", PLACES)
async def test_where_no_adapter_was_made_a_resume_after_the_refusal_runs_no_body_either(
    bench: Bench, place: str
) -> None:
    gate = Gate(bench, "native", PLACES[place])
    graph = gate.builder(place).compile(checkpointer=bench.interrupts.checkpointer(bench.saver))
    assert await tried(bench, graph, "invoke", {"log": []}, thread()) == "RegistrationError"

    for resume in (Command(resume=RAW), Command(resume=RAW, update={"log": ["x"]}), None):
        assert await tried(bench, graph, "invoke", resume, thread()) == "RegistrationError"

    assert (gate.told, gate.passed) == ([], 0)
    adapter = bench.interrupts.resume_adapter(graph)
    await bench.call(graph, "invoke", None, thread())
    await finish(bench, graph, adapter)
    assert (gate.told, gate.passed) == ([YES], 1)
