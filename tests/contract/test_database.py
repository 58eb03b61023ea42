"""What a database that cannot be used says, and what no error of the store ever says."""

from __future__ import annotations

import json
import sqlite3
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from symfonic_interrupts import RegistrationError, StoreError
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Claim, Operations
from tests.contract.stores import ASKED, Store, answer_claim, pause_row, told

SECRET = "hunter2"


def everything_said(error: BaseException) -> str:
    """All texts that a logger, a tracker or a debugger could show of an error."""
    said = ["".join(traceback.format_exception(error))]
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        found = chain.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            said += [str(found), repr(found), repr(found.args), repr(vars(found))]
            chain += [found.__cause__, found.__context__, getattr(found, "orig", None)]
    return "\n".join(said)


# -- what is refused when it is made


@pytest.mark.parametrize(
    "url", [f"mysql+pymysql://ann:{SECRET}@db/x", f"mysql://ann:{SECRET}@db/x", f"oracle://ann:{SECRET}@db/x"]
)
def test_another_database_is_refused_with_the_two_that_work(url: str) -> None:
    with pytest.raises(StoreError) as refused:
        Database(url, clock=system_clock)

    message = str(refused.value)
    assert "not supported" in message
    assert "SQLite" in message
    assert "PostgreSQL" in message
    assert SECRET not in everything_said(refused.value)


def test_a_driver_of_postgresql_that_is_not_there_is_refused_with_one_that_the_extra_brings() -> None:
    with pytest.raises(StoreError) as refused:
        Database(f"postgresql+asyncpg://ann:{SECRET}@db/x", clock=system_clock)

    message = str(refused.value)
    assert "asyncpg" in message
    assert "postgresql+psycopg" in message  # what the extra installs is psycopg: this URL still would not work
    assert "symfonic-interrupts[postgres]" in message
    assert SECRET not in everything_said(refused.value)


def test_a_database_that_sqlalchemy_does_not_know_is_refused_as_such() -> None:
    with pytest.raises(StoreError, match="no such database or driver; use postgresql"):
        Database(f"nosuch://ann:{SECRET}@db/x", clock=system_clock)


@pytest.mark.parametrize("target", ["", "interrupts.db", "/tmp/interrupts.db", f"ann:{SECRET}@db"])
def test_what_is_not_a_url_is_refused_with_an_example(target: str) -> None:
    with pytest.raises(StoreError, match=r"not an SQLAlchemy URL, such as .*sqlite:///file\.db") as refused:
        Database(target, clock=system_clock)

    assert SECRET not in everything_said(refused.value)


@pytest.mark.parametrize("target", [None, 7, Path("interrupts.db"), {"url": "sqlite:///x.db"}], ids=repr)
def test_what_is_neither_url_nor_engine_is_refused(target: Any) -> None:
    with pytest.raises(StoreError, match="URL, an Engine or an AsyncEngine"):
        Database(target, clock=system_clock)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite+pysqlite://",
        "sqlite+aiosqlite://",
        "sqlite+aiosqlite:///:memory:",
        "sqlite:///file:shared?mode=memory&cache=shared&uri=true",
        "sqlite:///file::memory:?uri=true",
    ],
)
@pytest.mark.filterwarnings("ignore:Selection of the SingletonThreadPool")  # SQLAlchemy, of mode=memory
def test_sqlite_in_memory_is_refused_with_a_file_to_use(url: str) -> None:
    with pytest.raises(StoreError, match="use a file"):
        Database(url, clock=system_clock)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"poolclass": sa.StaticPool, "connect_args": {"check_same_thread": False}},
        {"poolclass": sa.QueuePool},
        {"poolclass": sa.NullPool},
    ],
    ids=["default pool", "StaticPool", "QueuePool", "NullPool"],
)
def test_an_engine_in_memory_is_refused_whatever_its_pool(options: dict[str, Any]) -> None:
    engine = sa.create_engine("sqlite://", **options)
    try:
        with pytest.raises(StoreError, match="use a file"):
            Database(engine, clock=system_clock)
    finally:
        engine.dispose()


@pytest.mark.parametrize("pool", [sa.StaticPool, sa.pool.SingletonThreadPool])
def test_an_engine_that_shares_one_connection_to_a_file_is_refused(tmp_path: Path, pool: type[sa.Pool]) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'x.db'}", poolclass=pool)
    try:
        with pytest.raises(StoreError, match="the default pool"):
            Database(engine, clock=system_clock)
    finally:
        engine.dispose()


async def test_an_async_engine_in_memory_is_refused() -> None:
    engine = create_async_engine("sqlite+aiosqlite://")
    try:
        with pytest.raises(StoreError, match="use a file"):
            Database(engine, clock=system_clock)
    finally:
        await engine.dispose()


# -- what is refused when it is used


async def test_after_close_every_call_says_so(store: Store) -> None:
    reading = (store.operations.reading.load_thread, "default", "t1")
    await store.do(*reading)
    await store.database.aclose()

    for call in (store.database.run, store.database.create_schema):
        with pytest.raises(StoreError, match="closed; make a new one"):
            call(*reading) if call == store.database.run else call()
    with pytest.raises(StoreError, match="closed; make a new one"):
        await store.database.arun(*reading)
    with pytest.raises(StoreError, match="closed; make a new one"):
        await store.database.acreate_schema()


async def test_closing_leaves_an_engine_of_the_application_in_use(store: Store) -> None:
    await store.do(store.operations.reading.load_thread, "default", "t1")
    given = store.database.connections.sync if not store.database.async_only else store.database.connections.engine
    pool = given.pool

    await store.database.aclose()

    assert (given.pool is pool) is (not store.database.connections.are_own)


def use(database: Database) -> None:
    """Write, read, and end a delivery."""
    operations, row = Operations(system_clock), pause_row()
    database.create_schema()
    database.run(operations.opening.open_pauses, [(row, ASKED)], lambda found: found)
    assert len(database.run(operations.reading.load_thread, "default", "t1")) == 1
    assert database.run(operations.claiming.answer, row, answer_claim(), told("answered")) is not None


@pytest.mark.postgres
def test_what_an_applications_engine_sets_for_a_transaction_holds_for_reads_too(postgres_url: str) -> None:
    """A search path, a role or a tenant for row-level security, set at the start of every transaction."""
    url = sa.make_url(postgres_url)
    schema = str(url.query["options"]).removeprefix("-csearch_path=")
    engine = sa.create_engine(url.difference_update_query(["options"]))
    sa.event.listen(
        engine, "begin", lambda connection: connection.exec_driver_sql(f"SET LOCAL search_path TO {schema}")
    )

    use(Database(engine, clock=system_clock))

    engine.dispose()


@pytest.mark.postgres
def test_an_applications_connection_keeps_its_isolation_level(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url, pool_size=1, max_overflow=0)
    level = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"
    sa.event.listen(engine, "connect", lambda connection, _: (connection.execute(level), connection.commit()))

    use(Database(engine, clock=system_clock))

    with engine.begin() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "serializable"
    engine.dispose()


@pytest.mark.parametrize("way", ["created so", "an option", "the driver"])
async def test_an_applications_engine_in_autocommit_is_refused_at_first_use(store_url: str, way: str) -> None:
    """There each statement of an answer would stand for itself."""
    aurl = store_url.replace("sqlite:", "sqlite+aiosqlite:", 1)
    options = {"isolation_level": "AUTOCOMMIT"} if way == "created so" else {}
    engine, aengine = sa.create_engine(store_url, **options), create_async_engine(aurl, **options)
    if way == "the driver" and store_url.startswith("sqlite"):
        for each in (engine, aengine.sync_engine):
            sa.event.listen(each, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    elif way != "created so":
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        aengine = aengine.execution_options(isolation_level="AUTOCOMMIT")
    database, adatabase = Database(engine, clock=system_clock), Database(aengine, clock=system_clock)

    with pytest.raises(StoreError, match="in AUTOCOMMIT, and a pause needs transactions") as refused:
        database.create_schema()
    with pytest.raises(StoreError, match="in AUTOCOMMIT"):
        await adatabase.acreate_schema()
    with pytest.raises(StoreError, match="in AUTOCOMMIT"):
        await adatabase.arun(Operations(system_clock).reading.load_thread, "default", "t1")

    assert refused.value.retryable is False
    assert not sa.inspect(engine).has_table("interrupt_pauses")
    await aengine.dispose()
    engine.dispose()


def test_an_sqlite_engine_whose_own_events_begin_its_transactions_is_used(sqlite_url: str) -> None:
    engine = sa.create_engine(sqlite_url)
    sa.event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))

    use(Database(engine, clock=system_clock))

    engine.dispose()


async def test_a_sync_call_of_an_async_engine_is_refused_and_says_what_to_give(store: Store) -> None:
    reading = (store.operations.reading.load_thread, "default", "t1")
    if not store.database.async_only:
        assert store.database.run(*reading) == []
        return

    with pytest.raises(RegistrationError, match="give Interrupts a URL or an Engine"):
        store.database.run(*reading)
    with pytest.raises(RegistrationError, match="give Interrupts a URL or an Engine"):
        store.database.create_schema()


async def test_a_failing_statement_gives_a_store_error_without_any_value(store: Store) -> None:
    (row,) = await store.open(pause_row(payload=json.dumps({"card": SECRET})))
    claim = Claim("answered", SECRET, response=json.dumps({"note": SECRET}), actor=SECRET)  # no such state

    with pytest.raises(StoreError) as failed:
        await store.do(store.operations.claiming.answer, row, claim, told("answered"))

    assert failed.value.retryable is False
    assert str(failed.value).startswith("the pause store failed: ")
    assert SECRET not in everything_said(failed.value)
    assert store.states() == {row["jti"]: "pending"}


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["run", "arun"])
async def test_a_server_that_is_not_there_is_retryable_and_the_password_is_not_said(kind: str) -> None:
    database = Database(f"postgresql+psycopg://ann:{SECRET}@127.0.0.1:1/x?connect_timeout=2", clock=system_clock)
    reading = (Operations(system_clock).reading.load_thread, "default", "t1")
    try:
        with pytest.raises(StoreError) as failed:
            database.run(*reading) if kind == "run" else await database.arun(*reading)
    finally:
        database.close()

    assert failed.value.retryable is True
    assert SECRET not in everything_said(failed.value)
    assert SECRET not in repr(database)
    assert "127.0.0.1" in repr(database)


async def test_a_connection_that_the_server_ends_is_retryable_and_the_next_call_works(store: Store) -> None:
    if store.database.dialect == "sqlite":
        return

    def lose(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with pytest.raises(StoreError) as failed:
        await store.do(lose)

    assert failed.value.retryable is True
    assert await store.do(store.operations.reading.load_thread, "default", "t1") == []
    assert store.checked_out() == 0


@pytest.mark.parametrize("kind", ["engine", "async engine"])
async def test_a_lock_that_lasts_longer_than_the_timeout_is_retryable(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "interrupts.db"
    options = {"connect_args": {"timeout": 0.02}}
    engine = sa.create_engine(f"sqlite:///{path}", **options)
    aengine = create_async_engine(f"sqlite+aiosqlite:///{path}", **options)
    database = Database(engine if kind == "engine" else aengine, clock=system_clock)
    operations = Operations(system_clock)
    row = pause_row()
    writing = (operations.leasing.take_lease, "default", "t1", "one", timedelta(minutes=1))
    other = sqlite3.connect(path, isolation_level=None)
    try:
        await database.acreate_schema()
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="locked") as failed:
            await database.arun(*writing)

        assert failed.value.retryable is True
        other.execute("ROLLBACK")
        assert (await database.arun(*writing))[0].owner == "one"
        assert await database.arun(operations.claiming.answer, row, answer_claim(), told("answered")) is None
    finally:
        other.close()
        await database.aclose()
        engine.dispose()
        await aengine.dispose()


def test_a_store_made_from_an_sqlite_url_is_durable_and_waits_for_other_writers(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'interrupts.db'}", clock=system_clock)

    def settings(connection: sa.Connection) -> list[Any]:
        names = ("journal_mode", "synchronous", "busy_timeout")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    try:
        assert database.run(settings) == ["wal", 2, 30_000]  # 2: FULL
    finally:
        database.close()


async def test_an_error_of_the_body_itself_comes_out_as_it_is_and_rolls_back(store: Store) -> None:
    row = pause_row()

    def body(connection: sa.Connection) -> None:
        store.operations.opening.open_pauses(connection, [(row, ("interrupt", {}))], lambda row: row)
        raise ZeroDivisionError("the body's own")

    with pytest.raises(ZeroDivisionError, match="the body's own"):
        await store.do(body)

    assert store.states() == {}
    assert store.checked_out() == 0
