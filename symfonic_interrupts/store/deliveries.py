"""The transactions around a delivery: the lease of a thread, and how its answers and questions end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.store.queries import Queries
from symfonic_interrupts.store.records import Claim, Conclusion, Failure, Lease
from symfonic_interrupts.store.schema import PauseRow
from symfonic_interrupts.store.statements import Statements


class Deliveries(Queries):
    """Holds threads, and settles what a delivery or a newer checkpoint decides."""

    # -- the answer's way through the graph

    def mark_used(self, connection: sa.Connection, used: Iterable[str], unused: Iterable[str] = ()) -> list[str]:
        """Note that nodes took these answers, before the graph's own write says so. Returns the jtis newly noted."""
        sql, now = self._sql(connection)
        return self._mark(connection, sql, now, used, unused)

    def _mark(
        self,
        connection: sa.Connection,
        sql: Statements,
        now: dict[str, Any],
        used: Iterable[str],
        unused: Iterable[str],
    ) -> list[str]:
        if unused := list(unused):
            connection.execute(sql.mark_skipped, {"jtis": unused, **now})
        if used := list(used):
            return list(connection.execute(sql.mark_used, {"jtis": used, **now}).scalars())
        return []

    def _move(
        self, connection: sa.Connection, sql: Statements, now: dict[str, Any], jtis: Iterable[str], state: str
    ) -> list[PauseRow]:
        if not (jtis := list(jtis)):
            return []
        change = {"jtis": jtis, "old_state": "answered", "new_state": state}
        moved = [dict(row) for row in connection.execute(sql.set_states, change).mappings()]
        if state == "unused":
            for row in moved:
                self._event(connection, sql, now, row, ("interrupt_unused", {"name": row["name"]}))
        return moved

    # -- delivering

    def take_lease(
        self,
        connection: sa.Connection,
        graph: str,
        thread_id: str,
        owner: str,
        ttl: timedelta,
        breakpoints: str | None = None,
    ) -> tuple[Lease, list[PauseRow]] | None:
        """Hold the thread, and read its pauses. None where another worker holds it.

        Args:
            breakpoints: canonical JSON of those of this run; None leaves those of the run that died before it.
        """
        sql, now = self._sql(connection)
        asked = {"graph": graph, "thread_id": thread_id, "owner": owner, **self._later(sql, ttl), **now}
        taken = connection.execute(sql.take_lease, {**asked, "breakpoints": breakpoints}).first()
        if taken is None:
            return None
        lease = Lease(
            graph,
            thread_id,
            owner,
            taken_over=taken.fence > 1,
            failed=taken.failed_at is not None,
            breakpoints=taken.breakpoints,
        )
        return lease, self.load_thread(connection, graph, thread_id)

    def renew_lease(self, connection: sa.Connection, lease: Lease, ttl: timedelta) -> bool:
        """Hold the thread for longer. False where another worker has taken it."""
        sql, _ = self._sql(connection)
        return connection.execute(sql.renew_lease, {**lease.parameters(), **self._later(sql, ttl)}).first() is not None

    def end_lease(
        self,
        connection: sa.Connection,
        lease: Lease,
        *,
        clean: bool,
        used: Sequence[str] = (),
        checkpoint_id: str | None = None,
        failure: Failure | None = None,
    ) -> datetime | None:
        """Give the thread back. Not clean: the row stays, lapsed, and says that the thread is unfinished.

        Args:
            used: jtis of answers that nodes used.
            checkpoint_id: the checkpoint that the thread has reached; what lies behind it is settled.
            failure: what the run raised; the row stays and says so. Returns since when.
        """
        sql, now = self._sql(connection)
        if checkpoint_id is not None:
            self.advance(connection, lease.graph, lease.thread_id, checkpoint_id, used=used)
        else:
            self._mark(connection, sql, now, used, ())
        if failure is not None:
            asked = {**lease.parameters(), **failure.parameters(), **now}
            at: datetime | None = connection.execute(sql.fail_lease, asked).scalar()
            if at is not None:
                told = {"node": failure.node, "error_type": failure.error_type, "message": failure.message}
                self._event(connection, sql, now, failure.about, ("delivery_failed", told))
            return at
        if clean:
            connection.execute(sql.end_lease, lease.parameters())
        else:
            connection.execute(sql.lapse_lease, {**lease.parameters(), **now})
        return None

    def try_again(self, connection: sa.Connection, lease: Lease) -> None:
        """A thread that failed is about to run again: how that goes counts from here on, also where the process dies."""
        sql, _ = self._sql(connection)
        connection.execute(sql.try_again, lease.parameters())

    def forget_failure(self, connection: sa.Connection, graph: str, thread_id: str, at: datetime) -> None:
        """The thread has gone on by itself since it failed at this time."""
        sql, now = self._sql(connection)
        place = {"the_graph": graph, "the_thread": thread_id, "the_time": at}
        connection.execute(sql.forget_failure, {**place, **now})

    def conclude(
        self, connection: sa.Connection, lease: Lease, checkpoint_id: str, seen: Sequence[str], used: Sequence[str]
    ) -> Conclusion:
        """A run has ended at this checkpoint: close what it left behind, and give the thread back if nothing is left.

        Args:
            seen: jtis whose states are asked for, too.
            used: jtis of answers that nodes used in the run.
        """
        sql, now = self._sql(connection)
        place = {"the_graph": lease.graph, "the_thread": lease.thread_id, "the_checkpoint": checkpoint_id}
        changed = self._settle_older(connection, sql, now, place, used)
        self._mark(connection, sql, now, set(used) - {row["jti"] for row in changed}, ())
        ended = connection.execute(sql.end_lease_if_over, {**lease.parameters(), **place}).first()
        nothing_left = ended is not None and not ended.left
        rows = [] if nothing_left else self.load_thread(connection, lease.graph, lease.thread_id)
        if any(row["state"] == "pending" and row["checkpoint_id"] < checkpoint_id for row in rows):
            changed += self._supersede_older(connection, sql, now, place)
        states = {row["jti"]: row["state"] for row in (*rows, *changed)}
        rows = [row for row in rows if states[row["jti"]] in ("answered", "pending")]
        if missing := [jti for jti in seen if jti not in states]:
            states.update(self.states_of(connection, missing))
        over = ended is not None or not any(row["state"] == "answered" for row in rows)
        if over and ended is None:  # questions behind were closed first, or an answer has ended meanwhile
            self.end_lease(connection, lease, clean=True)
        return Conclusion(rows, changed, states, over)

    def settle(
        self, connection: sa.Connection, graph: str, thread_id: str, applied: Sequence[str], unused: Sequence[str]
    ) -> tuple[list[PauseRow], list[PauseRow]]:
        """Record how delivered answers ended. Returns the moved rows, and the thread's pauses as they stand now."""
        sql, now = self._sql(connection)
        moved = self._move(connection, sql, now, applied, "applied") + self._move(
            connection, sql, now, unused, "unused"
        )
        return moved, self.load_thread(connection, graph, thread_id)

    # -- a newer checkpoint

    def advance(
        self,
        connection: sa.Connection,
        graph: str,
        thread_id: str,
        checkpoint_id: str,
        *,
        used: Iterable[str] = (),
        settle: bool = True,
        dropped: str | None = None,
    ) -> list[PauseRow]:
        """The thread moved on to a newer checkpoint: its older questions are superseded, its older answers settled.

        Args:
            used: answers known to be used, to be noted first.
            settle: answers not known to be used end as `unused`. Not where only a checkpoint could tell.
            dropped: a checkpoint whose step was left out: what its nodes had taken does not count as used, and what was
                applied there ends as `unused`.

        Returns the rows that changed, with their new state.
        """
        sql, now = self._sql(connection)
        place = {"the_graph": graph, "the_thread": thread_id, "the_checkpoint": checkpoint_id}
        self._mark(connection, sql, now, used, ())
        lost: list[PauseRow] = []
        if dropped is not None:
            asked = {**place, "the_dropped": dropped, **now}
            lost = [dict(row) for row in connection.execute(sql.drop_applied, asked).mappings()]
            for row in lost:
                self._event(connection, sql, now, row, ("interrupt_unused", {"name": row["name"], "dropped": True}))
            connection.execute(sql.skip_dropped, asked)
        if settle:
            changed = self._settle_older(connection, sql, now, place)
        else:
            changed = [dict(row) for row in connection.execute(sql.settle_used, place).mappings()]
        return lost + changed + self._supersede_older(connection, sql, now, place)

    def _settle_older(
        self,
        connection: sa.Connection,
        sql: Statements,
        now: dict[str, Any],
        place: dict[str, str],
        used: Iterable[str] = (),
    ) -> list[PauseRow]:
        settled = [dict(row) for row in connection.execute(sql.settle_older, {**place, "jtis": list(used)}).mappings()]
        for row in settled:
            if row["state"] == "unused":
                self._event(connection, sql, now, row, ("interrupt_unused", {"name": row["name"]}))
        return settled

    def _supersede_older(
        self, connection: sa.Connection, sql: Statements, now: dict[str, Any], place: dict[str, str]
    ) -> list[PauseRow]:
        return self._supersede(connection, sql, now, "claim_older", place)

    def _supersede(
        self, connection: sa.Connection, sql: Statements, now: dict[str, Any], statement: str, place: dict[str, Any]
    ) -> list[PauseRow]:
        claim = Claim("superseded", "superseded")
        closed = connection.execute(getattr(sql, statement), {**place, **claim.parameters(), **now}).all()
        if not closed:
            return []
        change = {"jtis": [row.jti for row in closed], "old_state": "pending", "new_state": "superseded"}
        changed = [dict(row) for row in connection.execute(sql.set_states, change).mappings()]
        for row in changed:
            self._event(connection, sql, now, row, ("interrupt_superseded", {"name": row["name"]}))
        return changed
