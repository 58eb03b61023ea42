"""A transaction body at work, and the steps that several bodies share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.clock import Clock
from symfonic_interrupts.store.records import Claim, Event
from symfonic_interrupts.store.rows import EventSubject, MovedPause, columns_of
from symfonic_interrupts.store.statements import statements


class Work:
    """One body, in one transaction.

    Args:
        connection: in the transaction.
        clock: asked on SQLite only, once for the body.

    Attributes:
        sql: the statements of the connection's dialect.
        now: the parameter of statements that know `now`; none on PostgreSQL, which has its own clock.
    """

    def __init__(self, connection: sa.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self.sql = statements(connection.dialect.name)
        self.now: dict[str, Any] = {} if self.sql.is_postgres else {"now": clock()}

    def later(self, ttl: timedelta) -> dict[str, Any]:
        """The parameter of statements that know `later`: `ttl` from now."""
        return {"ttl": ttl} if self.sql.is_postgres else {"later": self._clock() + ttl}

    def execute(self, statement: sa.Executable, parameters: Mapping[str, Any] | None = None) -> sa.CursorResult[Any]:
        """What the statement returns."""
        return self._connection.execute(statement, parameters)

    def rows(self, statement: sa.Executable, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """The rows that the statement returns, as dicts; the statement says of which type."""
        return [dict(row) for row in self.execute(statement, parameters).mappings()]

    def add_event(self, about: EventSubject, event: Event) -> None:
        """Write an event row."""
        kind, body = event
        subject = columns_of(about, *EventSubject.__annotations__)
        self.execute(self.sql.recording.add_event, {**subject, "type": kind, "body": canonical_json(body), **self.now})

    def mark(self, used: Iterable[str], unused: Iterable[str] = ()) -> list[str]:
        """Note which answers a node has used, and which it was given and did not use. Returns the jtis newly noted as used."""
        if unused := list(unused):
            self.execute(self.sql.settling.mark_skipped, {"jtis": unused, **self.now})
        if used := list(used):
            return list(self.execute(self.sql.settling.mark_used, {"jtis": used, **self.now}).scalars())
        return []

    def set_states(self, jtis: Iterable[str], old: str, new: str) -> list[MovedPause]:
        """Give pauses that are in the old state the new one. Returns them."""
        change = {"jtis": list(jtis), "old_state": old, "new_state": new}
        return self.rows(self.sql.claiming.set_states, change)

    def supersede(self, claim_statement: sa.Executable, parameters: Mapping[str, Any]) -> list[MovedPause]:
        """Spend the tokens that a `claim_` statement finds, and supersede their pauses. Returns them."""
        claim = Claim("superseded", "superseded")
        spent = self.execute(claim_statement, {**parameters, **claim.parameters(), **self.now}).all()
        if not spent:
            return []
        superseded = self.set_states((row.jti for row in spent), "pending", "superseded")
        for row in superseded:
            self.add_event(row, ("interrupt_superseded", {"name": row["name"]}))
        return superseded

    def add_unused(self, rows: Iterable[MovedPause], **facts: bool) -> None:
        """Write the event rows of answers that have ended unused."""
        for row in rows:
            self.add_event(row, ("interrupt_unused", {"name": row["name"], **facts}))
