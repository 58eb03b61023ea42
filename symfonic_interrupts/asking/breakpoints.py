"""Static breakpoints that are points: a graph stops before or after a node, and goes on with an answer and not without.

Before a node, the node itself asks and then runs its body, in one task: whatever leads to it, by edge, `Command` or `Send`,
leads to the question. After a node, another one stands between it and what its edges lead to, so nothing is done twice.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NoReturn, get_type_hints

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, StateGraph
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.decorating import POINT_ATTRIBUTE, is_async
from symfonic_interrupts.core.executions import Remembered
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.registration import ResponseValidator

Otherwise = str | Callable[[Any, "BreakpointAnswer"], Any]
"""The node (or `END`) where the graph goes that may not proceed; or a function of (state, answer) that returns one, or a
`Command` with `update` and `goto`."""


class BreakpointStop(BaseModel):
    """What is asked at a breakpoint.

    Attributes:
        node: the node that the graph stops at.
        when: whether it stops before or after it.
        shown: what `show` returned for the state, as JSON data; None where there is no `show`.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    node: str
    when: Literal["before", "after"]
    shown: Any = Field(default=None, repr=False)


class BreakpointAnswer(BaseModel):
    """How the graph goes on.

    Attributes:
        proceed: with the node, or after it along its edges; else to where `otherwise` says.
        update: changes of the state, by key, as JSON data; as if a node had returned them just before.
        note: a word about it; recorded with the answer, and seen by `otherwise`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    proceed: bool
    update: dict[str, Any] = Field(default={}, repr=False)
    note: str = Field(default="", repr=False)


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
            self.builder.add_node(stop, Gated(RunnableLambda(_nothing), Gate(self, pause, node, "after")))
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


@dataclass(frozen=True)
class Gate:
    """One breakpoint: asks, and keeps for the node's edges whether a task was sent elsewhere."""

    points: Breakpoints
    pause: Callable[[Any], Any]
    node: str
    when: Literal["before", "after"]
    left: Remembered = field(default_factory=Remembered, repr=False)

    def ask(self, state: Any, config: RunnableConfig | None) -> BreakpointAnswer:
        """What a person says."""
        self.left.forget(_task(config))
        shown = None if self.points.show is None else self.points.show(state)
        if isinstance(shown, BaseModel):
            shown = shown.model_dump(mode="json")
        answer: BreakpointAnswer = self.pause(BreakpointStop(node=self.node, when=self.when, shown=shown))
        return answer

    def elsewhere(self, state: Any, answer: BreakpointAnswer, config: RunnableConfig | None) -> Any:
        """What the node returns whose body does not run."""
        otherwise = self.points.otherwise
        goes = otherwise(state, answer) if callable(otherwise) else otherwise
        if isinstance(goes, str):
            goes = Command(goto=goes)
        if not isinstance(goes, Command):
            raise RegistrationError(
                f"{self.points.name}: otherwise= must return the name of a node or a Command, not {type(goes).__name__}"
            )
        self.left.note(_task(config))
        return self.merged({} if names.was_sent(config or {}) else self._update(answer), goes)

    def changed(
        self, state: Any, answer: BreakpointAnswer, config: RunnableConfig | None
    ) -> tuple[Any, dict[str, Any]]:
        """The state as the body gets it, and what is written of that beside what the body returns."""
        update = self._update(answer)
        if names.was_sent(config or {}):  # it was given something of its own
            return _replaced(state, update), {}
        return _replaced(state, {key: self._reduced(key, state, value) for key, value in update.items()}), update

    def merged(self, update: dict[str, Any], output: Any) -> Any:
        """An output after changes of the state. Where a key takes one value in a step, the later one is the output's."""
        written = _written(output)
        kept = {key: value for key, value in update.items() if self._takes(key, [value, *written.get(key, ())])}
        if not kept:
            return output
        more = [] if output is None else output if isinstance(output, list | tuple) else [output]
        return [Command(update=kept), *more]

    def _update(self, answer: BreakpointAnswer) -> dict[str, Any]:
        return {key: self.points.as_in_state(key, value) for key, value in answer.update.items()}

    def _reduced(self, key: str, state: Any, value: Any) -> Any:
        channel = names.channel_in(self.points.builder, key)
        now = state.get(key, END) if isinstance(state, Mapping) else getattr(state, key, END)
        channel = channel.copy() if now is END else channel.from_checkpoint(now)
        channel.update([value])
        return channel.get()

    def _takes(self, key: str, values: Sequence[Any]) -> bool:
        try:
            names.channel_in(self.points.builder, key).copy().update(values)
        except InvalidUpdateError:
            return False
        return True


class Around(RunnableLambda[Any, Any]):
    """Something around a runnable of the author's. It starts no run of its own, and a graph within is still seen."""

    def __init__(self, body: Any, func: Callable[..., Any]) -> None:
        super().__init__(func, name=getattr(body, "name", None))
        self.body = body

    @property
    def deps(self) -> list[Runnable[Any, Any]]:
        return [self.body]

    stream = Runnable.stream
    astream = Runnable.astream
    transform = Runnable.transform
    atransform = Runnable.atransform


class Gated(Around):
    """A node's body behind a breakpoint."""

    def __init__(self, body: Any, gate: Gate) -> None:
        def point(state: Any) -> Any:
            return gate.ask(state, None)

        setattr(point, POINT_ATTRIBUTE, gate.points.name)
        super().__init__(body, point)
        self.gate = gate

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - Runnable's name
        answer = self.gate.ask(input, config)
        if not answer.proceed:
            return self.gate.elsewhere(input, answer, config)
        state, update = self.gate.changed(input, answer, config)
        return self.gate.merged(update, self.body.invoke(state, config, **kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        answer = self.gate.ask(input, config)
        if not answer.proceed:
            return self.gate.elsewhere(input, answer, config)
        state, update = self.gate.changed(input, answer, config)
        return self.gate.merged(update, await self.body.ainvoke(state, config, **kwargs))


class Watched(Around):
    """The body of a node with a breakpoint after it: it may not go past that."""

    def __init__(self, body: Any, name: str, node: str) -> None:
        super().__init__(body, getattr(body, "func", None) or getattr(body, "afunc", None) or _nothing)
        self._refusal = f"{name}: node {node!r} went on by Command(goto=...); name in before= where it goes"

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        return self._checked(self.body.invoke(input, config, **kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        return self._checked(await self.body.ainvoke(input, config, **kwargs))

    def _checked(self, output: Any) -> Any:
        parts = output if isinstance(output, list | tuple) else [output]
        if any(isinstance(part, Command) and part.goto for part in parts):
            raise RegistrationError(self._refusal)
        return output


class Route(Around):
    """Where a node's edges lead: nowhere, if the task was sent elsewhere."""

    def __init__(self, path: Any, gate: Gate) -> None:
        super().__init__(path, _nothing)
        self._gate = gate

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        return [] if _task(config) in self._gate.left else self.body.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        return [] if _task(config) in self._gate.left else await self.body.ainvoke(input, config, **kwargs)


class Always(Runnable[Any, list[str]]):
    """Leads to all of some nodes, as plain edges do."""

    def __init__(self, ends: list[str]) -> None:
        self._ends = ends

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> list[str]:  # noqa: A002
        return self._ends

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> list[str]:  # noqa: A002
        return self._ends


def _task(config: RunnableConfig | None) -> str:
    return names.running_task_id((config or {}).get("configurable") or {}, "")


def _nothing(_state: Any) -> None:
    return None


def _hints(schema: Any) -> dict[str, Any]:
    try:
        return get_type_hints(schema)
    except Exception:  # names that cannot be resolved: the reducer judges
        return {}


def _replaced(state: Any, changes: Mapping[str, Any]) -> Any:
    if not changes:
        return state
    if isinstance(state, Mapping):
        return {**state, **changes}
    if isinstance(state, BaseModel):
        return state.model_copy(update={k: v for k, v in changes.items() if k in type(state).model_fields})
    if dataclasses.is_dataclass(state) and not inspect.isclass(state):
        own = {one.name for one in dataclasses.fields(state)}
        return dataclasses.replace(state, **{key: value for key, value in changes.items() if key in own})
    return state


def _written(output: Any) -> dict[str, list[Any]]:
    """By key, what a node's output writes."""
    if isinstance(output, Command):
        return _written(output.update)
    if isinstance(output, Mapping):
        return {key: [value] for key, value in output.items()}
    if isinstance(output, BaseModel):
        return {key: [getattr(output, key)] for key in output.model_fields_set}
    if dataclasses.is_dataclass(output) and not inspect.isclass(output):
        return {one.name: [getattr(output, one.name)] for one in dataclasses.fields(output)}
    found: dict[str, list[Any]] = {}
    for part in output if isinstance(output, list | tuple) else ():
        pair = isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str)
        for key, values in ({part[0]: [part[1]]} if pair else _written(part)).items():
            found.setdefault(key, []).extend(values)
    return found
