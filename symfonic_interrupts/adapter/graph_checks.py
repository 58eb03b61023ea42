"""What is refused when a graph is put together, before anybody is asked anything."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.breakpoints import check_edges
from symfonic_interrupts.asking.decorating import POINT_ATTRIBUTE
from symfonic_interrupts.asking.guards import guard_node, unguarded
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.registration import InterruptRegistration
from symfonic_interrupts.saver.saver import InterruptSaver


def check_graph(hub: Hub, graph: Any) -> InterruptSaver:
    """The graph's saver, if the graph can pause safely.

    Raises:
        RegistrationError: a LangGraph that is not as this library needs it; no compiled graph, a saver that is not ours, a
            point in a cached node, a registered node that the graph does not have or that two points cover.
    """
    names.verify_once()
    hub.database.check_open()
    if not hasattr(graph, "get_state") or not hasattr(graph, "checkpointer"):
        raise RegistrationError("graph must be a compiled LangGraph graph: builder.compile(checkpointer=...)")
    saver = graph.checkpointer
    if not isinstance(saver, InterruptSaver) or saver.hub is not hub:
        raise RegistrationError(
            "the graph's checkpointer is not from this Interrupts;"
            " compile it with checkpointer=interrupts.checkpointer(saver)"
        )
    for _, each in _graphs(graph):
        if (builder := names.builder_of(each)) is not None:
            check_edges(builder)
    nodes = dict(_nodes(graph))
    covered = list(hub.covered_nodes(saver.graph, node_objects(nodes)))
    _check_cover(saver.graph, nodes, covered)
    cached = frozenset(path for path, node in nodes.items() if names.is_cached(node))
    if names.is_cached(graph):
        cached |= {path for path in nodes if names.NS_END not in path}
    for path in cached:
        if any(path == asks for _, asks in covered) or _is_point(nodes[path]):
            raise RegistrationError(
                f"node {path!r} is a point and has a CachePolicy: another thread could get its answer from the cache;"
                " remove cache_policy from the node"
            )
    _note(hub, saver.graph, nodes, cached)
    for node in nodes.values():
        guard_node(node)
    saver.note_guards()
    _warn_of_strangers(hub, saver.graph)
    _warn_of_breakpoints(saver.graph, graph)
    return saver


def node_objects(nodes: Mapping[str, Any]) -> dict[str, list[object]]:
    """The objects whose methods the nodes run, by the part of the node's path before its own name (`""`, `"sub:"`)."""
    owners: dict[str, list[object]] = {}
    for path, node in nodes.items():
        above, end, _ = path.rpartition(names.NS_END)
        here = owners.setdefault(above + end, [])
        for function in _functions(node):
            owner = getattr(function, "__self__", None)
            if owner is not None and not any(owner is known for known in here):
                here.append(owner)
    return owners


def _check_cover(graph: str, nodes: Mapping[str, Any], covered: list[tuple[InterruptRegistration, str]]) -> None:
    by: dict[str, str] = {}
    for registration, path in covered:
        if path.partition(names.NS_END)[0] not in nodes:
            raise RegistrationError(
                f"{registration.name}: nodes names {path!r}, but graph {graph!r} has no such node;"
                f' it has {sorted(nodes)}. Where several graphs share this Interrupts, write "graph/node"'
            )
        if by.setdefault(path, registration.name) != registration.name:
            raise RegistrationError(
                f"{registration.name}: node {path!r} of graph {graph!r} is covered by {by[path]} already"
            )
        if path not in nodes and (parent := _closed_above(path, nodes)) is not None:
            warnings.warn(
                f"{registration.name}: nodes names {path!r}, but the graph that is node {parent!r} of {graph!r} has no such"
                f" node, so no question is covered by it; it has {_below(parent, nodes)}",
                UserWarning,
                stacklevel=5,
            )


def _warn_of_strangers(hub: Hub, graph: str) -> None:
    """Warn of a graph that carries an object of the same class as the registered one, but not that one: likely a factory was
    called twice."""
    everywhere = [o for by_prefix in hub.node_objects.values() for objects in by_prefix.values() for o in objects]
    owners = [r.nodes_of for r in hub.registry.values() if r.nodes_of is not None]
    for registration in hub.registry.values():
        owner = registration.nodes_of
        if owner is None or any(owner is other for other in everywhere):
            continue
        for objects in hub.node_objects[graph].values():
            if any(_kind(o) == _kind(owner) and not any(o is known for known in owners) for o in objects):
                warnings.warn(
                    f"{registration.name}: graph {graph!r} carries another {type(owner).__name__} than the one that is"
                    " registered, so its questions get no token; register the very object that the graph was made with",
                    UserWarning,
                    stacklevel=5,
                )


def _warn_of_breakpoints(name: str, graph: Any) -> None:
    """Where a graph stops without a question, whoever knows the thread runs it on."""
    for path, each in _graphs(graph):
        for word, found in (("before", names.breakpoints_before(each)), ("after", names.breakpoints_after(each))):
            if found:
                nodes = found if isinstance(found, str) else sorted(found)
                where = f"graph {name!r}" + (f", below {path!r}," if path else "")
                warnings.warn(
                    f"{where} has plain breakpoints (interrupt_{word}={nodes!r}): whoever runs the thread passes them, and"
                    f" nothing is recorded; make them points: interrupts.breakpoint(builder, {word}=[...])",
                    UserWarning,
                    stacklevel=5,
                )


def _kind(held: object) -> tuple[str, str]:
    """The class of an object as it was written: a middleware that is registered may have a subclass of the same name."""
    return type(held).__module__, type(held).__qualname__


def _closed_above(path: str, nodes: Mapping[str, Any]) -> str | None:
    """The node above `path` that is a compiled graph without the next node of `path`; None below a function."""
    parts = path.split(names.NS_END)
    for n in range(1, len(parts)):
        parent = names.NS_END.join(parts[:n])
        if not any(hasattr(part, "get_subgraphs") for part in _parts(nodes[parent])):
            return None
        if names.NS_END.join(parts[: n + 1]) not in nodes:
            return parent
    return None


def _below(parent: str, nodes: Mapping[str, Any]) -> list[str]:
    return sorted(path for path in nodes if path.rpartition(names.NS_END)[0] == parent)


def _note(hub: Hub, graph: str, nodes: Mapping[str, Any], cached: frozenset[str]) -> None:
    with hub.lock:
        known = hub.graph_nodes.get(graph)
        hub.graph_nodes[graph] = frozenset(nodes)
        hub.node_objects[graph] = node_objects(nodes)
        hub.cached_nodes[graph] = cached
    if known is not None and known != frozenset(nodes):
        warnings.warn(
            f"two graphs go by the name {graph!r}: tokens of one are taken for the other's;"
            " name them: interrupts.checkpointer(saver, graph=...)",
            UserWarning,
            stacklevel=4,
        )


def _graphs(graph: Any) -> Iterator[tuple[str, Any]]:
    """The graph and those below it, with the paths of the nodes that they are."""
    yield "", graph
    if hasattr(graph, "get_subgraphs"):
        for path, below in graph.get_subgraphs(recurse=True):
            yield names.path_of_subgraph(path), below


def _nodes(graph: Any) -> Iterator[tuple[str, Any]]:
    for path, each in _graphs(graph):
        for name, node in names.nodes_of(each):
            yield (f"{path}{names.NS_END}{name}" if path else name), node


def _is_point(node: Any) -> bool:
    return any(hasattr(function, POINT_ATTRIBUTE) for function in _functions(node))


def _functions(node: Any) -> Iterator[Any]:
    for part in _parts(node):
        for function in names.functions_of(part):
            yield inspect.unwrap(function, stop=lambda f: hasattr(f, POINT_ATTRIBUTE))


def _parts(node: Any) -> list[Any]:
    return [unguarded(part) for part in names.parts_of(node)]
