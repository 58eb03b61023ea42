"""What the statements are made of: columns, conditions, and what differs between the dialects.

Names of bound parameters begin with `the_` or `old_` in an UPDATE's conditions: there, SQLAlchemy keeps the column names for
the new values.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.dialects import postgresql, sqlite

from symfonic_interrupts.store.schema import (
    UtcDateTime,
    consumed_tokens,
    events,
    in_state,
    leases,
    pauses,
    refusals,
)

PAUSE, TOKEN, EVENT, LEASE, REFUSAL = pauses.c, consumed_tokens.c, events.c, leases.c, refusals.c

PLACEHOLDER = {
    column.name: bindparam(column.name, type_=column.type)
    for column in pauses.columns
    if column.name not in ("id", "drifts")
}
"""A bound parameter for each column of a pause that is written when it is opened."""

TOKEN_COLUMNS = (
    "jti",
    "outcome",
    "at",
    "response",
    "response_hash",
    "receipt",
    "actor",
    "scope_hash",
    "defaulted",
    "idempotency_key",
)
"""What is recorded when a token is spent."""

MOVED = [
    PAUSE[name]
    for name in (
        "jti",
        "state",
        "graph",
        "thread_id",
        "interrupt_id",
        "name",
        "tenant_id",
        "sub_tenant_id",
        "namespace",
    )
]
"""The columns of a `MovedPause`."""

ASKED = in_state("pending", "answered")
# Both conditions, though the second is enough: from the first one SQLite sees that the index of what is asked will do.
PENDING, ANSWERED = (ASKED, in_state("pending")), (ASKED, in_state("answered"))

IN_THREAD = (PAUSE.graph == bindparam("graph"), PAUSE.thread_id == bindparam("thread_id"))
OF_THREAD = (PAUSE.graph == bindparam("the_graph"), PAUSE.thread_id == bindparam("the_thread"))
LEASE_OF_THREAD = (LEASE.graph == bindparam("the_graph"), LEASE.thread_id == bindparam("the_thread"))
WITH_JTI = PAUSE.jti == bindparam("jti")
WITH_JTIS = PAUSE.jti.in_(bindparam("jtis", expanding=True))


class Dialect:
    """What differs between SQLite and PostgreSQL.

    Attributes:
        is_postgres: PostgreSQL, else SQLite.
        insert: the dialect's own `insert`, which knows ON CONFLICT.
        now: the time. PostgreSQL has its own clock, which moves on within a transaction; for SQLite the parameter `now`.
        later: the end of a lease that begins now: `now` plus the parameter `ttl`; for SQLite the parameter `later`.
        moment: a time that stands while a statement runs. By one that moves, PostgreSQL would read an index to its end.
        older: the pause belongs to a checkpoint before the parameter `the_checkpoint`.
    """

    def __init__(self, name: str) -> None:
        self.is_postgres = name == "postgresql"
        self.insert: Any = postgresql.insert if self.is_postgres else sqlite.insert
        self.now: Any = bindparam("now", type_=UtcDateTime)
        self.later: Any = bindparam("later", type_=UtcDateTime)
        self.moment: Any = self.now
        if self.is_postgres:
            self.now = sa.func.clock_timestamp(type_=UtcDateTime())
            self.later = self.now + bindparam("ttl", type_=sa.Interval)
            self.moment = sa.func.statement_timestamp(type_=UtcDateTime())
        # LangGraph's checkpoint ids are UUIDs of version 6: the order of their bytes is the order of their times
        self.older: Any = self.by_bytes(PAUSE.checkpoint_id) < bindparam("the_checkpoint")

    def by_bytes(self, column: Any) -> Any:
        """The column, compared by its bytes whatever the database's collation."""
        return column.collate("C") if self.is_postgres else column


def as_number(xid: Any) -> Any:
    """A transaction's id as a number, by way of text: PostgreSQL has no cast from xid8 to bigint."""
    return sa.cast(sa.cast(xid, sa.Text), sa.BigInteger)
