"""The transactions of the store, each written once over a sync `Connection` and run by `Database.run` or `arun`.

None reads and then writes: every move out of `pending` is the INSERT of the token's `jti`, and the row that RETURNING
gives back (or does not) says who won.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.schema import PauseRow, pauses
from symfonic_interrupts.store.statements import Statements, statements

F = TypeVar("F", bound=Callable[..., Any])


def reads(body: F) -> F:
    """Mark a transaction body that only reads: SQLite need not take its write lock for it."""
    body.reads = True  # type: ignore[attr-defined]
    return body


Event = tuple[str, Any]
"""The type of an event row, and its body as JSON data."""


@dataclass(frozen=True, slots=True)
class Claim:
    """How a pause leaves `pending`.

    Attributes:
        outcome: what is recorded of the token: `answered`, `expired`, `superseded`, `revoked`.
        state: the row's new state.
        response: canonical JSON of the answer, where there is one.
    """

    outcome: str
    state: str
    response: str | None = None
    response_hash: str | None = None
    receipt: str | None = None
    actor: str | None = None
    scope_hash: str | None = None
    defaulted: bool = False
    idempotency_key: str | None = None

    def parameters(self) -> dict[str, Any]:
        return {f"c_{field.name}": getattr(self, field.name) for field in fields(self) if field.name != "state"}


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's hold on a thread. `taken_over`: the one before it did not end cleanly."""

    graph: str
    thread_id: str
    owner: str
    taken_over: bool

    def parameters(self) -> dict[str, str]:
        return {"the_graph": self.graph, "the_thread": self.thread_id, "the_owner": self.owner}


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a thread stands after a run. `over`: no answer is left to deliver, and the lease is given back."""

    rows: list[PauseRow]
    states: dict[str, str]
    over: bool


class Operations:
    """Transaction bodies. `now` is asked of the clock only where the database has none.

    Args:
        clock: for SQLite; PostgreSQL decides by its own.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock

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
                return row
            known = connection.execute(sql.find_question, row).mappings().first()
            if known is None:
                continue  # superseded between the two statements: open it anew
            found = dict(known)
            if found["state"] == "pending" and found["langgraph_id"] != row["langgraph_id"]:
                found = reseal({**found, "langgraph_id": row["langgraph_id"], "slot": row["slot"]})
                moved = {key: found[key] for key in ("langgraph_id", "slot", "mac_kid", "mac")}
                connection.execute(sql.move_question, {"the_jti": found["jti"], **moved})
            return found
        raise StoreError("a pause could not be opened: its row changed three times meanwhile", retryable=True)

    # -- claiming

    def answer(
        self, connection: sa.Connection, row: PauseRow, claim: Claim, event: Callable[[datetime], Event | list[Event]]
    ) -> datetime | None:
        """Store an answer if the pause is pending and in time. Returns when, or None where another was first."""
        return self._claim(connection, "claim_in_time", row, claim, event)

    def answer_and_hold(
        self,
        connection: sa.Connection,
        row: PauseRow,
        claim: Claim,
        event: Callable[[datetime], Event | list[Event]],
        owner: str,
        ttl: timedelta,
    ) -> tuple[datetime | None, tuple[Lease, list[PauseRow]] | None]:
        """`answer`, then `take_lease` of its thread, in one transaction."""
        at = self.answer(connection, row, claim, event)
        if at is None:
            return None, None
        return at, self.take_lease(connection, row["graph"], row["thread_id"], owner, ttl)

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
        describe: Callable[[datetime], Event | list[Event]],
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
        """Give a pending or expired pause the new token of `renewed`; the old one is spent. False where it has moved on."""
        sql, now = self._sql(connection)
        if row["state"] == "pending":
            claim = Claim("reissued", "pending")
            if connection.execute(sql.claim_any, {"jti": row["jti"], **claim.parameters(), **now}).first() is None:
                return False
        change = {key: renewed[key] for key in ("jti", "expires_at", "mac_kid", "mac")}
        moved = connection.execute(sql.reissue, {"the_jti": row["jti"], "old_state": row["state"], **change}).first()
        if moved is None:
            return False
        self._event(connection, sql, now, renewed, event)
        return True

    def purge(self, connection: sa.Connection, before: datetime, *, with_events: bool) -> dict[str, int]:
        """Delete pauses that ended and tokens that belong to none any more. A token without its pause stays refused."""
        sql, now = self._sql(connection)
        asked = {"before": before}
        counts = {"pauses": connection.execute(sql.purge_pauses, {**asked, **now}).rowcount}
        counts["tokens"] = connection.execute(sql.purge_tokens, asked).rowcount
        counts["events"] = connection.execute(sql.purge_events, asked).rowcount if with_events else 0
        return counts

    def advance(
        self,
        connection: sa.Connection,
        graph: str,
        thread_id: str,
        checkpoint_id: str,
        *,
        used: Iterable[str] = (),
        settle: bool = True,
    ) -> list[PauseRow]:
        """The thread moved on to a newer checkpoint: its older questions are superseded, its older answers settled.

        Args:
            used: answers known to be used, to be noted first.
            settle: answers not known to be used end as `unused`. Not where only a checkpoint could tell.

        Returns the rows that changed, with their new state.
        """
        sql, now = self._sql(connection)
        self._mark(connection, sql, now, used, ())
        place = {"the_graph": graph, "the_thread": thread_id, "the_checkpoint": checkpoint_id}
        changed = self._settle_older(connection, sql, now, sql.settle_older if settle else sql.settle_used, place)
        return changed + self._supersede_older(connection, sql, now, place)

    def _settle_older(
        self, connection: sa.Connection, sql: Statements, now: dict[str, Any], statement: Any, place: dict[str, str]
    ) -> list[PauseRow]:
        settled = [dict(row) for row in connection.execute(statement, place).mappings()]
        for row in settled:
            if row["state"] == "unused":
                self._event(connection, sql, now, row, ("interrupt_unused", {"name": row["name"]}))
        return settled

    def _supersede_older(
        self, connection: sa.Connection, sql: Statements, now: dict[str, Any], place: dict[str, str]
    ) -> list[PauseRow]:
        claim = Claim("superseded", "superseded")
        closed = connection.execute(sql.claim_older, {**place, **claim.parameters(), **now}).all()
        if not closed:
            return []
        change = {"jtis": [row.jti for row in closed], "old_state": "pending", "new_state": "superseded"}
        changed = [dict(row) for row in connection.execute(sql.set_states, change).mappings()]
        for row in changed:
            self._event(connection, sql, now, row, ("interrupt_superseded", {"name": row["name"]}))
        return changed

    def revoke_thread(self, connection: sa.Connection, graph: str, thread_id: str) -> list[PauseRow]:
        """The thread is gone: its open tokens are dead, and answers not delivered can no longer be."""
        sql, now = self._sql(connection)
        changed = []
        rows = [dict(r) for r in connection.execute(sql.load_thread, self._in(graph, thread_id, now)).mappings()]
        for row in rows:
            if row["state"] == "pending":
                event: Event = ("interrupt_revoked", {"name": row["name"], "reason": "the thread was deleted"})
                if self.close(connection, row, Claim("revoked", "revoked"), event) is not None:
                    changed.append({**row, "state": "revoked"})
        answered = [row["jti"] for row in rows if row["state"] == "answered"]
        return changed + self._move(connection, sql, now, answered, "unused")

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
        self, connection: sa.Connection, graph: str, thread_id: str, owner: str, ttl: timedelta
    ) -> tuple[Lease, list[PauseRow]] | None:
        """Hold the thread, and read its pauses. None where another worker holds it."""
        sql, now = self._sql(connection)
        asked = {"graph": graph, "thread_id": thread_id, "owner": owner, **self._later(sql, ttl), **now}
        fence = connection.execute(sql.take_lease, asked).scalar()
        if fence is None:
            return None
        return Lease(graph, thread_id, owner, taken_over=fence > 1), self.load_thread(connection, graph, thread_id)

    def renew_lease(self, connection: sa.Connection, lease: Lease, ttl: timedelta) -> bool:
        """Hold the thread for longer. False where another worker has taken it."""
        sql, _ = self._sql(connection)
        return connection.execute(sql.renew_lease, {**lease.parameters(), **self._later(sql, ttl)}).first() is not None

    def end_lease(self, connection: sa.Connection, lease: Lease, *, clean: bool, used: Sequence[str] = ()) -> None:
        """Give the thread back, noting used answers. Not clean: the row stays, lapsed: the thread is unfinished."""
        sql, now = self._sql(connection)
        self._mark(connection, sql, now, used, ())
        if clean:
            connection.execute(sql.end_lease, lease.parameters())
        else:
            connection.execute(sql.lapse_lease, {**lease.parameters(), **now})

    def conclude(
        self, connection: sa.Connection, lease: Lease, checkpoint_id: str, seen: Sequence[str], used: Sequence[str]
    ) -> Conclusion:
        """A run has ended at this checkpoint: close what it left behind, and give the thread back if nothing is left.

        Args:
            seen: jtis whose states are asked for, too.
            used: jtis of answers that nodes used in the run.
        """
        sql, now = self._sql(connection)
        self._mark(connection, sql, now, used, ())
        rows = self.load_thread(connection, lease.graph, lease.thread_id)
        states = {row["jti"]: row["state"] for row in rows}
        behind = {row["state"] for row in rows if row["checkpoint_id"] < checkpoint_id}
        if behind:
            place = {"the_graph": lease.graph, "the_thread": lease.thread_id, "the_checkpoint": checkpoint_id}
            changed = self._settle_older(connection, sql, now, sql.settle_older, place) if "answered" in behind else []
            changed += self._supersede_older(connection, sql, now, place) if "pending" in behind else []
            states.update((row["jti"], row["state"]) for row in changed)
            rows = [row for row in rows if states[row["jti"]] in ("answered", "pending")]
        if missing := [jti for jti in seen if jti not in states]:
            states.update(self.states_of(connection, missing))
        over = not any(row["state"] == "answered" for row in rows)
        if over:
            self.end_lease(connection, lease, clean=True)
        return Conclusion(rows, states, over)

    def settle(
        self, connection: sa.Connection, graph: str, thread_id: str, applied: Sequence[str], unused: Sequence[str]
    ) -> tuple[list[PauseRow], list[PauseRow]]:
        """Record how delivered answers ended. Returns the moved rows, and the thread's pauses as they stand now."""
        sql, now = self._sql(connection)
        moved = self._move(connection, sql, now, applied, "applied") + self._move(
            connection, sql, now, unused, "unused"
        )
        return moved, self.load_thread(connection, graph, thread_id)

    # -- reading

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
    def find_pause(self, connection: sa.Connection, graph: str, interrupt_id: str) -> PauseRow | None:
        """The newest row of a pause, with `overdue`."""
        sql, now = self._sql(connection)
        asked = {"graph": graph, "interrupt_id": interrupt_id, **now}
        row = connection.execute(sql.find_by_id, asked).mappings().first()
        return None if row is None else dict(row)

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
        return [dict(row) for row in connection.execute(sql.load_thread, self._in(graph, thread_id, now)).mappings()]

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
        after: str | None,
    ) -> list[PauseRow]:
        """Open pauses of the scope, newest first; with `sub_scope_names`, those below it of these points too."""
        sql, now = self._sql(connection)
        column = pauses.c
        exact = column.scope_hash == scope.scope_hash
        if sub_scope_names:
            below = [column.tenant_id == scope.tenant_id, column.name.in_(sub_scope_names)]
            below += [column.sub_tenant_id == scope.sub_tenant_id] if scope.sub_tenant_id is not None else []
            below += [column.namespace == scope.namespace] if scope.namespace is not None else []
            exact = sa.or_(exact, sa.and_(*below))
        query = sql.open_in_time.where(column.tenant_id == scope.tenant_id, column.graph == graph, exact)
        if name is not None:
            query = query.where(column.name == name)
        if thread_id is not None:
            query = query.where(column.thread_id == thread_id)
        if after is not None:
            seen = sa.select(sa.func.max(column.id)).where(column.interrupt_id == after, column.graph == graph)
            query = query.where(column.id < seen.scalar_subquery())
        query = query.order_by(column.id.desc()).limit(limit)
        return [dict(row) for row in connection.execute(query, now).mappings()]

    @reads
    def list_due(self, connection: sa.Connection, graph: str, *, above: int, most: int) -> list[PauseRow]:
        """Pending pauses whose time is over, by id from `above` on."""
        sql, now = self._sql(connection)
        asked = {"graph": graph, "above": above, "most": most, **now}
        return [dict(row) for row in connection.execute(sql.due, asked).mappings()]

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

    def confirm(self, connection: sa.Connection, jtis: Sequence[str]) -> None:
        """Note that these pauses stand in their checkpoints, so that recovery need not look again."""
        sql, now = self._sql(connection)
        connection.execute(sql.confirm, {"jtis": list(jtis), **now})

    def record(self, connection: sa.Connection, row: PauseRow, event: Event) -> None:
        """Write an event row about a pause."""
        sql, now = self._sql(connection)
        self._event(connection, sql, now, row, event)

    # -- helpers

    def _sql(self, connection: sa.Connection) -> tuple[Statements, dict[str, Any]]:
        sql = statements(connection.dialect.name)
        return sql, {} if sql.is_postgres else {"now": self._clock()}

    def _later(self, sql: Statements, ttl: timedelta) -> dict[str, Any]:
        return {"ttl": ttl} if sql.is_postgres else {"later": self._clock() + ttl}

    @staticmethod
    def _in(graph: str, thread_id: str, now: dict[str, Any]) -> dict[str, Any]:
        return {"graph": graph, "thread_id": thread_id, **now}

    @staticmethod
    def _event(connection: sa.Connection, sql: Statements, now: dict[str, Any], row: PauseRow, event: Event) -> None:
        kind, body = event
        columns = ("graph", "thread_id", "interrupt_id", "name", "tenant_id", "sub_tenant_id", "namespace")
        values = {column: row[column] for column in columns}
        connection.execute(sql.add_event, {**values, "type": kind, "body": canonical_json(body), **now})
