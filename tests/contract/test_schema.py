"""The tables: made once, by however many processes at a time, and missed with a clear word."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from symfonic_interrupts import StoreError
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from tests.contract.stores import Store, pause_row
from tests.contract.workers import run_workers

TABLES = {
    "interrupt_alembic_version",
    "interrupt_consumed_tokens",
    "interrupt_events",
    "interrupt_pauses",
    "interrupt_refusals",
    "interrupt_thread_leases",
}
LIST_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    "postgresql": "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
}


def tables(store: Store) -> set[str]:
    return {name for (name,) in store.rows(LIST_TABLES[store.database.dialect])}


async def test_create_schema_can_be_called_again_and_keeps_what_is_there(bare_store: Store) -> None:
    await bare_store.create_schema()
    assert tables(bare_store) == TABLES
    (row,) = await bare_store.open(pause_row())

    await bare_store.create_schema()
    if not bare_store.database.async_only:
        await bare_store.database.acreate_schema()

    assert tables(bare_store) == TABLES
    assert bare_store.states() == {row["jti"]: "pending"}


async def test_sqlite_makes_its_tables_by_itself_and_postgresql_says_what_to_call(bare_store: Store) -> None:
    listing = (bare_store.operations.reading.load_thread, "default", "t1")
    if bare_store.database.dialect == "sqlite":
        assert await bare_store.do(*listing) == []
        assert tables(bare_store) == TABLES
        return

    with pytest.raises(StoreError, match=r"call create_schema\(\)") as refused:
        await bare_store.do(*listing)

    assert refused.value.retryable is False
    await bare_store.create_schema()
    assert await bare_store.do(*listing) == []


async def test_the_first_transactions_of_12_callers_at_once_all_find_the_tables(bare_store: Store) -> None:
    if bare_store.database.dialect == "postgresql":
        await bare_store.create_schema()

    results = await bare_store.race([(bare_store.operations.reading.load_thread, ("default", "t1"))] * 12)

    assert results == [[]] * 12


def test_8_processes_make_the_tables_of_an_empty_database_at_once(store_url: str) -> None:
    assert run_workers("schema", 8, store_url) == ["made"] * 8


async def test_8_engines_of_an_application_make_the_tables_of_one_empty_file_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'fresh.db'}"
    engines = [sa.create_engine(url, connect_args={"timeout": 30}) for _ in range(8)]
    databases = [Database(engine, clock=system_clock) for engine in engines]
    start = threading.Barrier(8)

    def make(database: Database) -> str:
        start.wait(timeout=20)
        database.create_schema()
        return "made"

    try:
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(make, databases, timeout=40))
    finally:
        for engine in engines:
            engine.dispose()

    assert made == ["made"] * 8
