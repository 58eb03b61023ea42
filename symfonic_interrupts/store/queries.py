"""The transactions that only read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.records import Transactions, reads
from symfonic_interrupts.store.same_ids import the_one_meant
from symfonic_interrupts.store.schema import PauseRow, events, leases, pauses

Cursor = tuple[int, int]
"""A place in the events: (transaction, id)."""

BEFORE_ALL = datetime.fromtimestamp(0, UTC)
"""Before any pause was due."""


class Queries(Transactions):
    """Reads pauses, answers and threads."""

    @reads
    def load_pause(self, connection: sa.Connection, jti: str) -> tuple[PauseRow | None, str | None]:
        """The pause whose current token has this jti, with `overdue` and what is recorded of its answer; else the
        outcome recorded for a token that no pause has any more."""
        sql, now = self._sql(connection)
        row = connection.execute(sql.load_pause, {"jti": jti, **now}).mappings().first()
        if row is not None:
            return dict(row), None
        return None, connection.execute(sql.load_outcome, {"jti": jti}).scalar()

    @reads
    def find_pauses(
        self, connection: sa.Connection, graph: str, interrupt_id: str, thread_id: str | None = None
    ) -> list[PauseRow]:
        """The pauses of the graph (and of the thread, where one is given) that have this id, whosever they are: of each its
        newest row, with `overdue`. More than one where ids are alike by chance; see `same_ids`."""
        sql, now = self._sql(connection)
        query = sql.find_by_id if thread_id is None else sql.find_by_id.where(pauses.c.thread_id == thread_id)
        asked = {"graph": graph, "interrupt_id": interrupt_id, **now}
        return [dict(row) for row in connection.execute(query, asked).mappings()]

    @reads
    def keys_in_use(self, connection: sa.Connection) -> dict[str, int]:
        """How many rows and receipts of pauses that may still be answered, delivered or reissued each key has signed."""
        sql, _ = self._sql(connection)
        counts = Counter({row[0]: row[1] for row in connection.execute(sql.keys_in_use)})
        for receipt in connection.execute(sql.undelivered_receipts).scalars():
            counts[json.loads(receipt)["kid"]] += 1
        return dict(counts)

    @reads
    def load_thread(self, connection: sa.Connection, graph: str, thread_id: str) -> list[PauseRow]:
        """The thread's pending and answered pauses, oldest first."""
        sql, now = self._sql(connection)
        rows = [dict(row) for row in connection.execute(sql.load_thread, self._in(graph, thread_id, now)).mappings()]
        return sorted(
            rows, key=itemgetter("id")
        )  # here: asked to sort, SQLite would walk through all of a thread's past

    @reads
    def load_answers(self, connection: sa.Connection, graph: str, thread_id: str) -> tuple[list[PauseRow], bool]:
        """`load_thread`, and whether a worker drives the thread now."""
        sql, now = self._sql(connection)
        found = connection.execute(sql.load_answers, self._in(graph, thread_id, now)).mappings()
        rows = sorted((dict(row) for row in found), key=itemgetter("id"))
        return rows, any(row["held"] for row in rows)

    @reads
    def states_of(self, connection: sa.Connection, jtis: Sequence[str]) -> dict[str, str]:
        """The states of the pauses that have these tokens."""
        sql, _ = self._sql(connection)
        return {row.jti: row.state for row in connection.execute(sql.states_of, {"jtis": list(jtis)})}

    @reads
    def load_latest(self, connection: sa.Connection, graph: str, thread_id: str) -> PauseRow | None:
        """The thread's newest pause, in any state."""
        sql, _ = self._sql(connection)
        row = connection.execute(sql.load_latest, {"graph": graph, "thread_id": thread_id}).mappings().first()
        return None if row is None else dict(row)

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
        sql, now = self._sql(connection)
        column = pauses.c
        mine = _of_scope(pauses, scope, sub_scope_names)
        query = sql.open_in_time.where(column.graph == graph, *mine)
        for wanted, value in ((column.name, name), (column.thread_id, thread_id), (column.interrupt_id, interrupt_id)):
            if value is not None:
                query = query.where(wanted == value)
        if isinstance(after, str):
            alike = sql.find_by_id.where(*mine).with_only_columns(column.id, column.state)
            if thread_id is not None:
                alike = alike.where(column.thread_id == thread_id)
            asked = {"graph": graph, "interrupt_id": after}
            last = the_one_meant([dict(row) for row in connection.execute(alike, asked).mappings()])
            if last is None:
                return []
            after = last["id"]
        if after is not None:
            query = query.where(column.id < after)
        query = query.order_by(column.id.desc()).limit(limit)
        return [dict(row) for row in connection.execute(query, now).mappings()]

    @reads
    def list_events(
        self,
        connection: sa.Connection,
        *,
        graph: str,
        scope: FrameworkTenantScope,
        sub_scope_names: Sequence[str] | None,
        thread_id: str | None,
        after: Cursor | None,
        limit: int,
    ) -> list[dict[str, Any]]:
        """Event rows of the scope after a cursor, in the order in which their transactions ended; see `list_open`."""
        sql, _ = self._sql(connection)
        column = events.c
        query = sql.list_events.where(column.graph == graph, *_of_scope(events, scope, sub_scope_names))
        if thread_id is not None:
            query = query.where(column.thread_id == thread_id)
        if after is not None:
            query = query.where(sa.tuple_(column.xid, column.id) > after)
        return [dict(row) for row in connection.execute(query.limit(limit)).mappings()]

    @reads
    def events_end(self, connection: sa.Connection) -> Cursor:
        """The cursor after which all events stand that nobody can have read yet."""
        sql, _ = self._sql(connection)
        xid, event_id = connection.execute(sql.events_end).one()
        return int(xid), int(event_id)

    @reads
    def list_due(
        self, connection: sa.Connection, graph: str, *, most: int, after: PauseRow | None = None
    ) -> list[PauseRow]:
        """Pending pauses whose time is over, the longest overdue first; those that come after a row, where one is given."""
        sql, now = self._sql(connection)
        place = {"after_time": BEFORE_ALL, "after_id": 0}
        if after is not None:
            place = {"after_time": after["expires_at"], "after_id": after["id"]}
        asked = {"graph": graph, **place, "most": most, **now}
        return [dict(row) for row in connection.execute(sql.due, asked).mappings()]

    @reads
    def list_failed(
        self, connection: sa.Connection, graph: str, scope: FrameworkTenantScope | None = None
    ) -> tuple[list[dict[str, Any]], list[PauseRow]]:
        """The leases of threads whose run failed and that nobody drives, the longest ago first; and used answers of threads
        that nobody drives, of which only their checkpoints can say whether they failed."""
        sql, now = self._sql(connection)
        failed, used = sql.failed_threads, sql.used_threads
        if scope is not None:
            failed = failed.where(*_of_scope(leases, scope, None))
            used = used.where(*_of_scope(pauses, scope, None))
        asked = {"graph": graph, **now}
        return (
            [dict(row) for row in connection.execute(failed, asked).mappings()],
            [dict(row) for row in connection.execute(used, {"graph": graph}).mappings()],
        )

    @reads
    def list_failed_answered(self, connection: sa.Connection, graph: str) -> list[dict[str, Any]]:
        """The leases of threads whose run failed, and that have an answer which no node has taken."""
        sql, now = self._sql(connection)
        return [dict(row) for row in connection.execute(sql.failed_answered, {"graph": graph, **now}).mappings()]

    @reads
    def ended_natives(self, connection: sa.Connection, graph: str, thread_id: str, checkpoint_id: str) -> set[str]:
        """LangGraph's ids of the native questions of a checkpoint whose answers have ended."""
        sql, _ = self._sql(connection)
        place = {"graph": graph, "thread_id": thread_id, "checkpoint_id": checkpoint_id}
        return set(connection.execute(sql.ended_natives, place).scalars())

    @reads
    def list_unfinished(
        self, connection: sa.Connection, graph: str, *, created_before: datetime, most: int
    ) -> tuple[list[str], list[str], list[PauseRow]]:
        """What a crash may have left, skipping threads that are being driven: threads with undelivered answers, threads
        with a lapsed lease, and pending pauses never seen in their checkpoint."""
        sql, now = self._sql(connection)
        place = {"graph": graph, **now}
        undelivered = list(connection.execute(sql.undelivered_threads, place).scalars())
        lapsed = list(connection.execute(sql.lapsed_threads, place).scalars())
        asked = {**place, "created_before": created_before, "most": most}
        return undelivered, lapsed, [dict(row) for row in connection.execute(sql.unconfirmed, asked).mappings()]


def _of_scope(table: sa.Table, scope: FrameworkTenantScope, sub_scope_names: Sequence[str] | None) -> list[Any]:
    """Conditions for rows of exactly this scope; with names, also for those of scopes below it with these names."""
    column = table.c
    parts = {"sub_tenant_id": scope.sub_tenant_id, "namespace": scope.namespace}
    found: Any = sa.and_(*(column[key].is_not_distinct_from(part) for key, part in parts.items()))
    if sub_scope_names:
        below = [column[key] == part for key, part in parts.items() if part is not None]
        found = sa.or_(found, sa.and_(column.name.in_(sub_scope_names), *below))
    return [column.tenant_id == scope.tenant_id, found]
