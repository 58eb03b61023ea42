"""Where the time comes from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from symfonic_interrupts.clock import system_clock


def test_the_system_clock_gives_the_time_in_utc() -> None:
    before = datetime.now(UTC)
    found = system_clock()
    after = datetime.now(UTC)

    assert before <= found <= after
    assert found.utcoffset() == timedelta(0)
