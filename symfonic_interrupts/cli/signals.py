"""SIGTERM and Ctrl-C for commands that run until a signal ends them.

After the first signal the command finishes what it is doing; a second signal ends the process at once. The handler only wakes
the main thread: anything more could wait for a lock that the main thread itself holds.
"""

from __future__ import annotations

import select
import signal
import socket
from types import FrameType
from typing import Any, Self

HANDLED = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Inside the block a signal is noted and does not end the process.

    Attributes:
        received: the number of the signal that came, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._reading, self._writing = socket.socketpair()
        self._writing.setblocking(False)
        for number in HANDLED:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reading.close()
        self._writing.close()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until a signal comes, `wake` is called, or so many seconds pass."""
        if self.received is None:
            select.select([self._reading], [], [], seconds)

    def wake(self) -> None:
        """End `wait`. May be called from any thread."""
        self._writing.send(b".")

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.wake()
