"""A delivery's hold on its thread: taken before a run, renewed during it, ended after it.

LangGraph has no lock per thread; without one, two workers that resume the same thread run its nodes twice or stall it.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from symfonic_interrupts.core.effects import Backend, Effect, Effects, Wait, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.errors import StoreError, ThreadBusy
from symfonic_interrupts.store.operations import Lease
from symfonic_interrupts.store.rows import PauseWithAnswer

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.01
LONGEST_WAIT_SECONDS = 0.5


class LeaseKeeper:
    """Renews a lease every third of its time while a graph runs, and knows whether it still holds.

    Attributes:
        lease: the lease itself.
        failed: a write of the run failed, or the lease was lost; the thread must be looked at again.
    """

    def __init__(self, hub: Hub, lease: Lease, valid_until: float) -> None:
        self.lease = lease
        self.failed = False
        self._hub = hub
        self._ttl = hub.config.lease_ttl
        self._valid_until = valid_until
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._writers: set[asyncio.Task[Any]] = set()

    def check(self) -> None:
        """Raise ThreadBusy where another worker may have taken the thread."""
        if time.monotonic() >= self._valid_until:
            self.failed = True
            raise ThreadBusy("this worker lost its hold on the thread; another one finishes it")

    @contextmanager
    def for_writing(self) -> Iterator[None]:
        """A context for one write of the run. `failed` is set where the write raises.

        Raises:
            ThreadBusy: another worker may have taken the thread, or the delivery is over.
        """
        self.check()
        try:
            task = asyncio.current_task()
        except RuntimeError:  # sync
            task = None
        if task is not None:
            self._writers.add(task)
        try:
            yield
        except BaseException:
            self.failed = True
            raise
        finally:
            if task is not None:
                self._writers.discard(task)

    @property
    def _seconds_between(self) -> float:
        return self._ttl.total_seconds() / 3

    def _renewed(self, since: float, held: bool) -> None:
        self._valid_until = since + self._ttl.total_seconds() if held else 0.0

    # -- sync

    def start(self) -> None:
        self._hub.alarm.set(self, self._seconds_between, self._start_thread)

    def stop(self) -> None:
        self._hub.alarm.take_back(self)
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._keep, name="symfonic-lease", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while not self._stop.is_set():
            since = time.monotonic()
            try:
                held = self._hub.database.run(self._hub.operations.leasing.renew_lease, self.lease, self._ttl)
            except StoreError:
                pass  # the lease holds until its time is over; try again before
            else:
                self._renewed(since, held)
            self._stop.wait(self._seconds_between)

    # -- async

    def astart(self) -> None:
        self._task = asyncio.create_task(self._akeep())

    async def astop(self) -> None:
        # A run that is cancelled while it ends leaves writes running. None of them may come after those of the next worker.
        self._valid_until = float("-inf")
        remaining = {*self._writers, *({self._task} if self._task is not None else ())} - {asyncio.current_task()}
        if self._task is not None:
            self._task.cancel()
        if remaining:
            await asyncio.wait(remaining)

    async def _akeep(self) -> None:
        while True:
            await asyncio.sleep(self._seconds_between)
            since = time.monotonic()
            try:
                held = await self._hub.database.arun(self._hub.operations.leasing.renew_lease, self.lease, self._ttl)
            except StoreError:
                continue
            self._renewed(since, held)


class StartRenewing(Effect[None]):
    """Start renewing the lease."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self._keeper = keeper

    def do(self, backend: Backend) -> None:
        self._keeper.start()

    async def ado(self, backend: Backend) -> None:
        self._keeper.astart()


class StopRenewing(Effect[None]):
    """Stop renewing the lease. Returns when no write of the run is left."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self._keeper = keeper

    def do(self, backend: Backend) -> None:
        self._keeper.stop()

    async def ado(self, backend: Backend) -> None:
        await self._keeper.astop()


Held = tuple[LeaseKeeper, list[PauseWithAnswer]]
"""A lease, and the thread's pauses when it was taken."""


def new_owner() -> str:
    """A random name under which one delivery holds its thread."""
    return secrets.token_hex(8)


def given_back_if_cancelled(hub: Hub, graph: str, thread_id: str, owner: str, taking: Effect[T]) -> Effects[T]:
    """Carry out `taking`, which takes the thread for this owner. Where it is cancelled, end the lease: the transaction may have
    been committed before the cancellation arrived."""
    try:
        return (yield from taking)
    except asyncio.CancelledError:
        lease = Lease(graph, thread_id, owner, taken_over=False)
        yield from transact(hub.operations.leasing.end_lease, lease, clean=False)
        raise


def take_lease(hub: Hub, graph: str, thread_id: str, wait: timedelta, breakpoints: str | None = None) -> Effects[Held]:
    """Take the lease of the thread. Gives it with the thread's pauses as they are then.

    Args:
        wait: how long to wait at most for another worker that holds it.
        breakpoints: static breakpoints of the run to come, as canonical JSON.

    Raises:
        ThreadBusy: another worker held it for all that time.
    """
    owner = new_owner()
    give_up = time.monotonic() + wait.total_seconds()
    next_wait = FIRST_WAIT_SECONDS
    while True:
        since = time.monotonic()
        take = transact(hub.operations.leasing.take_lease, graph, thread_id, owner, hub.config.lease_ttl, breakpoints)
        taken = yield from given_back_if_cancelled(hub, graph, thread_id, owner, take)
        if taken is not None:
            lease, rows = taken
            return LeaseKeeper(hub, lease, since + hub.config.lease_ttl.total_seconds()), rows
        if time.monotonic() >= give_up:
            raise ThreadBusy(
                "another worker drives this thread; accepted answers are stored, and it or recover() delivers them"
            )
        yield from Wait(next_wait)
        next_wait = min(next_wait * 1.5, LONGEST_WAIT_SECONDS)
