"""Many ways to bring a guarded node an answer without its token. None may run its body; the token works afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import RESUME
from langgraph.graph import START
from langgraph.types import Command, Send

from symfonic_interrupts import InterruptError
from symfonic_interrupts import langgraph_internals as names
from tests.graph.door.gates import PLACES, RAW, YES, Gate, finish, tried
from tests.harness import Bench, thread


@dataclass
class Target:
    """A thread that stands at the guarded node.

    Attributes:
        at: the config of the checkpoint at which it stands.
        before: the config of the checkpoint before that.
        id: the id of LangGraph's interrupt.
        gate_task: the id of the task that asks, and below its namespace's config.
        root: the name of the root's node in which the gate stands, or which it is.
    """

    bench: Bench
    graph: Any
    config: Any
    at: Any
    before: Any
    id: str
    root: str

    async def run(self, input_: Any, config: Any = None, **kwargs: Any) -> str:
        return await tried(self.bench, self.graph, "invoke", input_, config or self.config, **kwargs)

    def with_(self, **configurable: Any) -> Any:
        return {"configurable": {**self.config["configurable"], **configurable}}

    async def leaf(self) -> tuple[Any, str]:
        """The config of the checkpoint in which the gate's task stands, and the task's id."""
        state = await self.bench.call(self.graph, "get_state", self.config, subgraphs=True)
        while True:
            (task,) = state.tasks
            if task.state is None:
                return state.config, task.id
            state = task.state


Way = Callable[[Target], Awaitable[Any]]
WAYS: dict[str, Way] = {}


def way(name: str) -> Callable[[Way], Way]:
    def add(function: Way) -> Way:
        WAYS[name] = function
        return function

    return add


def simple(name: str, make: Callable[[Target], Any], config: Callable[[Target], Any] | None = None, **run: Any) -> None:
    """A way that is one run."""

    async def go(t: Target) -> None:
        await t.run(make(t), None if config is None else config(t), **run)

    WAYS[name] = go


simple("bare", lambda t: Command(resume=RAW))
simple("by id", lambda t: Command(resume={t.id: RAW}))
simple("bare, empty", lambda t: Command(resume={}))
simple("bare, false", lambda t: Command(resume=False))
simple("bare, in a list", lambda t: Command(resume=[RAW]))
simple("bare, durability exit", lambda t: Command(resume=RAW), durability="exit")
simple("by id, durability async", lambda t: Command(resume={t.id: RAW}), durability="async")
simple("bare, at its checkpoint", lambda t: Command(resume=RAW), lambda t: t.at)
simple("by id, at its checkpoint", lambda t: Command(resume={t.id: RAW}), lambda t: t.at)
simple("bare, at the checkpoint before", lambda t: Command(resume=RAW), lambda t: t.before)
simple("by id, at the checkpoint before", lambda t: Command(resume={t.id: RAW}), lambda t: t.before)
simple("goto", lambda t: Command(goto=t.root))
simple("bare, with goto", lambda t: Command(resume=RAW, goto=t.root))
simple("by id, with goto", lambda t: Command(resume={t.id: RAW}, goto=t.root))
simple("bare, with a Send", lambda t: Command(resume=RAW, goto=[Send(t.root, {"log": []}) for _ in range(2)]))
simple("bare, with an update", lambda t: Command(resume=RAW, update={"log": ["more"]}))
simple("by id, with an update", lambda t: Command(resume={t.id: RAW}, update={"log": ["more"]}))
simple("a namespace in the config", lambda t: Command(resume=RAW), lambda t: t.with_(checkpoint_ns="elsewhere"))
simple("the gate's own namespace", lambda t: Command(resume={t.id: RAW}), lambda t: t.with_(checkpoint_ns="gate:1"))
simple("a resume map in the config", lambda t: None, lambda t: t.with_(__pregel_resume_map={t.id: RAW}))
simple(
    "a resume map in the config, with a resume",
    lambda t: Command(resume=RAW),
    lambda t: t.with_(__pregel_resume_map={t.id: RAW}),
)
simple(
    "a scratchpad in the config",
    lambda t: None,
    lambda t: t.with_(__pregel_scratchpad=Scratchpad(), __pregel_resuming=True),
)
simple("something in place of a lease", lambda t: Command(resume={t.id: RAW}), lambda t: t.with_(__symfonic_lease={}))


class Scratchpad:
    """What a graph takes for the scratchpad of a task around it."""

    def __init__(self) -> None:
        self.resume = [RAW]

    def get_null_resume(self, consume: bool = False) -> Any:
        return RAW

    def interrupt_counter(self) -> int:
        return 0

    def call_counter(self) -> int:
        return 0

    def subgraph_counter(self) -> int:
        return 0


@way("bare, then running on")
async def _(t: Target) -> None:
    await t.run(Command(resume=RAW))
    await t.run(None)


@way("by id, then running on")
async def _(t: Target) -> None:
    await t.run(Command(resume={t.id: RAW}))
    await t.run(None)


@way("bare and by id in turns")
async def _(t: Target) -> None:
    for resume in (RAW, {t.id: RAW}, RAW, {t.id: RAW}):
        await t.run(Command(resume=resume))


@way("update_state, then bare")
async def _(t: Target) -> None:
    await t.bench.call(t.graph, "update_state", t.config, {"log": ["more"]})
    await t.run(Command(resume=RAW))
    await t.run(None)


@way("update_state as the start, then bare")
async def _(t: Target) -> None:
    await t.bench.call(t.graph, "update_state", t.config, {"log": ["more"]}, as_node=START)
    await t.run(Command(resume=RAW))


@way("a fork of its checkpoint, then bare")
async def _(t: Target) -> None:
    fork = await t.bench.call(t.graph, "update_state", t.at, None, as_node="__copy__")
    await t.run(Command(resume=RAW), fork)
    await t.run(None)


@way("new input, then bare")
async def _(t: Target) -> None:
    await t.run({"log": ["more"]})
    await t.run(Command(resume=RAW))


@way("streamed")
async def _(t: Target) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - which one, other tests say
        await t.bench.collect(t.graph, "stream", Command(resume=RAW), t.config, stream_mode=["updates", "debug"])


@way("a bare resume left behind in the saver")
async def _(t: Target) -> None:
    await t.bench.call(t.bench.saver, "put_writes", t.at, [(RESUME, RAW)], names.NULL_TASK_ID)
    await t.run(None)


@way("a resume of the gate's task left behind in the saver")
async def _(t: Target) -> None:
    config, task_id = await t.leaf()
    await t.bench.call(t.bench.saver, "put_writes", config, [(RESUME, [RAW])], task_id)
    await t.run(None)


@way("a resume of the gate's task left behind, and a bare one on top")
async def _(t: Target) -> None:
    config, task_id = await t.leaf()
    await t.bench.call(t.bench.saver, "put_writes", config, [(RESUME, [RAW])], task_id)
    await t.run(Command(resume=RAW))
    await t.run(Command(resume={t.id: RAW}))


@way("another wrapper around the same saver")
async def _(t: Target) -> None:
    again = t.graph.copy(update={"checkpointer": t.bench.interrupts.checkpointer(t.bench.saver)})
    await tried(t.bench, again, "invoke", Command(resume=RAW), t.config)
    await tried(t.bench, again, "invoke", Command(resume={t.id: RAW}), t.config)


@way("the subgraph's own checkpoint")
async def _(t: Target) -> None:
    config, _ = await t.leaf()
    for resume in (RAW, {t.id: RAW}):
        await t.run(Command(resume=resume), config)


async def standing(bench: Bench, graph: Any, thread_id: str, root: str) -> Target:
    config = thread(thread_id)
    await bench.call(graph, "invoke", {"log": []}, config)
    history = await bench.collect(graph, "get_state_history", config)
    (asked,) = history[0].interrupts
    return Target(bench, graph, config, history[0].config, history[1].config, asked.id, root)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["native", "point"])
async def test_no_way_without_the_token_runs_the_body_and_afterwards_the_token_works(
    bench: Bench, kind: str, place: str
) -> None:
    gate = Gate(bench, kind, PLACES[place])
    graph, adapter = bench.compile(gate.builder(place))
    ran: dict[str, Any] = {}
    stuck: dict[str, Any] = {}
    for n, (name, go) in enumerate(WAYS.items()):
        gate.told, gate.passed = [], 0
        target = await standing(bench, graph, f"t{n}", PLACES[place].split(":")[0])
        await go(target)
        if gate.told or gate.passed:
            ran[name] = (list(gate.told), gate.passed)
        if not await bench.call(adapter, "pending", thread_id=f"t{n}"):
            stuck[name] = await tried(bench, graph, "invoke", None, target.config)  # superseded: it is asked again
        gate.told = []
        try:
            await finish(bench, graph, adapter, f"t{n}")
        except InterruptError as error:
            stuck[name] = error.code
        if gate.told and all(told == YES for told in gate.told):
            stuck.pop(name, None)
        else:
            stuck[name] = stuck.get(name), gate.told
    assert (ran, stuck) == ({}, {})
