"""What was swallowed where it cannot be asked any more ends the run, and no other run or process goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda, RunnableSequence
from langgraph.func import task
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from symfonic_interrupts import Interrupts, KeyRing, PauseSwallowed
from tests.graph.door.gates import PLACES, YES, Gate, State, finish
from tests.graph.door.swallowing import EVENTS, SWALLOWED, Ask, except_exception, run, values
from tests.harness import CONFIG, KEY, Bench, thread


class Inner:
    """A graph that the node `tool` runs and that nobody sees from outside; its own run finishes though it asked.

    Attributes:
        handled: what reached the error handler of `tool`.
        entered: how often `tool` began.
        passed: how often the node behind `tool` ran.
        form: what swallows in the inner node, or None.
    """

    def __init__(self, bench: Bench) -> None:
        self.gate = Gate(bench, "point")
        self.form: Callable[[Ask], Any] | None = except_exception
        self.handled: list[Any] = []
        self.entered = self.passed = 0
        self._mode = bench.mode
        inner = StateGraph(State).add_node("inner gate", self._inner).add_node("inner after", self.gate.after)
        self._made = [inner.add_edge(START, "inner gate").add_edge("inner gate", "inner after").compile()]

    def _inner(self, state: State) -> dict[str, Any]:
        found = self.gate.ask() if self.form is None else self.form(self.gate.ask)
        self.gate.told.append(found)
        return {"log": []}

    def builder(self, place: str) -> StateGraph[State]:
        def tool(state: State) -> dict[str, Any]:
            self.entered += 1
            self._made[0].invoke({"log": []})
            return {"log": ["tool"]}

        async def atool(state: State) -> dict[str, Any]:
            self.entered += 1
            await self._made[0].ainvoke({"log": []})
            return {"log": ["tool"]}

        def after(state: State) -> dict[str, Any]:
            self.passed += 1
            return {"log": []}

        def handler(state: State) -> dict[str, Any]:
            self.handled.append(state)
            return {"log": ["handled"]}

        chosen: Any = atool if self._mode == "async" else tool
        policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=Exception)
        built = StateGraph(State).add_node("tool", chosen, error_handler=handler, retry_policy=policy)
        built = built.add_node("after", after).add_edge(START, "tool").add_edge("tool", "after")
        return built if place == "root" else StateGraph(State).add_node("sub", built.compile()).add_edge(START, "sub")


@pytest.mark.parametrize("place", ["root", "sub"])
async def test_what_cannot_be_asked_any_more_ends_the_run_past_error_handler_and_retry_policy(
    bench: Bench, place: str
) -> None:
    inner = Inner(bench)
    graph, adapter = bench.compile(inner.builder(place))
    told: list[str] = []

    with pytest.raises(PauseSwallowed, match="approval"):
        await run(bench, graph, "invoke", {"log": ["begun"]}, thread(), told=told)

    assert (inner.entered, inner.handled, inner.passed) == (1, [], 0)
    assert inner.gate.passed == 1  # nothing guards a graph that cannot be seen; this is all that ran
    assert (await values(bench, graph), await bench.call(adapter, "pending")) == (["begun"], [])
    assert (told, [name for name, _ in bench.rows(EVENTS)]) == (["approval"], ["approval"])

    inner.form = None  # mended
    await run(bench, graph, "invoke", None, thread(), told=told)
    await finish(bench, graph, adapter)

    assert (inner.gate.told[-1], inner.passed, bench.states()) == (YES, 1, ["applied"])
    assert (await values(bench, graph))[-1] == "tool"


class Called:
    """A `@task` that swallows what its question raises, called by the node `tool`. Like `Inner`, but told of nothing else."""

    def __init__(self, bench: Bench) -> None:
        self.gate = Gate(bench, "point")
        self.form: Callable[[Ask], Any] | None = except_exception
        self.passed = 0
        self._mode = bench.mode

    def _node(self, node: Any) -> Any:
        return node

    def _body(self) -> Any:
        found = self.gate.ask() if self.form is None else self.form(self.gate.ask)
        self.gate.told.append(found)
        return found

    def builder(self, place: str) -> StateGraph[State]:
        @task
        def work() -> Any:
            return self._body()

        @task
        async def awork() -> Any:
            return self._body()

        def tool(state: State) -> dict[str, Any]:
            return {"log": [str(work().result()), "tool"]}

        async def atool(state: State) -> dict[str, Any]:
            return {"log": [str(await awork()), "tool"]}

        def after(state: State) -> dict[str, Any]:
            self.passed += 1
            return {"log": []}

        node: Any = atool if self._mode == "async" else tool
        built = StateGraph(State).add_node("tool", self._node(node)).add_node("after", after)
        built = built.add_edge(START, "tool").add_edge("tool", "after")
        return built if place == "root" else StateGraph(State).add_node("sub", built.compile()).add_edge(START, "sub")


class InSequence(Called):
    """The same, where the node is a sequence and goes on with another step."""

    def _node(self, node: Any) -> Any:
        return RunnableSequence(node, RunnableLambda(lambda found: found))


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("place", ["root", "sub"])
@pytest.mark.parametrize("kind", [Inner, Called, InSequence])
async def test_no_other_run_and_no_other_process_takes_it_from_where_a_question_was_swallowed(
    bench: Bench, kind: type[Inner] | type[Called], place: str, durability: Any
) -> None:
    first, told = kind(bench), list[str]()
    graph, _ = bench.compile(first.builder(place))
    for input_ in ({"log": []}, None):
        with pytest.raises(PauseSwallowed):
            await run(bench, graph, "invoke", input_, thread(), told=told, durability=durability)

    other = Interrupts(bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=bench.clock)
    try:
        elsewhere = Bench(bench.mode, bench.store_url, other, bench.saver, bench.clock)
        second = kind(elsewhere)
        graph, adapter = elsewhere.compile(second.builder(place))
        with pytest.raises(PauseSwallowed):
            await run(bench, graph, "invoke", None, thread(), told=told, durability=durability)
        assert (first.passed, second.passed) == (0, 0)
        second.form = None  # mended
        await run(bench, graph, "invoke", None, thread(), told=told, durability=durability)
        await finish(elsewhere, graph, adapter)
        assert "tool" in await values(bench, graph)
    finally:
        other.close()

    assert (second.gate.told, second.passed, bench.states()) == ([SWALLOWED, YES], 1, ["applied"])


@pytest.mark.parametrize("place", ["root", "sub"])
@pytest.mark.parametrize("kind", ["point", "native"])
async def test_a_pass_that_does_not_ask_finishes_whatever_became_of_what_an_earlier_one_asked(
    bench: Bench, kind: str, place: str
) -> None:
    gate = Gate(bench, kind, PLACES[place] if kind == "native" else "gate")
    ways = ["asked", "another error", "another error", "not asked"]

    def node(state: State) -> dict[str, Any]:
        way = ways.pop(0)
        if way == "not asked":
            return {"log": ["not asked"]}
        try:
            gate.told.append(gate.ask())
        except Exception as error:
            if way == "another error":
                raise ConnectionError("away") from error
            raise
        return {"log": ["told"]}

    gate.node = node  # type: ignore[method-assign]
    policy = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False)
    graph, adapter = bench.compile(gate.builder(place, retry_policy=policy))
    await bench.call(graph, "invoke", {"log": []}, thread())
    with pytest.raises(ConnectionError):  # twice
        await bench.call(graph, "invoke", {"log": []}, thread())
    ways.insert(0, "another error")
    await bench.call(graph, "invoke", None, thread())

    assert ((await values(bench, graph))[-1], gate.passed) == ("not asked", 1)
    assert (await bench.call(adapter, "pending"), gate.told, ways) == ([], [], [])


async def test_what_one_pass_asked_in_vain_does_not_keep_the_next_from_being_stored_while_a_neighbour_waits(
    bench: Bench,
) -> None:
    gate = Gate(bench, "point")
    ran: list[str] = []

    def other(state: State) -> dict[str, Any]:
        ran.append("other")
        if len(ran) == 1:
            try:
                gate.ask()
            except Exception as error:
                raise ConnectionError("away") from error
        return {"log": ["other"]}

    policy = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False)
    builder = gate.builder().add_node("other", other, retry_policy=policy).add_edge(START, "other")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread())
    await finish(bench, graph, adapter)

    assert sorted(await values(bench, graph)) == ["by token", "other"]
    assert ran == ["other", "other"]
