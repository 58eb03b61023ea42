"""What asked and was not told is not done: a question that its node swallowed is asked after all, or the run ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda, RunnableSequence
from langchain_core.runnables.config import ContextThreadPoolExecutor
from langgraph.func import task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy

from symfonic_interrupts import Interrupts, KeyRing, PauseSwallowed
from tests.graph.door.gates import PLACES, YES, Gate, State, finish
from tests.harness import CONFIG, KEY, Bench, Refund, open_bench, thread

Ask = Callable[[], Any]

SWALLOWED = "swallowed"
"""What a form gives in place of an answer."""


def except_exception(ask: Ask) -> Any:
    try:
        return ask()
    except Exception:
        return SWALLOWED


def except_base_exception(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException:
        return SWALLOWED


def fallbacks(ask: Ask) -> Any:
    asking = RunnableLambda(lambda _: ask()).with_fallbacks([RunnableLambda(lambda _: SWALLOWED)])
    return asking.invoke("")


def thread_pool(ask: Ask) -> Any:
    with ContextThreadPoolExecutor(1) as pool:
        call = pool.submit(ask)
        concurrent.futures.wait([call])
    return SWALLOWED if call.exception() else call.result()


async def gathered(ask: Ask) -> Any:
    async def call() -> Any:
        return ask()

    (found,) = await asyncio.gather(call(), return_exceptions=True)
    return SWALLOWED if isinstance(found, BaseException) else found


FORMS: dict[str, Callable[[Ask], Any]] = {
    "except Exception": except_exception,
    "except BaseException": except_base_exception,
    "with_fallbacks": fallbacks,
    "a thread pool": thread_pool,
    "gather": gathered,
}

EVENTS = "SELECT name, body FROM interrupt_events WHERE type = 'interrupt_swallowed' ORDER BY id"


class Swallower:
    """The node `gate`, in which something swallows what its question raises.

    Attributes:
        gate: keeps what the node was told, and how often the node behind it ran.
        ran: how often the body has begun.
        form: what swallows, or None.
    """

    def __init__(self, bench: Bench, kind: str, form: str, path: str = "gate", **options: Any) -> None:
        self.gate = Gate(bench, kind, path, **options)
        self.ran = 0
        self.form: Callable[[Ask], Any] | None = FORMS[form]
        if form == "gather" and bench.mode == "async":
            self.gate.node = self.anode  # type: ignore[method-assign, assignment]
        else:
            self.gate.node = self.node  # type: ignore[method-assign]

    def node(self, state: State) -> dict[str, Any]:
        self.ran += 1
        found = self.gate.ask() if self.form is None else self.form(self.gate.ask)
        return self._told(asyncio.run(found) if asyncio.iscoroutine(found) else found)

    async def anode(self, state: State) -> dict[str, Any]:
        self.ran += 1
        return self._told(self.gate.ask() if self.form is None else await self.form(self.gate.ask))

    def _told(self, found: Any) -> dict[str, Any]:
        self.gate.told.append(found)
        return {"log": [found if found == SWALLOWED else found["note"]]}


async def run(bench: Bench, target: Any, method: str, *args: Any, told: list[str], **kwargs: Any) -> Any:
    """Call; `told` gets the point's name of each warning of a swallowed question."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return await bench.call(target, method, *args, **kwargs)
        finally:
            told += [str(w.message).split(":")[0] for w in caught if "swallowed" in str(w.message)]
            assert len([w for w in caught if "swallowed" not in str(w.message)]) == 0


async def values(bench: Bench, graph: Any) -> Any:
    return (await bench.call(graph, "get_state", thread())).values["log"]


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
