"""What to do next for a thread: a pure function of its checkpoint, its stored answers and what was tried.

A stored answer ends as `applied` or `unused`, or stays while its task asks something else. Each answer is sent at most once
in a delivery, and a thread is continued at most once, so a delivery ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symfonic_interrupts.asking.envelope import jtis_in
from symfonic_interrupts.asking.plain_interrupts import stands_in
from symfonic_interrupts.core.checkpoints import Tasks, TaskState, is_marker, is_pending, waiting_in, was_answered_past
from symfonic_interrupts.store.rows import PauseWithAnswer


@dataclass(slots=True)
class Plan:
    """The next step of a delivery.

    Attributes:
        resume: answers to send, by the LangGraph id of the pending interrupt of their task.
        proceed: run the graph on without an answer.
        applied, unused: answers whose end is known.
        homeless: answers that were sent and did not arrive, while their question still stands: no task took them.
    """

    resume: dict[str, list[PauseWithAnswer]] = field(default_factory=dict)
    proceed: bool = False
    applied: list[PauseWithAnswer] = field(default_factory=list)
    unused: list[PauseWithAnswer] = field(default_factory=list)
    homeless: list[PauseWithAnswer] = field(default_factory=list)

    @property
    def answers(self) -> list[PauseWithAnswer]:
        """The answers to send."""
        return [row for together in self.resume.values() for row in together]


def is_durable(row: PauseWithAnswer, leaf: TaskState, native_value: Any) -> bool:
    """Whether the row's answer stands in the writes of the task that asked."""
    if row["native"]:
        return stands_in(leaf.resume, row["slot"], native_value)
    return row["jti"] in jtis_in(leaf.resume)


def was_used(row: PauseWithAnswer, leaf: TaskState, native_value: Any) -> bool:
    """Whether the task, which has finished, used the answer.

    Its RESUME write tells, but for two cases that were noted in the row: an answer given to a task that asked for something
    else, and a later answer of the same task (savers keep an older RESUME where a finishing task writes it again).
    """
    if row["skipped_at"] is not None:
        return False
    return row["used_at"] is not None or is_durable(row, leaf, native_value)


def _waits_only_for(closed: set[str], root: TaskState) -> bool:
    return all((i.value["interrupt_id"] if is_marker(i.value) else i.id) in closed for i in root.pending)


def plan(
    head: Tasks,
    leaves: Mapping[str, TaskState],
    answered: Sequence[PauseWithAnswer],
    native_values: Mapping[str, Any],
    *,
    tried: frozenset[str],
    may_proceed: bool,
    crashed: bool,
    retry_failed: bool,
    left: Collection[str] = (),
) -> Plan:
    """The next step.

    Args:
        head: the tasks of the thread's newest root checkpoint.
        leaves: by jti, the task that asked, from the checkpoint in which it asked.
        answered: answered pauses of that newest checkpoint.
        native_values: by jti, what a native node is sent.
        tried: jtis sent already in this delivery.
        may_proceed: nothing was run yet in this delivery.
        crashed: the run before this one did not end cleanly and left work.
        retry_failed: run nodes again that raised (an explicit delivery does, recovery does not).
        left: jtis of answers whose subgraph has gone on from the checkpoint that asked, without them.
    """
    step = Plan()
    waiting = waiting_in(head)
    closed = {row["langgraph_id"] if row["native"] else row["interrupt_id"] for row in answered}
    unfinished = crashed or (bool(head) and all(task.finished for task in head.values()))
    for row in answered:
        leaf = leaves.get(row["jti"], TaskState())
        root = head.get(row["task_id"], TaskState())
        pending = is_pending(row, waiting, leaf)
        if leaf.finished:
            (step.applied if was_used(row, leaf, native_values.get(row["jti"])) else step.unused).append(row)
            if row["leaf_task_id"] != row["task_id"] and not root.finished and _waits_only_for(closed, root):
                unfinished = True  # its subgraph went on and died: the root still shows the question
        elif is_durable(row, leaf, native_values.get(row["jti"])):
            if all(interrupt.id == row["langgraph_id"] for interrupt in leaf.interrupts):
                unfinished = unfinished or retry_failed or not leaf.failed  # it failed, or died, after its answer
            elif pending is not None and pending.id == row["langgraph_id"] and row["leaf_task_id"] != row["task_id"]:
                unfinished = True  # it asks something else, and the run died before the root graph knew
        elif pending is not None and row["used_at"] is not None and (leaf.failed or root.failed) and not retry_failed:
            # its node took it and was cut off, by a timeout: LangGraph keeps no RESUME of that
            unfinished = unfinished or leaf.handled or root.handled
        elif pending is not None:
            if row["jti"] not in tried:
                step.resume.setdefault(pending.id, []).append(row)
            else:
                step.homeless.append(row)
        elif root.finished or row["jti"] in left or was_answered_past(row, leaf):
            step.unused.append(row)
        else:
            unfinished = True
    failed = retry_failed and any(task.failed and not task.finished for task in head.values())
    step.proceed = may_proceed and not step.resume and (unfinished or failed)
    return step
