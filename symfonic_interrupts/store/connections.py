"""The engines that a database is used through, and what becomes of their connections when the process is forked."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from symfonic_interrupts import forks
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store.engines import is_async_engine, make_engine, refuse_memory, shown_url

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine  # needs greenlet, which comes with the extra `async`

FORK_SECONDS = 5.0
"""How long a fork waits for the transactions of other threads on SQLite to end."""


class Connections:
    """A sync engine, or an async one; the application's own, or made from a URL.

    Args:
        target: an SQLAlchemy URL, an `Engine`, or an `AsyncEngine`. SQLite (a file) or PostgreSQL.

    Attributes:
        url: the URL that was given; None where an engine was.
        sync: the sync engine; None where only coroutines can use the database.
        dialect: `sqlite` or `postgresql`.

    Raises:
        StoreError: another database, SQLite in memory, or a driver that is not installed.
    """

    sync: sa.Engine | None
    dialect: str

    def __init__(self, target: str | sa.URL | sa.Engine | AsyncEngine) -> None:
        self.url = target if isinstance(target, str | sa.URL) else None
        self._given = target
        self._passage = forks.Passage()
        self._whole = True  # no fork has cut a transaction in two
        self._inherited: list[object] = []
        self._open()
        forks.watch(self)

    @property
    def are_own(self) -> bool:
        """Whether the engines were made here, from a URL."""
        return self.url is not None

    def _open(self) -> None:
        self.sync = None
        self._async: AsyncEngine | None = None
        self._of_loop: dict[asyncio.AbstractEventLoop, AsyncEngine] = {}
        if self.url is not None:
            self.sync, self._async = make_engine(self.url)
        elif is_async_engine(self._given):
            self._async = self._given
        elif isinstance(self._given, sa.Engine):
            self.sync = self._given
        else:
            raise StoreError("store must be an SQLAlchemy URL, an Engine or an AsyncEngine")
        if not self.are_own:
            refuse_memory(self.engine)
        self.dialect = self.engine.dialect.name
        if self.dialect not in ("sqlite", "postgresql"):
            raise StoreError(f"store: {self.dialect} is not supported; use SQLite or PostgreSQL")
        # PostgreSQL: a BEGIN and a COMMIT around one SELECT are two more round trips. SQLite begins where it writes.
        # Not on an application's engine: its "begin" events may set what every statement needs (a search path, a role), and
        # SQLAlchemy gives a connection back at the server's isolation level, not at the one that the application gave it.
        autocommit = self.dialect == "postgresql" and self.are_own
        self._for_reading: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        self._sync_reader = self.sync and self.sync.execution_options(**self._for_reading)

    @property
    def engine(self) -> sa.Engine:
        """The sync engine, or the one inside the async engine."""
        if self.sync is not None:
            return self.sync
        assert self._async is not None
        return self._async.sync_engine

    def sync_engine(self, *, reads: bool) -> sa.Engine:
        """The engine for sync calls.

        Args:
            reads: for a body that only reads.
        """
        engine = self._sync_reader if reads else self.sync
        assert engine is not None
        return engine

    def async_engine(self, *, reads: bool) -> AsyncEngine:
        """The engine for coroutines; see `sync_engine`."""
        engine = self.of_this_loop()
        return engine.execution_options(**self._for_reading) if reads and self._for_reading else engine

    def of_this_loop(self) -> AsyncEngine:
        """Connections of an async driver belong to the event loop in which they were made: each loop has an engine."""
        assert self._async is not None
        if self.url is None:
            return self._async
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            for closed in [known for known in list(self._of_loop) if known.is_closed()]:
                self._of_loop.pop(closed, None)
            made = make_engine(self.url)[1]
            assert made is not None
            self._of_loop[loop] = made
        return self._of_loop[loop]

    @cached_property
    def shown(self) -> str:
        """The database without its password, for messages."""
        return shown_url(self.engine.url)

    # -- forks

    def uncut(self) -> AbstractContextManager[None]:
        """`with` it, no fork comes in the middle of a transaction on SQLite.

        Raises:
            StoreError: one has.
        """
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
        if self.sync is not None:
            self.sync.dispose()
        else:  # an async driver's connections are closed by awaiting, and nothing can be awaited here
            pools = [engine.pool for engine in (self._async, *self._of_loop.values()) if engine is not None]
            self._forked_whole &= not any(pool.checkedin() for pool in pools if isinstance(pool, sa.QueuePool))

    def after_fork(self, *, in_child: bool) -> None:
        """The child connects anew: its parent's sockets are the parent's, and so are the connections in its pool."""
        if not in_child:
            self._passage.open()
            return
        self._whole &= self.dialect != "sqlite" or self._forked_whole
        self._passage = forks.Passage()
        # kept, because a pool that is thrown away closes its connections, and the parent still uses them
        self._inherited += [self.engine.pool, self._of_loop]
        if self.are_own:
            self._open()
        else:
            self.engine.dispose(close=False)

    # -- closing

    def close(self) -> None:
        """Close the connections of a sync engine that was made here."""
        if self.are_own and self.sync is not None:
            self.sync.dispose()

    async def aclose(self) -> None:
        """`close`, and close those of the async engines that were made here."""
        self.close()
        here = self._of_loop.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.dispose()
        for other in self._of_loop.values():  # other loops must close theirs themselves, or have ended
            await other.dispose(close=False)
        self._of_loop.clear()
