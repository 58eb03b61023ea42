"""The library's log on stderr, where the application has not set up logging by itself, and nothing in it moves a cursor."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.ends import TRACEBACK


class _Printable(logging.Formatter):
    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        if self._tracebacks:
            return output.printable(super().format(record), lines=True)
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        return output.printable(self.formatMessage(record))


@contextmanager
def on_stderr(*, tracebacks: bool) -> Iterator[None]:
    """Show what the library logs, from warnings on.

    Args:
        tracebacks: with those of the application's errors, whose messages may hold what a person was shown or answered. The
            variable that shows them elsewhere shows them here, too.
    """
    log = logging.getLogger("symfonic_interrupts")
    if log.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable(tracebacks=tracebacks or bool(os.environ.get(TRACEBACK))))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
