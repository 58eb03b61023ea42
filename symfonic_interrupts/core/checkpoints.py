"""What a checkpoint's pending writes say: which of its tasks have finished, failed or wait, and for what.

Pure functions; a task is finished when it has an output write (see `langgraph.pregel`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.types import Interrupt

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.store.rows import PauseRow


@dataclass(slots=True)
class TaskState:
    """The state of one task, as its pending writes show it.

    Attributes:
        finished: it has written its output.
        failed: it has raised.
        handled: it has raised, and an error handler has taken over.
        interrupts: all that it has asked; `pending` has what is still open.
        resume: the value of its RESUME write: the answers that it was given, by slot.
    """

    finished: bool = False
    failed: bool = False
    handled: bool = False
    interrupts: tuple[Interrupt, ...] = ()
    resume: Any = ()

    @property
    def pending(self) -> tuple[Interrupt, ...]:
        """What the task still waits for."""
        return () if self.finished else self.interrupts


Tasks = Mapping[str, TaskState]


def read_tasks(pending_writes: Iterable[Any] | None) -> dict[str, TaskState]:
    """The tasks of a checkpoint from its pending writes."""
    tasks: dict[str, TaskState] = {}
    for task_id, channel, value in pending_writes or ():
        if task_id == names.NULL_TASK_ID:
            continue
        task = tasks.setdefault(task_id, TaskState())
        if channel == INTERRUPT:
            task.interrupts += names.interrupts_in(value)
        elif channel == RESUME:
            task.resume = value
        elif channel == ERROR:
            task.failed = True
        elif channel == names.ERROR_HANDLED:
            task.handled = True
        elif channel not in names.CONTROL_CHANNELS:
            task.finished = True
    return tasks


def is_marker(value: Any) -> bool:
    """Whether an interrupt's value is the marker of one of our points."""
    return (
        isinstance(value, dict)
        and value.get("type") in ("interrupt", "ask_user_question")
        and {"name", "interrupt_id", "task_id", "payload"} <= value.keys()
    )


Waiting = Mapping[str, Sequence[Interrupt]]
"""The interrupts that stand at a checkpoint, by the task that waits for them."""


def waiting_in(tasks: Tasks) -> Waiting:
    """What the tasks of a checkpoint wait for."""
    return {task_id: task.pending for task_id, task in tasks.items() if task.pending}


def is_pending(row: PauseRow, waiting: Waiting, leaf: TaskState | None = None) -> Interrupt | None:
    """The pending interrupt of the row's task at the thread's head, in any slot.

    A native question may have the form of a marker, so a marker alone proves nothing. LangGraph's interrupt id must fit; where
    a question has moved to another slot, the task that asked must have written the interrupt.

    Args:
        leaf: the state of the task that asked; None where its checkpoint was not read.
    """
    standing = waiting.get(row["task_id"], ())
    if not row["native"]:
        standing = [i for i in standing if is_marker(i.value) and i.value["task_id"] == row["leaf_task_id"]]
    for interrupt in standing:
        if interrupt.id == row["langgraph_id"]:
            return interrupt
    if row["native"]:
        return None
    written = None if leaf is None else {interrupt.id for interrupt in leaf.interrupts}
    return next((i for i in standing if written is None or i.id in written), None)


def was_answered_past(row: PauseRow, leaf: TaskState) -> bool:
    """Whether a native question was answered without its row: its slot in the RESUME write has a value already."""
    return bool(row["native"]) and isinstance(leaf.resume, list | tuple) and len(leaf.resume) > row["slot"]
