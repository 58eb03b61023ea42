"""Two workers, two processes that start threads and two that answer, on one PostgreSQL, each killed in turn: all ends once.

150 pauses; 1,000 with `SYMFONIC_LONG=1`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from langgraph.checkpoint.postgres import PostgresSaver

from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from tests.crash.conftest import COUNTS
from tests.crash.forking import KILLED, Forker, forker
from tests.crash.judging import LEASES, PAUSES, Counts, judge_thread
from tests.crash.lives import Journal
from tests.crash.roles import final_states

PAUSED = 1000 if os.environ.get("SYMFONIC_LONG") == "1" else 150
SECONDS_BETWEEN_KILLS = 0.15
SECONDS = 900.0 if PAUSED == 1000 else 240.0
OPEN = "SELECT count(*) FROM interrupt_pauses WHERE state IN ('pending', 'answered')"
APPLIED = "SELECT count(*) FROM interrupt_pauses WHERE state = 'applied'"

Role = tuple[str, dict[str, Any]]


class Cast:
    """Six processes in their roles. Whoever dies is replaced."""

    def __init__(self, forks: Forker, roles: list[Role], counts: Counts) -> None:
        self._forks = forks
        self._roles = roles
        self._pids: list[int | None] = [forks.fork(task, **arguments) for task, arguments in roles]
        self._counts = counts
        self._turn = itertools.cycle(range(len(roles)))

    def kill_next(self) -> None:
        """Kill the next process and begin it again, unless it has done its work and ended."""
        place = next(self._turn)
        pid = self._pids[place]
        if pid is None:
            return
        ended = self._forks.kill(pid)
        assert ended in (KILLED, 0), self._forks.complaints()[-3000:]
        self._counts.kills += ended == KILLED
        task, arguments = self._roles[place]
        self._pids[place] = self._forks.fork(task, **arguments) if ended == KILLED else None

    def end(self) -> None:
        """Kill all."""
        for pid in self._pids:
            if pid is not None:
                assert self._forks.kill(pid) in (KILLED, 0), self._forks.complaints()[-3000:]


@pytest.mark.postgres
def test_every_pause_ends_once_whichever_process_is_killed(
    postgres_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    threads = [f"t{number}" for number in range(PAUSED // 2)]
    prepare(postgres_url)
    where = {"store": postgres_url, "directory": str(tmp_path)}
    clients: list[Role] = [("start_threads", {**where, "name": f"s{n}", "threads": threads[n::2]}) for n in (0, 1)]
    clients += [("answer_pauses", {**where, "name": f"a{n}", "seed": n}) for n in (0, 1)]
    counts = Counts()
    observer = sa.create_engine(postgres_url)

    with forker(tmp_path) as forks:
        cast = Cast(forks, [*clients, ("work", {"store": postgres_url}), ("work", {"store": postgres_url})], counts)
        give_up = time.monotonic() + SECONDS
        while time.monotonic() < give_up and not all_ended(observer):
            time.sleep(SECONDS_BETWEEN_KILLS)
            cast.kill_next()
        cast.end()

    reports = final_states(postgres_url, threads)
    with observer.connect() as connection:
        rows = [dict(row) for row in connection.exec_driver_sql(PAUSES).mappings()]
        counts.leases = int(connection.exec_driver_sql(LEASES).scalar() or 0)
    observer.dispose()
    for thread_id in threads:
        entries = [e for n in (0, 1) for e in Journal(tmp_path / f"a{n}").noted("acknowledged", thread_id)]
        told = [f"{entry['order']}={entry['note']}" for entry in entries]
        of_thread = [row for row in rows if row["thread_id"] == thread_id]
        judge_thread(thread_id, "siblings", reports[thread_id], told, of_thread, counts)
        counts.threads += 1
    record_property(COUNTS, counts.numbers())
    assert counts.details == []
    assert (counts.answers, counts.leases) == (len(threads) * 2, 0)
    assert counts.kills >= 6


def prepare(store: str) -> None:
    database = Database(store, clock=system_clock)
    database.create_schema()
    database.close()
    with PostgresSaver.from_conn_string(store.replace("postgresql+psycopg://", "postgresql://", 1)) as saver:
        saver.setup()


def all_ended(observer: sa.Engine) -> bool:
    """Whether every answer has been applied and no lease is held. Threads that have not begun count as not ended."""
    with observer.connect() as connection:
        applied = connection.exec_driver_sql(APPLIED).scalar()
        left = [connection.exec_driver_sql(statement).scalar() for statement in (OPEN, LEASES)]
    return applied == PAUSED and left == [0, 0]
