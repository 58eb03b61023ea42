"""The transactions that spend tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.store.operations.leasing import Leasing
from symfonic_interrupts.store.operations.work import Work
from symfonic_interrupts.store.records import Claim, ClaimLost, Event, Lease
from symfonic_interrupts.store.rows import PauseRow, PauseWithAnswer, columns_of

Describe = Callable[[datetime], Event | list[Event]]
"""The event rows of a claim, given when it was made."""


class Claiming:
    """Moves pauses out of `pending`, each once."""

    def __init__(self, clock: Clock, leasing: Leasing) -> None:
        self._clock = clock
        self._leasing = leasing

    def answer(self, connection: sa.Connection, row: PauseRow, claim: Claim, event: Describe) -> datetime | None:
        """Store an answer if the pause is pending and in time. Returns when, or None where another was first."""
        work = Work(connection, self._clock)
        return _claim(work, work.sql.claiming.claim_in_time, row, claim, event)

    def answer_all(
        self, connection: sa.Connection, answers: Sequence[tuple[PauseRow, Claim, Describe]]
    ) -> list[datetime]:
        """`answer` for each, or for none. Returns when.

        Raises:
            ClaimLost: another was first with one of them.
        """
        times: dict[int, datetime] = {}
        # in one order for all callers: two that share tokens then wait for each other once, and not for ever
        for index, (row, claim, describe) in sorted(enumerate(answers), key=lambda answer: answer[1][0]["jti"]):
            at = self.answer(connection, row, claim, describe)
            if at is None:
                raise ClaimLost(index)
            times[index] = at
        return [times[index] for index in range(len(answers))]

    def answer_and_hold(
        self,
        connection: sa.Connection,
        row: PauseRow,
        claim: Claim,
        event: Describe,
        owner: str,
        ttl: timedelta,
        breakpoints: str | None = None,
    ) -> tuple[datetime | None, tuple[Lease, list[PauseWithAnswer]] | None]:
        """`answer`, then `take_lease` of its thread, in one transaction."""
        at = self.answer(connection, row, claim, event)
        if at is None:
            return None, None
        return at, self._leasing.take_lease(connection, row["graph"], row["thread_id"], owner, ttl, breakpoints)

    def expire(self, connection: sa.Connection, row: PauseRow, claim: Claim, events: Describe) -> datetime | None:
        """Close a pause whose time is over, with a default answer or without. Returns when, or None."""
        work = Work(connection, self._clock)
        return _claim(work, work.sql.claiming.claim_overdue, row, claim, events)

    def close(self, connection: sa.Connection, row: PauseRow, claim: Claim, event: Event) -> datetime | None:
        """Supersede or revoke one pause, whatever its time. Returns when, or None."""
        work = Work(connection, self._clock)
        return _claim(work, work.sql.claiming.claim_any, row, claim, lambda _at: event)

    def reissue(self, connection: sa.Connection, row: PauseRow, renewed: PauseRow, event: Event) -> bool:
        """Give a pending or expired pause the new token of `renewed`; the old one is spent. False where it has moved on.

        Raises:
            ClaimLost: the row has changed since it was read, so the new MAC does not fit; nothing is done.
        """
        work = Work(connection, self._clock)
        sql = work.sql.claiming
        if row["state"] == "pending":
            claim = Claim("reissued", "pending")
            if work.execute(sql.claim_any, {"jti": row["jti"], **claim.parameters(), **work.now}).first() is None:
                return False
        as_read = {"the_jti": row["jti"], "old_state": row["state"], "old_mac": row["mac"]}
        change = columns_of(renewed, "jti", "expires_at", "mac_kid", "mac")
        if work.execute(sql.reissue, {**as_read, **change}).first() is None:
            raise ClaimLost(0)
        work.add_event(renewed, event)
        return True


def _claim(work: Work, statement: sa.Executable, row: PauseRow, claim: Claim, describe: Describe) -> datetime | None:
    spent = work.execute(statement, {"jti": row["jti"], **claim.parameters(), **work.now}).first()
    if spent is None:
        return None
    work.execute(work.sql.claiming.set_state, {"the_jti": row["jti"], "new_state": claim.state})
    at: datetime = spent.at
    described = describe(at)
    for event in described if isinstance(described, list) else [described]:
        work.add_event(row, event)
    return at
