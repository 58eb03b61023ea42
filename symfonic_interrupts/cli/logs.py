"""Where the library's log goes, if the application that is loaded has not set up logging by itself: to stderr."""

from __future__ import annotations

import logging

from symfonic_interrupts.cli import output


class _Printable(logging.Formatter):
    """A log line in which nothing moves a cursor."""

    def format(self, record: logging.LogRecord) -> str:
        return output.printable(super().format(record), lines=True)


def log_to_stderr(level: int = logging.WARNING) -> None:
    """Show what is logged from this level on. To be called before the application is loaded, and at most once."""
    log = logging.getLogger("symfonic_interrupts")
    if log.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(level)
