"""What a database's error means: the `StoreError` that callers get, whether to try again, and whether to connect anew.

No message holds a statement, a parameter, a row's values or a password.
"""

from __future__ import annotations

import sqlite3

import sqlalchemy as sa

from symfonic_interrupts.errors import StoreError

_SQLITE_PASSING = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    )
)
"""Primary result codes of SQLite after which the same call may succeed later: locks, a full disk, a missing disk."""

_READ_ONLY = "25006"
"""PostgreSQL's SQLSTATE of a write on a read-only server: a standby, or a primary that became one."""

_CONFLICTS = frozenset(("40001", "40P01"))
"""PostgreSQL's SQLSTATEs of transactions that it has undone because another was first: serialization_failure (REPEATABLE READ,
SERIALIZABLE) and deadlock_detected."""


def is_stale(error: BaseException) -> bool:
    """Whether a new connection may work where this one never will: it was opened on a read-only file or server."""
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    return _sqlite_code(error) == sqlite3.SQLITE_READONLY or _sqlstate(error) == _READ_ONLY


def is_conflict(error: BaseException) -> bool:
    """Whether the database has undone the transaction in favour of another. Begun anew, it sees what that one did."""
    return isinstance(error, sa.exc.DBAPIError) and _sqlstate(error) in _CONFLICTS


class StoreErrors:
    """Turns SQLAlchemy's errors into `StoreError`, without statement, parameters or the driver's details of a row."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, sa.exc.SQLAlchemyError):
            return
        if isinstance(error, sa.exc.DBAPIError):
            retryable = _passes(error)
            if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
                detail = str(error.orig).strip().split("\n")[0]
            else:
                detail = type(error.orig).__name__
        else:
            retryable, detail = isinstance(error, sa.exc.TimeoutError), type(error).__name__
        if "no such table" in detail or "UndefinedTable" in detail:
            retryable, detail = False, "there are no tables; call create_schema() once"
        failure = StoreError(f"the pause store failed: {detail}", retryable=retryable)
        try:
            raise failure
        finally:
            failure.__context__ = None  # the driver's error shows values, and the connection's password


def _passes(error: sa.exc.DBAPIError) -> bool:
    """Whether the same call may succeed later."""
    code = _sqlite_code(error)
    if code is not None:
        return code in _SQLITE_PASSING
    return error.connection_invalidated or isinstance(error, sa.exc.OperationalError) or _sqlstate(error) == _READ_ONLY


def _sqlite_code(error: sa.exc.DBAPIError) -> int | None:
    code = getattr(error.orig, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def _sqlstate(error: sa.exc.DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return state if isinstance(state, str) else None
