"""Named places between the steps of a pause, its answer and its delivery, at which a test can have something happen.

`symfonic_interrupts.testing` sets what happens there. Unused, reaching one is an attribute look-up and an empty call.
"""

from __future__ import annotations

from typing import Literal, Protocol

Failpoint = Literal[
    "pause_opened",
    "marker_written",
    "checkpoint_written",
    "event_emitted",
    "claim_committed",
    "lease_taken",
    "resume_started",
    "answer_durable",
    "run_ended",
    "applied_marked",
    "lease_released",
    "sweep_claimed",
    "default_stored",
]


class Reached(Protocol):
    """What a test sets: called with the name of the failpoint that was reached."""

    def __call__(self, failpoint: Failpoint, /) -> None: ...


def nothing(failpoint: Failpoint, /) -> None:
    """Does nothing: the default."""
