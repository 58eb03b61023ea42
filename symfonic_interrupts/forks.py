"""Makes objects safe when the process forks: their connections, threads and locks must not be shared with the child.

`os.fork` copies the memory, but only the thread that calls it. In the child, a lock that another thread held stays locked for
ever, and a socket is read by both processes. An object with such parts calls `watch` once; its methods are then called at every
fork.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol


class Watched(Protocol):
    """An object that prepares for forks. Its methods must not raise, nor wait long."""

    def before_fork(self) -> None:
        """Called before a fork, in the thread that forks; other threads are still running."""

    def after_fork(self, *, in_child: bool) -> None:
        """Called after a fork, in the parent and in the child. The child has only this thread yet."""


_watched: dict[int, weakref.ref[Watched]] = {}
"""The watched objects by their `id`. One dict per process, because `os.register_at_fork` has one list per process."""


def watch(watched: Watched) -> None:
    """Call the object's methods at every fork, for as long as the object exists. No reference keeps it alive."""
    key = id(watched)

    def forget(gone: weakref.ref[Any]) -> None:
        if _watched.get(key) is gone:  # else a new object has the same id
            del _watched[key]

    _watched[key] = weakref.ref(watched, forget)


def _all() -> list[Watched]:
    alive = [reference() for reference in list(_watched.values())]
    return [watched for watched in alive if watched is not None]


def _before() -> None:
    for watched in _all():
        watched.before_fork()


def _in_parent() -> None:
    for watched in _all():
        watched.after_fork(in_child=False)


def _in_child() -> None:
    for watched in _all():
        watched.after_fork(in_child=True)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


class Lock:
    """A `threading.Lock` that is always free in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        watch(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        """Does nothing: what runs under these locks is short, and leaves the data consistent after each step."""

    def after_fork(self, *, in_child: bool) -> None:
        """In the child, replace the lock by a free one."""
        if in_child:
            self._lock = threading.Lock()


class Passage:
    """A block of code that any number of threads may be in, but that no fork may interrupt: `with passage:`."""

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
        """Let no thread in, and wait at most so many seconds until none is inside. Returns whether none is."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: self._inside == 0, seconds)

    def open(self) -> None:
        """Let threads in again."""
        with self._changed:
            self._closed = False
            self._changed.notify_all()
