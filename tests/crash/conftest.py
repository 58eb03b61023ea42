"""Where a crash test's processes meet."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from tests.crash.workers import Place


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

    def __call__(self, statement: str) -> list[tuple]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]


@pytest.fixture
def record(place: Place):
    """What a statement finds in the store: `record("SELECT ...")`."""
    engine = sa.create_engine(place.store)
    yield Record(engine)
    engine.dispose()
