"""The five tables.

`interrupt_pauses` has one row per question. Its columns are covered by a MAC (`SIGNED_COLUMNS`), but for those that say how
far the pause has come: `state`, `used_at`, `skipped_at`, `confirmed_at`, `drifts`. `interrupt_consumed_tokens` decides: a
`jti` is inserted once, and whoever inserts it has moved the pause out of `pending`. `interrupt_events` is append-only.
Refusals, which anybody can cause as often as they like, are counted in `interrupt_refusals`. A row of
`interrupt_thread_leases` says that a thread is being driven, that its worker died, or that its run failed.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa

metadata = sa.MetaData()


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An aware datetime in UTC. SQLite keeps it without an offset; it comes back aware."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if dialect.name == "postgresql" else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

pauses = sa.Table(
    "interrupt_pauses",
    metadata,
    sa.Column("id", _KEY, primary_key=True, autoincrement=True),
    sa.Column("interrupt_id", sa.Text, nullable=False, index=True),
    sa.Column("jti", sa.Text, nullable=False, unique=True),
    sa.Column("graph", sa.Text, nullable=False),
    sa.Column("audience", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # where it was asked: the root graph's checkpoint and task, and the task that really asked
    sa.Column("thread_id", sa.Text, nullable=False),
    sa.Column("checkpoint_id", sa.Text, nullable=False),
    sa.Column("task_id", sa.Text, nullable=False),
    sa.Column("leaf_ns", sa.Text, nullable=False),
    sa.Column("leaf_checkpoint_id", sa.Text, nullable=False),
    sa.Column("leaf_task_id", sa.Text, nullable=False),
    sa.Column("langgraph_id", sa.Text, nullable=False),
    sa.Column("slot", sa.Integer, nullable=False),  # how many answers the task had when it asked
    sa.Column("occurrence", sa.Integer, nullable=False),
    sa.Column("native", sa.Boolean, nullable=False),  # asked by a plain `interrupt()`, covered by `nodes`
    # what is asked
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("request_hash", sa.Text, nullable=False),
    # whose it is
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("sub_tenant_id", sa.Text),
    sa.Column("namespace", sa.Text),
    sa.Column("scope_hash", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=False),
    # for later releases: not used yet
    sa.Column("requested_by", sa.Text),
    sa.Column("trace_context", sa.Text),
    sa.Column("votes", sa.Text),
    sa.Column("seal", sa.Text),
    # how far it has come
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("used_at", UtcDateTime),  # when a node took the answer; noted where the checkpoint does not say
    sa.Column("skipped_at", UtcDateTime),  # when a node was given the answer and asked for something else
    sa.Column("confirmed_at", UtcDateTime),  # when `recover` saw the interrupt in its checkpoint
    sa.Column("mac_kid", sa.Text, nullable=False),
    sa.Column("mac", sa.Text, nullable=False),
    sa.Column("drifts", sa.Integer),  # how many answers in a row, before this question, did not fit what was asked next
    sa.CheckConstraint(
        "state IN ('pending', 'answered', 'applied', 'unused', 'expired', 'superseded', 'revoked')",
        name="interrupt_pauses_state",
    ),
    sqlite_autoincrement=True,  # an id is never given twice, also after a purge
)

SIGNED_COLUMNS: tuple[str, ...] = tuple(
    column.name
    for column in pauses.columns
    if column.name
    not in ("id", "state", "used_at", "skipped_at", "confirmed_at", "drifts", "mac_kid", "mac", "votes", "seal")
)
"""The columns under a row's MAC, in order."""


def in_state(*states: str) -> sa.ColumnElement[bool]:
    """The condition that a pause is in one of these states.

    Written into the statement, not bound: a database that plans without the values could not use the indexes of open pauses.
    """
    words = [sa.literal_column(f"'{state}'", sa.Text) for state in states]
    return pauses.c.state.in_(words) if len(words) > 1 else pauses.c.state == words[0]


QUESTION = ("name", "request_hash", "occurrence")
"""What makes two pauses of a task the same question."""

NOT_SUPERSEDED = pauses.c.state != sa.literal_column("'superseded'", sa.Text)

# These indexes leave out pauses that have ended: their number grows for ever.
_is_pending = in_state("pending")
_is_asked = in_state("pending", "answered")
sa.Index(
    "interrupt_pauses_one_per_slot",
    *(pauses.c[name] for name in ("graph", "thread_id", "langgraph_id", *QUESTION)),
    unique=True,
    sqlite_where=NOT_SUPERSEDED,
    postgresql_where=NOT_SUPERSEDED,
)
sa.Index(
    "interrupt_pauses_one_asked_per_task",  # an answer on its way counts: its question is not asked again
    *(pauses.c[name] for name in ("graph", "thread_id", "leaf_task_id", *QUESTION)),
    unique=True,
    sqlite_where=_is_asked,
    postgresql_where=_is_asked,
)
sa.Index(
    "interrupt_pauses_due", pauses.c.expires_at, pauses.c.id, sqlite_where=_is_pending, postgresql_where=_is_pending
)
sa.Index(
    "interrupt_pauses_open",
    *(pauses.c[name] for name in ("tenant_id", "id")),
    sqlite_where=_is_pending,
    postgresql_where=_is_pending,
)
sa.Index("interrupt_pauses_of_thread", pauses.c.thread_id)

consumed_tokens = sa.Table(
    "interrupt_consumed_tokens",
    metadata,
    sa.Column("jti", sa.Text, primary_key=True),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("response", sa.Text),
    sa.Column("response_hash", sa.Text),
    sa.Column("receipt", sa.Text),  # signed when the answer was accepted: an edited response is not delivered
    sa.Column("actor", sa.Text),
    sa.Column("scope_hash", sa.Text),  # of the scope that answered
    sa.Column("defaulted", sa.Boolean, nullable=False),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("votes", sa.Text),
    sa.Column("seal", sa.Text),
)

events = sa.Table(
    "interrupt_events",
    metadata,
    sa.Column("id", _KEY, primary_key=True, autoincrement=True),
    sa.Column("xid", sa.BigInteger, nullable=False),  # the transaction that wrote it; 0 on SQLite, which has one writer
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("graph", sa.Text, nullable=False),
    sa.Column("thread_id", sa.Text, nullable=False, index=True),
    sa.Column("interrupt_id", sa.Text, nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("sub_tenant_id", sa.Text),
    sa.Column("namespace", sa.Text),
    sa.Column("body", sa.Text, nullable=False),  # canonical JSON, without a token
    sa.Column("trace_context", sa.Text),
    sa.Column("seal", sa.Text),
    sqlite_autoincrement=True,  # a reader's cursor stays true after a purge
)
sa.Index("interrupt_events_in_order", *(events.c[name] for name in ("graph", "tenant_id", "xid", "id")))

leases = sa.Table(
    "interrupt_thread_leases",
    metadata,
    sa.Column("graph", sa.Text, primary_key=True),
    sa.Column("thread_id", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("fence", _KEY, nullable=False),  # 1: nobody held it before; more: taken over from one that lapsed
    sa.Column("expires_at", UtcDateTime, nullable=False),
    sa.Column("breakpoints", sa.Text),  # canonical JSON: breakpoints that the delivery was given for its run alone
    # what its run raised after an answer, and the scope of that answer's pause
    sa.Column("failed_at", UtcDateTime),
    sa.Column("failed_node", sa.Text),
    sa.Column("failed_type", sa.Text),
    sa.Column("failed_message", sa.Text),
    sa.Column("failed_ids", sa.Text),  # canonical JSON: interrupt ids
    sa.Column("tenant_id", sa.Text),
    sa.Column("sub_tenant_id", sa.Text),
    sa.Column("namespace", sa.Text),
)

refusals = sa.Table(
    "interrupt_refusals",
    metadata,
    sa.Column("jti", sa.Text, primary_key=True),
    sa.Column("scope_hash", sa.Text, primary_key=True),  # of the scope that was refused; '' where that is not known
    sa.Column("code", sa.Text, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("told", sa.BigInteger, nullable=False),  # the count that the newest event row names
    sa.Column("told_at", UtcDateTime, nullable=False),
)
