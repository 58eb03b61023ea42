"""Graphs with one guarded node, by a point or by `nodes=`, at their root or in subgraphs; and what its body was told."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from symfonic_interrupts import PauseNotReady, PauseSuperseded
from tests.harness import Bench, Decision, Refund, thread

YES = {"approved": True, "note": "by token"}
RAW = {"approved": True, "note": "raw"}
SHOWN = {"order": "A1", "amount": 5}

PLACES = {"root": "gate", "sub": "sub:gate", "two levels": "outer:sub:gate"}
"""Where the node stands, and its path."""


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


class Gate:
    """The guarded node `gate`, with the node `after` behind it in the same graph.

    Attributes:
        told: what the body of `gate` was told, in order.
        passed: how often `after` ran.
        ask: how `gate` asks: to be called in a node; returns the answer as plain data.
    """

    def __init__(self, bench: Bench, kind: str, path: str = "gate", **options: Any) -> None:
        self.told: list[Any] = []
        self.passed = 0
        self.ask: Callable[[], Any]
        if kind == "native":
            bench.refunds(nodes=(path,), **options)
            self.ask = lambda: interrupt(SHOWN)
        else:
            point = bench.refunds(**options)
            self.ask = lambda: point.pause(Refund(**SHOWN)).model_dump()

    def node(self, state: State) -> dict[str, Any]:
        answer = self.ask()
        self.told.append(answer)
        return {"log": [answer["note"]]}

    def after(self, state: State) -> dict[str, Any]:
        self.passed += 1
        return {"log": []}

    def builder(self, place: str = "root", **options: Any) -> StateGraph[State]:
        """The graph; `options` are of the node `gate`."""
        inner = StateGraph(State).add_node("gate", self.node, **options).add_node("after", self.after)
        inner.add_edge(START, "gate").add_edge("gate", "after")
        for level in PLACES[place].split(":")[-2::-1]:
            inner = StateGraph(State).add_node(level, inner.compile()).add_edge(START, level)
        return inner


async def tried(bench: Bench, target: Any, method: str, *args: Any, **kwargs: Any) -> str:
    """Call and see: the name of what was raised, or an empty text."""
    try:
        await bench.call(target, method, *args, **kwargs)
    except Exception as error:
        return type(error).__name__
    return ""


def counted(bench: Bench) -> int:
    """How many resumes were refused at doors."""
    return int(bench.rows("SELECT coalesce(sum(count), 0) FROM interrupt_refusals WHERE code = 'resume_refused'")[0][0])


async def finish(bench: Bench, graph: Any, adapter: Any, thread_id: str = "t1", most: int = 4) -> None:
    """Answer by token all that the thread asks."""
    for _ in range(most):
        open_ = await bench.call(adapter, "pending", thread_id=thread_id)
        if not open_:
            return
        for event in open_:
            with suppress(PauseNotReady, PauseSuperseded):  # of a step that was travelled back over
                await bench.call(adapter, "answer", event.pause_token, YES)
        await bench.call(adapter, "deliver", thread_id)


__all__ = [
    "PLACES",
    "RAW",
    "SHOWN",
    "YES",
    "Decision",
    "Gate",
    "State",
    "counted",
    "finish",
    "thread",
    "tried",
]
