"""The janitor: closes pauses whose time is over, and delivers the default answers of those that have one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from symfonic_interrupts.answering.redeem import Redeemer
from symfonic_interrupts.core.effects import Backend, Effects, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.performing import aperform, perform
from symfonic_interrupts.core.rows import answer_record, check_authentic, expiry_event, expiry_record
from symfonic_interrupts.delivering.progress import Delivery
from symfonic_interrupts.delivering.recovery import Recovery
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.events import ExpiryEvent
from symfonic_interrupts.store.operations import Claim, Event
from symfonic_interrupts.store.rows import PauseRow
from symfonic_interrupts.upkeep.purge import purge
from symfonic_interrupts.upkeep.worker import Worker

BATCH = 100
log = logging.getLogger("symfonic_interrupts.janitor")


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did.

    Attributes:
        events: one per pause that was closed.
        defaulted: interrupt ids of those that got their default answer.
        deliveries: of the threads that got one; an error stands in `Delivery.error`.
        refused: interrupt ids of rows that were changed in the database; they are left as they are.
        unknown: interrupt ids of overdue pauses whose point is not registered here; they are left for a process that has it.
    """

    events: tuple[ExpiryEvent, ...] = ()
    defaulted: tuple[str, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    refused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Janitor:
    """Sweeps the overdue pauses of one graph. Any number of processes may do so at once.

    Args:
        graph: the name of the graph.
        redeemer: makes the claim of a default answer.
        recovery: delivers the threads that got one.
        backend: what its effects are carried out with.
    """

    def __init__(self, hub: Hub, graph: str, redeemer: Redeemer, recovery: Recovery, backend: Backend) -> None:
        self._hub = hub
        self._graph = graph
        self._redeemer = redeemer
        self._recovery = recovery
        self._backend = backend
        self._worker = Worker([self.sweep], [self.asweep])

    def sweep(self) -> SweepReport:
        """Close every pause whose time is over; deliver default answers before returning.

        Each closed pause gives an event, in the report and to the subscribers of `Interrupts.subscribe`, also where a
        default answer follows.

        Raises:
            StoreError: the store cannot be used.
        """
        return self._publish(perform(self._sweep(), self._backend))

    async def asweep(self) -> SweepReport:
        """`sweep` for coroutines: returns and raises the same."""
        return self._publish(await aperform(self._sweep(), self._backend))

    def run(self, interval: timedelta = timedelta(seconds=30)) -> None:
        """Sweep again and again, `interval` apart give or take a fifth, until `stop()`. See `Worker.run`."""
        self._worker.run(interval)

    async def arun(self, interval: timedelta = timedelta(seconds=30)) -> None:
        """`run` for coroutines: raises the same. A cancellation ends it, too."""
        await self._worker.arun(interval)

    def stop(self) -> None:
        """End `run` or `arun` after the sweep that is running, and stay stopped. From any thread."""
        self._worker.stop()

    def purge(self, older_than: timedelta, *, with_events: bool = False) -> dict[str, int]:
        """`Interrupts.purge`, for whoever has only the janitor: of every graph in this store."""
        return perform(purge(self._hub, older_than, with_events), self._backend)

    async def apurge(self, older_than: timedelta, *, with_events: bool = False) -> dict[str, int]:
        """`purge` for coroutines: returns and raises the same."""
        return await aperform(purge(self._hub, older_than, with_events), self._backend)

    def _sweep(self) -> Effects[SweepReport]:
        hub, graph = self._hub, self._graph
        hub.database.check_open()
        events: list[ExpiryEvent] = []
        refused: list[str] = []
        unknown: list[str] = []
        defaulted: list[tuple[str, str]] = []  # (interrupt id, thread)
        last: PauseRow | None = None
        while True:
            rows = yield from transact(hub.operations.reading.list_due, graph, after=last, most=BATCH)
            for row in rows:
                last = row
                if row["name"] not in hub.registry:
                    unknown.append(row["interrupt_id"])
                    continue
                try:
                    check_authentic(hub, row)
                except StoreError:
                    refused.append(row["interrupt_id"])
                    continue
                event = yield from self._close(row, defaulted)
                if event is not None:
                    events.append(event)
            if len(rows) < BATCH:
                break
        deliveries = yield from self._recovery.deliver_each(dict.fromkeys(thread for _, thread in defaulted))
        return SweepReport(
            tuple(events), tuple(pause for pause, _ in defaulted), tuple(deliveries), tuple(refused), tuple(unknown)
        )

    def _close(self, row: PauseRow, defaulted: list[tuple[str, str]]) -> Effects[ExpiryEvent | None]:
        """Expire one pause, or store its default answer. None where another process, or an answer, was first."""
        registration = self._hub.registry[row["name"]]
        expiries: list[ExpiryEvent] = []  # the transaction may be tried again: the last one is stored
        text: str | None = None
        if registration.on_expire is None:
            claim = Claim("expired", "expired")
        else:
            text = registration.response_text(registration.on_expire)
            claim = self._redeemer.claim(row, text, actor=None, scope_hash=None, defaulted=True)

        def describe(at: datetime) -> list[Event]:
            expiries.append(expiry_event(self._hub, row, at))
            records = [expiry_record(expiries[-1])]
            return (
                records
                if text is None
                else [*records, answer_record(self._hub, row, text, at, actor=None, defaulted=True)]
            )

        at = yield from transact(self._hub.operations.claiming.expire, row, claim, describe)
        if at is None:
            return None
        self._hub.failpoint("sweep_claimed" if text is None else "default_stored")
        if text is not None:
            defaulted.append((row["interrupt_id"], row["thread_id"]))
        return expiries[-1]

    def _publish(self, report: SweepReport) -> SweepReport:
        """Call the subscribers with the events of a report. Returns the report."""
        for event in report.events:
            for subscriber in list(self._hub.subscribers):
                try:
                    subscriber(event)
                except Exception:  # the pauses are closed, and the caller must get the report
                    log.exception("a subscriber failed on %s of %s", event.type, event.interrupt_id)
        return report
