"""Static breakpoints that are points: a graph stops before or after a node, and goes on with an answer and not without.

Before a node, the node itself asks and then runs its body, in one task: whatever leads to it, by edge, `Command` or `Send`,
leads to the question. After a node, another one stands between it and what its edges lead to, so nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, get_type_hints

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, StateGraph
from pydantic import TypeAdapter, ValidationError

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.breakpoint_nodes import (
    Always,
    BreakpointAnswer,
    BreakpointStop,
    Gate,
    Gated,
    Otherwise,
    Route,
    Watched,
    nothing,
)
from symfonic_interrupts.asking.decorating import is_async
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.registration import ResponseValidator


@dataclass(frozen=True)
class Breakpoints:
    """Some breakpoints of one graph that have a point in common.

    Args:
        name: of the point, for messages.
        show: from the state, what is shown: JSON data or a model.
        may_change: keys of the state that an answer may change; None: those that were shown under their own names.
    """

    name: str
    builder: Any
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    show: Callable[[Any], Any] | None = None
    otherwise: Otherwise | None = None
    may_change: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.builder, StateGraph):
            self._refuse(f"a breakpoint needs the StateGraph, before it is compiled, not {type(self.builder).__name__}")
        for word in ("before", "after", "may_change"):
            given = getattr(self, word)
            if given is None and word == "may_change":
                continue
            if isinstance(given, str) or not all(isinstance(one, str) for one in given):
                self._refuse(f"{word}= must be a list of names")
        if not self.before and not self.after:
            self._refuse("name a node in before= or after=")
        for node in (*self.before, *self.after):
            if node not in self.builder.nodes:
                self._refuse(f"the graph has no node {node!r}; it has {sorted(self.builder.nodes)}")
        for key in self.may_change or ():
            if names.channel_in(self.builder, key) is None:
                self._refuse(f"may_change: the state has no key {key!r}")
        for word in ("show", "otherwise"):
            if is_async(getattr(self, word)):
                self._refuse(f"{word}= must not be async")
        if self.show is not None and not callable(self.show):
            self._refuse("show= must be a function of the state")
        if isinstance(self.otherwise, str):
            if self.otherwise not in (*self.builder.nodes, END):
                self._refuse(f"otherwise= names {self.otherwise!r}, and the graph has no such node")
        elif self.otherwise is not None and not callable(self.otherwise):
            self._refuse("otherwise= must be the name of a node, END, or a function of (state, answer)")
        self._check_nodes()

    def _check_nodes(self) -> None:
        for node in self.before:
            if isinstance(names.body_in(self.builder, node), Gated):
                self._refuse(f"node {node!r} has a breakpoint before it already")
            if self.otherwise is not None and node not in self.after and names.joins_from(self.builder, node):
                self._refuse(
                    f"an edge waits for {node!r} and others, so the graph cannot go elsewhere instead of {node!r}: leave out"
                    " otherwise="
                )
        for node in self.after:
            if after_name(node) in self.builder.nodes:
                self._refuse(
                    f"node {node!r} has a breakpoint after it already, or a node is named {after_name(node)!r}"
                )
            if isinstance(names.body_in(self.builder, node), Gated):
                self._refuse(
                    f"node {node!r} has a breakpoint before it; set the one after it first, or both in one call"
                )
            if names.goes_to(self.builder, node):
                self._refuse(f"node {node!r} goes on by Command(goto=...): name in before= where it goes")
            if self.otherwise is not None and names.joins_from(self.builder, node):
                self._refuse(
                    f"an edge waits for {node!r} and others, so the graph cannot go elsewhere from it: leave out otherwise="
                )

    def _refuse(self, message: str) -> NoReturn:
        raise RegistrationError(f"{self.name}: {message}")

    def validator(self, further: ResponseValidator | None) -> ResponseValidator:
        """What looks at an answer before it is taken."""

        def check(answer: BreakpointAnswer, stop: BreakpointStop) -> None:
            if not answer.proceed and self.otherwise is None:
                raise ValueError("this breakpoint has no way elsewhere: proceed must be true")
            shown = stop.shown if isinstance(stop.shown, Mapping) else {}
            may = set(shown if self.may_change is None else self.may_change)
            for key, value in answer.update.items():
                if key not in may or names.channel_in(self.builder, key) is None:
                    raise ValueError(f"update: {key!r} cannot be changed here")
                self.as_in_state(key, value)
            if further is not None:
                further(answer, stop)

        return check

    def as_in_state(self, key: str, value: Any) -> Any:
        """A changed value as the state has it. Raises ValueError where it does not fit."""
        adapter = self._types.get(key)
        if adapter is None:
            return value
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False, include_context=False)[0]["msg"]
        raise ValueError(f"update: {key!r} does not fit the state: {problem}")

    @cached_property
    def _types(self) -> dict[str, TypeAdapter[Any]]:
        found: dict[str, TypeAdapter[Any]] = {}
        for schema in self.builder.schemas:
            for key, hint in _hints(schema).items():
                with suppress(Exception):  # a type that pydantic knows nothing of: the reducer judges
                    found.setdefault(key, TypeAdapter(hint))
        return found

    def set(self, pause: Callable[[Any], Any]) -> None:
        """Set them. `pause` asks, and returns the answer."""
        for node in self.after:
            stop = after_name(node)
            watched = Watched(names.body_in(self.builder, node), self.name, node)
            names.set_body(self.builder, node, watched)
            ends = names.edges_from(self.builder, node)
            self.builder.add_node(stop, Gated(RunnableLambda(nothing), Gate(self, pause, node, "after")))
            names.move_joins(self.builder, node, stop)
            names.move_branches(self.builder, node, stop)
            names.drop_edges(self.builder, node)
            self.builder.add_edge(node, stop)
            for end in ends:
                self.builder.add_edge(stop, end)
            self._may_leave(stop)
        for node in self.before:
            gate = Gate(self, pause, node, "before")
            names.set_body(self.builder, node, Gated(names.body_in(self.builder, node), gate))
            self._may_leave(node)

    def _may_leave(self, node: str) -> None:
        """Have the node's edges lead nowhere in a task that a person has sent elsewhere."""
        if self.otherwise is None:
            return
        gate = names.body_in(self.builder, node).gate
        for name, branch in names.branches_of(self.builder, node).items():
            names.set_path(self.builder, node, name, Route(branch.path, gate))
        if ends := names.edges_from(self.builder, node):
            names.drop_edges(self.builder, node)
            path: Any = Route(Always(sorted(ends)), gate)
            path.name = "goes_on"
            self.builder.add_conditional_edges(node, path, sorted(ends))


def after_name(node: str) -> str:
    """The name of the node that stops after another."""
    return f"{node}_breakpoint"


def check_edges(builder: Any) -> None:
    """Raise RegistrationError where an edge was drawn after the breakpoints were set, and leads past one."""
    for node in builder.nodes:
        body = names.body_in(builder, node)
        inner = body.body if isinstance(body, Gated) else body
        ends = names.edges_from(builder, node)
        branches, joins = names.branches_of(builder, node).values(), names.joins_from(builder, node)
        past = False
        if isinstance(body, Gated) and body.gate.points.otherwise is not None:
            past = bool(ends or joins) or not all(isinstance(branch.path, Route) for branch in branches)
        if isinstance(inner, Watched):
            own = {after_name(node)}
            led = {end for branch in branches for end in branch.ends or ("?",)}
            past = past or bool((ends | led) - own or joins)
        if past:
            raise RegistrationError(
                f"an edge from {node!r} was added after interrupts.breakpoint(), and leads past it; add all edges before"
            )


def _hints(schema: Any) -> dict[str, Any]:
    try:
        return get_type_hints(schema)
    except Exception:  # names that cannot be resolved: the reducer judges
        return {}
