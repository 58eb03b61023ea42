"""Where a crash test's processes meet, and what the tests have counted, printed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from tests.crash.workers import Place

COUNTS = "counts"
"""The property under which a test records what it has counted."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was counted, a line for each test."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    counted = [(r.nodeid, dict(r.user_properties)[COUNTS]) for r in reports if COUNTS in dict(r.user_properties)]
    if counted:
        terminalreporter.section("counts")
    for test, numbers in sorted(counted):
        terminalreporter.line(test.rpartition("::")[2])
        terminalreporter.line("    " + ", ".join(f"{name} {number}" for name, number in numbers.items()))


@pytest.fixture
def place(store_url: str, tmp_path: Path) -> Place:
    """A store and checkpoints with their tables, on SQLite and on PostgreSQL, and an empty file of effects."""
    on_sqlite = store_url.startswith("sqlite")
    found = Place(store_url, str(tmp_path / "checkpoints.db") if on_sqlite else store_url, str(tmp_path / "effects"))
    database = Database(store_url, clock=system_clock)
    database.create_schema()
    database.close()
    with ExitStack() as stack:
        found.open_saver(stack).setup()
    return found


class Record:
    """The tables of the store, seen from outside."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def __call__(self, statement: str) -> list[tuple[Any, ...]]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]


@pytest.fixture
def record(place: Place) -> Iterator[Record]:
    """What a statement finds in the store: `record("SELECT ...")`."""
    engine = sa.create_engine(place.store)
    yield Record(engine)
    engine.dispose()
