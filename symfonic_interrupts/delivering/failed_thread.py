"""What callers, operators and the log learn of a thread whose run raised after an answer.

The message is the exception's own, so the application's text: it is bounded, kept in the pause store and in the log, and in no
repr. Nothing of an answer, a payload or a token is added to it.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from symfonic_interrupts.store.records import Failure
from symfonic_interrupts.store.rows import FailedLease

log = logging.getLogger("symfonic_interrupts.delivery")

MOST_CHARACTERS = 500
"""So many characters of an exception's message are kept, at most."""

_REPR = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class FailedThread(str):
    """A thread whose run raised after one of our answers. It is a `str`, the thread's id, with attributes: a list of them
    equals a list of thread ids, also as JSON. Its repr has all attributes but the message.

    Attributes:
        thread_id: the thread.
        at: when it failed (UTC), by the database's clock (SQLite: the process's).
        node: the path of the node that raised, as `sub:node`; None where none did, as at the recursion limit.
        error_type: the exception's type.
        message: the exception's own message, at most 500 characters of it.
        interrupt_ids: of the answers that the run had.
    """

    thread_id: str
    at: datetime
    node: str | None = None
    error_type: str = ""
    message: str = field(default="", repr=False)
    interrupt_ids: tuple[str, ...] = ()

    def __new__(cls, thread_id: str, *_: Any, **__: Any) -> Self:
        return super().__new__(cls, thread_id)

    @classmethod
    def of(cls, lease: FailedLease) -> FailedThread:
        """From a row of `interrupt_thread_leases`."""
        return cls(
            lease["thread_id"],
            at=lease["failed_at"],
            node=lease["failed_node"],
            error_type=lease["failed_type"],
            message=lease["failed_message"],
            interrupt_ids=tuple(json.loads(lease["failed_ids"])),
        )


@dataclass(frozen=True, slots=True)
class Raised:
    """What is stored of an exception."""

    node: str | None
    error_type: str
    message: str = field(repr=False)

    @classmethod
    def by(cls, error: BaseException, node: str | None) -> Raised:
        """Of an exception that was caught."""
        return cls(node, type(error).__name__, bounded(str(error)))

    @classmethod
    def kept(cls, node: str, text: str) -> Raised:
        """Of an exception that only a checkpoint has, as the text of its repr."""
        match = _REPR.fullmatch(text)
        kind, message = match.groups() if match else ("Exception", text)
        return cls(node, kind.rpartition(".")[2], bounded(message.rstrip(",").strip("'\"")))


def failed_thread(thread_id: str, at: datetime, failure: Failure) -> FailedThread:
    """The `FailedThread` of a failure that was stored at this time."""
    return FailedThread(thread_id, at, failure.node, failure.error_type, failure.message, failure.interrupt_ids)


def bounded(text: str) -> str:
    """The text, cut to `MOST_CHARACTERS`, without NUL characters and lone surrogates, which databases refuse."""
    text = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def log_failure(thread_id: str, error: BaseException) -> None:
    """Log a failed delivery whose caller does not see the error, with its traceback."""
    log.error("the delivery of thread %r failed: %s", thread_id, type(error).__name__, exc_info=error)
