"""What a delivery and a sweep did, as JSON data without a token, a payload, or the message of somebody else's error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symfonic_interrupts.errors import InterruptError

if TYPE_CHECKING:
    from symfonic_interrupts.delivering.progress import Delivery
    from symfonic_interrupts.upkeep.janitor import SweepReport


def failure(error: Exception) -> dict[str, str | None]:
    """What may be told of an error: the library's own messages, of any other its type."""
    if isinstance(error, InterruptError):
        return {"type": type(error).__name__, "code": error.code, "message": f"{error.code}: {error}"}
    kind = type(error).__name__
    return {"type": kind, "code": None, "message": f"the graph raised {kind}"}


def delivery_data(delivery: Delivery) -> dict[str, Any]:
    """A delivery; its open pauses by id."""
    return {
        "thread_id": delivery.thread_id,
        "applied": list(delivery.applied),
        "unused": list(delivery.unused),
        "open": [event.interrupt_id for event in delivery.open],
        "error": None if delivery.error is None else failure(delivery.error),
    }


def failed_data(thread: Any) -> dict[str, str | None]:
    """A thread of `adapter.failed()`: where it failed, when (UTC) and with what, as far as that is known."""
    at = thread.at.isoformat().replace("+00:00", "Z")
    return {
        "thread_id": thread.thread_id,
        "at": at,
        "node": thread.node,
        "error_type": thread.error_type,
        "message": thread.message,
    }


def sweep_data(report: SweepReport) -> dict[str, Any]:
    """A sweep; its events as they are recorded."""
    return {
        "events": [event.model_dump(mode="json") for event in report.events],
        "defaulted": list(report.defaulted),
        "deliveries": [delivery_data(delivery) for delivery in report.deliveries],
        "refused": list(report.refused),
        "unknown": list(report.unknown),
    }
