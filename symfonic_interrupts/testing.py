"""For tests of applications and of this library: have something happen at a named step, such as the end of the process.

Not for production: nothing here is called unless a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from symfonic_interrupts.core.failpoints import Failpoint, Reached
from symfonic_interrupts.interrupts import Interrupts

__all__ = ["FAILPOINTS", "Failpoint", "Reached", "failpoints"]

FAILPOINTS: tuple[Failpoint, ...] = get_args(Failpoint)
"""All failpoints, in the order in which a pause, its answer and its delivery reach them; the janitor's two come last.

`pause_opened`: the pause's row is committed. `marker_written`: a task's writes that ask are stored. `checkpoint_written`: the
saver has stored a checkpoint. `event_emitted`: events went out on the stream. `claim_committed`: an answer is stored and its
token spent. `lease_taken`: a delivery holds the thread. `resume_started`: the graph is about to be run.
`answer_durable`: the task's writes that hold the answer are stored. `run_ended`: the graph's run has returned.
`applied_marked`: it is recorded how answers ended. `lease_released`: the thread is given back. `sweep_claimed`: the janitor has
closed an overdue pause. `default_stored`: it has stored the default answer.
"""


@contextmanager
def failpoints(interrupts: Interrupts, reached: Reached) -> Iterator[None]:
    """Have `reached(name)` called at every failpoint of this `Interrupts`, until the end of the `with` block.

    It runs in the thread or task that reached the failpoint; what it raises goes on there as if the step had failed.
    """
    hub = interrupts._hub
    before, hub.failpoint = hub.failpoint, reached
    try:
        yield
    finally:
        hub.failpoint = before
