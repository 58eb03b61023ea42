"""The pause store that `--store` names: its URL, opening it, and checks that only read.

No check changes the database or creates a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from symfonic_interrupts.cli.exits import Usage
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store.engines import connect_arguments, read_url
from symfonic_interrupts.store.schema import metadata, pauses
from symfonic_interrupts.store.versions import check_version, version_of
from symfonic_interrupts.tokens.keys import KeyRing

if TYPE_CHECKING:
    from symfonic_interrupts.interrupts import Interrupts  # imports LangGraph, which `--help` does not need

CONNECT_SECONDS = 10
STORE_REMEDY = "pass --store URL, or set SYMFONIC_INTERRUPTS_STORE"
UPGRADE = "run `symfonic-interrupts db upgrade`"


def store_url(store: str | None, *, may_be_new: bool = False) -> sa.URL:
    """The URL that `--store` names; a path means an SQLite file.

    Args:
        may_be_new: the file need not exist yet.

    Raises:
        Usage: no store is named, it is not a URL, the URL is for async use only, or the file does not exist.
    """
    if not store:
        raise Usage(f"this command needs the pause store: {STORE_REMEDY}")
    try:
        url = read_url(store if "://" in store else f"sqlite:///{store}")
    except (sa.exc.ArgumentError, ValueError):  # ValueError: the port is not a number
        raise Usage("--store is neither an SQLAlchemy URL nor a path") from None
    if url.drivername in ("sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg_async"):
        sync = "sqlite" if url.drivername.startswith("sqlite") else "postgresql+psycopg"
        raise Usage(f"--store: {url.drivername} is for async use only; here the same store is {sync}://...")
    if url.drivername == "sqlite" and url.database and not may_be_new and not Path(url.database).exists():
        raise Usage(f"--store: there is no file {url.database}; `db upgrade` makes a new one")
    return url


def open_store(store: str | None) -> Interrupts:
    """An `Interrupts` over the store, to be closed by the caller.

    Its keys are new ones that nobody else has, so use it only for what neither signs nor verifies.

    Raises:
        Usage: no store is named.
        StoreError: the database cannot be used, or is no pause store.
    """
    from symfonic_interrupts.interrupts import Interrupts

    url = store_url(store)
    with reading(url) as connection:
        if not sa.inspect(connection).has_table(pauses.name):
            raise StoreError(f"this database is no pause store yet; {UPGRADE}")
    return Interrupts(url, keys=KeyRing.from_text(KeyRing.new_key()))


@contextmanager
def reading(url: sa.URL) -> Iterator[sa.Connection]:
    """A connection for reading.

    Raises:
        StoreError: it cannot be opened, or a statement fails. The message has neither the statement nor a password.
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
    """The schema's version in words, if it is complete.

    Raises:
        StoreError: it is of another version, or something is missing. The message says what to do.
    """
    version = version_of(connection)
    if version is not None:
        check_version(version)
    missing = _missing(connection)
    if missing:
        problem = f"{', '.join(missing)} missing"
        raise StoreError(f"{problem}; {UPGRADE}" if version is None else f"{problem}, though it says version {version}")
    return f"version {version}" if version is not None else "complete, without a version"


def _missing(connection: sa.Connection) -> list[str]:
    """The tables and columns that this version needs and the database lacks."""
    inspector = sa.inspect(connection)
    missing = []
    for table in metadata.sorted_tables:
        if not inspector.has_table(table.name):
            missing.append(table.name)
            continue
        present = {column["name"] for column in inspector.get_columns(table.name)}
        missing += [f"{table.name}.{column.name}" for column in table.columns if column.name not in present]
    return missing


def clock_ahead(connection: sa.Connection) -> timedelta | None:
    """How far the database's clock is ahead of this machine's; None for SQLite, which has no clock of its own."""
    if connection.dialect.name != "postgresql":
        return None
    before = datetime.now(UTC)
    at: datetime = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
    after = datetime.now(UTC)
    return at.astimezone(UTC) - (before + (after - before) / 2)
