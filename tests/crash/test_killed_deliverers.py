"""A deliverer is killed at every step, for points and covered nodes, at the root and below: `recover` finishes every thread."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import get_args

import pytest

from symfonic_interrupts.testing import Failpoint
from tests.crash.conftest import Record
from tests.crash.deliverers import AHEAD, KINDS, LEVELS, answer_all, expected, open_deliverer
from tests.crash.forking import KILLED, Forker, forker
from tests.crash.test_killed_anywhere import BY_THE_JANITOR, let_leases_lapse
from tests.crash.workers import Place
from tests.harness import thread

TIMES = (1, 2, 3) if os.environ.get("SYMFONIC_LONG") == "1" else (1, 2)
PLACES = [place for place in get_args(Failpoint) if place not in BY_THE_JANITOR]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    with forker(tmp_path_factory.mktemp("forks")) as found:
        yield found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_deliverer_left_that_was_killed_at_any_step_is_finished_by_recover(
    place: Place, record: Record, forks: Forker, kind: str, level: str
) -> None:
    where = {"store": place.store, "checkpoints": place.checkpoints, "kind": kind, "level": level}
    threads: dict[str, bool] = {}
    for at, times in itertools.product(PLACES, TIMES):
        thread_id = f"{at} {times}"
        ended = forks.end(forks.fork("deliver_and_die", **where, at=at, times=times, thread_id=thread_id))
        assert ended in (0, KILLED), forks.complaints()[-3000:]
        threads[thread_id] = ended == KILLED
    assert all(threads[f"{at} 1"] for at in PLACES)  # each is reached
    let_leases_lapse(place.store)

    with ExitStack() as stack:
        _, adapter = open_deliverer(stack, **where, ahead=AHEAD)
        for _ in range(2):
            assert [d.error for d in adapter.recover() if d.error is not None] == []
        for thread_id in threads:
            state = adapter.graph.get_state(thread(thread_id))
            asked = adapter.pending(thread_id=thread_id)
            assert bool(state.next) == bool(asked), f"{thread_id}: {state.next} and {len(asked)} questions"
            answer_all(adapter, thread_id)
            assert adapter.graph.get_state(thread(thread_id)).values["log"] == expected(level), thread_id
        assert adapter.recover() == []
        assert adapter.failed() == []

    assert record("SELECT DISTINCT state FROM interrupt_pauses") == [("applied",)]
    assert record("SELECT * FROM interrupt_thread_leases") == []
