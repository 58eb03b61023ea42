"""The threads whose run raised after an answer, and that only an explicit delivery goes on with.

A delivery notes what its run raised. Only the checkpoints say whether the thread has gone on since, by a run of the
application's own: so each thread is looked at before it is listed. What cannot be read is listed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from symfonic_interrupts.engine.context import Engine
from symfonic_interrupts.engine.evidence import Outlook, Standing, checkpoint_at, id_of, look
from symfonic_interrupts.engine.failed_thread import FailedThread, Raised
from symfonic_interrupts.engine.listing import checked_limit
from symfonic_interrupts.engine.steps import Steps, transact
from symfonic_interrupts.scope import FrameworkTenantScope

log = logging.getLogger("symfonic_interrupts.delivery")


def list_failed(
    engine: Engine, graph_name: str, graph: Any, limit: int, scope: FrameworkTenantScope | None
) -> Steps[list[FailedThread]]:
    """See `ResumeAdapter.failed`. Forgets failures of threads that have gone on."""
    engine.database.check_open()
    most = checked_limit(limit, "deliver some of them first")
    leases, used = yield transact(engine.operations.list_failed, graph_name, scope)
    found: list[FailedThread] = []
    for lease in leases:
        if len(found) == most:
            return found
        thread_id = lease["thread_id"]
        if (yield from _holds(engine, graph_name, graph, thread_id, lambda seen: bool(seen.failed or seen.work))):
            found.append(FailedThread.of(lease))
        else:
            yield transact(engine.operations.forget_failure, graph_name, thread_id, lease["failed_at"])
    for thread_id, rows in _by_thread(used).items():
        if len(found) == most:
            return found
        seen: list[Outlook] = []
        yield from _holds(engine, graph_name, graph, thread_id, lambda outlook, seen=seen: seen.append(outlook))  # type: ignore[misc]
        if seen and seen[0].failed:
            raised = Raised.kept(*seen[0].failed[0])
            ids = tuple(sorted(row["interrupt_id"] for row in rows))
            at = max(row["used_at"] for row in rows)
            found.append(FailedThread(thread_id, at, raised.node, raised.error_type, raised.message, ids))
    return found


def gone_on(engine: Engine, graph_name: str, graph: Any) -> Steps[list[str]]:
    """Threads that have gone on since they failed, by a run of the application's own, and have an answer to be delivered.

    Forgets their failures: recovery would leave them alone.
    """
    found: list[str] = []
    for lease in (yield transact(engine.operations.list_failed_answered, graph_name)):
        thread_id = lease["thread_id"]
        if not (yield from _holds(engine, graph_name, graph, thread_id, lambda seen: bool(seen.failed or seen.work))):
            yield transact(engine.operations.forget_failure, graph_name, thread_id, lease["failed_at"])
            found.append(thread_id)
    return found


def _holds(engine: Engine, graph_name: str, graph: Any, thread_id: str, judge: Callable[[Outlook], Any]) -> Steps[bool]:
    """What `judge` says of how the thread stands; True where that cannot be read."""
    try:
        head = yield checkpoint_at(thread_id)
        if head is None:
            return True
        rows = yield transact(engine.operations.load_thread, graph_name, thread_id)
        ended = yield transact(engine.operations.ended_natives, graph_name, thread_id, str(id_of(head)))
        return bool(judge((yield from look(graph, thread_id, {}, head, Standing.of(rows, ended)))))
    except Exception as error:
        log.debug("the checkpoint of thread %r cannot be read: %s", thread_id, type(error).__name__)
        return True


def _by_thread(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["thread_id"], []).append(row)
    return found
