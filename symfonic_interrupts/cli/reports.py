"""Deliveries, failed threads, adoptions and sweeps as JSON data and in words.

None of it contains a token or a payload, or the message of an error that is not this library's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symfonic_interrupts.errors import InterruptError

if TYPE_CHECKING:
    from symfonic_interrupts.adapter.adopting import Adoption
    from symfonic_interrupts.delivering.failed_thread import FailedThread
    from symfonic_interrupts.delivering.progress import Delivery
    from symfonic_interrupts.upkeep.janitor import SweepReport


def error_data(error: Exception) -> dict[str, str | None]:
    """An error that may be shown: with its message if it is this library's, else only its type."""
    kind = type(error).__name__
    if isinstance(error, InterruptError):
        return {"type": kind, "code": error.code, "message": f"{error.code}: {error}"}
    return {"type": kind, "code": None, "message": f"the graph raised {kind}"}


def delivery_data(delivery: Delivery) -> dict[str, Any]:
    """A delivery; its open pauses are given by their ids."""
    return {
        "thread_id": delivery.thread_id,
        "applied": list(delivery.applied),
        "unused": list(delivery.unused),
        "open": [event.interrupt_id for event in delivery.open],
        "error": None if delivery.error is None else error_data(delivery.error),
    }


def failed_delivery_data(thread_id: str, error: Exception) -> dict[str, Any]:
    """A delivery that raised, in the shape of `delivery_data`."""
    return {"thread_id": thread_id, "applied": [], "unused": [], "open": [], "error": error_data(error)}


def failed_thread_data(thread: FailedThread) -> dict[str, str | None]:
    """A thread of `adapter.failed()`: where it failed, when (UTC) and with what, as far as that is known."""
    return {
        "thread_id": thread.thread_id,
        "at": thread.at.isoformat().replace("+00:00", "Z"),
        "node": thread.node,
        "error_type": thread.error_type,
        "message": thread.message,
    }


def adoption_data(report: Adoption) -> dict[str, Any]:
    """What was adopted, by ids, and what was left and why."""
    return {
        "adopted": [
            {"interrupt_id": event.interrupt_id, "name": event.name, "thread_id": event.thread_id}
            for event in report.adopted
        ],
        "left": [
            {
                "thread_id": left.thread_id,
                "langgraph_id": left.langgraph_id,
                "node": left.node,
                "code": left.code,
                "reason": left.reason,
            }
            for left in report.left
        ],
    }


def sweep_data(report: SweepReport) -> dict[str, Any]:
    """A sweep; its events have the form in which they are recorded."""
    return {
        "events": [event.model_dump(mode="json") for event in report.events],
        "defaulted": list(report.defaulted),
        "deliveries": [delivery_data(delivery) for delivery in report.deliveries],
        "refused": list(report.refused),
        "unknown": list(report.unknown),
    }


def outcome(delivery: dict[str, Any]) -> str:
    """In words, whether the thread went on, waits again or failed. Takes the data of `delivery_data`."""
    if delivery["error"] is not None:
        return f"failed: {delivery['error']['message']}"
    return "waits again" if delivery["open"] else "went on"


def failures_of(deliveries: Sequence[dict[str, Any]]) -> str | None:
    """In words, how many of the deliveries failed; None if none did."""
    failed = sum(delivery["error"] is not None for delivery in deliveries)
    return f"{failed} of {len(deliveries)} threads failed; their answers stay stored" if failed else None
