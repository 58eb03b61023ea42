"""The store of a contract test: the test runs once for every kind, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.stores import KINDS, Store, open_store


@pytest.fixture(params=KINDS)
async def bare_store(request: pytest.FixtureRequest, store_url: str) -> AsyncIterator[Store]:
    """A store of every kind over a database without tables."""
    async with open_store(request.param, store_url) as store:
        yield store


@pytest.fixture
async def store(with_tables: None, bare_store: Store) -> Store:
    """A store of every kind, with its tables (SQLite makes them by itself)."""
    if bare_store.database.dialect == "postgresql":
        await bare_store.create_schema()
    return bare_store


@pytest.fixture
async def url_store(with_tables: None, store_url: str) -> AsyncIterator[Store]:
    """A store made from a URL, with its tables: for what does not depend on the kind."""
    async with open_store("url", store_url) as store:
        store.database.create_schema()
        yield store
