"""The names of LangGraph that this library relies on and that LangGraph does not export: all of them, and only here.

`tests/graph/test_langgraph_names.py` says which one broke when a new LangGraph renames something. Everything else is
used by its public name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

G = TypeVar("G")

RUNTIME: Final = "__pregel_runtime"
"""Key of `configurable`: the run's `Runtime`; absent in `update_state`."""

CHECKPOINTER: Final = "__pregel_checkpointer"
"""Key of a task's `configurable`: the saver of the graph that the task belongs to."""

TASK_ID: Final = "__pregel_task_id"
"""Key of a task's `configurable`: the running task's id."""

STRICT_RESUME: Final = "__pregel_strict_resume"
"""Key of `configurable`: refuse unknown and consumed interrupt ids before anything is written."""

TASK_NS: Final = "checkpoint_ns"
"""Key of a task's `configurable`: the namespace of the task itself, `node:<task id>` below its parents'."""

SCRATCHPAD: Final = "__pregel_scratchpad"
"""Key of a task's `configurable`: what the task was resumed with, and how often it has called `interrupt()`."""

SEND: Final = "__pregel_send"
"""Key of a task's `configurable`: adds to the task's writes."""

CALL: Final = "__pregel_call"
"""Key of a task's `configurable`: schedules a `@task`; knows the loop that runs the task."""

CACHE: Final = "__pregel_cache"
"""Key of `configurable`: the cache of the graph, for the graphs below it."""

CHECKPOINT_MAP: Final = "checkpoint_map"
"""Key of a task's `configurable`: checkpoint id by namespace, from the root graph down."""

NULL_TASK_ID: Final = "00000000-0000-0000-0000-000000000000"
"""The task id under which a bare `Command(resume=...)` is written."""

ERROR_HANDLED: Final = "__error_source_node__"
"""Channel of a write that says that the task's error goes to an error handler."""

CONTROL_CHANNELS: Final = frozenset((ERROR, INTERRUPT, RESUME, ERROR_HANDLED))
"""Channels of writes that say what happened to a task; a write to any other channel is its output."""

NS_SEPARATOR: Final = "|"
NS_END: Final = ":"


def checkpointer_of(configurable: Mapping[str, Any]) -> object:
    """The saver of the graph whose task has this `configurable`; None or False where it has none."""
    return configurable.get(CHECKPOINTER)


def running_task_id(configurable: Mapping[str, Any], default: str) -> str:
    """The running task's id. `ExecutionInfo.task_id` will not do: in an error handler it names the node that failed."""
    return str(configurable.get(TASK_ID) or default)


def root_checkpoint_id(configurable: Mapping[str, Any], default: str) -> str:
    """The root graph's checkpoint, seen from one of its tasks or from a task of a graph below."""
    found = (configurable.get(CHECKPOINT_MAP) or {}).get("", default)
    return str(found)


def writes_ns(configurable: Mapping[str, Any], checkpoint_id: str) -> str:
    """The namespace of the checkpoint that keeps a task's writes.

    Not simply the task's namespace without its last part: a `@task` runs below its caller, and is kept beside it.
    """
    places = configurable.get(CHECKPOINT_MAP) or {}
    return min((ns for ns, id_ in places.items() if id_ == checkpoint_id), key=len, default="")


def node_path(task_ns: str) -> str:
    """`sub:node` from a task's namespace `sub:<task>|node:<task>`."""
    parts = task_ns.split(NS_SEPARATOR)
    return NS_END.join(part.split(NS_END)[0] for part in parts if not part.isdigit())  # a bare number is no node


def is_below(ns: str, task_ns: str) -> bool:
    """Whether a task at namespace `ns` is the one at `task_ns`, or runs below it. A graph with `checkpointer=True` keeps its
    namespace without task ids."""
    if ns == task_ns or ns.startswith(task_ns + NS_SEPARATOR):
        return True
    plain = NS_SEPARATOR.join(part.split(NS_END)[0] for part in task_ns.split(NS_SEPARATOR))
    return ns.startswith(plain + NS_SEPARATOR)


def task_ns(ns: str, node: str, task_id: str, answers: int = 0) -> str:
    """What LangGraph hashes to a task's interrupt id, given how many answers it had when it asked."""
    own = (ns + NS_SEPARATOR if ns else "") + f"{node}{NS_END}{task_id}"
    return own + (f"{NS_SEPARATOR}{answers}" if answers else "")


def execution_info(configurable: Mapping[str, Any]) -> Any:
    """The `ExecutionInfo` of the running task, which is one object for all that runs in one execution; None outside a task."""
    return getattr(configurable.get(RUNTIME), "execution_info", None)


def brought(configurable: Mapping[str, Any]) -> list[Any] | None:
    """The values that the running task was resumed with, by slot: the very list that a saver returned, and what this run's
    resume map added to it. None outside a task. LangGraph hands them to `interrupt()`."""
    found = getattr(configurable.get(SCRATCHPAD), "resume", None)
    return found if isinstance(found, list) else None


def take_bare_resume(configurable: Mapping[str, Any]) -> bool:
    """Whether the value of a bare `Command(resume=...)` lay ready for the next `interrupt()` of the running task. It is gone
    then: LangGraph tells of a value that was taken already only to whoever takes it."""
    scratchpad = configurable.get(SCRATCHPAD)
    return scratchpad is not None and scratchpad.get_null_resume(True) is not None


def times_asked(configurable: Mapping[str, Any]) -> int:
    """How often this execution of the task has called `interrupt()`. To be asked once, at its end: asking counts."""
    scratchpad = configurable.get(SCRATCHPAD)
    return 0 if scratchpad is None else int(scratchpad.interrupt_counter())


def writes_of_task(configurable: Mapping[str, Any]) -> Any:
    """The running task's writes, as they come; None where they cannot be seen (a node with a timeout hides them)."""
    return getattr(configurable.get(SEND), "__self__", None)


def cached_task(configurable: Mapping[str, Any]) -> str | None:
    """The name of the running task, or of one around it in the same graph, whose result goes into a cache; else None.

    Nodes carry a cache policy in the compiled graph; that of a `@task` is only seen here, in the loop that runs it.
    """
    loop = _loop_of(configurable.get(CALL))
    if loop is None:
        return "this task" if configurable.get(CACHE) is not None else None  # it cannot be told: not to be risked
    own = str(configurable.get(TASK_NS, ""))
    for task in list(loop.tasks.values()):
        around = str(((task.config or {}).get("configurable") or {}).get(TASK_NS, ""))
        if task.cache_key is not None and (own == around or own.startswith(around + NS_SEPARATOR)):
            return str(task.name)
    return None


def _loop_of(call: Any) -> Any:
    for _ in range(3):  # a node with a timeout has a guarded call around it
        if isinstance(call, partial):
            return getattr(call.keywords.get("schedule_task"), "__self__", None)
        cells = getattr(call, "__closure__", None) or ()
        inner = [cell.cell_contents for cell in cells if callable(cell.cell_contents)]
        call = next((found for found in inner if isinstance(found, partial)), inner[0] if inner else None)
    return None


def forget_runnable(node: Any) -> None:
    """Have a node's `bound` and `writers` put together anew: LangGraph does so once, and keeps the result."""
    for made in ("node", "flat_writers"):
        vars(node).pop(made, None)


INTERRUPTS: Final = "__interrupt__"
"""Key of a graph's output, and of an `updates` chunk, under which the questions stand that a run waits for."""


def graph_as(kind: type[G], graph: Any, update: Mapping[str, Any] | None = None, without: Collection[str] = ()) -> G:
    """A copy of a compiled graph of another class, with some attributes changed. All that a graph is stands in its `__dict__`;
    LangGraph's own `copy` hands that to `__init__`, which knows no attribute of ours."""
    made = object.__new__(kind)
    vars(made).update({key: value for key, value in vars(graph).items() if key not in without})
    vars(made).update(update or {})
    return made


def output_of(graph: Any, values: Any, output_keys: Any = None) -> Any:
    """Of a thread's values, what a run of the graph gives back: its output channels, or those that the call asks for."""
    keys = output_keys if output_keys is not None else graph.output_channels
    if not isinstance(values, dict):
        return values
    return values.get(keys) if isinstance(keys, str) else {key: values[key] for key in keys if key in values}
