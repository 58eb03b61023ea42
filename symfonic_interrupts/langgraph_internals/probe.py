"""Tiny graphs that are run to see what the installed LangGraph does. What was seen is kept as it came; `verifying` judges it.

They run on a saver in memory, without tracing and outside of whatever context calls: nothing of the application's is touched.
"""

from __future__ import annotations

import contextvars
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import Runnable, RunnableLambda, RunnableSequence
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, UnknownInterruptError
from langgraph.graph import START, StateGraph
from langgraph.runtime import get_runtime
from langgraph.types import CachePolicy, Command, Send, interrupt
from langsmith import tracing_context

from symfonic_interrupts.langgraph_internals.builders import branches_of, set_body, set_path, was_sent
from symfonic_interrupts.langgraph_internals.compiled_graph import put_around
from symfonic_interrupts.langgraph_internals.running_task import (
    STRICT_RESUME,
    cached_task,
    is_a_run,
    take_bare_resume,
    times_asked,
)
from symfonic_interrupts.langgraph_internals.streams import write_custom

EVENT = "an event"
"""What is streamed from within the saver."""

FIRST, SECOND = "the first answer", "the second answer"


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


class Marked(list[Any]):
    """A list as our saver returns it in place of a task's stored answers."""


@dataclass(frozen=True, slots=True)
class Written:
    """One `put_writes`: its config, its writes, and the task that they are of."""

    configurable: dict[str, Any]
    writes: tuple[tuple[str, Any], ...]
    task_id: str


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass of a task saw: its `configurable`, and its `ExecutionInfo` by two calls of `get_runtime()`.

    Attributes:
        bare: whether a bare resume lay ready.
        cached: the name of the cached task that it runs in.
    """

    configurable: dict[str, Any]
    info: Any
    info_again: Any
    bare: bool
    cached: str | None


@dataclass(slots=True)
class Seen:
    """What was seen.

    Attributes:
        saver: of the graph.
        graph: a compiled graph, whose node `sub` is cached and a graph, in which `ask` asks and `deep` is a graph again.
        asking: the passes of `ask`: without an answer, with the first one, and with a bare resume.
        times: how often a pass that returned had called `interrupt()`.
        around: what the guards of `ask` saw, in order.
        raised: the exceptions that passed by the guards.
        writes: everything that was written, by run: `asks`, `strict`, `answered`, `bare`, `update_state`.
        strict: what a strict resume with an unknown id raised.
        chunks: what the first run streamed in mode "custom".
        output: what `invoke` returned at the second question.
        ids: ids of the checkpoints of all namespaces, in the order in which they were made.
        cached: the names of the cached task around the graph `sub`, whenever that was loaded.
        sequence: a compiled node whose body is a sequence of two.
        plain: a compiled node made of `function`.
        handled: what is written where an error handler takes over.
        handler: the pass of the error handler.
        waited: a compiled graph in which `three` waits for `one` and `two`.
        put_in_place: what ran of what was put into its builder.
        sent: the nodes of that graph that ran, and whether their tasks were sent to them.
    """

    saver: Any = None
    graph: Any = None
    asking: list[Pass] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    around: list[str] = field(default_factory=list)
    raised: list[GraphBubbleUp] = field(default_factory=list)
    writes: dict[str, list[Written]] = field(default_factory=dict)
    strict: Exception | None = None
    chunks: list[Any] = field(default_factory=list)
    output: Any = None
    ids: list[str] = field(default_factory=list)
    cached: list[str | None] = field(default_factory=list)
    sequence: Any = None
    plain: Any = None
    function: Any = None
    handled: list[Written] = field(default_factory=list)
    handler: list[Pass] = field(default_factory=list)
    waited: Any = None
    put_in_place: list[str] = field(default_factory=list)
    sent: list[tuple[str, bool]] = field(default_factory=list)


def look() -> Seen:
    """Run the tiny graphs."""
    return contextvars.Context().run(_look)


def _look() -> Seen:
    seen = Seen()
    with tracing_context(enabled=False):
        _ask_and_answer(seen, _fail_and_handle(seen))
        _change_a_builder(seen)
    return seen


class _Saver(InMemorySaver):
    """Notes what LangGraph calls it with."""

    def __init__(self, seen: Seen, run: str) -> None:
        super().__init__()
        self.seen, self.run = seen, run

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.seen.ids.append(checkpoint["id"])
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        place = dict(config["configurable"])
        self.seen.writes.setdefault(self.run, []).append(Written(place, tuple(writes), task_id))
        super().put_writes(config, writes, task_id, task_path)
        if not place["checkpoint_ns"] and any(channel == INTERRUPT for channel, _ in writes):
            write_custom(config, task_id, [EVENT])

    def get_tuple(self, config: Any) -> Any:
        if config["configurable"].get("checkpoint_ns") and is_a_run(config["configurable"]):
            self.seen.cached.append(cached_task(config["configurable"]))
        found = super().get_tuple(config)
        if found is None:
            return None
        return found._replace(pending_writes=[(t, c, _mark(c, v)) for t, c, v in found.pending_writes or ()])


def _mark(channel: str, value: Any) -> Any:
    return Marked(value) if channel == RESUME and isinstance(value, list | tuple) else value


class _Around(Runnable[Any, Any]):
    def __init__(self, seen: Seen, body: Any) -> None:
        self.seen, self.body = seen, body

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002 - Runnable's name
        self.seen.around.append("body")
        try:
            return self.body.invoke(input, config, **kwargs)
        except GraphBubbleUp as error:
            self.seen.raised.append(error)
            raise


class _BeforeWrites(Runnable[Any, Any]):
    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002
        self.seen.around.append("writes")
        self.seen.times.append(times_asked(config["configurable"]))
        return input


def _passing() -> Pass:
    here = get_config()["configurable"]
    infos = get_runtime().execution_info, get_runtime().execution_info
    return Pass(dict(here), *infos, bare=take_bare_resume(here), cached=cached_task(here))


def _fail_and_handle(seen: Seen) -> Any:
    inner = Seen()

    def fail(state: State) -> dict[str, Any]:
        raise ValueError("as it should")

    def handle(state: State) -> dict[str, Any]:
        seen.handler.append(_passing())
        return {}

    builder = StateGraph(State).add_node("fail", fail, error_handler=handle).add_edge(START, "fail")
    graph: Any = builder.compile(checkpointer=_Saver(inner, "fails"))
    graph.invoke({"log": []}, {"configurable": {"thread_id": "t"}}, durability="sync")
    seen.handled, seen.plain, seen.function = inner.writes["fails"], graph.nodes["fail"], fail
    return graph


def _ask_and_answer(seen: Seen, deep: Any) -> None:
    def ask(state: State) -> dict[str, Any]:
        passing = _passing()
        seen.asking.append(passing)
        answer = interrupt("one?")
        return {"log": [answer if passing.bare else interrupt("two?")]}

    nothing: Any = RunnableLambda(lambda _: {})
    below = StateGraph(State).add_node("ask", ask).add_edge(START, "ask")
    below.add_node("deep", deep).add_node("sequence", RunnableSequence(nothing, nothing))
    asking: Any = below.compile()
    seen.sequence = asking.nodes["sequence"]
    _ = asking.nodes["ask"].node  # LangGraph has put it together already when a guard is put on
    put_around(asking.nodes["ask"], lambda body, _: _Around(seen, body), _BeforeWrites(seen))

    builder = StateGraph(State).add_node("sub", asking, cache_policy=CachePolicy()).add_edge(START, "sub")
    builder.add_node("never", nothing)
    saver = seen.saver = _Saver(seen, "asks")
    graph: Any = builder.compile(saver, cache=InMemoryCache(), interrupt_before=["never"], interrupt_after=["never"])
    seen.graph = graph
    thread = {"thread_id": "t"}
    config = {"configurable": thread}

    seen.chunks = list(graph.stream({"log": []}, config, stream_mode="custom", durability="sync"))
    saver.run = "strict"
    try:
        graph.invoke(Command(resume={"0" * 32: FIRST}), {"configurable": {**thread, STRICT_RESUME: True}})
    except UnknownInterruptError as error:
        seen.strict = error
    saver.run = "answered"
    (asked,) = dict(seen.writes["asks"][-1].writes)[INTERRUPT]
    seen.output = graph.invoke(Command(resume={asked.id: FIRST}), config, durability="sync")
    saver.run = "bare"
    graph.invoke(Command(resume=SECOND), config, durability="sync")
    saver.run = "update_state"
    graph.update_state(config, {"log": []})


def _change_a_builder(seen: Seen) -> None:
    def body(state: Any) -> dict[str, Any]:
        seen.put_in_place.append("body")
        seen.sent.append(("one", was_sent(get_config())))
        return {}

    def path(state: Any) -> list[Any]:
        seen.put_in_place.append("path")
        return [Send("two", {"log": []})]

    def two(state: Any) -> dict[str, Any]:
        seen.sent.append(("two", was_sent(get_config())))
        return {}

    nothing: Any = RunnableLambda(lambda _: {})
    builder = StateGraph(State).add_node("one", nothing).add_node("two", two, destinations=("three",))
    builder.add_node("three", nothing).add_edge(START, "one").add_edge(["one", "two"], "three")
    builder.add_conditional_edges("one", lambda _: [], ["two"])
    set_body(builder, "one", RunnableLambda(body))
    (name,) = branches_of(builder, "one")
    set_path(builder, "one", name, RunnableLambda(path))
    graph: Any = builder.compile()
    seen.waited = graph
    graph.invoke({"log": []})
