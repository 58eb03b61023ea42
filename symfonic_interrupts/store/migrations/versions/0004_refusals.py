"""A table that counts refusals: they come as often as anybody likes, and each had an event row of its own.

What stands here is history: it never changes, and it takes nothing from `store.schema`, which does.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "interrupt_refusals",
        sa.Column("jti", sa.Text, primary_key=True),
        sa.Column("scope_hash", sa.Text, primary_key=True),
        sa.Column("code", sa.Text, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("told", sa.BigInteger, nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    raise RuntimeError("a pause store is not brought back to an older schema")
