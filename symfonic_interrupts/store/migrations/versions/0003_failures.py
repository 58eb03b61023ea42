"""What a run raised after an answer, the breakpoints of a delivery, and how often answers did not fit what was asked next.

What stands here is history: it never changes, and it takes nothing from `store.schema`, which does.
"""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TRIES = 100


def upgrade() -> None:
    _hold_both_tables()
    op.add_column("interrupt_pauses", sa.Column("drifts", sa.Integer))
    op.add_column("interrupt_thread_leases", sa.Column("breakpoints", sa.Text))
    op.add_column("interrupt_thread_leases", sa.Column("failed_at", sa.DateTime(timezone=True)))
    for name in ("failed_node", "failed_type", "failed_message", "failed_ids"):
        op.add_column("interrupt_thread_leases", sa.Column(name, sa.Text))
    for name in ("tenant_id", "sub_tenant_id", "namespace"):
        op.add_column("interrupt_thread_leases", sa.Column(name, sa.Text))


def _hold_both_tables() -> None:
    """Some workers take the pauses first and some the leases: PostgreSQL would find a deadlock with whoever has the other one.

    So neither is held while the other is waited for. An SQLite file has one writer.
    """
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    for _ in range(TRIES):
        attempt = connection.begin_nested()
        connection.exec_driver_sql("LOCK TABLE interrupt_pauses IN ACCESS EXCLUSIVE MODE")
        try:
            connection.exec_driver_sql("LOCK TABLE interrupt_thread_leases IN ACCESS EXCLUSIVE MODE NOWAIT")
        except sa.exc.OperationalError:
            attempt.rollback()
            time.sleep(0.05)
        else:
            attempt.commit()
            return


def downgrade() -> None:
    raise RuntimeError("a pause store is not brought back to an older schema")
