"""SIGTERM and Ctrl-C for commands that run until they are told to end. A handler here only wakes the main thread.

The first signal ends the command after what it is doing; a second one ends the process at once. Nothing is called from within
the handler, because the main thread may hold the very lock that a call would wait for.
"""

from __future__ import annotations

import select
import signal
import socket
from types import FrameType
from typing import Any, Self

from symfonic_interrupts.cli import output

HANDLED = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """While it is entered, signals are noted instead of ending the process.

    Attributes:
        received: the first signal, or None.
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
        """Until a signal has come, `wake` was called, or so many seconds have passed."""
        if self.received is None:
            select.select([self._reading], [], [], seconds)

    def wake(self) -> None:
        """End `wait`, from any thread."""
        self._writing.send(b".")

    def told(self) -> None:
        """Say on stderr that the end is near."""
        output.say("ending after what is running; once more ends at once")

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.wake()
