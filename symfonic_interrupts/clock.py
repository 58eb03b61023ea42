"""Where the time comes from. All times in this library are aware datetimes in UTC; a clock can be injected."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Returns the current time as an aware datetime in UTC."""


def system_clock() -> datetime:
    """The machine's time, in UTC."""
    return datetime.now(UTC)
