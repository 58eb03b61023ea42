"""Purging: deleting what has ended and is old."""

from __future__ import annotations

from datetime import timedelta

from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.errors import UsageError


def purge(hub: Hub, older_than: timedelta, with_events: bool) -> Effects[dict[str, int]]:
    """Delete what has ended and is older than this. See `Interrupts.purge`."""
    hub.database.check_open()
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise UsageError("older_than must be a timedelta of zero or more")
    before = hub.now() - older_than
    counts = yield from transact(hub.operations.upkeep.purge, before, with_events=with_events)
    return counts
