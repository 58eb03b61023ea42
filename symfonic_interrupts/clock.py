"""The clock, which can be replaced. All times in this library are aware datetimes in UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Returns the current time as an aware datetime in UTC."""


def system_clock() -> datetime:
    """The machine's time, in UTC."""
    return datetime.now(UTC)
