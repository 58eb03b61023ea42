"""Arguments that several calls take, and how they are checked."""

from __future__ import annotations

from symfonic_interrupts.errors import UsageError

MOST_LISTED = 1000
SCOPE_REMEDY = "pass scope=FrameworkTenantScope(...)"


def checked_limit(limit: int, remedy: str) -> int:
    """The limit, if it may be asked for. Raises UsageError."""
    if type(limit) is not int or not 1 <= limit <= MOST_LISTED:
        raise UsageError(f"limit must be a whole number from 1 to {MOST_LISTED}; {remedy}")
    return limit
