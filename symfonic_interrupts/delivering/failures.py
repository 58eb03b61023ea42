"""The threads whose run raised after an answer, and that only an explicit delivery goes on with.

A delivery notes what its run raised. Only the checkpoints say whether the thread has gone on since, by a run of the
application's own: so each thread's checkpoint is read before it is listed. A thread that cannot be read is listed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from typing import Any

from symfonic_interrupts.core.arguments import checked_limit
from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.delivering.evidence import Outlook, Standing, checkpoint_at, id_of, look
from symfonic_interrupts.delivering.failed_thread import FailedThread, Raised
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.rows import FailedLease, PauseRow

log = logging.getLogger("symfonic_interrupts.delivery")


def list_failed(
    hub: Hub, graph_name: str, graph: Any, limit: int, scope: FrameworkTenantScope | None
) -> Effects[list[FailedThread]]:
    """See `ResumeAdapter.failed`. Forgets failures of threads that have gone on."""
    hub.database.check_open()
    most = checked_limit(limit, "deliver some of them first")
    leases, used = yield from transact(hub.operations.reading.list_failed, graph_name, scope)
    failed: list[FailedThread] = []
    for lease in leases:
        if len(failed) == most:
            return failed
        if (yield from _has_gone_on(hub, graph_name, graph, lease)):
            yield from transact(
                hub.operations.leasing.forget_failure, graph_name, lease["thread_id"], lease["failed_at"]
            )
        else:
            failed.append(FailedThread.of(lease))
    for thread_id, rows in _by_thread(used).items():
        if len(failed) == most:
            return failed
        ids = tuple(sorted(row["interrupt_id"] for row in rows))
        outlook = yield from _outlook(hub, graph_name, graph, thread_id, ids)
        if outlook is not None and outlook.failed:
            raised = Raised.kept(*outlook.failed[0])
            at = max(row["used_at"] for row in rows if row["used_at"] is not None)
            failed.append(FailedThread(thread_id, at, raised.node, raised.error_type, raised.message, ids))
    return failed


def forget_gone_on(hub: Hub, graph_name: str, graph: Any) -> Effects[None]:
    """Forget failures of threads that have gone on since, by a run of the application's own, and have an answer to be
    delivered: recovery would leave them alone."""
    for lease in (yield from transact(hub.operations.reading.list_failed_answered, graph_name)):
        if (yield from _has_gone_on(hub, graph_name, graph, lease)):
            yield from transact(
                hub.operations.leasing.forget_failure, graph_name, lease["thread_id"], lease["failed_at"]
            )


def _has_gone_on(hub: Hub, graph_name: str, graph: Any, lease: FailedLease) -> Effects[bool]:
    delivered = json.loads(lease["failed_ids"])
    outlook = yield from _outlook(hub, graph_name, graph, lease["thread_id"], delivered)
    return outlook is not None and not outlook.failed and not outlook.work


def _outlook(
    hub: Hub, graph_name: str, graph: Any, thread_id: str, delivered: Collection[str]
) -> Effects[Outlook | None]:
    """How the thread stands; None where that cannot be read.

    Args:
        delivered: interrupt ids of the answers that its run had when it failed. Others are still to be delivered.
    """
    try:
        head = yield from checkpoint_at(thread_id)
        if head is None:
            return None
        rows = yield from transact(hub.operations.reading.load_thread, graph_name, thread_id)
        ended = yield from transact(hub.operations.reading.ended_natives, graph_name, thread_id, str(id_of(head)))
        sending = [row for row in rows if row["state"] == "answered" and row["interrupt_id"] not in delivered]
        return (yield from look(graph, thread_id, {}, head, Standing.of(rows, ended, sending)))
    except Exception as error:
        log.debug("the checkpoint of thread %r cannot be read: %s", thread_id, type(error).__name__)
        return None


def _by_thread(rows: list[PauseRow]) -> dict[str, list[PauseRow]]:
    threads: dict[str, list[PauseRow]] = {}
    for row in rows:
        threads.setdefault(row["thread_id"], []).append(row)
    return threads
