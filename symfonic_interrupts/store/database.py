"""The one seam between the transactions (written once, over a sync `Connection`) and sync or async callers.

`run(fn, *args)` calls `fn(connection, *args)` in one transaction and returns its result; `arun` does the same for a coroutine,
and finishes a transaction that it has begun even when the awaiting task is cancelled. Errors of SQLAlchemy and the driver
leave here as `StoreError`, without statements or values.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.errors import RegistrationError, StoreError
from symfonic_interrupts.store.engines import is_async_engine, make_engine, refuse_autocommit, refuse_memory, shown_url
from symfonic_interrupts.store.failures import StoreErrors, is_stale
from symfonic_interrupts.store.versions import check_version, create_tables, version_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine  # needs greenlet, which comes with the extra `async`

P = ParamSpec("P")
T = TypeVar("T")
Transaction = Callable[Concatenate[sa.Connection, P], T]

ATTEMPTS = 2
"""How often a transaction is begun whose connection turns out to be lost."""


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
        if is_async_engine(target):
            self._async, dialect = target, target.dialect.name
            refuse_memory(target.sync_engine)
        elif isinstance(target, sa.Engine):
            self._sync, dialect = target, target.dialect.name
            refuse_memory(target)
        elif isinstance(target, str | sa.URL):
            self._sync, self._async = make_engine(target)
            dialect = sa.make_url(target).get_dialect().name
        else:
            raise StoreError("store must be an SQLAlchemy URL, an Engine or an AsyncEngine")
        if dialect not in ("sqlite", "postgresql"):
            raise StoreError(f"store: {dialect} is not supported; use SQLite or PostgreSQL")
        self.dialect = dialect
        # PostgreSQL: a BEGIN and a COMMIT around one SELECT are two more round trips. SQLite begins where it writes.
        # Not on an application's engine: its "begin" events may set what every statement needs (a search path, a role), and
        # SQLAlchemy gives a connection back at the server's isolation level, not at the one that the application gave it.
        reading = {"isolation_level": "AUTOCOMMIT"} if dialect == "postgresql" and self._owns_engine else {}
        self._sync_reader = self._sync and self._sync.execution_options(**reading)
        self._async_reader = self._async and self._async.execution_options(**reading)
        self._schema_ready = False

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
        if not self._schema_ready:
            self._prepare()
        with StoreErrors():
            return self._transact(body, *args, **kwargs)

    def _transact(self, body: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        engine = self._sync_reader if getattr(body, "reads", False) else self._sync
        assert engine is not None
        attempt = 1
        while True:
            committing = False
            try:
                with engine.begin() as connection:
                    result = _in(connection, body, *args, **kwargs)
                    committing = True
                return result
            except sa.exc.DBAPIError as error:
                if not _may_repeat(error, attempt, committing=committing):
                    raise
            attempt += 1

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
            await self._aprepare()
        with StoreErrors():
            return await self._atransact(body, *args, **kwargs)

    async def _atransact(self, body: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        engine = self._async_reader if getattr(body, "reads", False) else self._async
        assert engine is not None
        attempt = 1
        while True:
            committing = False
            try:
                async with engine.begin() as connection:
                    result = await connection.run_sync(_in, body, *args, **kwargs)
                    committing = True
                return result
            except sa.exc.DBAPIError as error:
                if not _may_repeat(error, attempt, committing=committing):
                    raise
            attempt += 1

    # -- schema

    def create_schema(self) -> None:
        """Make the tables of a new database. Idempotent, and safe when several processes start at once.

        Raises:
            StoreError: the tables are those of another version.
        """
        self.check_sync()
        with StoreErrors():
            self._schema_ready = self._knows(self._transact(self._first_look))
            if not self._schema_ready:
                self._transact(create_tables)
                self._schema_ready = True

    async def acreate_schema(self) -> None:
        """`create_schema` for coroutines."""
        self.check_open()
        if self._async is None:
            await asyncio.to_thread(self.create_schema)
            return
        with StoreErrors():
            self._schema_ready = self._knows(await self._atransact(self._first_look))
            if not self._schema_ready:
                await self._atransact(create_tables)
                self._schema_ready = True

    def _prepare(self) -> None:
        """Once, at first use: another version's tables are not touched. SQLite, a file of its own, makes missing ones."""
        with self._schema_lock:
            if self._schema_ready:
                return
            if self.dialect == "sqlite":
                self.create_schema()
                return
            with StoreErrors():
                self._schema_ready = self._knows(self._transact(self._first_look), required=True)

    async def _aprepare(self) -> None:
        if self.dialect == "sqlite":
            await self.acreate_schema()
            return
        with StoreErrors():
            self._schema_ready = self._knows(await self._atransact(self._first_look), required=True)

    def _first_look(self, connection: sa.Connection) -> str | None:
        if not self._owns_engine:
            refuse_autocommit(connection)
        return version_of(connection)

    @staticmethod
    def _knows(version: str | None, *, required: bool = False) -> bool:
        if version is None and required:
            raise StoreError("the pause store failed: there are no tables; call create_schema() once")
        if version is not None:
            check_version(version)
        return version is not None

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
        return shown_url(engine.url)

    def __repr__(self) -> str:
        return f"Database({self.target!r})"


def _in(connection: sa.Connection, body: Transaction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return body(connection, *args, **kwargs)
    except sa.exc.DBAPIError as error:
        if is_stale(error):
            connection.invalidate(error)
        raise


def _may_repeat(error: sa.exc.DBAPIError, attempt: int, *, committing: bool) -> bool:
    """Whether a transaction may be run again: its connection was lost before COMMIT was sent, so it left nothing behind.

    Pooled connections die while they are idle when the server restarts. To find that out by a ping before each transaction
    would cost each of them a round trip, and the server may still go away right after it.
    """
    lost = error.connection_invalidated or is_stale(error)
    return lost and not committing and attempt < ATTEMPTS
