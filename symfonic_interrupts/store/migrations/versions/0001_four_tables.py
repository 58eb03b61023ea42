"""The four tables of the first release.

What stands here is history: it never changes, and it takes nothing from `store.schema`, which does.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "interrupt_pauses",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column("interrupt_id", sa.Text, nullable=False),
        sa.Column("jti", sa.Text, nullable=False, unique=True),
        sa.Column("graph", sa.Text, nullable=False),
        sa.Column("audience", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("thread_id", sa.Text, nullable=False),
        sa.Column("checkpoint_id", sa.Text, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("leaf_ns", sa.Text, nullable=False),
        sa.Column("leaf_checkpoint_id", sa.Text, nullable=False),
        sa.Column("leaf_task_id", sa.Text, nullable=False),
        sa.Column("langgraph_id", sa.Text, nullable=False),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("occurrence", sa.Integer, nullable=False),
        sa.Column("native", sa.Boolean, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("request_hash", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("sub_tenant_id", sa.Text),
        sa.Column("namespace", sa.Text),
        sa.Column("scope_hash", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.Column("requested_by", sa.Text),
        sa.Column("trace_context", sa.Text),
        sa.Column("votes", sa.Text),
        sa.Column("seal", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("used_at", _TIME),
        sa.Column("skipped_at", _TIME),
        sa.Column("confirmed_at", _TIME),
        sa.Column("mac_kid", sa.Text, nullable=False),
        sa.Column("mac", sa.Text, nullable=False),
        sa.CheckConstraint(
            "state IN ('pending', 'answered', 'applied', 'unused', 'expired', 'superseded', 'revoked')",
            name="interrupt_pauses_state",
        ),
        sqlite_autoincrement=True,
    )
    not_superseded, pending = sa.text("state != 'superseded'"), sa.text("state = 'pending'")
    asked = sa.text("state IN ('pending', 'answered')")
    question = ["name", "request_hash", "occurrence"]
    op.create_index("ix_interrupt_pauses_interrupt_id", "interrupt_pauses", ["interrupt_id"])
    op.create_index(
        "interrupt_pauses_one_per_slot",
        "interrupt_pauses",
        ["graph", "thread_id", "langgraph_id", *question],
        unique=True,
        sqlite_where=not_superseded,
        postgresql_where=not_superseded,
    )
    op.create_index(
        "interrupt_pauses_one_asked_per_task",
        "interrupt_pauses",
        ["graph", "thread_id", "leaf_task_id", *question],
        unique=True,
        sqlite_where=asked,
        postgresql_where=asked,
    )
    op.create_index(
        "interrupt_pauses_due",
        "interrupt_pauses",
        ["expires_at", "id"],
        sqlite_where=pending,
        postgresql_where=pending,
    )
    op.create_index("interrupt_pauses_by_tenant", "interrupt_pauses", ["tenant_id", "state", "id"])
    op.create_index("interrupt_pauses_by_thread", "interrupt_pauses", ["graph", "thread_id", "state"])
    op.create_table(
        "interrupt_consumed_tokens",
        sa.Column("jti", sa.Text, primary_key=True),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("response", sa.Text),
        sa.Column("response_hash", sa.Text),
        sa.Column("receipt", sa.Text),
        sa.Column("actor", sa.Text),
        sa.Column("scope_hash", sa.Text),
        sa.Column("defaulted", sa.Boolean, nullable=False),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("votes", sa.Text),
        sa.Column("seal", sa.Text),
    )
    op.create_table(
        "interrupt_events",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column("xid", sa.BigInteger, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("graph", sa.Text, nullable=False),
        sa.Column("thread_id", sa.Text, nullable=False),
        sa.Column("interrupt_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("sub_tenant_id", sa.Text),
        sa.Column("namespace", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("trace_context", sa.Text),
        sa.Column("seal", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_interrupt_events_thread_id", "interrupt_events", ["thread_id"])
    op.create_index("ix_interrupt_events_interrupt_id", "interrupt_events", ["interrupt_id"])
    op.create_index("interrupt_events_in_order", "interrupt_events", ["graph", "tenant_id", "xid", "id"])
    op.create_table(
        "interrupt_thread_leases",
        sa.Column("graph", sa.Text, primary_key=True),
        sa.Column("thread_id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("fence", _KEY, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
    )


def downgrade() -> None:
    raise RuntimeError("pauses are not brought back to a schema before the first release")
