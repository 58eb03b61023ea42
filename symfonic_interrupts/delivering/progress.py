"""How far a delivery has come, and what it returns. Data and pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.delivering.failed_thread import FailedThread, Raised
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.store.rows import MovedPause, PauseWithAnswer

BREAKPOINTS = ("interrupt_before", "interrupt_after")
"""Keyword arguments of a graph's call that name static breakpoints."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a delivery did.

    Attributes:
        thread_id: the thread.
        output: what the graph's own `invoke` would return; None after a stream.
        applied: interrupt ids of answers that are now part of the graph's state.
        unused: interrupt ids of answers that the graph finished without.
        open: the thread's open pauses now, with their tokens.
        error: what the graph raised; only where several threads are delivered at once, else it is raised.
        failure: when that was, and in which node; as `ResumeAdapter.failed` lists it.
        ran: whether the graph was run.
    """

    thread_id: str
    output: Any = field(default=None, repr=False)
    applied: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    open: tuple[PauseEvent, ...] = ()
    error: Exception | None = None
    ran: bool = False
    failure: FailedThread | None = None


@dataclass(slots=True)
class Progress:
    """How far a delivery has come.

    Attributes:
        rows: the thread's open and answered pauses.
        output: what the graph's call returned.
        ran: whether the graph was run.
        raised: the exception of the graph's run.
        failure: the failure of an earlier run, read from the checkpoint, at which this delivery stops.
        ended: by jti, the state of each answer that has ended.
        ids: by jti, the interrupt id.
        over: the lease has ended with the last transaction.
    """

    rows: list[PauseWithAnswer]
    output: Any = None
    ran: bool = False
    raised: Exception | None = None
    failure: Raised | None = None
    ended: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    over: bool = False

    def note_ends(self, rows: list[MovedPause]) -> None:
        """Note how these answers ended."""
        for row in rows:
            self.ended[row["jti"]] = row["state"]
            self.ids[row["jti"]] = row["interrupt_id"]


def native_values(answered: list[PauseWithAnswer]) -> dict[str, Any]:
    """By jti, what a native node is sent."""
    return {row["jti"]: _value_of(row) for row in answered if row["native"]}


def _value_of(row: PauseWithAnswer) -> Any:
    assert row["answer_response"] is not None, "an answered pause has a response"
    return json.loads(row["answer_response"])


def jtis_of(rows: list[PauseWithAnswer]) -> list[str]:
    return [row["jti"] for row in rows]


def breakpoints_of(kwargs: Mapping[str, Any]) -> str | None:
    """The static breakpoints that a call of the graph is given, as canonical JSON; None where there are none."""
    given = {key: kwargs[key] for key in BREAKPOINTS if kwargs.get(key)}
    return canonical_json({k: v if isinstance(v, str) else list(v) for k, v in given.items()}) if given else None


def with_breakpoints(kwargs: dict[str, Any], stored: str | None) -> dict[str, Any]:
    """The call's arguments with the static breakpoints of the run that died, unless it names its own."""
    if stored is None or any(kwargs.get(key) for key in BREAKPOINTS):
        return kwargs
    return {**kwargs, **json.loads(stored)}


def at_breakpoint(graph: Any, kwargs: Mapping[str, Any], history: list[Any]) -> bool:
    """Whether the thread stands at a static breakpoint, of the graph or of this call of it."""
    before = kwargs.get("interrupt_before") or names.breakpoints_before(graph)
    after = kwargs.get("interrupt_after") or names.breakpoints_after(graph)
    ran = history[1].next if len(history) > 1 else ()
    return _names_one(before, history[0].next) or _names_one(after, ran)


def _names_one(breakpoints: Any, nodes: Any) -> bool:
    return bool(nodes) if breakpoints == "*" else bool(set(breakpoints) & set(nodes))


def custom_chunk(graph: Any, kwargs: Mapping[str, Any], event: PauseEvent) -> Any:
    """The event as the graph's own stream would give it, or None where "custom" was not asked for."""
    mode: Any = kwargs.get("stream_mode") or names.stream_mode_of(graph)
    several = isinstance(mode, list | tuple)
    if mode != "custom" and not (several and "custom" in mode):
        return None
    if kwargs.get("version") == "v2":
        return {"type": "custom", "ns": (), "data": event}
    if kwargs.get("subgraphs"):
        return ((), "custom", event) if several else ((), event)
    return ("custom", event) if several else event
