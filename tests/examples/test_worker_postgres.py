"""The example with two workers over PostgreSQL runs unattended, tells its story, and never prints a token."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.examples.scripts import TOKEN, run_script


@pytest.mark.postgres
def test_two_workers_finish_what_a_killed_one_left(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMFONIC_EXAMPLE_POSTGRES_URL", postgres_url.replace("+psycopg", "", 1))

    done = run_script("worker_postgres.py", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert re.sub(r"order A-\d", "order A-N", done.stdout).splitlines() == [
        "1. 10 refunds wait for a person.",
        "2. All are answered. No graph has run yet.",
        "3. A worker was killed in the middle of order A-N (exit code -9).",
        "4. Two workers finished what was left, and were told to end: ['ended', 'ended'], exit codes [0, 0].",
        "5. 10 of 10 are paid, with 10 answers.",
    ]
    assert not TOKEN.search(done.stdout)
    assert list(tmp_path.iterdir()) == []
    engine = sa.create_engine(postgres_url)
    with engine.connect() as connection:
        left = connection.exec_driver_sql("SELECT count(*) FROM interrupt_thread_leases").scalar()
        states = connection.exec_driver_sql("SELECT state, count(*) FROM interrupt_pauses GROUP BY state").all()
    engine.dispose()
    assert (left, [tuple(row) for row in states]) == (0, [("applied", 10)])
