"""The transactions that record what becomes of answers, and of questions that their thread has left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.store.operations.reading import Reading
from symfonic_interrupts.store.operations.work import Work
from symfonic_interrupts.store.records import Claim
from symfonic_interrupts.store.rows import MovedPause, PauseWithAnswer


class Settling:
    """Notes which answers were used, and settles what a delivery or a newer checkpoint decides."""

    def __init__(self, clock: Clock, reading: Reading) -> None:
        self._clock = clock
        self._reading = reading

    def mark_used(self, connection: sa.Connection, used: Iterable[str], unused: Iterable[str] = ()) -> list[str]:
        """Note that nodes took these answers, before the graph's own write says so. Returns the jtis newly noted."""
        return Work(connection, self._clock).mark(used, unused)

    def settle(
        self, connection: sa.Connection, graph: str, thread_id: str, applied: Sequence[str], unused: Sequence[str]
    ) -> tuple[list[MovedPause], list[PauseWithAnswer]]:
        """Record how delivered answers ended. Returns the moved rows, and the thread's pauses as they stand now."""
        work = Work(connection, self._clock)
        were_applied = work.set_states(applied, "answered", "applied") if applied else []
        were_unused = work.set_states(unused, "answered", "unused") if unused else []
        work.add_unused(were_unused)
        return were_applied + were_unused, self._reading.load_thread(connection, graph, thread_id)

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
    ) -> list[MovedPause]:
        """The thread moved on to a newer checkpoint: its older questions are superseded, its older answers settled.

        Args:
            used: answers known to be used, to be noted first.
            settle: answers not known to be used end as `unused`. Not where only a checkpoint could tell.
            dropped: a checkpoint whose step was left out: what its nodes had taken does not count as used, and what was
                applied there ends as `unused`.

        Returns the rows that changed, with their new state.
        """
        work = Work(connection, self._clock)
        sql = work.sql.settling
        checkpoint = checkpoint_parameters(graph, thread_id, checkpoint_id)
        work.mark(used)
        lost: list[MovedPause] = []
        if dropped is not None:
            parameters = {**checkpoint, "the_dropped": dropped, **work.now}
            lost = work.rows(sql.drop_applied, parameters)
            work.add_unused(lost, dropped=True)
            work.execute(sql.skip_dropped, parameters)
        settled = settle_older(work, checkpoint) if settle else work.rows(sql.settle_used, checkpoint)
        return lost + settled + supersede_older(work, checkpoint)

    def revoke_thread(self, connection: sa.Connection, graph: str, thread_id: str) -> list[MovedPause]:
        """The thread is gone: its open tokens are dead, and answers not delivered can no longer be. Returns the rows that
        changed."""
        work = Work(connection, self._clock)
        thread = {"the_graph": graph, "the_thread": thread_id}
        claim = Claim("revoked", "revoked")
        spent = work.execute(work.sql.claiming.claim_thread, {**thread, **claim.parameters(), **work.now})
        jtis = spent.scalars().all()
        revoked = work.set_states(jtis, "pending", "revoked") if jtis else []
        for row in revoked:
            work.add_event(row, ("interrupt_revoked", {"name": row["name"], "reason": "the thread was deleted"}))
        # after the claims: an answer that was first is seen now
        unused: list[MovedPause] = work.rows(work.sql.settling.drop_answers, thread)
        work.add_unused(unused)
        work.execute(work.sql.leasing.forget_thread, {**thread, **work.now})
        return revoked + unused


def checkpoint_parameters(graph: str, thread_id: str, checkpoint_id: str) -> dict[str, str]:
    """The parameters of statements about what is older than a checkpoint."""
    return {"the_graph": graph, "the_thread": thread_id, "the_checkpoint": checkpoint_id}


def settle_older(work: Work, checkpoint: dict[str, str], used: Iterable[str] = ()) -> list[MovedPause]:
    """End the answers of older checkpoints. Returns them.

    Args:
        used: jtis of those that were used, beside those noted as used.
    """
    settled: list[MovedPause] = work.rows(work.sql.settling.settle_older, {**checkpoint, "jtis": list(used)})
    work.add_unused(row for row in settled if row["state"] == "unused")
    return settled


def supersede_older(work: Work, checkpoint: dict[str, str]) -> list[MovedPause]:
    """Supersede the open questions of older checkpoints. Returns them."""
    return work.supersede(work.sql.claiming.claim_older, checkpoint)
