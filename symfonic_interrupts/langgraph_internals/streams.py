"""How something gets into the stream of a run from outside of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from langchain_core.runnables.config import set_config_context
from langgraph.runtime import get_runtime
from langgraph.stream import StreamTransformer

from symfonic_interrupts.langgraph_internals.namespaces import task_ns
from symfonic_interrupts.langgraph_internals.running_task import RUNTIME, TASK_NS


class RunChannel(StreamTransformer):
    """A transformer whose channel is an attribute of the run itself. Under another name it would only be in `extensions`."""

    _native: ClassVar[bool] = True


def write_custom(config: Mapping[str, Any], task_id: str, values: Sequence[object]) -> None:
    """Stream values in mode "custom" from within a saver's call; without a run, nothing.

    The stream's writer takes the namespace of whoever writes from the config in context, and drops its last part, which is
    the task's own. A saver has no task, so a made-up part stands there. Otherwise tokens would not reach the stream.
    """
    place = config["configurable"]
    if not values or place.get(RUNTIME) is None:
        return
    there: Any = {**config, "configurable": {**place, TASK_NS: task_ns("", "x", task_id)}}
    with set_config_context(there) as context:
        for value in values:
            context.run(_write, value)


def _write(value: object) -> None:
    get_runtime().stream_writer(value)
