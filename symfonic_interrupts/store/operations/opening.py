"""The transactions that open questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import sqlalchemy as sa

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store.operations.work import Work
from symfonic_interrupts.store.records import Event
from symfonic_interrupts.store.rows import PauseRow, columns_of

Reseal = Callable[[PauseRow], PauseRow]
"""A changed row with its new MAC."""


class Opening:
    """Opens each question once, however often it is asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def open_pauses(
        self,
        connection: sa.Connection,
        rows: Sequence[tuple[PauseRow, Event]],
        reseal: Reseal,
        *,
        used: Iterable[str] = (),
        unused: Iterable[str] = (),
    ) -> tuple[list[PauseRow], list[str]]:
        """Open each question once, and mark the answers that the asking execution used.

        Returns the rows as they stand (a known question's row in whatever state it is), and the jtis newly marked used.
        """
        work = Work(connection, self._clock)
        opened = [_open_one(work, row, event, reseal) for row, event in rows]
        return opened, work.mark(used, unused)

    def count_drifts(self, connection: sa.Connection, drifts: Mapping[str, int], row: PauseRow, event: Event) -> None:
        """Note how many answers in a row did not fit, by the jti of the question, and write an event row about it."""
        work = Work(connection, self._clock)
        for jti, number in drifts.items():
            work.execute(work.sql.opening.set_drifts, {"jtis": [jti], "the_number": number})
        work.add_event(row, event)


def _open_one(work: Work, row: PauseRow, event: Event, reseal: Reseal) -> PauseRow:
    sql = work.sql.opening
    for _ in range(3):
        if work.execute(sql.open_pause, row).first() is not None:
            work.add_event(row, event)
            if row["native"] and row["slot"]:
                _supersede_slots_before(work, row)
            return row
        known: list[PauseRow] = work.rows(sql.find_question, row)
        if not known:
            continue  # it was superseded between the two statements: open it anew
        if known[0]["state"] != "pending" or known[0]["langgraph_id"] == row["langgraph_id"]:
            return known[0]
        moved = reseal({**known[0], "langgraph_id": row["langgraph_id"], "slot": row["slot"]})
        change = {"the_jti": moved["jti"], **columns_of(moved, "langgraph_id", "slot", "mac_kid", "mac")}
        if work.execute(sql.move_question, change).first() is not None:
            return moved
        # it got another token, or an end, between the two statements
    raise StoreError("a pause could not be opened: its row changed three times meanwhile", retryable=True)


def _supersede_slots_before(work: Work, row: PauseRow) -> None:
    """A task's native questions come one after another: those still open before this one were answered without a token."""
    thread = {"the_graph": row["graph"], "the_thread": row["thread_id"]}
    work.supersede(work.sql.claiming.claim_slots, {**thread, "the_task": row["leaf_task_id"], "the_slot": row["slot"]})
