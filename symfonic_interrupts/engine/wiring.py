"""What is refused when a graph is put together, before anybody is asked anything."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from symfonic_interrupts.engine import langgraph_names as names
from symfonic_interrupts.engine.context import Engine
from symfonic_interrupts.engine.guards import guard_node, unguarded
from symfonic_interrupts.engine.point import POINT_ATTRIBUTE
from symfonic_interrupts.engine.saver import InterruptSaver
from symfonic_interrupts.errors import RegistrationError


def check_graph(engine: Engine, graph: Any) -> InterruptSaver:
    """The graph's saver, if the graph can pause safely.

    Raises:
        RegistrationError: no compiled graph, a saver that is not ours, a point in a cached node, a registered node that the
            graph does not have.
    """
    engine.database.check_open()
    if not hasattr(graph, "get_state") or not hasattr(graph, "checkpointer"):
        raise RegistrationError("graph must be a compiled LangGraph graph: builder.compile(checkpointer=...)")
    saver = graph.checkpointer
    if not isinstance(saver, InterruptSaver) or saver.engine is not engine:
        raise RegistrationError(
            "the graph's checkpointer is not from this Interrupts;"
            " compile it with checkpointer=interrupts.checkpointer(saver)"
        )
    nodes = dict(_nodes(graph))
    cached = frozenset(path for path, node in nodes.items() if getattr(node, "cache_policy", None) is not None)
    if getattr(graph, "cache_policy", None) is not None:
        cached |= {path for path in nodes if names.NS_END not in path}
    covered = {_path(entry) for r in engine.registry.values() for entry in r.nodes if _meant_for(entry, saver.graph)}
    for path in cached:
        if path in covered or _point_of(nodes[path]) is not None:
            raise RegistrationError(
                f"node {path!r} is a point and has a CachePolicy: another thread could get its answer from the cache;"
                " remove cache_policy from the node"
            )
    for registration in engine.registry.values():
        for entry in registration.nodes:
            if _meant_for(entry, saver.graph) and _path(entry) not in nodes:
                raise RegistrationError(
                    f"{registration.name}: nodes names {entry!r}, but graph {saver.graph!r} has no such node;"
                    f' it has {sorted(nodes)}. Where several graphs share this Interrupts, write "graph/node"'
                )
    for node in nodes.values():
        guard_node(node)
    saver.note_guards()
    _note(engine, saver.graph, cached, frozenset(nodes))
    return saver


def _note(engine: Engine, graph: str, cached: frozenset[str], nodes: frozenset[str]) -> None:
    with engine.lock:
        known = engine.graph_nodes.get(graph)
        engine.graph_nodes[graph] = nodes
        engine.cached_nodes[graph] = cached
    if known is not None and known != nodes:
        warnings.warn(
            f"two graphs go by the name {graph!r}: tokens of one are taken for the other's;"
            " name them: interrupts.checkpointer(saver, graph=...)",
            UserWarning,
            stacklevel=4,
        )


def _nodes(graph: Any) -> Iterator[tuple[str, Any]]:
    yield from ((name, node) for name, node in graph.nodes.items() if not name.startswith("__"))
    if hasattr(graph, "get_subgraphs"):
        for path, below in graph.get_subgraphs(recurse=True):
            prefix = path.replace(names.NS_SEPARATOR, names.NS_END)
            for name, node in below.nodes.items():
                if not name.startswith("__"):
                    yield f"{prefix}{names.NS_END}{name}", node


def _point_of(node: Any) -> str | None:
    bound = unguarded(getattr(node, "bound", None))
    for part in getattr(bound, "steps", None) or [bound]:
        step = unguarded(part)
        for function in (getattr(step, "func", None), getattr(step, "afunc", None)):
            name = getattr(function, POINT_ATTRIBUTE, None)
            if name is not None:
                return str(name)
    return None


def _meant_for(entry: str, graph: str) -> bool:
    in_graph, _, _ = entry.rpartition("/")
    return in_graph in ("", graph)


def _path(entry: str) -> str:
    return entry.rpartition("/")[2]
