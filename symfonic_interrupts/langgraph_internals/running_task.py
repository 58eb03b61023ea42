"""What LangGraph hands to a task, and to the saver, in `config["configurable"]`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from symfonic_interrupts.langgraph_internals.namespaces import NS_SEPARATOR

RUNTIME: Final = "__pregel_runtime"
"""The run's `Runtime`; absent in `update_state` and where a thread is copied. Under another key, no pause would be opened."""

CHECKPOINTER: Final = "__pregel_checkpointer"
"""The saver of the graph that the task belongs to. Under another key, a point would refuse to pause, and no guard would act."""

TASK_ID: Final = "__pregel_task_id"
"""The running task's id. Under another key, answers would not reach a question that an error handler asks."""

STRICT_RESUME: Final = "__pregel_strict_resume"
"""Set by a delivery: LangGraph refuses unknown and consumed interrupt ids before anything is written. Under another key, an
answer that came too late would be lost without an error."""

TASK_NS: Final = "checkpoint_ns"
"""The namespace of the task itself, `node:<task id>` below its parents'. Under another key, its node could not be named."""

SCRATCHPAD: Final = "__pregel_scratchpad"
"""What the task was resumed with, and how often it has called `interrupt()`. Under another key, a covered native node would
take answers that came past the adapter."""

SEND: Final = "__pregel_send"
"""Adds to the task's writes. Under another key, a question that a finished task swallowed could not be told from one that can
still be asked."""

CALL: Final = "__pregel_call"
"""Schedules a `@task`; knows the loop that runs the task. Under another key, points in a cached `@task` would be let through
in graphs that have no cache of their own."""

CACHE: Final = "__pregel_cache"
"""The cache of the graph, for the graphs below it. See `cached_task`."""

CHECKPOINT_MAP: Final = "checkpoint_map"
"""Checkpoint id by namespace, from the root graph down. Under another key, a pause in a subgraph would not be found at its
thread's head."""


def is_a_run(configurable: Mapping[str, Any]) -> bool:
    """Whether a run calls the saver, and not `update_state` or somebody who copies a thread."""
    return RUNTIME in configurable


def run_of(configurable: Mapping[str, Any]) -> object:
    """The run that calls the saver: one object for all its writes at the root. Were it a new one each time, a pause would be
    announced more than once. None outside of a run."""
    return configurable.get(RUNTIME)


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


def execution_info(configurable: Mapping[str, Any]) -> Any:
    """The `ExecutionInfo` of the running task; None outside a task. `get_runtime().execution_info` is the same object."""
    return getattr(configurable.get(RUNTIME), "execution_info", None)


def execution_key(info: object) -> int:
    """What tells one execution of a task from the next, as long as `info` is kept: its `ExecutionInfo` is one object for all
    that runs in it, also for tool calls side by side. Were it copied, each question would look like the first of its pass."""
    return id(info)


def brought(configurable: Mapping[str, Any]) -> list[Any] | None:
    """The values that the running task was resumed with, by slot: the very list that a saver returned, and what this run's
    resume map added to it. None outside a task. LangGraph hands them to `interrupt()`. Were it a copy, stored answers could not
    be told from ones that a raw resume brings, and none would be let in."""
    found = getattr(configurable.get(SCRATCHPAD), "resume", None)
    return found if isinstance(found, list) else None


def take_bare_resume(configurable: Mapping[str, Any]) -> bool:
    """Whether the value of a bare `Command(resume=...)` lay ready for the next `interrupt()` of the running task. It is gone
    then: LangGraph tells of a value that was taken already only to whoever takes it. Otherwise a bare resume would answer a
    covered native node."""
    scratchpad = configurable.get(SCRATCHPAD)
    return scratchpad is not None and scratchpad.get_null_resume(True) is not None


def times_asked(configurable: Mapping[str, Any]) -> int:
    """How often this execution of the task has called `interrupt()`. To be asked once, at its end: asking counts. Otherwise a
    native question that a node swallowed would go unnoticed."""
    scratchpad = configurable.get(SCRATCHPAD)
    return 0 if scratchpad is None else int(scratchpad.interrupt_counter())


def writes_of_task(configurable: Mapping[str, Any]) -> Any:
    """The running task's writes, as they come; None where they cannot be seen (a node with a timeout hides them)."""
    return getattr(configurable.get(SEND), "__self__", None)


def cached_task(configurable: Mapping[str, Any]) -> str | None:
    """The name of the running task, or of one around it in the same graph, whose result goes into a cache; else None.

    Nodes carry a cache policy in the compiled graph; that of a `@task` is only seen here, in the loop that runs it. Unseen, one
    thread's answer would come out of the cache in another.
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
