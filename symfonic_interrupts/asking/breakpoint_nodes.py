"""What runs at a breakpoint: the gate that asks, and what stands around a node's body and its edges."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.decorating import POINT_ATTRIBUTE
from symfonic_interrupts.core.executions import Remembered
from symfonic_interrupts.errors import RegistrationError

if TYPE_CHECKING:
    from symfonic_interrupts.asking.breakpoints import Breakpoints

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
        super().__init__(body, getattr(body, "func", None) or getattr(body, "afunc", None) or nothing)
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
        super().__init__(path, nothing)
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


def nothing(_state: Any) -> None:
    return None


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
