"""What a compiled graph is made of, and the two things that are done to it: guards around its nodes, and a copy that streams
something else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from langchain_core.runnables import RunnableSequence

G = TypeVar("G")


def nodes_of(graph: Any) -> Iterator[tuple[str, Any]]:
    """The nodes that somebody wrote, by name; LangGraph's own begin with two underscores. Under other names, its own would be
    guarded too, and shown where nodes are listed."""
    return ((name, node) for name, node in graph.nodes.items() if not name.startswith("__"))


def body_of(node: Any) -> Any:
    """What a compiled node runs before it writes. Elsewhere, guards would stand around nothing, and points in cached nodes
    would not be refused."""
    return getattr(node, "bound", None)


def parts_of(node: Any) -> list[Any]:
    """The parts that a compiled node's body runs one after the other: those of a sequence, else the body alone. Under another
    name, a point or a graph within a sequence would not be seen."""
    body = body_of(node)
    return getattr(body, "steps", None) or [body]


def functions_of(part: Any) -> list[Any]:
    """The functions that a part of a body was made of. Elsewhere, a point would not be recognised, nor a middleware."""
    return [f for f in (getattr(part, "func", None), getattr(part, "afunc", None)) if f is not None]


def writers_of(node: Any) -> list[Any]:
    """What a compiled node runs after its body. Elsewhere, a node could finish with a question that nobody was asked."""
    found: list[Any] = node.writers
    return found


def is_cached(node_or_graph: Any) -> bool:
    """Whether the results of a compiled node go into a cache; or those of all nodes of a graph. Elsewhere, an answer could go
    to another thread."""
    return getattr(node_or_graph, "cache_policy", None) is not None


def put_around(node: Any, around: Callable[[Any, bool], Any], before_writes: Any) -> None:
    """Put something around each part of a compiled node's body, and something else before its writes. `around` is told whether
    the part is the first.

    LangGraph puts `bound` and `writers` together once, and keeps the result. If it kept it elsewhere, the guards would never
    run, and a resume past the adapter would count as an answer.
    """
    node.bound = _around_each(node.bound, around)
    node.writers = [before_writes, *node.writers]
    for kept in ("node", "flat_writers"):
        vars(node).pop(kept, None)


def _around_each(body: Any, around: Callable[[Any, bool], Any], is_first: bool = True) -> Any:
    steps = getattr(body, "steps", None)
    if not (isinstance(steps, list) and steps):
        return around(body, is_first)
    parts = [_around_each(step, around, is_first and n == 0) for n, step in enumerate(steps)]
    if isinstance(body, RunnableSequence):  # LangGraph runs its parts as the node's own: they stay so for callbacks
        return RunnableSequence(*parts, name=body.name)
    sequence = copy.copy(body)  # LangGraph's own kind of sequence
    sequence.steps = parts
    return sequence


def breakpoints_before(graph: Any) -> Any:
    """Nodes before which the graph stops, or "*"; none of a remote graph. Elsewhere, a worker would run past a breakpoint."""
    return getattr(graph, "interrupt_before_nodes", ())


def breakpoints_after(graph: Any) -> Any:
    """Nodes after which the graph stops, or "*"; none of a remote graph. Elsewhere, a worker would run past a breakpoint."""
    return getattr(graph, "interrupt_after_nodes", ())


def stream_mode_of(graph: Any) -> Any:
    """What the graph streams unless told otherwise. Elsewhere, events would be missing from the stream of a delivery that has
    nothing to run, or would come unasked."""
    return getattr(graph, "stream_mode", "updates")


def graph_as(kind: type[G], graph: Any, update: Mapping[str, Any] | None = None, without: Collection[str] = ()) -> G:
    """A copy of a compiled graph as another class, with some attributes changed. All that a graph is stands in its `__dict__`;
    LangGraph's own `copy` hands that to `__init__`, which refuses attributes of ours. Were some of it elsewhere, an answering
    graph would lack it."""
    made = object.__new__(kind)
    vars(made).update({key: value for key, value in vars(graph).items() if key not in without})
    vars(made).update(update or {})
    return made


def output_of(graph: Any, values: Any, output_keys: Any = None) -> Any:
    """Of a thread's values, what a run of the graph gives back: its output channels, or those that the call asks for. Under
    another name, a refused answer would show more of the state than a run does."""
    keys = output_keys if output_keys is not None else graph.output_channels
    if not isinstance(values, dict):
        return values
    return values.get(keys) if isinstance(keys, str) else {key: values[key] for key in keys if key in values}


def with_streams(graph: Any, stream: Callable[..., Any], astream: Callable[..., Any]) -> Any:
    """A copy of the graph that streams what these two yield; the graph itself stays as it is.

    LangGraph's `stream_events` and `astream_events` call the graph's own `stream` and `astream`. If they did not, such a run
    would not be a delivery. So the copy has no saver: run by itself, it knows no thread, and raises for want of an input.
    """
    replaced = copy.copy(graph)
    replaced.checkpointer = False
    replaced.stream, replaced.astream = stream, astream
    return replaced
