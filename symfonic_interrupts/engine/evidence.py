"""What a thread's checkpoints say of its stored answers, and of what a run that died has left. Reads, and decides nothing."""

from __future__ import annotations

from typing import Any

from symfonic_interrupts.engine.planner import (
    TaskState,
    is_durable,
    is_marker,
    is_pending,
    read_tasks,
    waiting_in,
    was_used,
)
from symfonic_interrupts.engine.progress import at_breakpoint, native_values
from symfonic_interrupts.engine.steps import CallSaver, ReadHistory, Steps
from symfonic_interrupts.store.schema import PauseRow


def checkpoint_at(thread_id: str, ns: str = "", checkpoint_id: str | None = None) -> CallSaver:
    """The step that reads a checkpoint; without an id the newest of its namespace."""
    place = {"thread_id": thread_id, "checkpoint_ns": ns}
    if checkpoint_id is not None:
        place["checkpoint_id"] = checkpoint_id
    return CallSaver("get_tuple", ({"configurable": place},))


def head_id(thread_id: str) -> Steps[str | None]:
    """The thread's newest checkpoint, or None where it cannot be told."""
    try:
        head = yield checkpoint_at(thread_id)
    except Exception:
        return None
    return id_of(head)


def id_of(checkpoint: Any) -> str | None:
    """The id of a checkpoint that was read; None where there was none."""
    return None if checkpoint is None else str(checkpoint.config["configurable"]["checkpoint_id"])


def leaves_of(
    answered: list[PauseRow], read: dict[tuple[str, str], dict[str, TaskState]]
) -> Steps[dict[str, TaskState]]:
    """By jti, the task that asked, from the checkpoint in which it asked."""
    leaves: dict[str, TaskState] = {}
    for row in answered:
        place = (row["leaf_ns"], row["leaf_checkpoint_id"])
        if place not in read:
            found = yield checkpoint_at(row["thread_id"], *place)
            read[place] = read_tasks(found.pending_writes) if found is not None else {}
        leaves[row["jti"]] = read[place].get(row["leaf_task_id"], TaskState())
    return leaves


def used_before(checkpoint_id: str, rows: list[PauseRow]) -> Steps[list[str]]:
    """Answers to questions before this checkpoint that their tasks did use: a run that died may not have noted it."""
    answered = [row for row in rows if row["state"] == "answered" and row["checkpoint_id"] < checkpoint_id]
    leaves = yield from leaves_of(answered, {})
    values = native_values(answered)
    return [
        row["jti"]
        for row in answered
        if leaves[row["jti"]].finished and was_used(row, leaves[row["jti"]], values.get(row["jti"]))
    ]


def left_behind(
    answered: list[PauseRow], leaves: dict[str, TaskState], tasks: dict[str, TaskState]
) -> Steps[list[str]]:
    """Jtis of unused answers to questions of a subgraph whose state was changed: it stands elsewhere now."""
    left: list[str] = []
    heads: dict[str, Any] = {}
    waiting = waiting_in(tasks)
    for row in answered:
        ns, leaf = row["leaf_ns"], leaves[row["jti"]]
        if not ns or row["native"] or row["used_at"] is not None or leaf.finished or is_durable(row, leaf, None):
            continue
        if is_pending(row, waiting, leaf) is None:
            if ns not in heads:
                heads[ns] = yield checkpoint_at(row["thread_id"], ns)
            head = heads[ns]
            if head is not None and head.config["configurable"]["checkpoint_id"] > row["leaf_checkpoint_id"]:
                left.append(row["jti"])
    return left


def has_work(graph: Any, thread_id: str, kwargs: dict[str, Any], head: Any, rows: list[PauseRow]) -> Steps[bool]:
    """Whether the run that died left more than open questions, and does not just stand at a static breakpoint."""
    history = yield ReadHistory({"configurable": {"thread_id": thread_id}}, 2)
    tasks = read_tasks(head.pending_writes)
    if not tasks and at_breakpoint(graph, kwargs, history):
        return False
    known = {row["langgraph_id"] if row["native"] else row["interrupt_id"] for row in rows if row["state"] == "pending"}
    for task in history[0].tasks:
        state = tasks.get(task.id, TaskState())
        asked = [i.value["interrupt_id"] if is_marker(i.value) and i.id not in known else i.id for i in state.pending]
        if not state.finished and (not state.pending or not known.issuperset(asked)):
            return True
    return False
