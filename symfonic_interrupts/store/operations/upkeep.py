"""The transactions of recovery, of the keys in use, and of the purge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.store.bodies import reads
from symfonic_interrupts.store.operations.work import Work
from symfonic_interrupts.store.rows import PauseRow


class Upkeep:
    """Finds what a crash may have left, and deletes what nobody needs any more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @reads
    def list_unfinished(
        self, connection: sa.Connection, graph: str, *, created_before: datetime, most: int
    ) -> tuple[list[str], list[str], list[PauseRow]]:
        """What a crash may have left, skipping threads that are being driven: threads with undelivered answers, threads
        with a lapsed lease, and pending pauses never seen in their checkpoint."""
        work = Work(connection, self._clock)
        sql, of_graph = work.sql.upkeep, {"graph": graph, **work.now}
        undelivered = list(work.execute(sql.undelivered_threads, of_graph).scalars())
        lapsed = list(work.execute(sql.lapsed_threads, of_graph).scalars())
        return (
            undelivered,
            lapsed,
            work.rows(sql.unconfirmed, {**of_graph, "created_before": created_before, "most": most}),
        )

    def confirm(self, connection: sa.Connection, jtis: Sequence[str]) -> None:
        """Note that these pauses stand in their checkpoints, so that recovery need not look again."""
        work = Work(connection, self._clock)
        work.execute(work.sql.upkeep.confirm, {"jtis": list(jtis), **work.now})

    def doubt(self, connection: sa.Connection, graph: str, thread_id: str) -> None:
        """The thread is about to leave its checkpoint. Recovery looks at its pauses again: this process may die before it
        closes them."""
        work = Work(connection, self._clock)
        work.execute(work.sql.upkeep.doubt, {"the_graph": graph, "the_thread": thread_id})

    @reads
    def keys_in_use(self, connection: sa.Connection) -> dict[str, int]:
        """How many rows and receipts of pauses that may still be answered, delivered or reissued each key has signed."""
        work = Work(connection, self._clock)
        rows: Any = work.execute(work.sql.upkeep.keys_in_use).all()
        counts: Counter[str] = Counter(dict(rows))
        for receipt in work.execute(work.sql.upkeep.undelivered_receipts).scalars():
            counts[json.loads(receipt)["kid"]] += 1
        return dict(counts)

    def purge(self, connection: sa.Connection, before: datetime, *, with_events: bool) -> dict[str, int]:
        """Delete pauses that ended and tokens that belong to none any more. A token without its pause stays refused.

        Returns how many `pauses`, `tokens` and `events` were deleted.
        """
        work = Work(connection, self._clock)
        sql, age = work.sql.upkeep, {"before": before}
        counts = {"pauses": work.execute(sql.purge_pauses, {**age, **work.now}).rowcount}
        counts["tokens"] = work.execute(sql.purge_tokens, age).rowcount
        work.execute(sql.purge_refusals, age)
        counts["events"] = work.execute(sql.purge_events, age).rowcount if with_events else 0
        return counts
