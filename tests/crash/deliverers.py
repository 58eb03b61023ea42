"""A deliverer that dies: it asks and answers twice, by a point or by a covered `interrupt()`, at the root or below it.

What stands in the final state is one line per node. The second question comes from another node of the same graph.
"""

from __future__ import annotations

import operator
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from symfonic_interrupts import FrameworkConfig, Interrupts, KeyRing, ResumeAdapter
from symfonic_interrupts.testing import failpoints
from tests.contract.graphs import open_saver
from tests.harness import ACME, KEY, Decision, Refund, thread

KINDS = ("point", "native")
LEVELS = {"root": (), "subgraph": ("sub",), "two levels": ("outer", "sub")}
CONFIG = FrameworkConfig(experimental_interrupt=True, default_scope=ACME)
AHEAD = 2 * CONFIG.lease_ttl
"""How far the clock of whoever mends is ahead, so that what the dead began counts as left behind."""


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Outer(TypedDict):
    log: list[str]


def build(interrupts: Interrupts, kind: str, level: str) -> StateGraph[Any]:
    """`first` and `second` ask, and `last` does not; below as many graphs as the level says, each with a node behind it."""
    above = LEVELS[level]
    nodes = tuple(":".join((*above, name)) for name in ("first", "second"))
    covered = {"nodes": nodes} if kind == "native" else {}
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision, **covered)

    def asking(name: str) -> Any:
        def node(state: State) -> dict[str, Any]:
            shown = Refund(order=name, amount=1)
            note = interrupt(shown.model_dump())["note"] if kind == "native" else point.pause(shown).note
            return {"log": [f"{name}={note}"]}

        return node

    inner = StateGraph(State).add_sequence(
        [("first", asking("first")), ("second", asking("second")), ("last", lambda state: {"log": ["last"]})]
    )
    builder: StateGraph[Any] = inner.add_edge(START, "first")
    for name in reversed(above):
        outer = StateGraph(Outer).add_node(name, builder.compile())
        outer.add_node("behind", lambda state: {"log": [*state["log"], "behind"]})
        builder = outer.add_edge(START, name).add_edge(name, "behind")
    return builder


def expected(level: str) -> list[str]:
    """What stands in the state in the end."""
    return ["first=yes", "second=yes", "last", *["behind"] * len(LEVELS[level])]


def open_deliverer(
    stack: ExitStack, store: str, checkpoints: str, kind: str, level: str, ahead: timedelta = timedelta(0)
) -> tuple[Interrupts, ResumeAdapter]:
    """One process's connections, and the adapter of this kind and level."""
    saver = open_saver(stack, checkpoints)
    interrupts = stack.enter_context(
        Interrupts(store, keys=KeyRing([KEY]), config=CONFIG, clock=lambda: datetime.now(UTC) + ahead)
    )
    name = f"{kind} {level}".replace(" ", "_")
    graph = build(interrupts, kind, level).compile(checkpointer=interrupts.checkpointer(saver, graph=name))
    return interrupts, interrupts.resume_adapter(graph)


def answer_all(adapter: ResumeAdapter, thread_id: str) -> None:
    """Answer what the thread asks, until it asks no more."""
    while events := adapter.pending(thread_id=thread_id):
        adapter.invoke(events[0].pause_token, {"approved": True, "note": "yes"})


def deliver_and_die(
    ready: Callable[[], object],
    store: str,
    checkpoints: str,
    kind: str,
    level: str,
    at: str,
    times: int,
    thread_id: str,
) -> None:
    """Ask, then answer and deliver; killed when it reaches this failpoint for this time."""
    reached: Counter[str] = Counter()

    def die(place: str) -> None:
        reached[place] += 1
        if place == at and reached[place] == times:
            os.kill(os.getpid(), signal.SIGKILL)

    with ExitStack() as stack:
        interrupts, adapter = open_deliverer(stack, store, checkpoints, kind, level)
        ready()
        adapter.graph.invoke({"log": []}, thread(thread_id))
        with failpoints(interrupts, die):
            answer_all(adapter, thread_id)
