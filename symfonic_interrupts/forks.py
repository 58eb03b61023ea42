"""What a forked process must not take over from its parent: connections, threads, and locks that a thread of the parent held.

`os.fork` copies the memory and one thread. A lock that another thread held stays locked for ever in the child, and a socket
is read by both. Whatever has such things calls `watch` once, and is told of every fork.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol


class Watched(Protocol):
    """What wants to be told of forks. None of these may raise, or wait long."""

    def before_fork(self) -> None:
        """The process is about to be forked, by this thread; the others still run."""

    def after_fork(self, *, in_child: bool) -> None:
        """It was forked. The child has no thread but this one yet."""


_watched: dict[int, weakref.ref[Watched]] = {}
"""Everything that is told, by its id. The interpreter has one list of what to do at forks, for the whole process, too."""


def watch(it: Watched) -> None:
    """Tell it of forks, for as long as somebody else holds it."""
    key = id(it)

    def forget(gone: weakref.ref[Any]) -> None:
        if _watched.get(key) is gone:  # not where the id is another's by now
            del _watched[key]

    _watched[key] = weakref.ref(it, forget)


def _all() -> list[Watched]:
    found = [known() for known in list(_watched.values())]
    return [it for it in found if it is not None]


def _before() -> None:
    for it in _all():
        it.before_fork()


def _in_parent() -> None:
    for it in _all():
        it.after_fork(in_child=False)


def _in_child() -> None:
    for it in _all():
        it.after_fork(in_child=True)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


class Lock:
    """A `threading.Lock` that nobody holds in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        watch(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        """Nothing: what is done under these locks is short, and each step of it leaves things whole."""

    def after_fork(self, *, in_child: bool) -> None:
        """Begin anew in the child."""
        if in_child:
            self._lock = threading.Lock()


class Passage:
    """Lets any number through, but for the time of a fork. `with passage:` is around what must not be cut in two by one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def __enter__(self) -> None:
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self, seconds: float) -> bool:
        """Let nobody in, and wait at most so many seconds until nobody is inside. Whether nobody is."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: self._inside == 0, seconds)

    def open(self) -> None:
        """Let everybody in again."""
        with self._changed:
            self._closed = False
            self._changed.notify_all()
