"""The transactions of the store, each written once over a sync `Connection` and run by `Database.run` or `arun`.

None decides by what it has read: every move out of `pending` is the INSERT of the token's `jti`, and the row that RETURNING
gives back (or does not) says who won.
"""

from __future__ import annotations

from symfonic_interrupts.clock import Clock
from symfonic_interrupts.store.operations.claiming import Claiming, Describe
from symfonic_interrupts.store.operations.leasing import Leasing
from symfonic_interrupts.store.operations.opening import Opening
from symfonic_interrupts.store.operations.reading import Reading
from symfonic_interrupts.store.operations.recording import Recording
from symfonic_interrupts.store.operations.settling import Settling
from symfonic_interrupts.store.operations.upkeep import Upkeep
from symfonic_interrupts.store.records import Claim, ClaimLost, Conclusion, Event, Failure, Lease

__all__ = ["Claim", "ClaimLost", "Conclusion", "Describe", "Event", "Failure", "Lease", "Operations"]


class Operations:
    """All transaction bodies of the store, in groups; the statements are grouped in the same way.

    Args:
        clock: the time for SQLite. PostgreSQL decides by its own clock.

    Attributes:
        opening: questions are opened.
        claiming: tokens are spent: by answers, expiries and revocations, and for new tokens.
        settling: what becomes of answers, and of questions that a thread has left behind.
        leasing: holds on threads, and how runs end.
        reading: pauses, events and failed threads.
        recording: event rows and refusals.
        upkeep: recovery, keys and the purge.
    """

    def __init__(self, clock: Clock) -> None:
        self.reading = Reading(clock)
        self.opening = Opening(clock)
        self.settling = Settling(clock, self.reading)
        self.leasing = Leasing(clock, self.reading, self.settling)
        self.claiming = Claiming(clock, self.leasing)
        self.recording = Recording(clock)
        self.upkeep = Upkeep(clock)
