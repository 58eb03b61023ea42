"""Engines made from URLs and set up: SQLite so that it is durable and waits for locks, PostgreSQL so that it waits for locks
for a limited time.

An application's own engine is checked, and refused where it cannot work; its settings are never changed.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeGuard

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store.failures import is_stale

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine  # needs greenlet, which comes with the extra `async`

BUSY_SECONDS = 30
"""How long a transaction waits for another process's lock on the SQLite file."""

LOCK_SECONDS = 30
"""How long a statement waits for another transaction's lock on PostgreSQL."""

_PSYCOPG = ("postgresql+psycopg", "postgresql+psycopg_async")

_REMEDIES = {
    "postgresql": "use postgresql+psycopg://..., with pip install 'symfonic-interrupts[postgres]'",
    "sqlite": "use sqlite:///..., which serves async calls as well",
}


def is_async_engine(target: object) -> TypeGuard[AsyncEngine]:
    """Whether it is an `AsyncEngine`, without importing SQLAlchemy's async extension."""
    module = sys.modules.get("sqlalchemy.ext.asyncio")  # where there is such an engine, it has been imported
    return module is not None and isinstance(target, module.AsyncEngine)


def read_url(target: str | sa.URL) -> sa.URL:
    """The URL, with a driver that this package knows where it names none: `postgres://` and `postgresql://` mean psycopg.

    Raises:
        sqlalchemy.exc.ArgumentError, ValueError: it is no URL.
    """
    if isinstance(target, str) and target.startswith("postgres:"):  # as libpq and most hosting services write it
        target = target.replace("postgres:", "postgresql:", 1)
    url = sa.make_url(target)
    if url.drivername == "postgresql" and (find_spec("psycopg") or not find_spec("psycopg2")):
        url = url.set(drivername="postgresql+psycopg")
    return url


def connect_arguments(url: sa.URL) -> tuple[sa.URL, dict[str, Any]]:
    """The URL without `prepare_threshold`, which psycopg takes as a number and not as text; and the arguments for connecting.

    A `prepare_threshold` of 0 or None means: no prepared statements, nor anything else that is bound to a session. PgBouncer
    needs that where it gives each transaction another session.

    Raises:
        StoreError: a `prepare_threshold` that is neither a number nor None.
    """
    given = url.query.get("prepare_threshold")
    if given is None or url.drivername not in _PSYCOPG:
        return url, {}
    if given != "None" and not (isinstance(given, str) and given.isascii() and given.isdecimal()):
        raise StoreError("store: prepare_threshold must be a whole number, or 0 for no prepared statements")
    threshold = 0 if given == "None" else int(given)
    return url.difference_update_query(["prepare_threshold"]), {"prepare_threshold": threshold or None}


def make_engine(target: str | sa.URL, **options: Any) -> tuple[sa.Engine | None, AsyncEngine | None]:
    """An engine for the URL, sync or async as its driver is.

    Args:
        options: of `create_engine`.

    Raises:
        StoreError: no URL, another database, SQLite in memory, or a driver that is not installed.
    """
    try:
        url = read_url(target)
        dialect = url.get_dialect()
    except (ImportError, sa.exc.NoSuchModuleError):
        problem = "there is no such database or driver; use postgresql+psycopg or sqlite"
        raise StoreError(f"store: {problem}") from None
    except (sa.exc.ArgumentError, ValueError):  # a port that is no number raises ValueError
        raise StoreError(
            "store is not an SQLAlchemy URL, such as postgresql+psycopg://... or sqlite:///file.db"
        ) from None
    if dialect.name not in _REMEDIES:
        raise StoreError(f"store: {dialect.name} is not supported; use SQLite or PostgreSQL")
    if dialect.name == "sqlite" and _is_in_memory(url):
        raise StoreError(
            "store: SQLite in memory is lost with the process; use a file, such as sqlite:///interrupts.db"
        )
    url, arguments = connect_arguments(url)
    by_transaction = arguments.get("prepare_threshold", 1) is None
    options = {"hide_parameters": True, **options, "connect_args": {**options.get("connect_args", {}), **arguments}}
    try:
        if dialect.is_async:
            from sqlalchemy.ext.asyncio import create_async_engine

            engine = create_async_engine(url, **options)
            _tune(engine.sync_engine, by_transaction)
            return None, engine
        sync = sa.create_engine(url, **options)
    except ImportError as error:
        missing = error.name or ("greenlet" if "greenlet" in str(error) else "import failed")
        remedy = _REMEDIES[dialect.name]
        if missing == "greenlet":
            remedy = f"pip install 'symfonic-interrupts[async]', or {remedy}"
        raise StoreError(f"store: the driver of {url.drivername} is not installed ({missing}); {remedy}") from None
    _tune(sync, by_transaction)
    return sync, None


def shown_url(url: sa.URL) -> str:
    """The URL as it may be shown: without a password, which may also stand among the parameters, as libpq allows."""
    secret = [name for name in url.query if "password" in name.lower()]  # also sslpassword
    return url.difference_update_query(secret).render_as_string(hide_password=True)


def refuse_memory(engine: sa.Engine) -> None:
    """Raise StoreError for an application's engine over SQLite in memory, or with one connection for all."""
    shared = isinstance(engine.pool, StaticPool | SingletonThreadPool)
    if engine.dialect.name == "sqlite" and (shared or _is_in_memory(engine.url)):
        raise StoreError(
            "store: this SQLite engine is in memory or shares one connection; use a file and the default pool"
        )


def refuse_autocommit(connection: sa.Connection) -> None:
    """Raise StoreError for an application's engine in AUTOCOMMIT: a crash could leave a token spent without its answer."""
    proxied: Any = connection.connection
    # on SQLite, a "begin" event of the application's may have begun a transaction all the same
    begun = connection.dialect.name == "sqlite" and proxied.driver_connection.in_transaction
    if not begun and connection.dialect.detect_autocommit_setting(proxied.dbapi_connection):
        raise StoreError(
            "store: this engine is in AUTOCOMMIT, and a pause needs transactions; give one with another isolation level"
        )


def _is_in_memory(url: sa.URL) -> bool:
    name = url.database or ""
    return name in ("", ":memory:") or name.startswith("file::memory:") or url.query.get("mode") == "memory"


def _tune(engine: sa.Engine, by_transaction: bool) -> None:
    if engine.dialect.name == "sqlite":
        _tune_sqlite(engine)
    elif by_transaction:
        _tune_each_transaction(engine)
    else:
        _tune_postgres(engine)

    @event.listens_for(engine, "handle_error")
    def on_error(context: Any) -> None:
        if context.sqlalchemy_exception is not None and is_stale(context.sqlalchemy_exception):
            context.is_disconnect = True


def _tune_sqlite(engine: sa.Engine) -> None:
    """WAL, full sync, a wait for locks, and transactions that take the write lock before they write anything."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        # sqlite3 begins a transaction, with the write lock, at the first statement that writes; reading waits for nobody
        connection.isolation_level = "IMMEDIATE"
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()


def _switch_to_wal(cursor: Any) -> None:
    # SQLite does not wait its busy timeout for this one statement where several processes open a new file at once
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(0.01)


def _tune_postgres(engine: sa.Engine) -> None:
    """A worker that hangs inside a transaction must not block the others for ever."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
        cursor.close()
        connection.commit()


def _tune_each_transaction(engine: sa.Engine) -> None:
    """`_tune_postgres` where the next transaction may be in another session: one more round trip for each that writes."""

    @event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
