"""A real server process: fifty clients of five tenants at once, connections that break, logs, and the end of the process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.conftest import YES, messages

ROOT = Path(__file__).parents[2]
TENANTS = ["acme", "globex", "initech", "umbrella", "wonka"]
WAYS: list[dict[str, str]] = [{}, {"accept": "text/event-stream"}, {"prefer": "respond-async"}]


class Server:
    """A uvicorn process on a free port of this machine."""

    def __init__(self, store_url: str, folder: Path) -> None:
        command = [sys.executable, "-m", "uvicorn", "--factory", "tests.http.service:app", "--port", "0"]
        environment = {**os.environ, "STORE": store_url, "CHECKPOINTS": str(folder / "checkpoints.db")}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self.url = ""
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._up.wait(60), "the server did not start"
        assert self.url, "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"running on (http://[0-9.]+:[0-9]+)", line):
                self.url = found[1]
                self._up.set()
        self._up.set()

    def client(self, tenant: str) -> httpx.AsyncClient:
        """A client with connections of its own."""
        return httpx.AsyncClient(base_url=self.url, headers={"x-tenant": tenant}, timeout=60)

    def stop(self) -> str:
        """End it as an operator does. Its log."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return "".join(self.lines)


@pytest.fixture
def server(store_url: str, tmp_path: Path) -> Iterator[Server]:
    """A server: on SQLite with an async saver, on PostgreSQL with a sync one."""
    found = Server(store_url, tmp_path)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
        found.stop()


async def lines_of(response: httpx.Response) -> AsyncIterator[str]:
    """The blocks of a stream, one by one."""
    block = ""
    async for line in response.aiter_lines():
        block += line + "\n"
        if not line:
            yield block
            block = ""


async def follow(client: httpx.AsyncClient, cursor: str, count: int) -> tuple[list[tuple[str, str]], set[str]]:
    """Read so many events, from a new connection after every third.

    Returns type and thread of each event, and whose they are.
    """
    seen: list[tuple[str, str]] = []
    tenants: set[str] = set()
    while len(seen) < count:
        async with client.stream("GET", "/refunds/events", headers={"last-event-id": cursor}) as response:
            assert response.status_code == 200
            most = min(len(seen) + 3, count)
            async for block in lines_of(response):
                for kind, data in messages(block):
                    cursor = data["cursor"]
                    seen.append((kind, data["thread_id"]))
                    tenants.add(data["scope"]["tenant_id"])
                if len(seen) >= most:
                    break
    return seen, tenants


async def cursor_of(client: httpx.AsyncClient) -> str:
    """Where a stream that is opened now begins."""
    async with client.stream("GET", "/refunds/events") as response:
        async for block in lines_of(response):
            if found := re.search("^id: (.+)$", block, re.MULTILINE):
                return found[1]
    raise AssertionError("the stream ended")


async def ask(client: httpx.AsyncClient, thread_id: str, **state: Any) -> str:
    """Start a thread; its token."""
    started = await client.post(f"/start/{thread_id}", json={"order": thread_id, "amount": 5, **state})
    assert started.status_code == 200, started.text
    (item,) = (await client.get("/refunds/pending", params={"thread_id": thread_id})).json()["items"]
    token: str = item["pause_token"]
    return token


async def test_fifty_clients_of_five_tenants_each_get_their_own_and_each_answer_counts_once(server: Server) -> None:
    clients = {f"{TENANTS[number % 5]}-{number}": server.client(TENANTS[number % 5]) for number in range(50)}
    followers = {tenant: server.client(tenant) for tenant in TENANTS}
    cursors = {tenant: await cursor_of(client) for tenant, client in followers.items()}
    following = {tenant: asyncio.create_task(follow(followers[tenant], cursors[tenant], 30)) for tenant in TENANTS}

    async def work(number: int, thread_id: str, client: httpx.AsyncClient) -> tuple[list[int], int, set[str]]:
        token = tokens[thread_id] = await ask(client, thread_id)
        everybody.append(thread_id)
        if len(everybody) == 50:
            all_asked.set()
        await all_asked.wait()
        listed = {item["thread_id"] for item in (await client.get("/refunds/pending")).json()["items"]}
        theirs = tokens[list(clients)[(number + 1) % 50]]  # of the next tenant
        refused = await client.post("/refunds/resume/approval", json={"token": theirs, "response": YES})
        body = {"token": token, "response": YES}
        way = WAYS[number % 3]
        both = [client.post("/refunds/resume/approval", json=body, headers=headers) for headers in (way, {})]
        return sorted(reply.status_code for reply in await asyncio.gather(*both)), refused.status_code, listed

    tokens: dict[str, str] = {}
    everybody: list[str] = []
    all_asked = asyncio.Event()
    results = await asyncio.gather(*(work(number, *one) for number, one in enumerate(clients.items())))
    told = {tenant: await task for tenant, task in following.items()}
    for thread_id in clients:  # waits for whoever drives it
        await followers["acme"].post(f"/deliver/{thread_id}")
    runs = (await followers["acme"].post("/gate")).json()
    for client in (*clients.values(), *followers.values()):
        await client.aclose()

    for thread_id, (statuses, refused, listed) in zip(clients, results, strict=True):
        assert statuses[0] in (200, 202)
        assert statuses[1] == 409
        assert refused == 403
        assert {one.split("-")[0] for one in listed} <= {thread_id.split("-")[0]}
    assert runs == dict.fromkeys(clients, 1)
    for tenant, (seen, tenants) in told.items():
        threads = sorted(thread_id for thread_id in clients if thread_id.startswith(tenant))
        assert tenants == {tenant}
        assert sorted(seen) == sorted((kind, one) for kind in KINDS for one in threads)
    log = server.stop()
    assert "eyJ" not in log
    assert "Traceback" not in log


KINDS = ("interrupt", "interrupt_resolved", "interrupt_refused")
"""Asked, answered, and tried once from another tenant."""


async def test_a_connection_that_breaks_in_the_middle_of_a_stream_loses_nothing(server: Server) -> None:
    async with server.client("acme") as client:
        token = await ask(client, "acme-1", then="wait")
        cursor = await cursor_of(client)

        async with client.stream(
            "POST",
            "/refunds/resume/approval",
            json={"token": token, "response": YES},
            headers={"accept": "text/event-stream"},
        ) as response:
            first = await anext(lines_of(response))
        await client.post("/gate")
        seen, _ = await follow(client, cursor, 1)

        assert messages(first)[0][0] == "accepted"
        assert seen == [("interrupt_resolved", "acme-1")]
        await client.post("/deliver/acme-1")
        again = await client.post("/refunds/resume/approval", json={"token": token, "response": YES})
        assert (again.status_code, again.json()["state"]) == (409, "applied")
        assert (await client.post("/gate")).json() == {"acme-1": 1}


async def test_a_body_without_end_ends_its_connection(server: Server) -> None:
    async def body() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65536

    async with asyncio.timeout(60), server.client("acme") as client:
        try:
            reply = await client.post(
                "/refunds/resume/approval", content=body(), headers={"content-type": "application/json"}
            )
            assert (reply.status_code, reply.json()["code"]) == (413, "body_too_large")
        except (httpx.WriteError, httpx.ReadError):
            pass  # closed while the client was still sending
        assert (await client.get("/refunds/pending")).status_code == 200
    log = server.stop()
    assert "Traceback" not in log


async def test_a_token_in_a_url_does_not_reach_the_access_log(server: Server) -> None:
    async with server.client("acme") as client:
        token = await ask(client, "acme-1")
        addresses = [
            f"/refunds/pending?token={token}",
            f"/refunds/resume/approval?a=1&t={token}",
            f"/refunds/pending/{token}",
            f"/refunds/resume/{token}",
        ]

        replies = [await client.request(method, one) for one in addresses for method in ("GET", "HEAD", "POST")]

    assert {reply.status_code for reply in replies} == {400}
    log = server.stop()
    assert log.count(" 400 ") == 12
    assert token not in log
    assert "eyJ" not in log


async def test_an_open_stream_does_not_hold_up_the_end_of_the_server(server: Server) -> None:
    async with server.client("acme") as client, client.stream("GET", "/refunds/events") as response:
        assert "id: " in await anext(lines_of(response))

        log = await asyncio.to_thread(server.stop)

    assert server.process.returncode in (0, -signal.SIGTERM)
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
