"""What a run streams reaches the client that reads it, and nothing else; a client that does not read holds up no run."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import anyio.to_thread
import pytest
from fastapi import FastAPI
from langgraph.graph import START, StateGraph

from symfonic_interrupts import FrameworkTenantScope, InterruptEvent
from symfonic_interrupts.contrib.fastapi.chunks import Chunks
from symfonic_interrupts.contrib.fastapi.sse import chunk_message
from tests.harness import ACME, Bench, Refund
from tests.http.conftest import YES, Desk
from tests.http.service import client_of, make_app

GLOBEX = FrameworkTenantScope("globex")


async def test_chunks_of_a_thread_come_in_order_and_it_waits_for_its_reader() -> None:
    chunks = Chunks(ahead=2)
    passed: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10):
            passed.append(number)
            yield number

    writing = asyncio.create_task(anyio.to_thread.run_sync(chunks.put_all, numbers()))
    async with asyncio.timeout(10), aclosing(chunks.read()) as reading:
        first = await anext(reading)
        ahead = len(passed)
        rest = [await anext(reading) for _ in range(9)]
        await writing

    assert [first, *rest] == list(range(10))
    assert ahead <= 5


async def test_a_run_goes_on_when_its_reader_leaves_in_the_middle() -> None:
    chunks = Chunks(ahead=1)
    reading = chunks.read()
    writing = asyncio.create_task(_put(chunks, 100))
    first = await anext(reading)

    await reading.aclose()

    async with asyncio.timeout(10):
        await writing
    assert first == 0


async def test_a_reader_that_does_not_read_is_left_and_told_the_end() -> None:
    chunks = Chunks(ahead=1, patience=0.01)

    async with asyncio.timeout(10):
        await _put(chunks, 100)
        found = [chunk async for chunk in chunks.read()]

    assert found == []


async def test_a_question_of_another_scope_is_not_streamed(one_desk: Desk) -> None:
    await one_desk.start("A-1")
    (event,) = await one_desk.adapter.apending(scope=ACME)

    shapes: list[Any] = [("custom", event), ((), "custom", event), {"type": "custom", "ns": (), "data": event}]

    assert isinstance(event, InterruptEvent)
    for chunk in shapes:
        message = chunk_message(chunk, ACME)
        assert message is not None
        assert (message.event, json.loads(str(message.data))["pause_token"]) == ("interrupt", event.pause_token)
        assert chunk_message(chunk, GLOBEX) is None


async def test_other_chunks_are_named_by_their_stream_mode() -> None:
    for chunk in (("updates", {"a": 1}), (("sub:1",), "updates", {"a": 1}), {"type": "updates", "data": {"a": 1}}):
        message = chunk_message(chunk, ACME)
        assert message is not None
        assert bytes(message.encode()) == b'event: updates\r\ndata: {"a":1}\r\n\r\n'


async def test_an_application_with_the_router_waits_for_its_runs_at_its_end(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1", then="wait")
    app: FastAPI = make_app(one_desk.adapter, shutdown_wait=timedelta(seconds=20))
    body = {"token": token, "response": YES}

    async with app.router.lifespan_context(app), client_of(app, **{"x-tenant": "acme"}) as client:
        await client.post("/refunds/resume/approval", json=body, headers={"prefer": "respond-async"})
        assert await asyncio.to_thread(one_desk.service.waiting.wait, 20)
        asyncio.get_running_loop().call_later(0.1, one_desk.service.gate.set)

    assert one_desk.states() == ["applied"]


async def test_a_run_that_does_not_end_in_time_is_recovered_by_another_process(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1", then="wait")
    app: FastAPI = make_app(one_desk.adapter, shutdown_wait=timedelta(0))
    body = {"token": token, "response": YES}
    tasks = asyncio.all_tasks()

    async with app.router.lifespan_context(app), client_of(app, **{"x-tenant": "acme"}) as client:
        await client.post("/refunds/resume/approval", json=body, headers={"prefer": "respond-async"})
        assert await asyncio.to_thread(one_desk.service.waiting.wait, 20)
    assert asyncio.all_tasks() == tasks
    at_its_end = one_desk.states()
    one_desk.service.gate.set()

    one_desk.bench.clock.move(timedelta(minutes=1))
    await one_desk.adapter.arecover()

    assert (at_its_end, one_desk.states()) == (["answered"], ["applied"])


@pytest.mark.parametrize("given", ["async", "sync"])
async def test_the_mode_may_be_said(one_desk: Desk, given: str) -> None:
    await one_desk.serve(mode=given)
    token = await one_desk.ask("A-1")

    assert (await one_desk.answer(token)).json()["output"]["result"] == "paid"


async def test_an_adapter_says_whether_its_graph_runs_async_and_shows_its_settings(desk: Desk) -> None:
    assert await desk.adapter.runs_async() is (desk.bench.mode == "async")
    assert desk.adapter.config is desk.bench.interrupts.config


async def _put(chunks: Chunks, count: int) -> None:
    for number in range(count):
        await chunks.put(number)


async def test_answers_that_come_while_their_thread_runs_are_delivered_by_one_more_run(bench: Bench) -> None:
    gate, inside = threading.Event(), threading.Event()
    point = bench.refunds()

    def node(name: str) -> Any:
        def ask(state: dict[str, Any]) -> dict[str, Any]:
            point.pause(Refund(order=name, amount=1))
            if name == "a":
                inside.set()
                assert gate.wait(30), "nobody opened the gate"
            return {}

        return ask

    builder: Any = StateGraph(dict)
    for name in "abcd":
        builder.add_node(name, node(name)).add_edge(START, name)
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {}, {"configurable": {"thread_id": "t1", "tenant_id": "acme"}})
    tokens = {event.payload["order"]: event.pause_token for event in await bench.call(adapter, "pending", scope=ACME)}
    app = make_app(adapter)

    async with app.router.lifespan_context(app), client_of(app, **{"x-tenant": "acme"}) as client:
        for name in "abcd":
            body = {"token": tokens[name], "response": YES}
            reply = await client.post("/refunds/resume/approval", json=body, headers={"prefer": "respond-async"})
            assert reply.status_code == 202
            if name == "a":
                assert await asyncio.to_thread(inside.wait, 20)
        gate.set()

    assert bench.states() == ["applied"] * 4
