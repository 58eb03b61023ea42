"""Finds the threads that a crash left unfinished, and delivers them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.core.checkpoints import is_pending, read_tasks, waiting_in
from symfonic_interrupts.core.effects import Effects, GetTuple, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.rows import scope_of
from symfonic_interrupts.delivering.deliverer import Deliverer
from symfonic_interrupts.delivering.failed_thread import FailedThread, log_failure
from symfonic_interrupts.delivering.failures import forget_gone_on
from symfonic_interrupts.delivering.progress import Delivery
from symfonic_interrupts.errors import ThreadBusy, UsageError
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.rows import PauseRow

RunKwargs = Callable[[str, FrameworkTenantScope], Mapping[str, Any]]
"""Takes (thread_id, scope of the pause), returns keyword arguments for the graph's call."""

log = logging.getLogger("symfonic_interrupts.worker")

MOST_UNCONFIRMED = 1000
"""Pauses that one recovery looks up in their checkpoints, at most; each is looked up once."""


class Recovery:
    """Delivers threads of one graph without a caller, or many at once.

    Args:
        run_kwargs: makes the arguments of a graph's call that no caller gave.
    """

    def __init__(self, hub: Hub, graph: str, deliverer: Deliverer, run_kwargs: RunKwargs | None) -> None:
        self._hub = hub
        self._graph = graph
        self._deliverer = deliverer
        self._run_kwargs = run_kwargs

    def recover(self, limit: int | None) -> Effects[list[Delivery]]:
        hub = self._hub
        hub.database.check_open()
        if limit is not None and (type(limit) is not int or limit < 1):
            raise UsageError("limit must be a whole number, at least 1, or None")
        yield from forget_gone_on(hub, self._graph, self._deliverer.graph)
        undelivered, lapsed, unconfirmed = yield from transact(
            hub.operations.upkeep.list_unfinished,
            self._graph,
            created_before=hub.now() - hub.config.lease_ttl,
            most=limit or MOST_UNCONFIRMED,
        )
        half_open = yield from self._without_interrupt(unconfirmed)
        crashed = {*lapsed, *half_open}
        deliveries = []
        for thread_id in list(dict.fromkeys([*undelivered, *lapsed, *half_open]))[:limit]:
            delivery = yield from self.deliver_apart(thread_id, recovering=True, crashed=thread_id in crashed)
            if delivery is not None:
                deliveries.append(delivery)
        return deliveries

    def _without_interrupt(self, rows: list[PauseRow]) -> Effects[list[str]]:
        """Threads of pauses whose checkpoint lacks the interrupt. A pause that has it is confirmed, and not looked up again."""
        incomplete: list[str] = []
        confirmed: list[str] = []
        for row in rows:
            root = {"thread_id": row["thread_id"], "checkpoint_ns": ""}
            try:
                head = yield from GetTuple({"configurable": root})
            except Exception as error:  # one thread's checkpoint does not hold up the others
                log.warning("the checkpoint of %s cannot be read: %s", row["interrupt_id"], type(error).__name__)
                continue
            if head is None:
                continue
            head_id = head.config["configurable"]["checkpoint_id"]
            waiting = waiting_in(read_tasks(head.pending_writes))
            if names.came_before(row["checkpoint_id"], head_id):
                # the process that moved the thread on died before it closed this pause, or did not know of it
                yield from transact(
                    self._hub.operations.settling.advance, self._graph, row["thread_id"], head_id, settle=False
                )
            elif is_pending(row, waiting) is None:
                incomplete.append(row["thread_id"])
            else:
                confirmed.append(row["jti"])
        if confirmed:
            yield from transact(self._hub.operations.upkeep.confirm, confirmed)
        return incomplete

    def deliver_each(
        self, threads: Iterable[str], graph_kwargs: Mapping[str, Any] | None = None
    ) -> Effects[list[Delivery]]:
        """Deliver these threads, one after the other; an error stands in its thread's `Delivery`."""
        deliveries = []
        for thread_id in threads:
            delivery = yield from self.deliver_apart(
                thread_id, by_itself=graph_kwargs is None, graph_kwargs=graph_kwargs
            )
            assert delivery is not None, "only a recovery leaves a thread out"
            deliveries.append(delivery)
        return deliveries

    def deliver_apart(
        self,
        thread_id: str,
        *,
        recovering: bool = False,
        by_itself: bool = False,
        crashed: bool = False,
        graph_kwargs: Mapping[str, Any] | None = None,
    ) -> Effects[Delivery | None]:
        """Deliver one thread among many; its error stands in the result.

        Gives None where it is `recovering` and another worker drives the thread.
        """
        failures: list[FailedThread] = []
        try:
            kwargs = dict(graph_kwargs or {})
            if graph_kwargs is None and self._run_kwargs is not None:
                latest = yield from transact(self._hub.operations.reading.load_latest, self._graph, thread_id)
                if latest is not None:
                    kwargs = dict(self._run_kwargs(thread_id, scope_of(latest)))
            delivery = yield from self._deliverer.deliver(
                thread_id,
                kwargs,
                recovering=recovering,
                by_itself=by_itself,
                crashed=crashed,
                on_failure=failures.append,
            )
        except ThreadBusy as error:
            return None if recovering else Delivery(thread_id, error=error)
        except Exception as error:
            if graph_kwargs is None:  # the worker that called drops the Delivery
                log_failure(thread_id, error)
            return Delivery(thread_id, error=error, failure=failures[0] if failures else None)
        if graph_kwargs is None:
            log.info(
                "delivered thread %r: applied %s, unused %s, now open %s",
                thread_id,
                ids_in(delivery.applied),
                ids_in(delivery.unused),
                ids_in(event.interrupt_id for event in delivery.open),
            )
        return delivery


def ids_in(interrupt_ids: Iterable[str]) -> str:
    """Interrupt ids as a log line has them."""
    return ", ".join(interrupt_ids) or "none"
