"""How much of a process a tenant may use at a time, and in which order runs of one thread go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from weakref import WeakValueDictionary

from symfonic_interrupts.contrib.fastapi.problems import TenantBusy
from symfonic_interrupts.errors import ThreadBusy
from symfonic_interrupts.scope import FrameworkTenantScope


class Shares:
    """Counts what each tenant has under way. For one event loop.

    Args:
        what: what is counted, in the plural.
        most: how many a tenant may have in this process.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most
        self._taken: Counter[str] = Counter()

    def take(self, scope: FrameworkTenantScope) -> None:
        """Count one more. Raises TenantBusy."""
        if self._taken[scope.tenant_id] >= self._most:
            raise TenantBusy(
                f"your tenant has {self._most} {self._what} under way here, which is all that it may have; try again when"
                " some have ended. Nothing was done"
            )
        self._taken[scope.tenant_id] += 1

    def give_back(self, scope: FrameworkTenantScope) -> None:
        """Count one less."""
        self._taken[scope.tenant_id] -= 1
        if not self._taken[scope.tenant_id]:
            del self._taken[scope.tenant_id]


class Turns:
    """Runs of one thread go one after the other. A run that waits for its turn takes no thread of the pool."""

    def __init__(self, longest: timedelta) -> None:
        self._longest = longest.total_seconds()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: Counter[str] = Counter()

    def will_be_run(self, thread_id: str) -> bool:
        """Whether a run waits for the thread's turn. It will deliver whatever is stored by now."""
        return thread_id in self._waiting

    @asynccontextmanager
    async def of(self, thread_id: str) -> AsyncIterator[None]:
        """Hold the thread's turn. Raises ThreadBusy after the longest wait, as where another process holds the lease."""
        lock = self._locks.setdefault(thread_id, asyncio.Lock())
        self._waiting[thread_id] += 1
        try:
            async with asyncio.timeout(self._longest):
                await lock.acquire()
        except TimeoutError:
            raise ThreadBusy("another request drives this thread, and did not finish in time") from None
        finally:
            self._waiting[thread_id] -= 1
            if not self._waiting[thread_id]:
                del self._waiting[thread_id]
        try:
            yield
        finally:
            lock.release()
