"""A store that was used before its process was forked, as by a server that preloads its application.

Each test forks a process of its own: this one has threads of pytest's.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import sqlalchemy as sa

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
OWN = 20


def run(way: str, url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.contract.forked", way, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr


def counts(url: str) -> dict[str, int]:
    """How many pauses each thread has in the database."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT thread_id, count(*) FROM interrupt_pauses GROUP BY thread_id")
        rows = {str(thread): int(count) for thread, count in found}
    engine.dispose()
    return rows


@pytest.mark.parametrize("way", ["sync", "engine"])
def test_parent_and_children_work_side_by_side(way: str, store_url: str) -> None:
    run(way, store_url)

    assert counts(store_url) == dict.fromkeys(["parent", "child 0", "child 1", "child 2"], OWN)


def test_children_of_children_work_too(store_url: str) -> None:
    run("processes", store_url)

    assert set(counts(store_url).values()) == {OWN}
    assert len(counts(store_url)) == 1 + 3 * 3


@pytest.mark.parametrize("driver", ["sync", "async"])
def test_coroutines_work_before_and_after_a_fork(driver: str, store_url: str) -> None:
    url = store_url
    if driver == "async":
        url = url.replace("sqlite:", "sqlite+aiosqlite:", 1).replace("+psycopg:", "+psycopg_async:", 1)

    run("coroutines", url)

    assert set(counts(store_url).values()) == {OWN}
    assert len(counts(store_url)) == 4 + 1 + 3


def test_a_fork_in_the_middle_of_other_threads_work_hangs_nobody_and_loses_nothing(store_url: str) -> None:
    run("under_load", store_url)

    found = counts(store_url)
    own = {name: count for name, count in found.items() if not name.startswith("load")}
    assert own == {f"{who} {n}": OWN for who in ("child", "parent") for n in range(8)}


def test_what_a_child_stored_stays_when_its_parent_gives_back_its_connections(store_url: str) -> None:
    run("outlived", store_url)

    assert counts(store_url) == {"first": OWN, "second": OWN}


def test_on_sqlite_a_child_that_cannot_use_the_file_safely_says_so(sqlite_url: str) -> None:
    run("cut", sqlite_url)

    assert counts(sqlite_url) == {"parent": OWN}
