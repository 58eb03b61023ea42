"""What a thread's checkpoints say of its stored answers, and of the work that is left. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.core.checkpoints import TaskState, is_marker, is_pending, read_tasks, waiting_in
from symfonic_interrupts.core.effects import Effects, GetTuple, ReadHistory
from symfonic_interrupts.delivering.planner import is_durable, was_used
from symfonic_interrupts.delivering.progress import at_breakpoint, native_values
from symfonic_interrupts.store.rows import PauseWithAnswer


def checkpoint_at(thread_id: str, ns: str = "", checkpoint_id: str | None = None) -> GetTuple:
    """The effect that reads a checkpoint; without an id the newest of its namespace."""
    configurable = {"thread_id": thread_id, "checkpoint_ns": ns}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return GetTuple({"configurable": configurable})


def head_id(thread_id: str) -> Effects[str | None]:
    """The id of the thread's newest checkpoint; None where there is none or it cannot be read."""
    try:
        head = yield from checkpoint_at(thread_id)
    except Exception:
        return None
    return id_of(head)


def id_of(checkpoint: Any) -> str | None:
    """The id of a checkpoint that was read; None where there was none."""
    return None if checkpoint is None else str(checkpoint.config["configurable"]["checkpoint_id"])


def leaves_of(
    answered: list[PauseWithAnswer], read: dict[tuple[str, str], dict[str, TaskState]]
) -> Effects[dict[str, TaskState]]:
    """By jti, the task that asked, from the checkpoint in which it asked.

    Args:
        read: by (namespace, checkpoint id), the tasks of checkpoints that were read already; others are added.
    """
    leaves: dict[str, TaskState] = {}
    for row in answered:
        position = (row["leaf_ns"], row["leaf_checkpoint_id"])
        if position not in read:
            checkpoint = yield from checkpoint_at(row["thread_id"], *position)
            read[position] = read_tasks(checkpoint.pending_writes) if checkpoint is not None else {}
        leaves[row["jti"]] = read[position].get(row["leaf_task_id"], TaskState())
    return leaves


def used_before(checkpoint_id: str, rows: list[PauseWithAnswer]) -> Effects[list[str]]:
    """Jtis of answers to questions of earlier checkpoints that their tasks used: a run that died may not have noted it."""
    answered = [
        row for row in rows if row["state"] == "answered" and names.came_before(row["checkpoint_id"], checkpoint_id)
    ]
    leaves = yield from leaves_of(answered, {})
    values = native_values(answered)
    return [
        row["jti"]
        for row in answered
        if leaves[row["jti"]].finished and was_used(row, leaves[row["jti"]], values.get(row["jti"]))
    ]


def left_behind(
    answered: list[PauseWithAnswer], leaves: dict[str, TaskState], tasks: dict[str, TaskState]
) -> Effects[list[str]]:
    """Jtis of unused answers to a subgraph that has moved on to a newer checkpoint, as by `update_state`."""
    left: list[str] = []
    heads: dict[str, Any] = {}
    waiting = waiting_in(tasks)
    for row in answered:
        ns, leaf = row["leaf_ns"], leaves[row["jti"]]
        if not ns or row["native"] or row["used_at"] is not None or leaf.finished or is_durable(row, leaf, None):
            continue
        if is_pending(row, waiting, leaf) is None:
            if ns not in heads:
                heads[ns] = yield from checkpoint_at(row["thread_id"], ns)
            head = heads[ns]
            if head is not None and names.came_before(row["leaf_checkpoint_id"], str(id_of(head))):
                left.append(row["jti"])
    return left


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a thread stands that nobody drives.

    Attributes:
        work: a task was begun or comes next, and waits for no person.
        failed: (path, error) of each node that raised; the error as the checkpoint keeps it, its repr.
        at_breakpoint: it stands at a static breakpoint, of the graph or of one below it.
    """

    work: bool = False
    failed: tuple[tuple[str, str], ...] = ()
    at_breakpoint: bool = False

    def __or__(self, other: Outlook) -> Outlook:
        return Outlook(self.work or other.work, self.failed + other.failed, self.at_breakpoint or other.at_breakpoint)


@dataclass(frozen=True, slots=True)
class Standing:
    """Which of a thread's questions still stand.

    Attributes:
        open: ids of questions that wait for an answer, or for one that is about to be sent: ours by interrupt id, native ones
            by LangGraph's.
        ended: LangGraph's ids of native questions whose answers were used, or can no longer be.
    """

    open: frozenset[str]
    ended: frozenset[str]

    @classmethod
    def of(cls, rows: list[PauseWithAnswer], ended: set[str], sending: Iterable[PauseWithAnswer]) -> Standing:
        """From the thread's open and answered pauses.

        Args:
            ended: LangGraph's ids of native questions whose answers have ended.
            sending: answers that are about to be sent, or will be.
        """
        not_yet_used = [row for row in sending if row["used_at"] is None]
        standing = frozenset(
            _id_of(row) for row in (*(row for row in rows if row["state"] == "pending"), *not_yet_used)
        )
        natives = {row["langgraph_id"] for row in rows if row["native"] and row["state"] == "answered"}
        return cls(standing, frozenset(ended | natives) - standing)

    def is_waiting(self, state: TaskState) -> bool:
        """Whether the task waits for a person: all questions that it asks still stand."""
        ours = {i.value["interrupt_id"] for i in state.pending if is_marker(i.value)}
        return bool(state.pending) and ours <= self.open and not any(i.id in self.ended for i in state.pending)


def _id_of(row: PauseWithAnswer) -> str:
    return str(row["langgraph_id"] if row["native"] else row["interrupt_id"])


def look(graph: Any, thread_id: str, kwargs: dict[str, Any], head: Any, standing: Standing) -> Effects[Outlook]:
    """How the thread stands at this head.

    Args:
        kwargs: of the call that is about to be made; they may name breakpoints.
        standing: what is known of its questions.
    """
    return (yield from _look(graph, thread_id, "", kwargs, head, standing))


def _look(
    graph: Any, thread_id: str, ns: str, kwargs: dict[str, Any], head: Any, standing: Standing
) -> Effects[Outlook]:
    configurable = {"thread_id": thread_id, **({"checkpoint_ns": ns} if ns else {})}
    history = yield from ReadHistory({"configurable": configurable}, 2)
    if not history:
        return Outlook()
    if head is None:
        position = history[0].config["configurable"]
        head = yield from checkpoint_at(thread_id, position["checkpoint_ns"], position["checkpoint_id"])
    tasks = read_tasks(head.pending_writes if head is not None else ())
    if not tasks and at_breakpoint(graph, kwargs, history):
        return Outlook(at_breakpoint=True)
    named = {task.id for task in history[0].tasks}
    handlers = [task for id_, task in tasks.items() if id_ not in named]
    outlook = Outlook()
    for task in history[0].tasks:
        state = tasks.get(task.id, TaskState())
        if state.finished or standing.is_waiting(state) or any(map(standing.is_waiting, handlers)):
            continue
        below = Outlook()
        child_config: Any = task.state  # of a task that runs a graph: the config of that graph
        child = _graph_below(graph, task.name) if isinstance(child_config, dict) else None
        if child is not None:
            ns_below = str(child_config["configurable"]["checkpoint_ns"])
            below = yield from _look(child, thread_id, ns_below, {}, None, standing)
        raised = state if state.failed and not state.handled else next((h for h in handlers if h.failed), None)
        if below.failed:
            outlook |= Outlook(failed=tuple((f"{task.name}{names.NS_END}{path}", text) for path, text in below.failed))
        elif raised is not None:
            outlook |= Outlook(failed=((task.name, str(task.error or "")),))
        else:
            outlook |= Outlook(work=not below.at_breakpoint, at_breakpoint=below.at_breakpoint)
    return outlook


def _graph_below(graph: Any, node: str) -> Any:
    """The graph that the node runs, where LangGraph can see it."""
    return next((child for name, child in graph.get_subgraphs() if name == node), None)
