"""How LangGraph writes down where in a graph a task runs: `sub:<task id>|node:<task id>`, and how an interrupt's id follows."""

from __future__ import annotations

from typing import Final

from langgraph.types import Interrupt

NS_SEPARATOR: Final = "|"
"""Between the levels of a namespace. With another one, a node below the root would not be found by its path."""

NS_END: Final = ":"
"""Between a node's name and the task's id; in this library also between the names of a path. With another one, no node would
be found by its path."""


def node_path(task_ns: str) -> str:
    """`sub:node` from a task's namespace `sub:<task>|node:<task>`."""
    parts = task_ns.split(NS_SEPARATOR)
    return NS_END.join(part.split(NS_END)[0] for part in parts if not part.isdigit())  # a bare number is no node


def path_of_subgraph(path: str) -> str:
    """The path of a node that is a graph, from the key under which `get_subgraphs(recurse=True)` yields it: `sub|below`. With
    another separator, points in graphs below the second level would be missed by the checks."""
    return path.replace(NS_SEPARATOR, NS_END)


def is_below(ns: str, task_ns: str) -> bool:
    """Whether a task at namespace `ns` is the one at `task_ns`, or runs below it. A graph with `checkpointer=True` keeps its
    namespace without task ids."""
    if ns == task_ns or ns.startswith(task_ns + NS_SEPARATOR):
        return True
    plain = NS_SEPARATOR.join(part.split(NS_END)[0] for part in task_ns.split(NS_SEPARATOR))
    return ns.startswith(plain + NS_SEPARATOR)


def namespaces_above(ns: str) -> list[str]:
    """The namespaces around this one, from the top down, without the root's."""
    return [ns[:end] for end, char in enumerate(ns) if char == NS_SEPARATOR]


def task_ns(ns: str, node: str, task_id: str, answers: int = 0) -> str:
    """The namespace of a node's task in the graph at `ns`; given how many answers it had, that of its next question."""
    own = (ns + NS_SEPARATOR if ns else "") + f"{node}{NS_END}{task_id}"
    return own + (f"{NS_SEPARATOR}{answers}" if answers else "")


def interrupt_id(ns: str, node: str, task_id: str, answers: int = 0) -> str:
    """The id that LangGraph gives to what a node asks with `interrupt()`, given how many answers its task had.

    It tells which node asked a native question. Computed otherwise, such questions would get no token.
    """
    return Interrupt.from_ns(None, task_ns(ns, node, task_id, answers)).id
