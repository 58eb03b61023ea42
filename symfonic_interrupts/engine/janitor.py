"""The janitor: closes pauses whose time is over, and delivers the default answers of those that have one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from symfonic_interrupts.engine.context import Engine
from symfonic_interrupts.engine.progress import Delivery
from symfonic_interrupts.engine.rows import answer_record, check_authentic, expiry_event, expiry_record
from symfonic_interrupts.engine.steps import Steps, aperform, perform, transact
from symfonic_interrupts.engine.worker import Worker
from symfonic_interrupts.errors import RegistrationError, StoreError
from symfonic_interrupts.events import ExpiryEvent
from symfonic_interrupts.store.operations import Claim, Event
from symfonic_interrupts.store.schema import PauseRow

if TYPE_CHECKING:
    from symfonic_interrupts.engine.resume import ResumeAdapter

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
    """Sweeps the overdue pauses of one adapter's graph. Any number of processes may do so at once."""

    def __init__(self, engine: Engine, adapter: ResumeAdapter) -> None:
        self._engine = engine
        self._adapter = adapter
        self._worker = Worker([self.sweep], [self.asweep])

    def sweep(self) -> SweepReport:
        """Close every pause whose time is over; deliver default answers before returning.

        Each closed pause gives an event, in the report and to the subscribers of `Interrupts.subscribe`, also where a
        default answer follows.

        Raises:
            StoreError: the store cannot be used.
        """
        return self._tell(perform(self._sweep(), self._adapter.tools))

    async def asweep(self) -> SweepReport:
        """`sweep` for coroutines."""
        return self._tell(await aperform(self._sweep(), self._adapter.tools))

    def run(self, interval: timedelta = timedelta(seconds=30)) -> None:
        """Sweep again and again, `interval` apart give or take a fifth, until `stop()`. See `Worker.run`."""
        self._worker.run(interval)

    async def arun(self, interval: timedelta = timedelta(seconds=30)) -> None:
        """`run` for coroutines. A cancellation ends it, too."""
        await self._worker.arun(interval)

    def stop(self) -> None:
        """End `run` or `arun` after the sweep that is running, and stay stopped. From any thread."""
        self._worker.stop()

    def purge(self, older_than: timedelta, *, with_events: bool = False) -> dict[str, int]:
        """`Interrupts.purge`, for whoever has only the janitor: of every graph in this store."""
        return perform(purge(self._engine, older_than, with_events), self._adapter.tools)

    async def apurge(self, older_than: timedelta, *, with_events: bool = False) -> dict[str, int]:
        """`purge` for coroutines."""
        return await aperform(purge(self._engine, older_than, with_events), self._adapter.tools)

    def _sweep(self) -> Steps[SweepReport]:
        engine, graph = self._engine, self._adapter.graph_name
        engine.database.check_open()
        events: list[ExpiryEvent] = []
        refused: list[str] = []
        unknown: list[str] = []
        defaulted: list[tuple[str, str]] = []  # (interrupt id, thread)
        last: PauseRow | None = None
        while True:
            rows = yield transact(engine.operations.list_due, graph, after=last, most=BATCH)
            for row in rows:
                last = row
                if row["name"] not in engine.registry:
                    unknown.append(row["interrupt_id"])
                    continue
                try:
                    check_authentic(engine, row)
                except StoreError:
                    refused.append(row["interrupt_id"])
                    continue
                event = yield from self._close(row, defaulted)
                if event is not None:
                    events.append(event)
            if len(rows) < BATCH:
                break
        deliveries = yield from self._adapter.recovery.deliver_each(dict.fromkeys(thread for _, thread in defaulted))
        return SweepReport(
            tuple(events), tuple(pause for pause, _ in defaulted), tuple(deliveries), tuple(refused), tuple(unknown)
        )

    def _close(self, row: PauseRow, defaulted: list[tuple[str, str]]) -> Steps[ExpiryEvent | None]:
        registration = self._engine.registry[row["name"]]
        told: list[ExpiryEvent] = []
        text: str | None = None
        if registration.on_expire is None:
            claim = Claim("expired", "expired")
        else:
            text = registration.response_text(registration.on_expire)
            claim = self._adapter.redeemer.claim(row, text, actor=None, scope_hash=None, defaulted=True)

        def describe(at: datetime) -> list[Event]:
            told.append(expiry_event(row, at))
            records = [expiry_record(told[-1])]
            return records if text is None else [*records, answer_record(row, text, at, actor=None, defaulted=True)]

        at: Any = yield transact(self._engine.operations.expire, row, claim, describe)
        if at is None:
            return None
        self._engine.failpoint("sweep_claimed" if text is None else "default_stored")
        if text is not None:
            defaulted.append((row["interrupt_id"], row["thread_id"]))
        return told[-1]

    def _tell(self, report: SweepReport) -> SweepReport:
        for event in report.events:
            for subscriber in list(self._engine.subscribers):
                try:
                    subscriber(event)
                except Exception:  # what was swept is swept; the report must not be lost for it
                    log.exception("a subscriber failed on %s of %s", event.type, event.interrupt_id)
        return report


def purge(engine: Engine, older_than: timedelta, with_events: bool) -> Steps[dict[str, int]]:
    """Delete what has ended and is older than this. See `Interrupts.purge`."""
    engine.database.check_open()
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise RegistrationError("older_than must be a timedelta of zero or more")
    before = engine.now() - older_than
    counts: dict[str, int] = yield transact(engine.operations.purge, before, with_events=with_events)
    return counts
