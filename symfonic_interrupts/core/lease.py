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
        failed: a write of the run failed, so its end is not clean.
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
        """Around a write of the run.

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
    def _pause(self) -> float:
        return self._ttl.total_seconds() / 3

    def _renewed(self, since: float, held: bool) -> None:
        self._valid_until = since + self._ttl.total_seconds() if held else 0.0

    # -- sync

    def start(self) -> None:
        self._hub.alarm.set(self, self._pause, self._start_thread)

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
            self._stop.wait(self._pause)

    # -- async

    def astart(self) -> None:
        self._task = asyncio.create_task(self._akeep())

    async def astop(self) -> None:
        # LangGraph leaves the writes of a run behind that is cancelled while it ends: none may come after the next worker's
        self._valid_until = float("-inf")
        behind = {*self._writers, *({self._task} if self._task is not None else ())} - {asyncio.current_task()}
        if self._task is not None:
            self._task.cancel()
        if behind:
            await asyncio.wait(behind)

    async def _akeep(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            since = time.monotonic()
            try:
                held = await self._hub.database.arun(self._hub.operations.leasing.renew_lease, self.lease, self._ttl)
            except StoreError:
                continue
            self._renewed(since, held)


class Keep(Effect[None]):
    """Start renewing."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self._keeper = keeper

    def do(self, backend: Backend) -> None:
        self._keeper.start()

    async def ado(self, backend: Backend) -> None:
        self._keeper.astart()


class StopKeeping(Effect[None]):
    """Stop renewing."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self._keeper = keeper

    def do(self, backend: Backend) -> None:
        self._keeper.stop()

    async def ado(self, backend: Backend) -> None:
        await self._keeper.astop()


Held = tuple[LeaseKeeper, list[PauseWithAnswer]]
"""A lease, and the thread's pauses when it was taken."""


def new_owner() -> str:
    """The name under which one delivery holds its thread."""
    return secrets.token_hex(8)


def given_back_if_cancelled(hub: Hub, graph: str, thread_id: str, owner: str, taking: Effect[T]) -> Effects[T]:
    """Do what takes the thread for this owner. Where that is cancelled, the thread may have been taken all the same."""
    try:
        return (yield from taking)
    except asyncio.CancelledError:
        lease = Lease(graph, thread_id, owner, taken_over=False)
        yield from transact(hub.operations.leasing.end_lease, lease, clean=False)
        raise


def take_lease(hub: Hub, graph: str, thread_id: str, wait: timedelta, breakpoints: str | None = None) -> Effects[Held]:
    """Hold the thread, waiting for another worker at most `wait`. Also the thread's pauses as they are then.

    Args:
        breakpoints: canonical JSON of those of the run to come.

    Raises:
        ThreadBusy: another worker held it for all that time.
    """
    owner = new_owner()
    give_up = time.monotonic() + wait.total_seconds()
    pause = FIRST_WAIT_SECONDS
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
        yield from Wait(pause)
        pause = min(pause * 1.5, LONGEST_WAIT_SECONDS)
