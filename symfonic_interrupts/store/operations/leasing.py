"""The transactions around a run: the lease of its thread, and how the thread stands when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.store.operations.reading import Reading
from symfonic_interrupts.store.operations.settling import (
    Settling,
    checkpoint_parameters,
    settle_older,
    supersede_older,
)
from symfonic_interrupts.store.operations.work import Work
from symfonic_interrupts.store.records import Conclusion, Failure, Lease
from symfonic_interrupts.store.rows import PauseWithAnswer


class Leasing:
    """Lets one worker at a time drive a thread."""

    def __init__(self, clock: Clock, reading: Reading, settling: Settling) -> None:
        self._clock = clock
        self._reading = reading
        self._settling = settling

    def take_lease(
        self,
        connection: sa.Connection,
        graph: str,
        thread_id: str,
        owner: str,
        ttl: timedelta,
        breakpoints: str | None = None,
    ) -> tuple[Lease, list[PauseWithAnswer]] | None:
        """Hold the thread, and read its pauses. None where another worker holds it.

        Args:
            breakpoints: canonical JSON of those of this run; None leaves those of the run that died before it.
        """
        work = Work(connection, self._clock)
        terms = {"owner": owner, "breakpoints": breakpoints, **work.later(ttl), **work.now}
        taken = work.execute(work.sql.leasing.take_lease, {"graph": graph, "thread_id": thread_id, **terms}).first()
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
        return lease, self._reading.load_thread(connection, graph, thread_id)

    def renew_lease(self, connection: sa.Connection, lease: Lease, ttl: timedelta) -> bool:
        """Hold the thread for longer. False where another worker has taken it."""
        work = Work(connection, self._clock)
        return work.execute(work.sql.leasing.renew_lease, {**lease.parameters(), **work.later(ttl)}).first() is not None

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
        work = Work(connection, self._clock)
        sql = work.sql.leasing
        if checkpoint_id is not None:
            self._settling.advance(connection, lease.graph, lease.thread_id, checkpoint_id, used=used)
        else:
            work.mark(used)
        if failure is not None:
            parameters = {**lease.parameters(), **failure.parameters(), **work.now}
            at: datetime | None = work.execute(sql.fail_lease, parameters).scalar()
            if at is not None:
                facts = {"node": failure.node, "error_type": failure.error_type, "message": failure.message}
                work.add_event(failure.about, ("delivery_failed", facts))
            return at
        if clean:
            work.execute(sql.end_lease, lease.parameters())
        else:
            work.execute(sql.lapse_lease, {**lease.parameters(), **work.now})
        return None

    def try_again(self, connection: sa.Connection, lease: Lease) -> None:
        """A thread that failed is about to run again: its old failure is forgotten, also should the process die now."""
        work = Work(connection, self._clock)
        work.execute(work.sql.leasing.try_again, lease.parameters())

    def forget_failure(self, connection: sa.Connection, graph: str, thread_id: str, at: datetime) -> None:
        """The thread has gone on by itself since it failed at this time."""
        work = Work(connection, self._clock)
        failure = {"the_graph": graph, "the_thread": thread_id, "the_time": at}
        work.execute(work.sql.leasing.forget_failure, {**failure, **work.now})

    def conclude(
        self, connection: sa.Connection, lease: Lease, checkpoint_id: str, seen: Sequence[str], used: Sequence[str]
    ) -> Conclusion:
        """A run has ended at this checkpoint: close what it left behind, and give the thread back if nothing is left.

        Args:
            seen: jtis whose states are asked for, too.
            used: jtis of answers that nodes used in the run.
        """
        work = Work(connection, self._clock)
        checkpoint = checkpoint_parameters(lease.graph, lease.thread_id, checkpoint_id)
        moved = settle_older(work, checkpoint, used)
        work.mark(set(used) - {row["jti"] for row in moved})
        ended = work.execute(work.sql.leasing.end_lease_if_over, {**lease.parameters(), **checkpoint}).first()
        nothing_left = ended is not None and not ended.left
        rows = [] if nothing_left else self._reading.load_thread(connection, lease.graph, lease.thread_id)
        if any(row["state"] == "pending" and row["checkpoint_id"] < checkpoint_id for row in rows):
            moved += supersede_older(work, checkpoint)
        states = {row["jti"]: row["state"] for row in (*rows, *moved)}
        rows = [row for row in rows if states[row["jti"]] in ("answered", "pending")]
        if missing := [jti for jti in seen if jti not in states]:
            states.update(self._reading.states_of(connection, missing))
        over = ended is not None or not any(row["state"] == "answered" for row in rows)
        if over and ended is None:  # older questions were superseded only now, or an answer has ended meanwhile
            self.end_lease(connection, lease, clean=True)
        return Conclusion(rows, moved, states, over)
