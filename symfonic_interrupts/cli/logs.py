"""Shows the library's log on stderr, unless the application has set up logging. Control characters in it are escaped."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import TRACEBACK


class _PrintableFormatter(logging.Formatter):
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
    """Show the library's warnings and errors while the block runs.

    Args:
        tracebacks: also show the tracebacks of the application's errors, which may hold payloads and answers. With
            SYMFONIC_INTERRUPTS_TRACEBACK=1 they are shown in any case.
    """
    log = logging.getLogger("symfonic_interrupts")
    if log.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_PrintableFormatter(tracebacks=tracebacks or bool(os.environ.get(TRACEBACK))))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
