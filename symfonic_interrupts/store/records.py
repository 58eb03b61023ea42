"""What the store's transactions are made of: the values they take and give, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.store.schema import PauseRow
from symfonic_interrupts.store.statements import Statements, statements

F = TypeVar("F", bound=Callable[..., Any])


def reads(body: F) -> F:
    """Mark a body that only reads. Its statements need no transaction around them: each sees what was committed before it."""
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
class Failure:
    """What a run raised after an answer, as it is stored.

    Attributes:
        node: the path of the node that raised, as `sub:node`; None where no node did.
        message: bounded.
        about: the pause whose answer the run had, to whose scope the failure belongs.
        interrupt_ids: of all answers that the run had.
    """

    node: str | None
    error_type: str
    message: str
    about: PauseRow
    interrupt_ids: tuple[str, ...]

    def parameters(self) -> dict[str, Any]:
        scope = {key: self.about[key] for key in ("tenant_id", "sub_tenant_id", "namespace")}
        texts = {"failed_node": self.node, "failed_type": self.error_type, "failed_message": self.message}
        ids = canonical_json(list(self.interrupt_ids))
        return {f"c_{key}": value for key, value in {**texts, "failed_ids": ids, **scope}.items()}


class ClaimLost(Exception):
    """One of several claims was lost, so none is made.

    Attributes:
        index: which one.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's hold on a thread.

    Attributes:
        taken_over: the one before it did not end cleanly.
        failed: the run of the one before it raised.
        breakpoints: canonical JSON of those that hold for this run; where it was taken over, of the one before.
    """

    graph: str
    thread_id: str
    owner: str
    taken_over: bool
    failed: bool = False
    breakpoints: str | None = None

    def parameters(self) -> dict[str, str]:
        return {"the_graph": self.graph, "the_thread": self.thread_id, "the_owner": self.owner}


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a thread stands after a run.

    Attributes:
        rows: its pauses that are still open or answered.
        moved: its pauses that have ended now, as far as their event rows tell of them.
        states: the states of both, and of those that were asked for, by jti.
        over: no answer is left to deliver, and the lease is given back.
    """

    rows: list[PauseRow]
    moved: list[PauseRow]
    states: dict[str, str]
    over: bool


class Transactions:
    """What all transaction bodies share. `now` is asked of the clock only where the database has none.

    Args:
        clock: for SQLite; PostgreSQL decides by its own.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock

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
