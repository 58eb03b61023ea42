"""Payloads that differ at every pass: an answer fits the payload that it was given for, so none of them ever arrives.

The first answer in a row that does not fit what its task asks next gives an event and a warning; the third ends the run with
`PayloadInvalid`. The count is stored in the rows, so it does not matter which process delivers. Only names of fields are
reported, never values. Calls that run side by side, in a ToolNode, are not judged: there an answer may miss its pass by chance.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.guards import unguarded
from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.core.delivery_run import DeliveryRun
from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.executions import Execution
from symfonic_interrupts.core.hub import Hub, audit_log
from symfonic_interrupts.errors import PayloadInvalid
from symfonic_interrupts.store.operations import Claim
from symfonic_interrupts.store.rows import PauseRow

MOST_DRIFTS = 3
"""At this many misfits in a row the run ends with an error, instead of asking a person again."""

MOST_FIELDS = 20
"""So many names of fields are reported, at most."""


def tool_nodes(graph: Any, above: str = "") -> frozenset[str]:
    """Paths of the graph's ToolNodes and of those below it, where LangGraph can see them."""
    paths = {above + name for name, node in graph.nodes.items() if isinstance(unguarded(names.body_of(node)), ToolNode)}
    for name, child in graph.get_subgraphs():
        if isinstance(child, Pregel):
            paths |= tool_nodes(child, f"{above}{name}{names.NS_END}")
    return frozenset(paths)


@dataclass(frozen=True, slots=True)
class Drift:
    """A question that was asked where an answer to another payload had come.

    Attributes:
        name: the point.
        fields: the paths of what differs between the two payloads.
        times: how many answers in a row did not fit.
    """

    name: str
    fields: tuple[str, ...]
    times: int

    @property
    def is_last(self) -> bool:
        """Whether nobody is to be asked again."""
        return self.times >= MOST_DRIFTS

    def report(self) -> None:
        """Warn, or raise PayloadInvalid where nobody is to be asked again."""
        what = ", ".join(self.fields)
        if self.is_last:
            raise PayloadInvalid(
                f"{self.name}: {self.times} answers in a row did not fit what was asked next, which differs in: {what};"
                " the payload must be computed the same way at every pass"
            )
        warnings.warn(
            f"{self.name}: an answer did not fit what was asked next, which differs in: {what}; the payload must be computed"
            " the same way at every pass",
            UserWarning,
            stacklevel=2,
        )


def missed_answers(run: DeliveryRun | None, executions: Iterable[Execution]) -> list[str]:
    """Jtis of answers that this delivery brought to tasks that took none."""
    if run is None:
        return []
    missed: set[str] = set()
    for execution in executions:
        parts = names.node_path(execution.info.checkpoint_ns).split(names.NS_END)
        if any(names.NS_END.join(parts[: n + 1]) in run.side_by_side for n in range(len(parts))):
            continue  # another call may have asked first, and ended the pass
        with execution.lock:
            brought = execution.received & run.brought
            if not brought & execution.used.keys():
                missed |= brought
    return sorted(missed)


def note_drifts(hub: Hub, jtis: Sequence[str], asked: Sequence[PauseRow]) -> Effects[Drift | None]:
    """Record which of these new questions are drifts. Returns the one with the most misfits, or None.

    Args:
        jtis: of the answers that their tasks did not take.
        asked: rows of the questions, just opened.
    """
    drifts: list[Drift] = []
    answers = (yield from transact(hub.operations.reading.unfit_answers, jtis)) if jtis and asked else []
    for row in asked:
        before = [a for a in answers if (a["name"], a["leaf_task_id"]) == (row["name"], row["leaf_task_id"])]
        if not before or any(a["request_hash"] == row["request_hash"] for a in before):
            continue
        last = max(before, key=lambda answer: (answer["drifts"] or 0, answer["id"]))
        drift = Drift(row["name"], differing(last["payload"], row["payload"]), 1 + (last["drifts"] or 0))
        facts = {
            "name": drift.name,
            "answered": last["interrupt_id"],
            "fields": list(drift.fields),
            "times": drift.times,
        }
        # after the last one the count begins anew: the node may have been corrected
        counts = dict.fromkeys((a["jti"] for a in before), 0) if drift.is_last else {row["jti"]: drift.times}
        yield from transact(hub.operations.opening.count_drifts, counts, row, ("interrupt_drifted", facts))
        audit_log.warning("interrupt_drifted %s", canonical_json({**facts, "interrupt_id": row["interrupt_id"]}))
        if drift.is_last:
            closed = ("interrupt_superseded", {"name": row["name"]})
            yield from transact(hub.operations.claiming.close, row, Claim("superseded", "superseded"), closed)
        drifts.append(drift)
    return max(drifts, key=lambda drift: drift.times, default=None)


def differing(one: str, other: str) -> tuple[str, ...]:
    """The paths at which two JSON texts differ; a list counts as one path."""
    return tuple(sorted(_differing(json.loads(one), json.loads(other), "")))[:MOST_FIELDS] or ("the whole payload",)


def _differing(one: Any, other: Any, path: str) -> list[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return [
            differing_path
            for key in one.keys() | other.keys()
            for differing_path in _differing(
                one.get(key, _ABSENT), other.get(key, _ABSENT), f"{path}.{key}" if path else key
            )
        ]
    return [] if one == other and type(one) is type(other) else ([path] if path else [])


_ABSENT = object()
