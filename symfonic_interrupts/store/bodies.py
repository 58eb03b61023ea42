"""Transaction bodies: what they are, which only read, and when one is run again from its beginning."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from symfonic_interrupts.store.failures import is_conflict, is_stale

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Transaction = Callable[Concatenate[sa.Connection, P], T]
"""A transaction body. It does nothing but through its connection, because it may be run more than once."""

ATTEMPTS = 2
"""How often a transaction is begun whose connection turns out to be lost."""

CONFLICTS = 20
"""How often a transaction is begun that the database undoes in favour of another. Each time, another one has succeeded."""

LONGEST_BACKOFF_SECONDS = 0.2


def reads(body: F) -> F:
    """Mark a body that only reads. Its statements need no transaction around them: each sees what was committed before it."""
    vars(body)["reads"] = True
    return body


def only_reads(body: Callable[..., object]) -> bool:
    """Whether the body is marked by `reads`."""
    return getattr(body, "reads", False) is True


def run_body(connection: sa.Connection, body: Transaction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """`body(connection, ...)`. A connection that can never work again is not given back to the pool."""
    try:
        return body(connection, *args, **kwargs)
    except sa.exc.DBAPIError as error:
        if is_stale(error):
            connection.invalidate(error)
        raise


def may_repeat(error: sa.exc.DBAPIError, attempt: int, *, committing: bool) -> bool:
    """Whether a transaction may be run again. Its connection was lost before COMMIT was sent, or the database has undone it
    in favour of another one.

    Pooled connections die while they are idle when the server restarts. To find that out by a ping before each transaction
    would cost each of them a round trip, and the server may still go away right after it.
    """
    if is_conflict(error):
        return attempt < CONFLICTS
    lost = error.connection_invalidated or is_stale(error)
    return lost and not committing and attempt < ATTEMPTS


def backoff(error: sa.exc.DBAPIError, attempt: int) -> float:
    """Seconds until it is begun again. At random: transactions that were in each other's way must not meet again."""
    longest = min(0.002 * 2**attempt, LONGEST_BACKOFF_SECONDS)
    return random.uniform(0, longest) if is_conflict(error) else 0.0  # noqa: S311  # not for security
