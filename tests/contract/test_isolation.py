"""With a stricter isolation level on an application's engine, PostgreSQL undoes who comes second: who loses is told so."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from sqlalchemy.ext.asyncio import create_async_engine

from symfonic_interrupts import InterruptError, Interrupts, KeyRing, ResumeAdapter, TokenConsumed
from tests.contract.graphs import gate_graph, open_saver
from tests.harness import CONFIG, KEY, thread

pytestmark = pytest.mark.postgres

REDEEMERS = 16
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%interrupt_%'"


@pytest.fixture(params=["SERIALIZABLE", "REPEATABLE READ"])
async def adapter(
    request: pytest.FixtureRequest, with_tables: None, mode: str, postgres_url: str
) -> AsyncIterator[Any]:
    """An adapter over an engine with this isolation level, which has a connection for every redeemer."""
    options = {"isolation_level": request.param, "pool_size": REDEEMERS}
    with ExitStack() as stack:
        if mode == "sync":
            engine = sa.create_engine(postgres_url, **options)
            interrupts = Interrupts(engine, keys=KeyRing([KEY]), config=CONFIG)
            saver = interrupts.checkpointer(open_saver(stack, postgres_url))
            yield interrupts.resume_adapter(gate_graph(interrupts).compile(checkpointer=saver))
            engine.dispose()
        else:
            aengine = create_async_engine(postgres_url, **options)
            interrupts = Interrupts(aengine, keys=KeyRing([KEY]), config=CONFIG)
            plain = postgres_url.replace("postgresql+psycopg:", "postgresql:", 1)
            async with AsyncPostgresSaver.from_conn_string(plain) as asaver:
                graph = gate_graph(interrupts).compile(checkpointer=interrupts.checkpointer(asaver))
                yield interrupts.resume_adapter(graph)
            await aengine.dispose()


class Lock:
    """Holds the one pause that there is, so that all redeemers have read it before the first can write."""

    def __init__(self, url: str) -> None:
        plain = url.replace("postgresql+psycopg:", "postgresql:", 1)
        self._watching = psycopg.connect(plain, autocommit=True)  # within a transaction it would see no change
        self._holding = psycopg.connect(plain)
        self._holding.execute("SELECT 1 FROM interrupt_pauses FOR UPDATE")

    def release_when_all_wait(self) -> None:
        give_up = time.monotonic() + 20
        with self._watching, self._holding:  # both are closed
            while (waiting := self._watching.execute(WAITING).fetchall()[0][0]) < REDEEMERS:
                assert time.monotonic() < give_up, f"only {waiting} redeemers wait"


def outcome(result: Any) -> str:
    return f"{type(result).__name__}:{result.state}" if isinstance(result, TokenConsumed) else type(result).__name__


def _answer(adapter: ResumeAdapter, token: str, number: int) -> Any:
    try:
        return adapter.answer(token, {"approved": True, "note": str(number)})
    except InterruptError as error:
        return error


def in_threads(adapter: ResumeAdapter, url: str) -> list[Any]:
    """What each redeemer got."""
    adapter.graph.invoke({"log": []}, thread())
    (event,) = adapter.pending()
    with ThreadPoolExecutor(REDEEMERS) as pool:
        lock = Lock(url)
        answers = [pool.submit(_answer, adapter, event.pause_token, number) for number in range(REDEEMERS)]
        lock.release_when_all_wait()
        return [answer.result(40) for answer in answers]


async def as_tasks(adapter: ResumeAdapter, url: str) -> list[Any]:
    """What each redeemer got."""
    await adapter.graph.ainvoke({"log": []}, thread())
    (event,) = await adapter.apending()
    lock = Lock(url)
    answers = [
        asyncio.ensure_future(adapter.aanswer(event.pause_token, {"approved": True, "note": str(number)}))
        for number in range(REDEEMERS)
    ]
    await asyncio.to_thread(lock.release_when_all_wait)
    return await asyncio.gather(*answers, return_exceptions=True)


async def test_of_16_redeemers_of_one_token_one_wins_and_the_others_are_told_that_it_is_used(
    adapter: ResumeAdapter, mode: str, postgres_url: str
) -> None:
    if mode == "sync":
        results = await asyncio.to_thread(in_threads, adapter, postgres_url)
    else:
        results = await as_tasks(adapter, postgres_url)

    assert Counter(map(outcome, results)) == {"AnswerReceipt": 1, "TokenConsumed:answered": REDEEMERS - 1}
    (winner,) = [number for number, result in enumerate(results) if outcome(result) == "AnswerReceipt"]
    delivery = await (asyncio.to_thread(adapter.deliver, "t1") if mode == "sync" else adapter.adeliver("t1"))
    assert delivery.output["log"] == [str(winner)]
