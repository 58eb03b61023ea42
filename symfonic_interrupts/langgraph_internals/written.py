"""What LangGraph writes into checkpoints, and how it orders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt, Send

NULL_TASK_ID: Final = "00000000-0000-0000-0000-000000000000"
"""The task id under which a bare `Command(resume=...)` is written. With another one, a bare resume would look like a task's
own answers, and could not be left out of a checkpoint."""

ERROR_HANDLED: Final = "__error_source_node__"
"""Channel of a write that says that the task's error goes to an error handler. Under another name, a task that failed would
look finished."""

CONTROL_CHANNELS: Final = frozenset((ERROR, INTERRUPT, RESUME, ERROR_HANDLED))
"""Channels of writes that say what happened to a task; a write to any other channel is its output. With a new one, a paused
task would look finished, and its answer unused."""


TRIGGER: Final = "branch:to:"
"""What the channel that triggers a node begins with; the node's name follows."""

TASKS: Final = "__pregel_tasks"
"""The channel of what is sent to nodes by `Send`."""


def came_before(checkpoint_id: str, other: str) -> bool:
    """Whether one checkpoint is older than another of the same thread.

    LangGraph makes ids as UUIDs of version 6, which grow with time and compare as text; the store's statements compare them in
    SQL, byte by byte, too. With other ids, answers of steps to come would be closed, and those of finished ones kept open.
    """
    return checkpoint_id < other


def older(checkpoint_id: str, other: str) -> str:
    """The older one of two checkpoints of the same thread."""
    return checkpoint_id if came_before(checkpoint_id, other) else other


def interrupts_in(value: Any) -> tuple[Interrupt, ...]:
    """The interrupts in the value of an INTERRUPT write: LangGraph writes a tuple of them. Whatever else an application puts
    there is passed over. In another shape, no pause would be seen and no token given out."""
    return tuple(i for i in (value if isinstance(value, list | tuple) else (value,)) if isinstance(i, Interrupt))


def interrupts_of(error: BaseException) -> tuple[Interrupt, ...]:
    """What an `interrupt()` that passes by asks: the first argument of its exception. In another place, the node that asked
    a native question would not be known, and its question would get no token."""
    return tuple(error.args[0]) if isinstance(error, GraphInterrupt) and error.args and error.args[0] else ()


def with_interrupts(output: Any, interrupts: Sequence[Interrupt]) -> Any:
    """The values of a thread as the graph's own `invoke` returns them where questions stand. Under another key, a delivery that
    had nothing to run would return something else than LangGraph does."""
    if not isinstance(output, dict):
        return output
    return {**output, **({INTERRUPT: list(interrupts)} if interrupts else {})}


def without_interrupts(output: Any) -> Any:
    """What `invoke` returned, without the questions. Under another key, an HTTP answer would say them twice."""
    return {k: v for k, v in output.items() if k != INTERRUPT} if isinstance(output, dict) else output


def next_nodes(checkpoint: Mapping[str, Any]) -> set[str]:
    """The nodes that a run of a `StateGraph` begins with at this checkpoint: those whose trigger has a value, and those
    that are sent something. Elsewhere, a run whose nodes nobody guards could begin at a node that asks."""
    values = checkpoint["channel_values"]
    sent = {packet.node for packet in values.get(TASKS) or () if isinstance(packet, Send)}
    return sent | {channel.removeprefix(TRIGGER) for channel in values if channel.startswith(TRIGGER)}
