"""The transactions that only read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.bodies import reads
from symfonic_interrupts.store.operations.work import Work
from symfonic_interrupts.store.rows import EventRow, FailedLease, PauseRow, PauseWithAnswer
from symfonic_interrupts.store.same_ids import the_one_meant
from symfonic_interrupts.store.schema import events, leases, pauses
from symfonic_interrupts.tokens.cursor import Position

BEFORE_ALL = datetime.fromtimestamp(0, UTC)
"""Before any pause was due."""


class Reading:
    """Reads pauses, events and failed threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @reads
    def load_pause(self, connection: sa.Connection, jti: str) -> tuple[PauseWithAnswer | None, str | None]:
        """The pause whose current token has this jti; else the outcome recorded for a token that no pause has any more."""
        work = Work(connection, self._clock)
        rows: list[PauseWithAnswer] = work.rows(work.sql.reading.load_pause, {"jti": jti, **work.now})
        if rows:
            return rows[0], None
        return None, work.execute(work.sql.reading.load_outcome, {"jti": jti}).scalar()

    @reads
    def find_pauses(
        self, connection: sa.Connection, graph: str, interrupt_id: str, thread_id: str | None = None
    ) -> list[PauseWithAnswer]:
        """The pauses of the graph (and of the thread, where one is given) that have this id, in all scopes: of each its
        newest row. More than one where ids are alike by chance; see `same_ids`."""
        work = Work(connection, self._clock)
        query = work.sql.reading.find_by_id
        if thread_id is not None:
            query = query.where(pauses.c.thread_id == thread_id)
        return work.rows(query, {"graph": graph, "interrupt_id": interrupt_id, **work.now})

    @reads
    def load_thread(self, connection: sa.Connection, graph: str, thread_id: str) -> list[PauseWithAnswer]:
        """The thread's pending and answered pauses, oldest first."""
        work = Work(connection, self._clock)
        thread = {"graph": graph, "thread_id": thread_id}
        return sorted(work.rows(work.sql.reading.load_thread, {**thread, **work.now}), key=itemgetter("id"))

    @reads
    def load_answers(self, connection: sa.Connection, graph: str, thread_id: str) -> tuple[list[PauseWithAnswer], bool]:
        """`load_thread`, and whether a worker drives the thread now."""
        work = Work(connection, self._clock)
        thread = {"graph": graph, "thread_id": thread_id}
        rows = sorted(work.rows(work.sql.reading.load_answers, {**thread, **work.now}), key=itemgetter("id"))
        return rows, any(row["held"] for row in rows)

    @reads
    def load_latest(self, connection: sa.Connection, graph: str, thread_id: str) -> PauseRow | None:
        """The thread's newest pause, in any state."""
        work = Work(connection, self._clock)
        rows: list[PauseRow] = work.rows(work.sql.reading.load_latest, {"graph": graph, "thread_id": thread_id})
        return rows[0] if rows else None

    @reads
    def states_of(self, connection: sa.Connection, jtis: Sequence[str]) -> dict[str, str]:
        """The states of the pauses that have these tokens."""
        work = Work(connection, self._clock)
        return {row.jti: row.state for row in work.execute(work.sql.reading.states_of, {"jtis": list(jtis)})}

    @reads
    def ended_natives(self, connection: sa.Connection, graph: str, thread_id: str, checkpoint_id: str) -> set[str]:
        """LangGraph's ids of the native questions of a checkpoint whose answers have ended."""
        work = Work(connection, self._clock)
        checkpoint = {"graph": graph, "thread_id": thread_id, "checkpoint_id": checkpoint_id}
        return set(work.execute(work.sql.reading.ended_natives, checkpoint).scalars())

    def unfit_answers(self, connection: sa.Connection, jtis: Sequence[str]) -> list[PauseRow]:
        """Those of these pauses whose answers are not settled yet."""
        work = Work(connection, self._clock)
        return work.rows(work.sql.reading.unfit_answers, {"jtis": list(jtis)})

    @reads
    def list_open(
        self,
        connection: sa.Connection,
        *,
        graph: str,
        scope: FrameworkTenantScope,
        sub_scope_names: Sequence[str] | None,
        name: str | None,
        thread_id: str | None,
        limit: int,
        after: str | int | None,
        interrupt_id: str | None = None,
    ) -> list[PauseRow]:
        """Open pauses of the scope, newest first; with `sub_scope_names`, those below it of these points too.

        Args:
            after: the `interrupt_id` of a pause that the same caller may see, or the `id` of its row.

        Raises:
            UnknownInterrupt: `after` may be any of several; see `same_ids`.
        """
        work = Work(connection, self._clock)
        column = pauses.c
        in_scope = _in_scope(pauses, scope, sub_scope_names)
        query = work.sql.reading.open_in_time.where(column.graph == graph, *in_scope)
        for wanted, value in ((column.name, name), (column.thread_id, thread_id), (column.interrupt_id, interrupt_id)):
            if value is not None:
                query = query.where(wanted == value)
        if isinstance(after, str):
            alike = work.sql.reading.find_by_id.where(*in_scope).with_only_columns(column.id, column.state)
            if thread_id is not None:
                alike = alike.where(column.thread_id == thread_id)
            last = the_one_meant(work.rows(alike, {"graph": graph, "interrupt_id": after}))
            if last is None:
                return []
            after = int(last["id"])
        if after is not None:
            query = query.where(column.id < after)
        return work.rows(query.order_by(column.id.desc()).limit(limit), work.now)

    @reads
    def list_events(
        self,
        connection: sa.Connection,
        *,
        graph: str,
        scope: FrameworkTenantScope,
        sub_scope_names: Sequence[str] | None,
        thread_id: str | None,
        after: Position | None,
        limit: int,
    ) -> list[EventRow]:
        """Event rows of the scope after a position, in the order in which their transactions ended; see `list_open`."""
        work = Work(connection, self._clock)
        column = events.c
        in_scope = _in_scope(events, scope, sub_scope_names)
        query = work.sql.reading.list_events.where(column.graph == graph, *in_scope)
        if thread_id is not None:
            query = query.where(column.thread_id == thread_id)
        if after is not None:
            query = query.where(sa.tuple_(column.xid, column.id) > after)
        return work.rows(query.limit(limit))

    @reads
    def events_end(self, connection: sa.Connection) -> Position:
        """The position after which all events stand that nobody can have read yet."""
        work = Work(connection, self._clock)
        end: Any = work.execute(work.sql.reading.events_end).one()
        xid, event_id = end
        return int(xid), int(event_id)

    @reads
    def list_due(
        self, connection: sa.Connection, graph: str, *, most: int, after: PauseRow | None = None
    ) -> list[PauseRow]:
        """Pending pauses whose time is over, the longest overdue first; those that come after a row, where one is given."""
        work = Work(connection, self._clock)
        last = (BEFORE_ALL, 0) if after is None else (after["expires_at"], after["id"])
        page = {"after_time": last[0], "after_id": last[1], "most": most}
        return work.rows(work.sql.reading.due, {"graph": graph, **page, **work.now})

    @reads
    def list_failed(
        self, connection: sa.Connection, graph: str, scope: FrameworkTenantScope | None = None
    ) -> tuple[list[FailedLease], list[PauseRow]]:
        """The leases of threads whose run failed and that nobody drives, the longest ago first; and used answers of threads
        that nobody drives, of which only their checkpoints can say whether they failed."""
        work = Work(connection, self._clock)
        failed, used = work.sql.reading.failed_threads, work.sql.reading.used_threads
        if scope is not None:
            failed = failed.where(*_in_scope(leases, scope, None))
            used = used.where(*_in_scope(pauses, scope, None))
        return work.rows(failed, {"graph": graph, **work.now}), work.rows(used, {"graph": graph})

    @reads
    def list_failed_answered(self, connection: sa.Connection, graph: str) -> list[FailedLease]:
        """The leases of threads whose run failed, and that have an answer which no node has taken."""
        work = Work(connection, self._clock)
        return work.rows(work.sql.reading.failed_answered, {"graph": graph, **work.now})


def _in_scope(table: sa.Table, scope: FrameworkTenantScope, sub_scope_names: Sequence[str] | None) -> list[Any]:
    """Conditions for rows of exactly this scope; with names, also for those of scopes below it with these names."""
    column = table.c
    parts = {"sub_tenant_id": scope.sub_tenant_id, "namespace": scope.namespace}
    matches: Any = sa.and_(*(column[key].is_not_distinct_from(part) for key, part in parts.items()))
    if sub_scope_names:
        below = [column[key] == part for key, part in parts.items() if part is not None]
        matches = sa.or_(matches, sa.and_(column.name.in_(sub_scope_names), *below))
    return [column.tenant_id == scope.tenant_id, matches]
