"""Indexes of what is open instead of indexes of everything: sweeps and recovery no longer read what has ended.

What stands here is history: it never changes, and it takes nothing from `store.schema`, which does.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What needs the table for itself comes first: asked for later, PostgreSQL finds a deadlock with every worker that has read
    # the table and is about to write it.
    op.drop_index("interrupt_pauses_by_tenant", "interrupt_pauses")
    op.drop_index("interrupt_pauses_by_thread", "interrupt_pauses")
    pending = sa.text("state = 'pending'")
    op.create_index(
        "interrupt_pauses_open",
        "interrupt_pauses",
        ["tenant_id", "id"],
        sqlite_where=pending,
        postgresql_where=pending,
    )
    op.create_index("interrupt_pauses_of_thread", "interrupt_pauses", ["thread_id"])


def downgrade() -> None:
    raise RuntimeError("a pause store is not brought back to an older schema")
