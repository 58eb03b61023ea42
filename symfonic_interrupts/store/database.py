"""The one seam between the transactions (written once, over a sync `Connection`) and sync or async callers.

`run(fn, *args)` calls `fn(connection, *args)` in one transaction and returns its result; `arun` does the same for a coroutine,
and finishes a transaction that it has begun even when the awaiting task is cancelled. Errors of SQLAlchemy and the driver
leave here as `StoreError`, without statements or values.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeGuard, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import SingletonThreadPool, StaticPool
from sqlalchemy.schema import CreateIndex, CreateTable

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.errors import RegistrationError, StoreError
from symfonic_interrupts.store.schema import metadata

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine  # needs greenlet, which comes with the extra `async`

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", "sa.Engine", "AsyncEngine")
Transaction = Callable[Concatenate[sa.Connection, P], T]

BUSY_SECONDS = 30
"""How long a transaction waits for another process's lock on the SQLite file."""

_READS = "symfonic_reads"
_SCHEMA_LOCK = 0x73796D66  # any number: processes that make the schema at once take turns
_REMEDIES = {
    "postgresql": "use postgresql+psycopg://..., with pip install 'symfonic-interrupts[postgres]'",
    "sqlite": "use sqlite:///..., which serves async calls as well",
}


class Database:
    """A database of pauses.

    Args:
        target: an SQLAlchemy URL, an `Engine`, or an `AsyncEngine`. SQLite (a file) or PostgreSQL.
        clock: the time, where the database has none of its own (SQLite).

    Raises:
        StoreError: another database, SQLite in memory, or a driver that is not installed.
    """

    def __init__(self, target: str | sa.URL | sa.Engine | AsyncEngine, *, clock: Clock) -> None:
        self.clock = clock
        self._owns_engine = isinstance(target, str | sa.URL)
        self._sync: sa.Engine | None = None
        self._async: AsyncEngine | None = None
        self._closed = False
        self._schema_lock = threading.Lock()
        if _is_async_engine(target):
            self._async, dialect = target, target.dialect.name
            _refuse_memory(target.sync_engine)
        elif isinstance(target, sa.Engine):
            self._sync, dialect = target, target.dialect.name
            _refuse_memory(target)
        elif isinstance(target, str | sa.URL):
            self._sync, self._async = _engine(target)
            dialect = sa.make_url(target).get_dialect().name
        else:
            raise StoreError("store must be an SQLAlchemy URL, an Engine or an AsyncEngine")
        if dialect not in ("sqlite", "postgresql"):
            raise StoreError(f"store: {dialect} is not supported; use SQLite or PostgreSQL")
        self.dialect = dialect
        self._schema_ready = dialect != "sqlite"

    @property
    def async_only(self) -> bool:
        """Whether only coroutines can use it (an `AsyncEngine` was given)."""
        return self._sync is None

    def check_open(self) -> None:
        """Raise StoreError after `close()`."""
        if self._closed:
            raise StoreError("this Interrupts is closed; make a new one")

    def check_sync(self) -> None:
        """Raise RegistrationError where a sync call cannot use this store."""
        self.check_open()
        if self._sync is None:
            raise RegistrationError(
                "store: an AsyncEngine serves async calls only (ainvoke, astream, aanswer, ...);"
                " give Interrupts a URL or an Engine to use the sync ones"
            )

    # -- running transactions

    def run(self, body: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `body(connection, ...)` in one transaction."""
        self.check_sync()
        assert self._sync is not None
        if not self._schema_ready:
            self._make_schema_once()
        with _StoreErrors(), _for(body, self._sync).begin() as connection:
            return body(connection, *args, **kwargs)

    async def arun(self, body: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `body(connection, ...)` in one transaction; a cancellation waits for its end."""
        self.check_open()
        task = asyncio.ensure_future(self._arun(body, *args, **kwargs))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            while not task.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # looked at, so that it is not reported as never retrieved
            raise

    async def _arun(self, body: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._async is None:
            return await asyncio.to_thread(lambda: self.run(body, *args, **kwargs))
        if not self._schema_ready:
            await self.acreate_schema()
        with _StoreErrors():
            async with _for(body, self._async).begin() as connection:
                return await connection.run_sync(body, *args, **kwargs)

    # -- schema

    def create_schema(self) -> None:
        """Make the tables that are missing. Idempotent, and safe when several processes start at once."""
        self.check_sync()
        assert self._sync is not None
        with _StoreErrors(), self._sync.begin() as connection:
            _create_tables(connection)
        self._schema_ready = True

    async def acreate_schema(self) -> None:
        """`create_schema` for coroutines."""
        self.check_open()
        if self._async is None:
            await asyncio.to_thread(self.create_schema)
            return
        with _StoreErrors():
            async with self._async.begin() as connection:
                await connection.run_sync(_create_tables)
        self._schema_ready = True

    def _make_schema_once(self) -> None:
        with self._schema_lock:
            if not self._schema_ready:
                self.create_schema()

    # -- closing

    def close(self) -> None:
        """Give back the connections of an engine that was made from a URL. Later use raises StoreError."""
        self._closed = True
        if self._owns_engine and self._sync is not None:
            self._sync.dispose()

    async def aclose(self) -> None:
        """`close` for coroutines."""
        self.close()
        if self._owns_engine and self._async is not None:
            await self._async.dispose()

    @cached_property
    def target(self) -> str:
        """The database without its password, for messages."""
        engine = self._sync or self._async
        assert engine is not None
        return engine.url.render_as_string(hide_password=True)

    def __repr__(self) -> str:
        return f"Database({self.target!r})"


def _is_async_engine(target: object) -> TypeGuard[AsyncEngine]:
    module = sys.modules.get("sqlalchemy.ext.asyncio")  # whoever has such an engine has imported it
    return module is not None and isinstance(target, module.AsyncEngine)


def _for(body: Callable[..., Any], engine: E) -> E:
    return engine.execution_options(**{_READS: True}) if getattr(body, "reads", False) else engine


def _create_tables(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
        metadata.create_all(connection)
        return
    for table in metadata.sorted_tables:  # IF NOT EXISTS: an application's engine takes no lock before it looks
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(CreateIndex(index, if_not_exists=True))


def _engine(target: str | sa.URL) -> tuple[sa.Engine | None, AsyncEngine | None]:
    try:
        url = sa.make_url(target)
        dialect = url.get_dialect()
    except (ImportError, sa.exc.NoSuchModuleError):
        problem = "there is no such database or driver; use postgresql+psycopg or sqlite"
        raise StoreError(f"store: {problem}") from None
    except sa.exc.ArgumentError:
        raise StoreError(
            "store is not an SQLAlchemy URL, such as postgresql+psycopg://... or sqlite:///file.db"
        ) from None
    if dialect.name not in _REMEDIES:
        raise StoreError(f"store: {dialect.name} is not supported; use SQLite or PostgreSQL")
    if dialect.name == "sqlite" and _is_in_memory(url):
        raise StoreError(
            "store: SQLite in memory is lost with the process; use a file, such as sqlite:///interrupts.db"
        )
    options: dict[str, Any] = {"hide_parameters": True}
    try:
        if dialect.is_async:
            from sqlalchemy.ext.asyncio import create_async_engine

            engine = create_async_engine(url, **options)
            if dialect.name == "sqlite":
                _tune_sqlite(engine.sync_engine)
            else:
                _tune_postgres(engine.sync_engine)
            return None, engine
        sync = sa.create_engine(url, **options)
    except ImportError as error:
        missing = error.name or ("greenlet" if "greenlet" in str(error) else "import failed")
        remedy = _REMEDIES[dialect.name]
        if missing == "greenlet":
            remedy = f"pip install 'symfonic-interrupts[async]', or {remedy}"
        raise StoreError(f"store: the driver of {url.drivername} is not installed ({missing}); {remedy}") from None
    if dialect.name == "sqlite":
        _tune_sqlite(sync)
    else:
        _tune_postgres(sync)
    return sync, None


def _tune_sqlite(engine: sa.Engine) -> None:
    """Durable, and fair between processes: WAL, full sync, a wait for locks, and write locks taken at the start."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where SQLAlchemy says, not where sqlite3 guesses
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        only_reads = connection.get_execution_options().get(_READS, False)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")


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
    """A worker that stands still inside a transaction must not hold up the others for ever."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("SET lock_timeout = '30s'")
        cursor.close()
        connection.commit()


def _is_in_memory(url: sa.URL) -> bool:
    name = url.database or ""
    return name in ("", ":memory:") or name.startswith("file::memory:") or url.query.get("mode") == "memory"


def _refuse_memory(engine: sa.Engine) -> None:
    shared = isinstance(engine.pool, StaticPool | SingletonThreadPool)
    if engine.dialect.name == "sqlite" and (shared or _is_in_memory(engine.url)):
        raise StoreError(
            "store: this SQLite engine is in memory or shares one connection; use a file and the default pool"
        )


class _StoreErrors:
    """Turns SQLAlchemy's errors into `StoreError`, without statement, parameters or the driver's details of a row."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, sa.exc.SQLAlchemyError):
            return
        if isinstance(error, sa.exc.DBAPIError):
            retryable = error.connection_invalidated or isinstance(error, sa.exc.OperationalError)
            if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
                detail = str(error.orig).strip().split("\n")[0]
            else:
                detail = type(error.orig).__name__
        else:
            retryable, detail = isinstance(error, sa.exc.TimeoutError), type(error).__name__
        if "no such table" in detail or "UndefinedTable" in detail:
            retryable, detail = False, "there are no tables; call create_schema() once"
        failure = StoreError(f"the pause store failed: {detail}", retryable=retryable)
        try:
            raise failure
        finally:
            failure.__context__ = None  # the driver's error has values, and the connection's password
