"""Which schema a database has: one row in a table of its own, in the form that Alembic keeps, written without Alembic.

New tables are made and stamped in one transaction. A database of another version is refused and never changed here:
`migrations.upgrade` does that.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store.bodies import reads
from symfonic_interrupts.store.schema import metadata, pauses

SCHEMA_VERSION = "0004"
"""The newest migration: the schema that this release reads and writes."""

VERSION_TABLE = "interrupt_alembic_version"

_SCHEMA_LOCK = 0x73796D66  # any number: processes that make or change the schema at once take turns

_versions = sa.Table(
    VERSION_TABLE,
    sa.MetaData(),  # not among the store's own tables: migrations compare those, and Alembic makes this one itself
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


@reads
def version_of(connection: sa.Connection) -> str | None:
    """The version of the database's schema, or None where it has none of ours."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.execute(sa.select(_versions.c.version_num)).scalar()
    return version


def check_version(version: str) -> None:
    """Raise StoreError for a schema that this release does not know how to use."""
    if version == SCHEMA_VERSION:
        return
    if is_newer(version):
        raise StoreError(
            f"the pause store has schema {version}, and this release of symfonic-interrupts knows {SCHEMA_VERSION}: install a"
            " newer release (`symfonic-interrupts db upgrade` of an older one cannot bring a schema back)"
        )
    raise StoreError(
        f"the pause store has schema {version}, and this release of symfonic-interrupts needs {SCHEMA_VERSION}: run"
        " `symfonic-interrupts db upgrade`"
    )


def is_newer(version: str) -> bool:
    """Whether a version comes after this release's, or is not one of the numbered ones."""
    return not version.isdecimal() or int(version) > int(SCHEMA_VERSION)


def create_tables(connection: sa.Connection) -> None:
    """Make the tables that are missing, and note their version. Safe when several processes do it at once.

    Raises:
        StoreError: there are tables of another version.
    """
    on_postgres = connection.dialect.name == "postgresql"
    wait_for_others(connection)
    version = version_of(connection)
    if version is not None:
        check_version(version)
        return
    if sa.inspect(connection).has_table(pauses.name):
        refuse_unreleased(connection)
    if on_postgres:
        metadata.create_all(connection)
        _versions.create(connection, checkfirst=True)
    else:
        for table in (*metadata.sorted_tables, _versions):
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                connection.execute(CreateIndex(index, if_not_exists=True))
    stamp = sa.insert(_versions).from_select(
        ["version_num"], sa.select(sa.literal(SCHEMA_VERSION)).where(~sa.exists().select_from(_versions))
    )
    connection.execute(stamp)


def wait_for_others(connection: sa.Connection) -> None:
    """Hold the lock for making and changing the schema until the transaction ends. On SQLite, it is the file's write lock."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
        return
    driver: Any = connection.connection.driver_connection
    if not driver.in_transaction:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def refuse_unreleased(connection: sa.Connection) -> None:
    """Raise StoreError for tables of an unreleased version.

    Tables without a version may also have been left by a process that died while it made them: those have all columns.
    """
    inspector = sa.inspect(connection)
    for table in metadata.sorted_tables:
        if not inspector.has_table(table.name):
            continue
        there = {column["name"] for column in inspector.get_columns(table.name)}
        if lacking := [column.name for column in table.columns if column.name not in there]:
            raise StoreError(
                f"{table.name} was made by an unreleased version (it has no {lacking[0]}); start with an empty pause store"
            )
