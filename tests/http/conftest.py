"""A desk: the service in this process, with clients of several tenants, on the databases and savers of `bench`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi import FastAPI

from symfonic_interrupts.store.schema import leases
from tests.harness import CONFIG, Bench, open_bench
from tests.http.service import Service, client_of, make_app

YES = {"approved": True}


class Desk:
    """The service in this process.

    Attributes:
        app, client: the application, and a client of tenant `acme`.
    """

    def __init__(self, bench: Bench, stack: AsyncExitStack) -> None:
        self.bench = bench
        self.service = Service(bench.interrupts)
        self.graph, self.adapter = bench.compile(self.service.build())
        self._stack = stack
        self.app: FastAPI
        self.client: httpx.AsyncClient

    async def serve(self, **options: Any) -> httpx.AsyncClient:
        """Make the application, with these options of the router."""
        self.app = make_app(self.adapter, **options)
        self.client = await self.client_of("acme")
        return self.client

    async def client_of(self, tenant: str, **headers: str) -> httpx.AsyncClient:
        """A client of this tenant."""
        return await self._stack.enter_async_context(client_of(self.app, **{"x-tenant": tenant, **headers}))

    async def start(self, order: str, *, tenant: str = "acme", **state: Any) -> None:
        """Run the graph until it asks, in a thread named like the order."""
        configurable = {"thread_id": order, "tenant_id": tenant}
        await self.bench.call(
            self.graph, "invoke", {"order": order, "amount": 5, **state}, {"configurable": configurable}
        )

    async def ask(self, order: str, *, client: httpx.AsyncClient | None = None, **state: Any) -> str:
        """Start, and return the token of the question."""
        await self.start(order, **state)
        listed = await (client or self.client).get("/refunds/pending", params={"thread_id": order})
        token: str = listed.json()["items"][0]["pause_token"]
        return token

    async def answer(
        self, token: str, response: Any = YES, *, name: str = "approval", **headers: str
    ) -> httpx.Response:
        """Send an answer, in the body."""
        body = {"token": token, "response": response}
        return await self.client.post(f"/refunds/resume/{name}", json=body, headers=headers)

    async def settled(self) -> None:
        """Wait for what goes on in the background, as an application does at its end."""
        async with self.app.router.lifespan_context(self.app):
            pass

    @contextmanager
    def held(self, *thread_ids: str) -> Iterator[None]:
        """Another worker drives these threads."""
        end = datetime.now(UTC) + timedelta(minutes=5)
        engine = sa.create_engine(self.bench.store_url)
        with engine.begin() as connection:
            rows = [{"graph": "default", "thread_id": one, "owner": "another", "fence": 1} for one in thread_ids]
            connection.execute(leases.insert().values(expires_at=end), rows)
        yield
        with engine.begin() as connection:
            connection.execute(leases.delete())
        engine.dispose()

    def states(self) -> list[str]:
        """The states of all pauses, oldest first."""
        return self.bench.states()


def messages(text: str) -> list[tuple[str, Any]]:
    """The events of a stream, with their data, without comments."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


@pytest.fixture
async def desk(with_tables: None, mode: str, store_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """The service on both databases, with a sync and with an async saver."""
    async with open_desk(mode, store_url, tmp_path) as found:
        yield found


@pytest.fixture
async def one_desk(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """The service on SQLite, async: for what does not depend on the database."""
    async with open_desk("async", sqlite_url, tmp_path) as found:
        yield found


@asynccontextmanager
async def open_desk(mode: str, store_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk that does not wait long for a thread that another worker has."""
    config = replace(CONFIG, lease_wait=timedelta(milliseconds=200))
    async with open_bench(mode, store_url, tmp_path, config) as bench, AsyncExitStack() as stack:
        found = Desk(bench, stack)
        await found.serve()
        yield found
        found.service.gate.set()
        await found.settled()
