"""One thread that calls functions at a later time, for all leases of the process.

Most runs end before their lease needs renewing, and a thread for each would cost more than all else that a lease costs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from symfonic_interrupts import forks


class Alarm:
    """Calls functions at their time, unless they are cancelled before. The functions must return at once.

    Its thread starts with the first function and ends when none is left. A forked process begins with none.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: dict[object, tuple[float, Callable[[], None]]] = {}
        self._next = float("inf")
        self._thread: threading.Thread | None = None
        forks.watch(self)

    def set(self, key: object, seconds: float, call: Callable[[], None]) -> None:
        """Have `call()` called after this many seconds. `key` is what `take_back` cancels it by."""
        due = time.monotonic() + seconds
        with self._changed:
            self._calls[key] = (due, call)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="symfonic-alarm", daemon=True)
                self._thread.start()
            elif due < self._next:
                self._changed.notify()

    def take_back(self, key: object) -> None:
        """Cancel the call of this key. When this returns, it has been made already or never will be."""
        with self._changed:
            self._calls.pop(key, None)

    def before_fork(self) -> None:
        """Does nothing: `after_fork` gives a child a new condition, so the old one may be locked."""

    def after_fork(self, *, in_child: bool) -> None:
        """Drop all calls in a child: they would renew the parent's leases, even when the parent is dead."""
        if in_child:
            self._changed = threading.Condition()
            self._calls = {}
            self._next = float("inf")
            self._thread = None

    def _run(self) -> None:
        with self._changed:
            while self._calls:
                key, (due, call) = min(self._calls.items(), key=lambda item: item[1][0])
                wait = due - time.monotonic()
                if wait > 0:
                    self._next = due
                    self._changed.wait(wait)
                else:
                    del self._calls[key]
                    call()
            self._thread = None
            self._next = float("inf")
