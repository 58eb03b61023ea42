"""The one seam between the transactions (written once, over a sync `Connection`) and sync or async callers.

`run(fn, *args)` calls `fn(connection, *args)` in one transaction and returns its result; `arun` does the same for a coroutine,
and finishes a transaction that it has begun even when the awaiting task is cancelled. Errors of SQLAlchemy and the driver
leave here as `StoreError`, without statements or values. A body may be run again; see `bodies`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import sqlalchemy as sa

from symfonic_interrupts import forks
from symfonic_interrupts.clock import Clock
from symfonic_interrupts.errors import RegistrationError, StoreError
from symfonic_interrupts.store.bodies import P, T, Transaction, backoff, may_repeat, only_reads, run_body
from symfonic_interrupts.store.connections import Connections
from symfonic_interrupts.store.engines import refuse_autocommit
from symfonic_interrupts.store.failures import StoreErrors
from symfonic_interrupts.store.threads import STORE_THREADS, Threads
from symfonic_interrupts.store.versions import check_version, create_tables, version_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine  # needs greenlet, which comes with the extra `async`


class Database:
    """A database of pauses.

    Args:
        target: an SQLAlchemy URL, an `Engine`, or an `AsyncEngine`. SQLite (a file) or PostgreSQL.
        clock: the time, where the database has none of its own (SQLite).

    Attributes:
        connections: the engines.
        dialect: `sqlite` or `postgresql`.

    Raises:
        StoreError: another database, SQLite in memory, or a driver that is not installed.
    """

    def __init__(self, target: str | sa.URL | sa.Engine | AsyncEngine, *, clock: Clock) -> None:
        self.clock = clock
        self.connections = Connections(target)
        self.dialect = self.connections.dialect
        self._closed = False
        self._schema_lock = forks.Lock()
        self._schema_ready = False
        self._threads = Threads(STORE_THREADS, "symfonic-store")

    @property
    def async_only(self) -> bool:
        """Whether only coroutines can use it (an `AsyncEngine` was given)."""
        return self.connections.sync is None

    def check_open(self) -> None:
        """Raise StoreError after `close()`."""
        if self._closed:
            raise StoreError("this Interrupts is closed; make a new one")

    def check_sync(self) -> None:
        """Raise RegistrationError where a sync call cannot use this store."""
        self.check_open()
        if self.async_only:
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
        engine = self.connections.sync_engine(reads=only_reads(body))
        attempt = 1
        while True:
            committing = False
            try:
                with self.connections.uncut(), engine.begin() as connection:
                    result = run_body(connection, body, *args, **kwargs)
                    committing = True
                return result
            except sa.exc.DBAPIError as error:
                if not may_repeat(error, attempt, committing=committing):
                    raise
                time.sleep(backoff(error, attempt))
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
        if not self.async_only:
            return await self._threads.run(lambda: self.run(body, *args, **kwargs))
        if not self._schema_ready:
            await self._aprepare()
        with StoreErrors():
            return await self._atransact(body, *args, **kwargs)

    async def _atransact(self, body: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        engine = self.connections.async_engine(reads=only_reads(body))
        attempt = 1
        while True:
            committing = False
            try:
                with self.connections.uncut():
                    async with engine.begin() as connection:
                        result = await connection.run_sync(run_body, body, *args, **kwargs)
                        committing = True
                return result
            except sa.exc.DBAPIError as error:
                if not may_repeat(error, attempt, committing=committing):
                    raise
                await asyncio.sleep(backoff(error, attempt))
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
        """`create_schema` for coroutines: raises the same."""
        self.check_open()
        if not self.async_only:
            await self._threads.run(self.create_schema)
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
        if not self.connections.are_own:
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
        self._threads.close()
        self.connections.close()

    async def aclose(self) -> None:
        """`close` for coroutines."""
        self._closed = True
        self._threads.close()
        await self.connections.aclose()

    @property
    def target(self) -> str:
        """The database without its password, for messages."""
        return self.connections.shown

    def __repr__(self) -> str:
        return f"Database({self.target!r})"
