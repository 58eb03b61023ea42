"""What a stream shows where an answer was refused: why, and the questions that wait, as a run of the graph shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.types import Interrupt, StateSnapshot

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.errors import InterruptError, ResponseInvalid

Refusal = dict[str, Any]


def refusal(error: InterruptError) -> Refusal:
    """Why an answer was refused, as JSON data, without what was sent.

    Returns:
        `code` and `message` of the error; of a `ResponseInvalid` also `errors`, as pydantic writes them, without the input.
    """
    told: Refusal = {"code": error.code, "message": str(error)}
    if isinstance(error, ResponseInvalid):
        told["errors"] = [{**each, "loc": list(each.get("loc", ()))} for each in error.errors]
    return told


def asked_again(graph: Any, kwargs: Mapping[str, Any], state: StateSnapshot, why: Refusal) -> Iterator[Any]:
    """The chunks of a run that stands where it stood: the refusal on `custom`, and the questions with it in their markers."""
    interrupts = tuple(_with(why, interrupt) for interrupt in state.interrupts)
    given: Any = kwargs.get("stream_mode") or getattr(graph, "stream_mode", "values")
    modes = [given] if isinstance(given, str) else list(given)
    values = names.output_of(graph, state.values, kwargs.get("output_keys"))
    data = {"custom": {"type": "answer_refused", **why}, "updates": {INTERRUPT: interrupts}, "values": values}
    for mode in ("custom", "updates", "values"):
        if mode not in modes or (mode == "updates" and not interrupts):
            continue
        if kwargs.get("version") == "v2":
            chunk = {"type": mode, "ns": (), "data": data[mode]}
            yield {**chunk, "interrupts": interrupts} if mode == "values" else chunk
            continue
        shown = data[mode]
        if mode == "values" and interrupts and isinstance(shown, dict):
            shown = {**shown, INTERRUPT: interrupts}
        parts: list[Any] = [()] if kwargs.get("subgraphs") else []
        parts += [shown] if isinstance(given, str) else [mode, shown]
        yield parts[0] if len(parts) == 1 else tuple(parts)


def _with(why: Refusal, interrupt: Interrupt) -> Interrupt:
    value = interrupt.value
    return replace(interrupt, value={**value, "refused": why}) if isinstance(value, dict) else interrupt
