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
    """What a delivery does next.

    Attributes:
        resume: answers to send, by the LangGraph id of the pending interrupt of their task.
        proceed: run the graph on without an answer.
        applied, unused: answers that have ended so.
        homeless: answers that were sent and that no task took, though their question still stands.
    """

    resume: dict[str, list[PauseWithAnswer]] = field(default_factory=dict)
    proceed: bool = False
    applied: list[PauseWithAnswer] = field(default_factory=list)
    unused: list[PauseWithAnswer] = field(default_factory=list)
    homeless: list[PauseWithAnswer] = field(default_factory=list)

    @property
    def answers(self) -> list[PauseWithAnswer]:
        """The answers to send."""
        return [row for rows in self.resume.values() for row in rows]


def is_durable(row: PauseWithAnswer, leaf: TaskState, native_value: Any) -> bool:
    """Whether the row's answer stands in the writes of the task that asked."""
    if row["native"]:
        return stands_in(leaf.resume, row["slot"], native_value)
    return row["jti"] in jtis_in(leaf.resume)


def was_used(row: PauseWithAnswer, leaf: TaskState, native_value: Any) -> bool:
    """Whether the task, which has finished, used the answer.

    Its RESUME write says so, but for two cases that are noted in the row: the task was given the answer and asked for something
    else; or it is a later answer of the task (savers keep the older RESUME where a finishing task writes it again).
    """
    if row["skipped_at"] is not None:
        return False
    return row["used_at"] is not None or is_durable(row, leaf, native_value)


def _waits_only_for(closed: set[str], root: TaskState) -> bool:
    """Whether all that the root's task shows as open has been answered."""
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
    """What to do next.

    Args:
        head: the tasks of the thread's newest root checkpoint.
        leaves: by jti, the task that asked, from the checkpoint in which it asked.
        answered: answered pauses of that newest checkpoint.
        native_values: by jti, what a native node is sent.
        tried: jtis of answers that this delivery has sent.
        may_proceed: nothing was run yet in this delivery.
        crashed: the run before did not end cleanly and left work.
        retry_failed: run nodes again that raised (an explicit delivery does, recovery does not).
        left: jtis of answers whose subgraph has moved on to a newer checkpoint, without them.
    """
    next_plan = Plan()
    waiting = waiting_in(head)
    closed = {row["langgraph_id"] if row["native"] else row["interrupt_id"] for row in answered}
    unfinished = crashed or (bool(head) and all(task.finished for task in head.values()))
    for row in answered:
        leaf = leaves.get(row["jti"], TaskState())
        root = head.get(row["task_id"], TaskState())
        pending = is_pending(row, waiting, leaf)
        if leaf.finished:
            (next_plan.applied if was_used(row, leaf, native_values.get(row["jti"])) else next_plan.unused).append(row)
            if row["leaf_task_id"] != row["task_id"] and not root.finished and _waits_only_for(closed, root):
                unfinished = True  # the run died after its subgraph went on: the root still shows the question
        elif is_durable(row, leaf, native_values.get(row["jti"])):
            if all(interrupt.id == row["langgraph_id"] for interrupt in leaf.interrupts):
                # the task raised, or its run died, after it had the answer
                unfinished = unfinished or retry_failed or not leaf.failed
            elif pending is not None and pending.id == row["langgraph_id"] and row["leaf_task_id"] != row["task_id"]:
                unfinished = True  # the task asks something else, and the run died before that reached the root
        elif pending is not None and row["used_at"] is not None and (leaf.failed or root.failed) and not retry_failed:
            # the node took it and was cut off, by a timeout: LangGraph keeps no RESUME write then
            unfinished = unfinished or leaf.handled or root.handled
        elif pending is not None:
            if row["jti"] not in tried:
                next_plan.resume.setdefault(pending.id, []).append(row)
            else:
                next_plan.homeless.append(row)
        elif root.finished or row["jti"] in left or was_answered_past(row, leaf):
            next_plan.unused.append(row)
        else:
            unfinished = True
    failed = retry_failed and any(task.failed and not task.finished for task in head.values())
    next_plan.proceed = may_proceed and not next_plan.resume and (unfinished or failed)
    return next_plan
