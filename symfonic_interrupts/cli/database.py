"""`db upgrade`, and what a look at the database tells: whether it answers, what its schema lacks, what its clock says.

Looking changes nothing, and makes no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.ends import ending
from symfonic_interrupts.cli.loading import store_url
from symfonic_interrupts.cli.options import Store
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store import migrations
from symfonic_interrupts.store.engines import connect_arguments, shown_url
from symfonic_interrupts.store.schema import metadata, pauses
from symfonic_interrupts.store.versions import check_version, version_of
from symfonic_interrupts.tokens.keys import KeyRing

if TYPE_CHECKING:
    from symfonic_interrupts.interrupts import Interrupts  # with LangGraph: seconds, and no help text needs it

CONNECT_SECONDS = 10
UPGRADE = "run `symfonic-interrupts db upgrade`"


@ending
def upgrade(store: Store = None) -> None:
    """Bring the pause store to this version's schema; makes the tables of a new one. Safe when several do it at once."""
    url = store_url(store, made=True)
    with output.progress("upgrading"):
        upgrade_schema(url)
    output.say(f"{shown_url(url)} has this version's schema")


def upgrade_schema(url: sa.URL) -> None:
    """The one place that knows how a schema is upgraded.

    Raises:
        StoreError: the store cannot be used, or Alembic is not installed.
    """
    migrations.upgrade(url)


def open_store(store: str | None) -> Interrupts:
    """An `Interrupts` over the store alone, for what neither signs nor verifies; to be closed. It has no real key.

    Raises:
        Usage, StoreError: no store is named, or there is none.
    """
    from symfonic_interrupts.interrupts import Interrupts

    url = store_url(store)
    with looking(url) as connection:
        if not sa.inspect(connection).has_table(pauses.name):
            raise StoreError(f"this database is no pause store yet; {UPGRADE}")
    return Interrupts(url, keys=KeyRing.from_text(KeyRing.new_key()))


@contextmanager
def looking(url: sa.URL) -> Iterator[sa.Connection]:
    """A connection that only reads.

    Raises:
        StoreError: it cannot be opened, or fails; without a statement or a password.
    """
    url, arguments = connect_arguments(url)
    if url.get_backend_name() == "postgresql":
        arguments["connect_timeout"] = CONNECT_SECONDS
    try:
        engine = sa.create_engine(url, hide_parameters=True, poolclass=sa.NullPool, connect_args=arguments)
        with engine.connect() as connection:
            yield connection
    except sa.exc.DBAPIError as error:
        first = str(error.orig).strip().split("\n")[0]
        raise StoreError(first if isinstance(error, sa.exc.OperationalError) else type(error.orig).__name__) from None
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(type(error).__name__) from None
    except ImportError as error:
        raise StoreError(f"the driver of {url.drivername} is not installed ({error.name})") from None


def schema_version(connection: sa.Connection) -> str:
    """What is to be said of a schema that is as this version needs it.

    Raises:
        StoreError: it is not; the message says what to do.
    """
    found = version_of(connection)
    if found is not None:
        check_version(found)
    missing = _missing(connection)
    if missing:
        told = f"{', '.join(missing)} missing"
        raise StoreError(f"{told}; {UPGRADE}" if found is None else f"{told}, though it says version {found}")
    return f"version {found}" if found is not None else "complete, without a version"


def _missing(connection: sa.Connection) -> list[str]:
    found = sa.inspect(connection)
    missing = []
    for table in metadata.sorted_tables:
        if not found.has_table(table.name):
            missing.append(table.name)
            continue
        there = {column["name"] for column in found.get_columns(table.name)}
        missing += [f"{table.name}.{column.name}" for column in table.columns if column.name not in there]
    return missing


def clock_ahead(connection: sa.Connection) -> timedelta | None:
    """How far the database's clock is ahead of this machine's; None where it has none of its own (SQLite)."""
    if connection.dialect.name != "postgresql":
        return None
    before = datetime.now(UTC)
    at: datetime = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
    after = datetime.now(UTC)
    return at.astimezone(UTC) - (before + (after - before) / 2)
