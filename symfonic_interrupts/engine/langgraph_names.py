"""The names of LangGraph that this library relies on and that LangGraph does not export: all of them, and only here.

`tests/graph/test_langgraph_names.py` says which one broke when a new LangGraph renames something. Everything else is
used by its public name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

RUNTIME: Final = "__pregel_runtime"
"""Key of `configurable`: the run's `Runtime`; absent in `update_state`."""

CHECKPOINTER: Final = "__pregel_checkpointer"
"""Key of a task's `configurable`: the saver of the graph that the task belongs to."""

TASK_ID: Final = "__pregel_task_id"
"""Key of a task's `configurable`: the running task's id."""

STRICT_RESUME: Final = "__pregel_strict_resume"
"""Key of `configurable`: refuse unknown and consumed interrupt ids before anything is written."""

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
    parts = [part.split(NS_END)[0] for part in task_ns.split(NS_SEPARATOR)]
    return NS_END.join(part for part in parts if not part.isdigit())


def task_ns(ns: str, node: str, task_id: str, answers: int = 0) -> str:
    """What LangGraph hashes to a task's interrupt id, given how many answers it had when it asked."""
    own = (ns + NS_SEPARATOR if ns else "") + f"{node}{NS_END}{task_id}"
    return own + (f"{NS_SEPARATOR}{answers}" if answers else "")
