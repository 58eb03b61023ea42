"""The one seam between the transactions (written once, over a sync `Connection`) and sync or async callers.

`run(fn, *args)` calls `fn(connection, *args)` in one transaction and returns its result; `arun` does the same for a coroutine,
and finishes a transaction that it has begun even when the awaiting task is cancelled. Errors of SQLAlchemy and the driver
leave here as `StoreError`, without statements or values. A body may be run again, from its beginning, where the database has
undone it or its connection was lost: it must do nothing but through its connection.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from symfonic_interrupts import forks
from symfonic_interrupts.clock import Clock
from symfonic_interrupts.errors import RegistrationError, StoreError
from symfonic_interrupts.store.engines import is_async_engine, make_engine, refuse_autocommit, refuse_memory, shown_url
from symfonic_interrupts.store.failures import StoreErrors, is_conflict, is_stale
from symfonic_interrupts.store.threads import STORE_THREADS, Threads
from symfonic_interrupts.store.versions import check_version, create_tables, version_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine  # needs greenlet, which comes with the extra `async`

P = ParamSpec("P")
T = TypeVar("T")
Transaction = Callable[Concatenate[sa.Connection, P], T]

ATTEMPTS = 2
"""How often a transaction is begun whose connection turns out to be lost."""

CONFLICTS = 20
"""How often a transaction is begun that the database undoes in favour of another. Each time, another one has come through."""

LONGEST_BACKOFF_SECONDS = 0.2

FORK_SECONDS = 5.0
"""How long a fork waits for the transactions of other threads on SQLite to end."""


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
        self._given = target
        self._owns_engine = isinstance(target, str | sa.URL)
        self._closed = False
        self._schema_lock = forks.Lock()
        self._schema_ready = False
        self._threads = Threads(STORE_THREADS, "symfonic-store")
        self._passage = forks.Passage()
        self._whole = True  # no fork has cut a transaction in two
        self._inherited: list[object] = []
        self._open()
        forks.watch(self)

    def _open(self) -> None:
        target = self._given
        self._sync: sa.Engine | None = None
        self._async: AsyncEngine | None = None
        self._of_loop: dict[asyncio.AbstractEventLoop, AsyncEngine] = {}
        if is_async_engine(target):
            self._async = target
        elif isinstance(target, sa.Engine):
            self._sync = target
        elif isinstance(target, str | sa.URL):
            self._sync, self._async = make_engine(target)
        else:
            raise StoreError("store must be an SQLAlchemy URL, an Engine or an AsyncEngine")
        if not self._owns_engine:
            refuse_memory(self._engine)
        self.dialect = self._engine.dialect.name
        if self.dialect not in ("sqlite", "postgresql"):
            raise StoreError(f"store: {self.dialect} is not supported; use SQLite or PostgreSQL")
        # PostgreSQL: a BEGIN and a COMMIT around one SELECT are two more round trips. SQLite begins where it writes.
        # Not on an application's engine: its "begin" events may set what every statement needs (a search path, a role), and
        # SQLAlchemy gives a connection back at the server's isolation level, not at the one that the application gave it.
        autocommit = self.dialect == "postgresql" and self._owns_engine
        self._reading: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        self._sync_reader = self._sync and self._sync.execution_options(**self._reading)

    @property
    def _engine(self) -> sa.Engine:
        if self._sync is not None:
            return self._sync
        assert self._async is not None
        return self._async.sync_engine

    def _async_here(self) -> AsyncEngine:
        """Connections of an async driver belong to the event loop in which they were made: each loop has an engine."""
        assert self._async is not None
        if not self._owns_engine:
            return self._async
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            for closed in [known for known in list(self._of_loop) if known.is_closed()]:
                self._of_loop.pop(closed, None)
            made = make_engine(self._given)[1]  # type: ignore[arg-type]  # it owns its engine, so a URL was given
            assert made is not None
            self._of_loop[loop] = made
        return self._of_loop[loop]

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
                with self._uncut(), engine.begin() as connection:
                    result = _in(connection, body, *args, **kwargs)
                    committing = True
                return result
            except sa.exc.DBAPIError as error:
                if not _may_repeat(error, attempt, committing=committing):
                    raise
                time.sleep(_backoff(error, attempt))
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
            return await self._threads.run(lambda: self.run(body, *args, **kwargs))
        if not self._schema_ready:
            await self._aprepare()
        with StoreErrors():
            return await self._atransact(body, *args, **kwargs)

    async def _atransact(self, body: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        engine = self._async_here()
        if self._reading and getattr(body, "reads", False):
            engine = engine.execution_options(**self._reading)
        attempt = 1
        while True:
            committing = False
            try:
                with self._uncut():
                    async with engine.begin() as connection:
                        result = await connection.run_sync(_in, body, *args, **kwargs)
                        committing = True
                return result
            except sa.exc.DBAPIError as error:
                if not _may_repeat(error, attempt, committing=committing):
                    raise
                await asyncio.sleep(_backoff(error, attempt))
            attempt += 1

    # -- forks

    def _uncut(self) -> AbstractContextManager[None]:
        if not self._whole:
            raise StoreError(
                "this process was forked while the SQLite store was in use, so it cannot use it safely:"
                " make the Interrupts after the fork, or fork when nothing runs"
            )
        return self._passage if self.dialect == "sqlite" else nullcontext()

    def before_fork(self) -> None:
        """SQLite: have no connection. A process with a connection of its parent's, and one to the same file beside it, takes
        the parent's locks for its own; the file's log may then be deleted under it, and with it what it has committed."""
        if self.dialect != "sqlite":
            return
        self._forked_whole = self._passage.close(FORK_SECONDS)
        if self._sync is not None:
            self._sync.dispose()
        else:  # an async driver's connections are closed by awaiting, which is no matter for here
            pools = [engine.pool for engine in (self._async, *self._of_loop.values()) if engine is not None]
            self._forked_whole &= not any(pool.checkedin() for pool in pools if isinstance(pool, sa.QueuePool))

    def after_fork(self, *, in_child: bool) -> None:
        """The child connects anew: its parent's sockets are the parent's, and so are the connections in its pool."""
        if not in_child:
            self._passage.open()
            return
        self._whole &= self.dialect != "sqlite" or self._forked_whole
        self._passage = forks.Passage()
        self._inherited += [
            self._engine.pool,
            self._of_loop,
        ]  # what is thrown away is closed, and the parent still uses it
        if self._owns_engine:
            self._open()
        else:
            self._engine.dispose(close=False)

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
        if self._async is None:
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
        self._threads.close()
        if self._owns_engine and self._sync is not None:
            self._sync.dispose()

    async def aclose(self) -> None:
        """`close` for coroutines."""
        self.close()
        here = self._of_loop.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.dispose()
        for other in self._of_loop.values():  # of loops that have ended, or that must close what is theirs
            await other.dispose(close=False)
        self._of_loop.clear()

    @cached_property
    def target(self) -> str:
        """The database without its password, for messages."""
        return shown_url(self._engine.url)

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
    """Whether a transaction may be run again: it left nothing behind. Its connection was lost before COMMIT was sent, or the
    database has undone it in favour of another one.

    Pooled connections die while they are idle when the server restarts. To find that out by a ping before each transaction
    would cost each of them a round trip, and the server may still go away right after it.
    """
    if is_conflict(error):
        return attempt < CONFLICTS
    lost = error.connection_invalidated or is_stale(error)
    return lost and not committing and attempt < ATTEMPTS


def _backoff(error: sa.exc.DBAPIError, attempt: int) -> float:
    """Seconds until it is begun again: those that were in each other's way do not begin at the same time."""
    longest = min(0.002 * 2**attempt, LONGEST_BACKOFF_SECONDS)
    return random.uniform(0, longest) if is_conflict(error) else 0.0  # noqa: S311  # not for security
