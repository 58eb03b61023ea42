"""The hostile tenant of the load run, in a process of its own: `python -m benchmarks.load_hostile URL`.

In turn, at a steady pace, until its input ends: bodies of 4 MiB and endless ones, large and small ones with garbage tokens,
and repeats of one slow answer. And from the first moment, readers
of the event stream that never read. Prints how often it got which status.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import secrets
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx

TENANT = {"x-tenant": "mallory"}
JSON = {"content-type": "application/json"}
HUGE = b'{"token":"garbage","response":[' + b",".join([b"[]"] * 1_398_000) + b"]}"
LARGE = b'{"token":"garbage","response":{"approved":true,"note":"' + b"x" * 200_000 + b'"}}'
SMALL = b'{"token":"eyJhbGciOiJIUzI1NiJ9.e30.garbage","response":{"approved":true}}'
RESUME = "/resume/approval"
MOST_AT_ONCE = 60


class Hostile:
    """What it sends, and what came back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: Counter[str] = Counter()
        self._client = httpx.AsyncClient(
            base_url=url, headers=TENANT, timeout=60, limits=httpx.Limits(max_connections=MOST_AT_ONCE)
        )
        self._token = ""
        self._held: list[Any] = []  # what is not kept is closed

    async def sit(self, readers: int) -> None:
        """Open so many event streams, and read nothing."""
        address = urlsplit(self.url)
        for _ in range(readers):
            reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1024)
            writer.write(b"GET /events HTTP/1.1\r\nhost: load\r\nx-tenant: mallory\r\n\r\n")
            status = (await reader.readline()).split()[1].decode()
            self.seen[f"silent reader: {status}"] += 1
            self._held.append((reader, writer))

    async def work(self, rate: float, ended: asyncio.Event) -> None:
        """Send at this many requests a second."""
        ways: list[tuple[str, Callable[[], Awaitable[httpx.Response]]]] = [
            ("huge body", lambda: self._post(HUGE)),
            ("repeat", self._repeat),
            ("garbage token", lambda: self._post(SMALL)),
            ("repeat", self._repeat),
            ("large body", lambda: self._post(LARGE)),
            ("repeat", self._repeat),
            ("endless body", lambda: self._post(self._endless())),
            ("repeat", self._repeat),
        ]
        sent: set[asyncio.Task[None]] = set()
        for number, (what, send) in enumerate(itertools.cycle(ways)):
            if ended.is_set():
                break
            if number % 400 == 0:
                await self._new_answer()
            if len(sent) < MOST_AT_ONCE:
                task = asyncio.create_task(self._note(what, send))
                sent.add(task)
                task.add_done_callback(sent.discard)
            await asyncio.sleep(1 / rate)
        await asyncio.gather(*sent)
        await self._client.aclose()

    async def _new_answer(self) -> None:
        order = f"mallory-{secrets.token_hex(8)}"
        await self._client.post("/start", json={"order": order, "slow": 5.0})
        (item,) = (await self._client.get("/pending", params={"thread_id": order})).json()["items"]
        self._token = item["pause_token"]

    async def _post(self, content: Any) -> httpx.Response:
        return await self._client.post(RESUME, content=content, headers=JSON)

    async def _repeat(self) -> httpx.Response:
        body = {"token": self._token, "response": {"approved": True}}
        headers = {"idempotency-key": "k", "prefer": "respond-async"}
        return await self._client.post(RESUME, json=body, headers=headers)

    @staticmethod
    async def _endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65536

    async def _note(self, what: str, send: Callable[[], Awaitable[httpx.Response]]) -> None:
        try:
            answer = str((await send()).status_code)
        except httpx.HTTPError:  # the server has answered, and closed the connection, before all was sent
            answer = "cut off"
        self.seen[f"{what}: {answer}"] += 1


async def main() -> None:
    """Attack until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=40.0)
    parser.add_argument("--readers", type=int, default=200)
    given = parser.parse_args()
    hostile, ended = Hostile(given.url), asyncio.Event()
    await hostile.sit(given.readers)
    print("begun", flush=True)
    working = asyncio.create_task(hostile.work(given.rate, ended))
    await asyncio.to_thread(sys.stdin.read)
    ended.set()
    await working
    for what, count in sorted(hostile.seen.items()):
        print(f"{what}\t{count}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
