"""A loop in the background of an application: recover what crashes left, sweep what is overdue, wait, and again.

Any number of processes may run one; the store decides who does what. It is stopped with `stop()`, from any thread, and
ends after the round that it is in. One that was stopped stays stopped.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from symfonic_interrupts.errors import StoreError, UsageError

log = logging.getLogger("symfonic_interrupts.worker")

JITTER = 0.2
"""Each wait is shorter or longer by up to this fraction, so that workers do not all run at the same moments."""

Round = Callable[[], Any]


class Worker:
    """Runs rounds until it is stopped. Made by `Interrupts.worker`.

    Args:
        rounds: what `run` calls in each round, in this order.
        arounds: what `arun` awaits in each round.
    """

    def __init__(self, rounds: list[Round], arounds: list[Round]) -> None:
        self._rounds = rounds
        self._arounds = arounds
        self._stopped = threading.Event()
        self._wakers: list[Callable[[], Any]] = []

    def stop(self) -> None:
        """End after the round that is running, and stay stopped. From any thread."""
        self._stopped.set()
        for wake in list(self._wakers):
            wake()

    def run(self, interval: timedelta = timedelta(seconds=5)) -> None:
        """Run until `stop()`. A store that fails in a way that may pass is logged and tried again.

        Args:
            interval: the wait between two rounds, give or take a fifth.

        Raises:
            StoreError: one that will not pass by itself.
            UsageError: an interval that is no timedelta above zero.
        """
        wait = _seconds(interval)
        while not self._stopped.is_set():
            for part in self._rounds:
                try:
                    part()
                except StoreError as error:
                    _log_or_raise(error)
            self._stopped.wait(_jittered(wait))

    async def arun(self, interval: timedelta = timedelta(seconds=5)) -> None:
        """`run` for coroutines: raises the same. A cancellation ends it, too."""
        wait = _seconds(interval)
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        wake = partial(loop.call_soon_threadsafe, stopped.set)
        self._wakers.append(wake)
        try:
            while not self._stopped.is_set():
                for part in self._arounds:
                    try:
                        await part()
                    except StoreError as error:
                        _log_or_raise(error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_jittered(wait)):
                        await stopped.wait()
        finally:
            self._wakers.remove(wake)


def _log_or_raise(error: StoreError) -> None:
    if not error.retryable:
        raise error
    log.warning("the pause store failed and is tried again: %s", error)


def _seconds(interval: timedelta) -> float:
    if not isinstance(interval, timedelta) or interval <= timedelta(0):
        raise UsageError("interval must be a timedelta above zero")
    return interval.total_seconds()


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - not for secrets
