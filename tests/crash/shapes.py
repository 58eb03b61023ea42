"""The graphs that are killed: each asks in its own way, and leaves one line in the state for whatever happened once.

A gate leaves `order=note` with the note of its answer, a plain step its name. Payloads are the same at every pass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Send

from symfonic_interrupts import InterruptPoint, Interrupts
from tests.harness import Decision, Refund

Point = InterruptPoint[Refund, Decision]
TOO_LATE = "too late"

_slow: ContextVar[bool] = ContextVar("_slow", default=False)


def clock() -> datetime:
    """The time. To a question that lapses at once it is told two seconds late, so that nobody has to wait for its end."""
    return datetime.now(UTC) - timedelta(seconds=2 if _slow.get() else 0)


class State(TypedDict):
    log: Annotated[list[str], operator.add]
    below: Annotated[list[str], operator.add]


class Points:
    """The points of all shapes: one to be answered, one that takes its default at once, one that lapses at once."""

    def __init__(self, interrupts: Interrupts, *, awaits: bool) -> None:
        at_once = timedelta(seconds=1)
        schemas: Any = {"payload_schema": Refund, "response_schema": Decision}
        self.approval: Point = interrupts.register_interrupt("approval", **schemas)
        default = Decision(approved=False, note=TOO_LATE)
        self.defaulting: Point = interrupts.register_interrupt("defaulting", ttl=at_once, on_expire=default, **schemas)
        self.lapsing: Point = interrupts.register_interrupt("lapsing", ttl=at_once, **schemas)
        self._awaits = awaits

    def gate(self, order: str, *, point: Point | None = None, channel: str = "log") -> Any:
        """A node that asks once."""
        return self.asking(order, point=point, channel=channel)

    def asking(self, *orders: str, point: Point | None = None, channel: str = "log") -> Any:
        """A node that asks for each of these, one after the other."""
        asked = point or self.approval

        def body(state: Any) -> dict[str, list[str]]:
            return {channel: [f"{order}={_note(asked, order)}" for order in orders]}

        return self._node(body)

    def each(self, point: Point | None = None) -> Any:
        """A node that asks for the order that it was sent."""
        asked = point or self.approval

        def body(sent: Any) -> dict[str, list[str]]:
            return {"log": [f"{sent['order']}={_note(asked, sent['order'])}"]}

        return self._node(body)

    def step(self, name: str, channel: str = "log") -> Any:
        """A node that asks nothing."""
        return self._node(lambda state: {channel: [name]})

    def _node(self, body: Callable[[Any], dict[str, list[str]]]) -> Any:
        if not self._awaits:
            return body

        async def node(state: Any) -> dict[str, list[str]]:
            return body(state)

        return node


def _note(asked: Point, order: str) -> str:
    told = _slow.set(asked.registration.ttl is not None)
    try:
        return asked.pause(Refund(order=order, amount=1)).note
    finally:
        _slow.reset(told)


def siblings(points: Points) -> StateGraph[State]:
    """Two gates and a step side by side, joined."""
    builder = StateGraph(State).add_node("join", points.step("join"))
    for name, node in (("left", points.gate("left")), ("right", points.gate("right")), ("plain", points.step("plain"))):
        builder.add_node(name, node).add_edge(START, name)
    return builder.add_edge(["left", "right", "plain"], "join")


def twice(points: Points) -> StateGraph[State]:
    """Three questions in one node, between two steps."""
    nodes = [
        ("before", points.step("before")),
        ("ask", points.asking("first", "second", "third")),
        ("after", points.step("after")),
    ]
    return StateGraph(State).add_sequence(nodes).add_edge(START, "before")


def subgraph(points: Points) -> StateGraph[State]:
    """Two gates in a graph within the graph, steps around them, and a gate after it."""
    below = [
        ("enter", points.step("enter", "below")),
        ("inner", points.gate("inner", channel="below")),
        ("between", points.step("between", "below")),
        ("deep", points.gate("deep", channel="below")),
    ]
    child = StateGraph(State).add_sequence(below).add_edge(START, "enter").compile()
    nodes: list[Any] = [("child", child), ("outer", points.gate("outer")), ("after", points.step("after"))]
    return StateGraph(State).add_sequence(nodes).add_edge(START, "child")


def fan_out(points: Points) -> StateGraph[State]:
    """Three tasks of one gate, joined."""
    builder = StateGraph(State).add_node("each", points.each()).add_node("join", points.step("join"))
    builder.add_conditional_edges(START, lambda _: [Send("each", {"order": f"part{n}"}) for n in range(3)], ["each"])
    return builder.add_edge("each", "join")


def overdue(points: Points) -> StateGraph[State]:
    """Three questions that take their default and three that lapse, side by side; then one to be answered."""
    builder = StateGraph(State)
    builder.add_node("default", points.each(points.defaulting)).add_node("lapse", points.each(points.lapsing))
    sent = [Send(node, {"order": f"{node}{n}"}) for n in range(3) for node in ("default", "lapse")]
    builder.add_conditional_edges(START, lambda _: sent, ["default", "lapse"])
    builder.add_node("last", points.gate("last"))
    return builder.add_edge(["default", "lapse"], "last")


SHAPES: dict[str, Callable[[Points], StateGraph[State]]] = {
    "siblings": siblings,
    "twice": twice,
    "subgraph": subgraph,
    "fan_out": fan_out,
    "overdue": overdue,
}

HAPPENS_ONCE: dict[str, list[str]] = {
    "siblings": ["join", "left", "plain", "right"],
    "twice": ["after", "before", "first", "second", "third"],
    "subgraph": ["after", "between", "deep", "enter", "inner", "outer"],
    "fan_out": ["join", "part0", "part1", "part2"],
    "overdue": ["default0", "default1", "default2", "lapse0", "lapse1", "lapse2", "last"],
}
"""By shape, what stands in the final state: the steps' names and the gates' orders, sorted."""


def empty() -> dict[str, list[str]]:
    """The input of every shape."""
    return {"log": [], "below": []}
