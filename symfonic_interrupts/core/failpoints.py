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
    """Called with the place that was just reached."""

    def __call__(self, place: Failpoint, /) -> None: ...


def nothing(place: Failpoint, /) -> None:
    """What happens at a failpoint that nobody uses."""
