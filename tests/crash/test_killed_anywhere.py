"""A process is killed at every step and at any instant; another one finishes what it left, and every answer counts once.

Each failpoint, the first, second and third time that it is reached, and random instants; sync and async, SQLite and PostgreSQL,
every durability. The short form takes one shape of graph for each step, in turn; the long form (`SYMFONIC_LONG=1`) takes all.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from symfonic_interrupts.testing import FAILPOINTS, Failpoint
from tests.crash.conftest import COUNTS
from tests.crash.forking import KILLED, Forker, forker
from tests.crash.judging import Counts, judge
from tests.crash.lives import WAYS, Case, Place
from tests.crash.shapes import SHAPES
from tests.crash.workers import Place as Tables

LONG = os.environ.get("SYMFONIC_LONG") == "1"
INSTANTS = 200 if LONG else 17
"""Random instants of each of the twelve combinations: 204 in the short form."""

ONE_BY_ONE = ("invoke", "answer", "stream")
BY_THE_JANITOR: tuple[Failpoint, ...] = ("sweep_claimed", "default_stored")


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    with forker(tmp_path_factory.mktemp("forks")) as found:
        yield found


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def where(place: Tables, mode: str, durability: str, tmp_path: Path) -> Place:
    return Place(place.store, place.checkpoints, mode, durability, str(tmp_path))


class Killer:
    """Has cases lived and killed, and in the end mended by one process that has seen none of them."""

    def __init__(self, forks: Forker, place: Place, seed: int, tell: Callable[[str, object], None]) -> None:
        self.forks = forks
        self.place = place
        self.chance = random.Random(seed)
        self.tell = tell
        self.counts = Counts()
        self.cases: list[Case] = []

    def live(self, case: Case, seconds: float | None = None, task: str = "live", **more: Any) -> int:
        """Have a case lived to its end, or killed after so long. Returns how the process ended."""
        if task == "live":
            self.cases.append(case)
        pid = self.forks.fork(task, place=self.place.arguments(), case=vars(case), **more)
        ended = self.forks.end(pid) if seconds is None else self.forks.end(pid, seconds)
        if ended is None:
            ended = self.forks.kill(pid)
        self.counts.kills += ended == KILLED
        return ended

    def mend(self) -> Counts:
        """Have all cases mended; what was found."""
        let_leases_lapse(self.place.store)
        cases = [vars(case) for case in self.cases]
        arguments = {"place": self.place.arguments(), "cases": cases, "seed": self.chance.randrange(10**6)}
        ended = self.forks.end(self.forks.fork("mend", **arguments))
        assert ended == 0, self.forks.complaints()[-3000:]
        judge(self.place, self.cases, self.counts)
        self.tell(COUNTS, self.counts.numbers())
        return self.counts


def let_leases_lapse(store: str) -> None:
    """A step of the database's clock: what is not renewed any more is over."""
    engine = sa.create_engine(store)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE interrupt_thread_leases SET expires_at = '2020-01-01 00:00:00'")
    engine.dispose()


@pytest.fixture
def killer(
    forks: Forker, where: Place, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Killer:
    return Killer(forks, where, seed=sum(request.node.name.encode()), tell=record_property)


def check(killer: Killer, *, at_least: int) -> None:
    counts = killer.mend()
    assert counts.details == []
    assert counts.kills >= at_least
    assert counts.answers >= 2 * counts.threads >= at_least


def test_a_process_killed_at_any_step_loses_doubles_and_repeats_nothing(killer: Killer) -> None:
    turn = itertools.count(sum(f"{killer.place.mode} {killer.place.durability}".encode()))
    for at, times in itertools.product(FAILPOINTS, (1, 2, 3)):
        first = next(turn)
        shapes = ["overdue"] if at in BY_THE_JANITOR else list(SHAPES)[first % 5 :] + list(SHAPES)[: first % 5]
        killed = 0
        for shape in shapes:
            case = Case(f"{at}_{times}_{shape}", shape, ONE_BY_ONE[next(turn) % len(ONE_BY_ONE)], at, times)
            ended = killer.live(case)
            assert ended in (0, KILLED), killer.forks.complaints()[-3000:]
            killed += ended == KILLED
            if killed and not LONG:
                break
        assert killed, f"{at} is not reached {times} times"

    check(killer, at_least=3 * len(FAILPOINTS))


def test_a_process_killed_at_any_instant_and_one_that_mends_it_too_lose_double_and_repeat_nothing(
    killer: Killer,
) -> None:
    usual: dict[str, float] = {}
    for (
        shape
    ) in SHAPES:  # nobody is killed: it says how long a life takes, and that nothing of this needs a kill to fail
        begun = time.monotonic()
        assert killer.live(Case(f"unharmed_{shape}", shape, "invoke")) == 0, killer.forks.complaints()[-3000:]
        usual[shape] = time.monotonic() - begun
    killed = 0
    for number in range(4 * INSTANTS):  # some lives end before their instant
        shape = list(SHAPES)[number % len(SHAPES)]
        case = Case(f"instant_{number}_{shape}", shape, killer.chance.choice(WAYS))
        killed += killer.live(case, killer.chance.uniform(0, usual[shape])) == KILLED
        if killer.chance.random() < 0.3:
            seed = killer.chance.randrange(10**6)
            killer.live(case, killer.chance.uniform(0, usual[shape]), "mend_early", seed=seed)
        if killed == INSTANTS:
            break

    check(killer, at_least=INSTANTS)
