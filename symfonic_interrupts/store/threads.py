"""The library's own threads, in which coroutines use a sync engine and have answers validated.

They are not those of `asyncio.to_thread`, because transactions that wait for a lock would block the application's other calls
there.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from symfonic_interrupts import forks
from symfonic_interrupts.errors import StoreError

T = TypeVar("T")

STORE_THREADS = 15
"""As many as SQLAlchemy's pool has connections by default. Further calls wait in line."""


class Threads:
    """A pool of threads, made when they are first needed. A forked process makes its own.

    Args:
        most: how many threads at most.
        name: what their names begin with.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = forks.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        forks.watch(self)

    async def run(self, call: Callable[[], T]) -> T:
        """`call()` in one of the threads, with the caller's context variables.

        Raises:
            StoreError: after `close()`.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise StoreError("this Interrupts is closed; make a new one")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
            running = loop.run_in_executor(self._pool, partial(contextvars.copy_context().run, call))
        return await running

    def close(self) -> None:
        """Take no more calls. Those already taken are finished, without waiting for them: the caller may be the event loop."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def before_fork(self) -> None:
        """Nothing is to be done before a fork."""

    def after_fork(self, *, in_child: bool) -> None:
        """The parent's threads are not here."""
        if in_child:
            self._pool = None
