"""Whoever sends much, or holds on to much, takes nothing from others: bodies, repeats of one key, open streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.http.conftest import YES, Desk, open_desk
from tests.http.service import make_app
from tests.http.test_problems import RESUME, check

JSON = {"content-type": "application/json"}
LATER = {"prefer": "respond-async"}
LONG_NOTE = {"approved": True, "note": "x" * 100_000}


# -- bodies


async def test_a_large_body_without_a_genuine_token_is_not_even_parsed(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1")
    no_json = b" " * 20_000

    forged = await one_desk.client.post(RESUME, content=b'{"token": "forged"' + no_json, headers=JSON)
    missing = await one_desk.client.post(RESUME, content=b"{" + no_json, headers=JSON)
    genuine = await one_desk.client.post(RESUME, content=f'{{"token": "{token}"'.encode() + no_json, headers=JSON)
    inspected = await one_desk.client.post("/refunds/inspect", content=b'{"token": "forged"' + no_json, headers=JSON)

    check(forged, 401, "token_invalid")
    check(missing, 401, "token_missing")
    check(genuine, 400, "body_malformed")
    check(inspected, 401, "token_invalid")


@pytest.mark.parametrize(
    "order", ["first", "last", "bearer", "bearer beside a field of that name", "after others of that name"]
)
async def test_a_large_answer_with_a_genuine_token_is_taken(one_desk: Desk, order: str) -> None:
    token = await one_desk.ask("A-1")
    bodies: dict[str, dict[str, Any]] = {
        "first": {"token": token, "response": LONG_NOTE},
        "last": {"response": LONG_NOTE, "token": token},
        "bearer": {"response": LONG_NOTE},
        "bearer beside a field of that name": {"response": {**LONG_NOTE, "token": "mine"}},
        "after others of that name": {"response": {**LONG_NOTE, "token": "mine"}, "token": token},
    }
    bearer = {"authorization": f"Bearer {token}"} if "bearer" in order else {"authorization": "Bearer of.the.session"}

    reply = await one_desk.client.post(RESUME, json=bodies[order], headers=bearer)

    assert (reply.status_code, reply.json().get("output", {}).get("result")) == (200, "paid")


async def test_a_body_is_not_read_beyond_the_limit(one_desk: Desk) -> None:
    sent: list[int] = []

    async def body() -> AsyncIterator[bytes]:
        for number in range(100):
            sent.append(number)
            yield b" " * 64 * 1024

    unknown = await one_desk.client.post(RESUME, content=body(), headers=JSON)
    of_unknown_length = list(sent)
    sent.clear()
    known = await one_desk.client.post(RESUME, content=body(), headers={**JSON, "content-length": str(6_400 * 1024)})

    check(unknown, 413, "body_too_large")
    check(known, 413, "body_too_large")
    assert (unknown.headers["connection"], known.headers["connection"]) == ("close", "close")
    assert (of_unknown_length, sent) == ([0, 1, 2, 3, 4], [])


async def test_a_body_that_is_somewhat_too_large_keeps_its_connection(one_desk: Desk) -> None:
    reply = await one_desk.client.post(RESUME, content=b" " * 300_000, headers=JSON)

    check(reply, 413, "body_too_large")
    assert "connection" not in reply.headers


async def test_the_limit_of_a_body_is_a_setting(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1")
    largest = len(json.dumps({"token": token, "response": YES}, separators=(",", ":")))
    for limit, status in ((largest - 1, 413), (largest, 200)):
        await one_desk.serve(max_request_bytes=limit)
        assert (await one_desk.answer(token)).status_code == status


@pytest.mark.parametrize(
    ("response", "status", "code"),
    [
        ([[]] * 10_000, 413, "body_too_large"),
        ([0] * 10_001, 413, "body_too_large"),
        ({str(number): 0 for number in range(10_001)}, 413, "body_too_large"),
        ([[0] * 9_000], 422, "response_invalid"),
        (json.loads("[" * 100 + "]" * 100), 400, "body_malformed"),
        (json.loads("[" * 90 + "]" * 90), 422, "response_invalid"),
    ],
    ids=["lists", "numbers", "keys", "many", "deep", "less deep"],
)
async def test_values_and_nesting_of_a_body_are_limited_and_the_token_stays(
    one_desk: Desk, response: Any, status: int, code: str
) -> None:
    token = await one_desk.ask("A-1")

    check(await one_desk.answer(token, response), status, code)

    assert (await one_desk.answer(token)).status_code == 200


@pytest.mark.parametrize("note", ['[,{"' * 20_000, '\\",[[' * 5_000, "\\" * 9_999, '"'], ids=str)
async def test_a_text_that_looks_like_many_values_is_a_text(one_desk: Desk, note: str) -> None:
    token = await one_desk.ask("A-1")

    reply = await one_desk.answer(token, {"approved": True, "note": note})

    assert (reply.status_code, reply.json()["output"]["result"]) == (200, "paid")


# -- runs


@asynccontextmanager
async def patient_desk(url: str, folder: Path, mode: str) -> AsyncIterator[Desk]:
    """A desk that waits for a busy thread for longer than any test does."""
    async with open_desk(mode, url, folder) as desk:
        hub = desk.bench.interrupts._hub
        hub.config = replace(hub.config, lease_wait=timedelta(minutes=10))
        yield desk


async def test_repeats_of_one_slow_answer_take_nobody_elses_slot(sqlite_url: str, tmp_path: Path) -> None:
    async with patient_desk(sqlite_url, tmp_path, "sync") as desk, asyncio.timeout(60):
        await desk.serve(mode="sync", threads=2)
        globex = await desk.client_of("globex", **{"idempotency-key": "k", **LATER})
        await desk.start("G-1", tenant="globex", then="wait")
        slow = (await globex.get("/refunds/pending")).json()["items"][0]["pause_token"]
        body = {"token": slow, "response": YES}
        replies = [await globex.post(RESUME, json=body) for _ in range(12)]
        assert await asyncio.to_thread(desk.service.waiting.wait, 20)

        mine = await desk.answer(await desk.ask("A-1"))

        assert (mine.status_code, mine.json()["output"]["result"]) == (200, "paid")
        assert [reply.status_code for reply in replies] == [202] * 12
        desk.service.gate.set()
        await desk.settled()
        assert (desk.states(), desk.service.runs) == (["applied", "applied"], {"G-1": 1, "A-1": 1})


async def test_whoever_waited_too_long_for_a_thread_is_told_and_the_answer_stays(one_desk: Desk) -> None:
    tokens = [await one_desk.ask("A-1", then="wait")]
    headers = {"idempotency-key": "k"}
    first = asyncio.create_task(one_desk.answer(tokens[0], **headers))
    assert await asyncio.to_thread(one_desk.service.waiting.wait, 20)

    again = await one_desk.answer(tokens[0], **headers)
    one_desk.service.gate.set()

    document = check(again, 429, "thread_busy")
    assert (document["answer_stored"], again.headers["retry-after"]) == (True, "5")
    assert (await first).status_code == 200
    assert one_desk.service.runs == {"A-1": 1}


async def test_a_tenant_has_so_many_answers_under_way_and_further_ones_are_not_stored(desk: Desk) -> None:
    await desk.serve(runs_per_tenant=2)
    slow = [await desk.ask(order, then="wait") for order in ("A-1", "A-2")]
    token = await desk.ask("A-3")
    globex = await desk.client_of("globex")
    await desk.start("G-1", tenant="globex")
    theirs = (await globex.get("/refunds/pending")).json()["items"][0]["pause_token"]
    for one in slow:
        assert (await desk.answer(one, **LATER)).status_code == 202

    refused = [await desk.answer(token, **way) for way in ({}, LATER, {"accept": "text/event-stream"})]
    other = await globex.post(RESUME, json={"token": theirs, "response": YES})
    looked = await desk.client.post("/refunds/inspect", json={"token": token})
    desk.service.gate.set()
    await desk.settled()
    at_last = await desk.answer(token)

    for reply in refused:
        document = check(reply, 429, "tenant_busy")
        assert (reply.headers["retry-after"], "answer_stored" in document) == ("5", False)
    assert (other.status_code, looked.json()["state"], at_last.status_code) == (200, "pending", 200)


async def test_an_answer_that_is_refused_leaves_its_place_to_the_next(one_desk: Desk) -> None:
    await one_desk.serve(runs_per_tenant=1)
    token = await one_desk.ask("A-1")

    refused = [await one_desk.answer(token, {"approved": "perhaps"}) for _ in range(3)]

    assert [reply.status_code for reply in refused] == [422] * 3
    assert (await one_desk.answer(token)).status_code == 200


# -- streams


class Reader:
    """A client of `/events` that reads nothing after the first message, as the server sees it."""

    def __init__(self, desk: Desk, tenant: str = "acme") -> None:
        self.status = 0
        self._begun, self._left = asyncio.Event(), asyncio.Event()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/refunds/events",
            "raw_path": b"/refunds/events",
            "query_string": b"",
            "headers": [(b"host", b"test"), (b"x-tenant", tenant.encode())],
        }
        self._task = asyncio.ensure_future(desk.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._begun.set()

    async def begun(self) -> int:
        """The status of the response, as soon as there is one."""
        async with asyncio.timeout(20):
            await self._begun.wait()
        return self.status

    async def leave(self) -> None:
        """Close the connection, and wait until the server has noticed."""
        self._left.set()
        await self._task


async def test_a_tenant_has_so_many_streams_open_and_each_that_ends_makes_room(one_desk: Desk) -> None:
    await one_desk.serve(streams_per_tenant=2, longest_stream=timedelta(minutes=5))
    open_ones = [Reader(one_desk), Reader(one_desk)]
    assert [await reader.begun() for reader in open_ones] == [200, 200]

    refused = await one_desk.client.get("/refunds/events")
    looked = await one_desk.client.head("/refunds/events")
    globex = Reader(one_desk, "globex")
    of_globex = await globex.begun()
    await open_ones[0].leave()
    third = Reader(one_desk)
    room = await third.begun()
    for reader in (open_ones[1], globex, third):
        await reader.leave()

    document = check(refused, 429, "tenant_busy")
    assert (refused.headers["retry-after"], "2 streams" in document["detail"]) == ("5", True)
    assert (looked.status_code, of_globex, room) == (200, 200, 200)


async def test_a_stream_that_is_refused_or_left_at_once_keeps_no_place(one_desk: Desk) -> None:
    await one_desk.serve(streams_per_tenant=1, longest_stream=timedelta(0))
    for _ in range(3):
        check(await one_desk.client.get("/refunds/events?after=0-1"), 400, "cursor_invalid")
    for _ in range(3):
        await Reader(one_desk).leave()

    assert (await one_desk.client.get("/refunds/events")).status_code == 200


@pytest.mark.parametrize("option", ["max_request_bytes", "runs_per_tenant", "streams_per_tenant", "threads"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
async def test_a_limit_that_is_none_is_refused_when_the_router_is_made(one_desk: Desk, option: str, value: Any) -> None:
    with pytest.raises(Exception, match=f"{option} must be a whole number, at least 1"):
        make_app(one_desk.adapter, **{option: value})
