"""A few threads of the library's own, for coroutines: the application's pool, and its event loop, stay free."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """At most so many threads, begun when they are needed, in each process anew: a fork takes none along."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pools: dict[int, ThreadPoolExecutor] = {}

    async def run(self, work: Callable[[], T]) -> T:
        """What `work()` returns or raises. It has the caller's context variables."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool(), context.run, work)

    def _pool(self) -> ThreadPoolExecutor:
        process = os.getpid()
        found = self._pools.get(process)
        if found is None:
            with self._lock:
                found = self._pools.setdefault(process, ThreadPoolExecutor(self._most, "symfonic-interrupts"))
        return found
