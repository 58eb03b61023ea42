"""What a `StateGraph` is made of before it is compiled, and the one thing that is done to it: a node runs something else."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Final

PUSH: Final = "__pregel_push"
"""What the path of a task begins with that was sent to its node by `Send`. With another one, what a person changes would go
into the state of all instead of into what that task was sent."""


def was_sent(config: Mapping[str, Any]) -> bool:
    """Whether the running task got its input by `Send`, and not from the graph's state."""
    path: list[Any] = list((config.get("metadata") or {}).get("langgraph_path") or ())
    return path[:1] == [PUSH]


def builder_of(graph: Any) -> Any:
    """What a graph was compiled from; None of a graph that is no `StateGraph`. Elsewhere, edges that were drawn around a
    breakpoint would not be seen."""
    return getattr(graph, "builder", None)


def body_in(builder: Any, node: str) -> Any:
    """What the node will run. Elsewhere, a breakpoint would run nothing when a person lets it go on."""
    return builder.nodes[node].runnable


def goes_to(builder: Any, node: str) -> Collection[str]:
    """Where the node says that its `Command(goto=...)` may go. Elsewhere, one that goes past a breakpoint would be found only
    when it runs."""
    return tuple(builder.nodes[node].ends or ())


def set_body(builder: Any, node: str, body: Any) -> None:
    """Have the node run something else; all else that was said of it stays. Were it kept elsewhere, a node would run without
    being asked for."""
    builder.nodes[node] = dataclasses.replace(builder.nodes[node], runnable=body)


def edges_from(builder: Any, node: str) -> set[str]:
    """Where the node's plain edges lead. Elsewhere, a graph would go on where a person sent it elsewhere."""
    return {end for start, end in builder.edges if start == node}


def drop_edges(builder: Any, node: str) -> None:
    """Take the node's plain edges away."""
    builder.edges -= {edge for edge in builder.edges if edge[0] == node}


def joins_from(builder: Any, node: str) -> list[tuple[tuple[str, ...], str]]:
    """The edges that wait for this node and others. Elsewhere, as for plain ones."""
    return [edge for edge in builder.waiting_edges if node in edge[0]]


def move_joins(builder: Any, node: str, to: str) -> None:
    """Have what waits for this node and others wait for another instead of it."""
    for starts, end in joins_from(builder, node):
        builder.waiting_edges.discard((starts, end))
        builder.waiting_edges.add((tuple(to if start == node else start for start in starts), end))


def branches_of(builder: Any, node: str) -> dict[str, Any]:
    """The node's conditional edges by name; each has the `path` that decides. Elsewhere, as for plain ones."""
    found: dict[str, Any] = builder.branches.get(node, {})
    return found


def move_branches(builder: Any, node: str, to: str) -> None:
    """Let another node have this one's conditional edges."""
    builder.branches[to].update(builder.branches.pop(node, {}))


def set_path(builder: Any, node: str, name: str, path: Any) -> None:
    """Let something else decide where a conditional edge goes."""
    builder.branches[node][name] = builder.branches[node][name]._replace(path=path)


def channel_in(builder: Any, key: str) -> Any:
    """The channel that keeps a key of the state, with its reducer; None where the state has no such key. Elsewhere, nobody
    could change the state at a breakpoint."""
    return builder.channels.get(key)
