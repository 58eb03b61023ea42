"""The transactions that only write down what happened."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.store.operations.work import Work
from symfonic_interrupts.store.records import Event
from symfonic_interrupts.store.rows import EventSubject, RefusalSubject

SAME_REFUSAL_EVERY = timedelta(minutes=1)
"""How often the same refusal gets an event row; those in between are counted."""


class Recording:
    """Writes event rows, and counts refusals."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def record(self, connection: sa.Connection, about: EventSubject, event: Event) -> None:
        """Write an event row about a pause."""
        Work(connection, self._clock).add_event(about, event)

    def refuse(
        self,
        connection: sa.Connection,
        about: RefusalSubject,
        code: str,
        facts: Mapping[str, Any],
        scope_hash: str = "",
    ) -> int | None:
        """Record that something was refused about a pause: an `interrupt_refused` with how often that has happened so far.

        For each pause, code and scope once a minute. Returns the count where an event row was written, else None.

        Args:
            code: the kind of refusal.
            facts: what else the event row says.
            scope_hash: of the scope that was refused, if it is known.
        """
        work = Work(connection, self._clock)
        window = (
            {"every": SAME_REFUSAL_EVERY}
            if work.sql.is_postgres
            else {"told_before": work.now["now"] - SAME_REFUSAL_EVERY}
        )
        refusal = {"jti": about["jti"], "scope_hash": scope_hash, "code": code, **window, **work.now}
        counted: Any = work.execute(work.sql.recording.count_refusal, refusal).one()
        count, count_of_newest_event = counted
        if count != count_of_newest_event:
            return None
        work.add_event(about, ("interrupt_refused", {**facts, "code": code, "count": count}))
        return int(count)
