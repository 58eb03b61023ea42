"""Run by Alembic, over the connection and in the transaction of `migrations.upgrade`. Opens none of its own."""

from __future__ import annotations

from alembic import context

from symfonic_interrupts.store.schema import metadata
from symfonic_interrupts.store.versions import VERSION_TABLE

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=connection.dialect.name == "sqlite",  # SQLite changes a table by making it anew
)
with context.begin_transaction():
    context.run_migrations()
