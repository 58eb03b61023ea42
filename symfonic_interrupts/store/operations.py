"""The transactions of the store, each written once over a sync `Connection` and run by `Database.run` or `arun`.

None decides by what it has read: every move out of `pending` is the INSERT of the token's `jti`, and the row that RETURNING
gives back (or does not) says who won. Opening, claiming and closing pauses are here; `deliveries` has what a delivery needs,
`queries` what only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store.deliveries import Deliveries
from symfonic_interrupts.store.records import Claim, ClaimLost, Conclusion, Event, Failure, Lease
from symfonic_interrupts.store.schema import PauseRow
from symfonic_interrupts.store.statements import Statements

__all__ = ["Claim", "ClaimLost", "Conclusion", "Event", "Failure", "Lease", "Operations"]

TOLD_EVERY = timedelta(minutes=1)
"""How often the same refusal gets an event row; those in between are counted."""

Describe = Callable[[datetime], Event | list[Event]]
"""The event rows of a claim, given when it was made."""


class Operations(Deliveries):
    """All transaction bodies of the store."""

    # -- opening

    def open_pauses(
        self,
        connection: sa.Connection,
        rows: Sequence[tuple[PauseRow, Event]],
        reseal: Callable[[PauseRow], PauseRow],
        *,
        used: Iterable[str] = (),
        unused: Iterable[str] = (),
    ) -> tuple[list[PauseRow], list[str]]:
        """Open each question once, and mark the answers that the asking execution used.

        Returns the rows as they stand (a known question's row in whatever state it is), and the jtis newly marked used.
        """
        sql, now = self._sql(connection)
        opened = [self._open_one(connection, sql, now, row, event, reseal) for row, event in rows]
        return opened, self._mark(connection, sql, now, used, unused)

    def unfit_answers(self, connection: sa.Connection, jtis: Sequence[str]) -> list[PauseRow]:
        """Those of these answered pauses that are still to be delivered or were not taken."""
        sql, _ = self._sql(connection)
        return [dict(row) for row in connection.execute(sql.unfit_answers, {"jtis": list(jtis)}).mappings()]

    def count_drifts(self, connection: sa.Connection, drifts: Mapping[str, int], row: PauseRow, event: Event) -> None:
        """Note how many answers in a row did not fit, by the jti of the question, and tell of it."""
        sql, now = self._sql(connection)
        for jti, number in drifts.items():
            connection.execute(sql.set_drifts, {"jtis": [jti], "the_number": number})
        self._event(connection, sql, now, row, event)

    def _open_one(
        self,
        connection: sa.Connection,
        sql: Statements,
        now: dict[str, Any],
        row: PauseRow,
        event: Event,
        reseal: Callable[[PauseRow], PauseRow],
    ) -> PauseRow:
        for _ in range(3):
            if connection.execute(sql.open_pause, row).first() is not None:
                self._event(connection, sql, now, row, event)
                if (
                    row["native"] and row["slot"]
                ):  # it comes after its answer: an open one before it was answered past us
                    place = {"the_graph": row["graph"], "the_thread": row["thread_id"]}
                    where = {"the_task": row["leaf_task_id"], "the_slot": row["slot"]}
                    self._supersede(connection, sql, now, "claim_slots", {**place, **where})
                return row
            known = connection.execute(sql.find_question, row).mappings().first()
            if known is None:
                continue  # superseded between the two statements: open it anew
            found = dict(known)
            if found["state"] == "pending" and found["langgraph_id"] != row["langgraph_id"]:
                found = reseal({**found, "langgraph_id": row["langgraph_id"], "slot": row["slot"]})
                moved = {key: found[key] for key in ("langgraph_id", "slot", "mac_kid", "mac")}
                if connection.execute(sql.move_question, {"the_jti": found["jti"], **moved}).first() is None:
                    continue  # it got another token, or an end, between the two statements
            return found
        raise StoreError("a pause could not be opened: its row changed three times meanwhile", retryable=True)

    # -- claiming

    def answer(self, connection: sa.Connection, row: PauseRow, claim: Claim, event: Describe) -> datetime | None:
        """Store an answer if the pause is pending and in time. Returns when, or None where another was first."""
        return self._claim(connection, "claim_in_time", row, claim, event)

    def answer_all(
        self, connection: sa.Connection, answers: Sequence[tuple[PauseRow, Claim, Describe]]
    ) -> list[datetime]:
        """`answer` for each, or for none. Returns when.

        Raises:
            ClaimLost: another was first with one of them.
        """
        times: dict[int, datetime] = {}
        # in one order for all callers: two that share tokens wait for each other, and neither for ever
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
    ) -> tuple[datetime | None, tuple[Lease, list[PauseRow]] | None]:
        """`answer`, then `take_lease` of its thread, in one transaction."""
        at = self.answer(connection, row, claim, event)
        if at is None:
            return None, None
        return at, self.take_lease(connection, row["graph"], row["thread_id"], owner, ttl, breakpoints)

    def expire(
        self, connection: sa.Connection, row: PauseRow, claim: Claim, events: Callable[[datetime], list[Event]]
    ) -> datetime | None:
        """Close a pause whose time is over, with a default answer or without. Returns when, or None."""
        return self._claim(connection, "claim_overdue", row, claim, events)

    def close(self, connection: sa.Connection, row: PauseRow, claim: Claim, event: Event) -> datetime | None:
        """Supersede or revoke one pause, whatever its time. Returns when, or None."""
        return self._claim(connection, "claim_any", row, claim, lambda _at: event)

    def _claim(
        self,
        connection: sa.Connection,
        statement: str,
        row: PauseRow,
        claim: Claim,
        describe: Describe,
    ) -> datetime | None:
        sql, now = self._sql(connection)
        won = connection.execute(getattr(sql, statement), {"jti": row["jti"], **claim.parameters(), **now}).first()
        if won is None:
            return None
        connection.execute(sql.set_state, {"the_jti": row["jti"], "new_state": claim.state})
        at: datetime = won.at
        described = describe(at)
        for event in described if isinstance(described, list) else [described]:
            self._event(connection, sql, now, row, event)
        return at

    def reissue(self, connection: sa.Connection, row: PauseRow, renewed: PauseRow, event: Event) -> bool:
        """Give a pending or expired pause the new token of `renewed`; the old one is spent. False where it has moved on.

        Raises:
            ClaimLost: the row has changed since it was read, so the new MAC does not fit; nothing is done.
        """
        sql, now = self._sql(connection)
        if row["state"] == "pending":
            claim = Claim("reissued", "pending")
            if connection.execute(sql.claim_any, {"jti": row["jti"], **claim.parameters(), **now}).first() is None:
                return False
        change = {key: renewed[key] for key in ("jti", "expires_at", "mac_kid", "mac")}
        asked = {"the_jti": row["jti"], "old_state": row["state"], "old_mac": row["mac"]}
        if connection.execute(sql.reissue, {**asked, **change}).first() is None:
            raise ClaimLost(0)
        self._event(connection, sql, now, renewed, event)
        return True

    def purge(self, connection: sa.Connection, before: datetime, *, with_events: bool) -> dict[str, int]:
        """Delete pauses that ended and tokens that belong to none any more. A token without its pause stays refused."""
        sql, now = self._sql(connection)
        asked = {"before": before}
        counts = {"pauses": connection.execute(sql.purge_pauses, {**asked, **now}).rowcount}
        counts["tokens"] = connection.execute(sql.purge_tokens, asked).rowcount
        connection.execute(sql.purge_refusals, asked)
        counts["events"] = connection.execute(sql.purge_events, asked).rowcount if with_events else 0
        return counts

    def revoke_thread(self, connection: sa.Connection, graph: str, thread_id: str) -> list[PauseRow]:
        """The thread is gone: its open tokens are dead, and answers not delivered can no longer be."""
        sql, now = self._sql(connection)
        place = {"the_graph": graph, "the_thread": thread_id}
        claim = Claim("revoked", "revoked")
        dead = connection.execute(sql.claim_thread, {**place, **claim.parameters(), **now}).scalars().all()
        change = {"jtis": dead, "old_state": "pending", "new_state": "revoked"}
        revoked = [dict(row) for row in connection.execute(sql.set_states, change).mappings()] if dead else []
        for row in revoked:
            told = {"name": row["name"], "reason": "the thread was deleted"}
            self._event(connection, sql, now, row, ("interrupt_revoked", told))
        # after the claims: whoever was first with an answer is seen now
        unused = [dict(row) for row in connection.execute(sql.drop_answers, place).mappings()]
        for row in unused:
            self._event(connection, sql, now, row, ("interrupt_unused", {"name": row["name"]}))
        connection.execute(sql.forget_thread, {**place, **now})
        return revoked + unused

    def confirm(self, connection: sa.Connection, jtis: Sequence[str]) -> None:
        """Note that these pauses stand in their checkpoints, so that recovery need not look again."""
        sql, now = self._sql(connection)
        connection.execute(sql.confirm, {"jtis": list(jtis), **now})

    def doubt(self, connection: sa.Connection, graph: str, thread_id: str) -> None:
        """The thread is about to leave its checkpoint: recovery looks at its pauses again, should nobody live to close them."""
        sql, _ = self._sql(connection)
        connection.execute(sql.doubt, {"the_graph": graph, "the_thread": thread_id})

    def refuse(
        self, connection: sa.Connection, row: PauseRow, code: str, told: Mapping[str, Any], scope_hash: str = ""
    ) -> int | None:
        """Record that something was refused about a pause: an `interrupt_refused` with how often that has happened so far.

        For each pause, code and scope once a minute. Returns the count where an event row was written, else None.

        Args:
            code: the kind of refusal.
            told: further facts of the event row.
            scope_hash: of the scope that was refused, if it is known.
        """
        sql, now = self._sql(connection)
        window = {"every": TOLD_EVERY} if sql.is_postgres else {"told_before": now["now"] - TOLD_EVERY}
        asked = {"jti": row["jti"], "scope_hash": scope_hash, "code": code, **window, **now}
        count, told_count = connection.execute(sql.count_refusal, asked).one()
        if count != told_count:
            return None
        self._event(connection, sql, now, row, ("interrupt_refused", {**told, "code": code, "count": count}))
        return int(count)

    def record(self, connection: sa.Connection, row: PauseRow, event: Event) -> None:
        """Write an event row about a pause."""
        sql, now = self._sql(connection)
        self._event(connection, sql, now, row, event)
