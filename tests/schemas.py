"""PostgreSQL schemas for tests: new and empty ones, and ones that have all tables, which are emptied and used again.

Making our tables and the saver's takes longer than most tests do; emptying them takes a millisecond. A schema whose tables were
changed, or that somebody still uses, is not used again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import sqlalchemy as sa
from langgraph.checkpoint.postgres import PostgresSaver

from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.versions import VERSION_TABLE

KEPT = (VERSION_TABLE, "checkpoint_migrations")
"""Tables whose rows say which schema this is."""

SHAPE = f"""
WITH ours AS (SELECT oid, xmin FROM pg_class WHERE relnamespace = '{{0}}'::regnamespace), rows AS (
    SELECT 'table', oid::text, xmin::text FROM ours
    UNION ALL SELECT 'column', attrelid || '.' || attnum, xmin::text FROM pg_attribute WHERE attrelid IN (SELECT oid FROM ours)
    UNION ALL SELECT 'trigger', oid::text, xmin::text FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM ours)
    UNION ALL SELECT 'constraint', oid::text, xmin::text FROM pg_constraint WHERE connamespace = '{{0}}'::regnamespace
    UNION ALL SELECT 'function', oid::text, xmin::text FROM pg_proc WHERE pronamespace = '{{0}}'::regnamespace
    UNION ALL SELECT 'ours', version_num, xmin::text FROM {{0}}.{VERSION_TABLE}
    UNION ALL SELECT 'saver', v::text, xmin::text FROM {{0}}.checkpoint_migrations
) SELECT md5(string_agg(rows::text, ' ' ORDER BY rows::text)) FROM rows
"""
"""A hash of everything in a schema that is not data: PostgreSQL writes a new row of its catalogue for every change."""


class Schemas:
    """The schemas of one server, for one pytest process.

    Args:
        url: of the server, for SQLAlchemy.
    """

    def __init__(self, url: str) -> None:
        self._url = sa.make_url(url)
        plain = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._connection = psycopg.connect(plain, autocommit=True)
        self._furnished: list[Furnished] = []

    def url(self, schema: str) -> str:
        """The SQLAlchemy URL of a schema."""
        found = self._url.update_query_dict({"options": f"-csearch_path={schema}"})
        return found.render_as_string(hide_password=False)

    @contextmanager
    def empty(self) -> Iterator[str]:
        """The URL of a new schema without tables."""
        schema = self._create()
        yield self.url(schema)
        self._drop(schema)

    @contextmanager
    def furnished(self) -> Iterator[str]:
        """The URL of a schema with all tables, and no rows in them."""
        found = self._furnished.pop() if self._furnished else self._furnish()
        yield self.url(found.schema)
        if found.emptied(self._connection):
            self._furnished.append(found)
        else:
            self._drop(found.schema)

    def close(self) -> None:
        """Remove all schemas."""
        for left in self._furnished:
            self._drop(left.schema)
        self._connection.close()

    def _create(self) -> str:
        schema = "t_" + secrets.token_hex(6)
        self._connection.execute(f"CREATE SCHEMA {schema}")
        return schema

    def _drop(self, schema: str) -> None:
        self._connection.execute(f"DROP SCHEMA {schema} CASCADE")

    def _furnish(self) -> Furnished:
        schema = self._create()
        database = Database(self.url(schema), clock=system_clock)
        database.create_schema()
        database.close()
        with PostgresSaver.from_conn_string(self.url(schema).replace("postgresql+psycopg", "postgresql", 1)) as saver:
            saver.setup()
        return Furnished(schema, self._connection)


class Furnished:
    """A schema with our tables and the saver's."""

    def __init__(self, schema: str, connection: psycopg.Connection) -> None:
        self.schema = schema
        self._shape = self._look(connection)
        tables = [
            f"{schema}.{name}"
            for (name,) in connection.execute(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
            if name not in KEPT
        ]
        statements = [
            "SET LOCAL lock_timeout = '5s'",
            f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE",  # waits for whoever has not ended yet
            *(f"DELETE FROM {table}" for table in tables),
            f"SELECT setval(format('{schema}.%I', sequencename), 1, false) FROM pg_sequences WHERE schemaname = '{schema}'",
        ]
        self._emptying = "; ".join(statements)

    def emptied(self, connection: psycopg.Connection) -> bool:
        """Remove all rows. False where the tables are not what they were, or are in use."""
        try:
            with connection.transaction():
                connection.execute(self._emptying)
            return self._look(connection) == self._shape
        except psycopg.Error:
            return False

    def _look(self, connection: psycopg.Connection) -> object:
        return connection.execute(SHAPE.format(self.schema)).fetchone()
