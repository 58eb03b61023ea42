"""Answers that wait for the database wait in threads of the store's own, and hold up nothing else in the process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from langgraph.checkpoint.memory import InMemorySaver

from symfonic_interrupts import Interrupts, KeyRing
from symfonic_interrupts.store.threads import STORE_THREADS
from tests.contract.graphs import gate_graph
from tests.harness import CONFIG, KEY, thread

ANSWERS = 2 * STORE_THREADS


@contextmanager
def held_pauses(url: str) -> Iterator[None]:
    """Another process's hold on what an answer writes."""
    if url.startswith("sqlite"):
        other: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    else:
        other = psycopg.connect(url.replace("postgresql+psycopg:", "postgresql:", 1))
        other.execute("SELECT 1 FROM interrupt_pauses FOR UPDATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def test_to_thread_is_free_while_more_answers_wait_for_a_lock_than_the_store_has_threads(
    with_tables: None, store_url: str
) -> None:
    loop, all_wait = asyncio.get_running_loop(), asyncio.Event()
    loop.set_default_executor(ThreadPoolExecutor(STORE_THREADS))  # where the answers waited here, they would fill it
    options: dict[str, Any] = {"connect_args": {"timeout": 30}} if store_url.startswith("sqlite") else {}
    engine = sa.create_engine(store_url, **options)
    interrupts = Interrupts(engine, keys=KeyRing([KEY]), config=CONFIG)
    await interrupts.acreate_schema()
    graph: Any = gate_graph(interrupts).compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
    adapter = interrupts.resume_adapter(graph)
    for number in range(ANSWERS):
        await graph.ainvoke({"log": []}, config=thread(f"t{number}"))
    tokens = [event.pause_token for event in await adapter.apending()]
    assert len(tokens) == ANSWERS
    writing: set[int] = set()

    def hear(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("SELECT"):
            writing.add(id(connection))
            if len(writing) == STORE_THREADS:
                loop.call_soon_threadsafe(all_wait.set)

    sa.event.listen(engine, "before_cursor_execute", hear)
    with held_pauses(store_url):
        answers = [asyncio.create_task(adapter.aanswer(token, {"approved": True})) for token in tokens]
        async with asyncio.timeout(20):
            await all_wait.wait()

        free = asyncio.create_task(asyncio.to_thread(lambda: "done"))
        done, _ = await asyncio.wait({free}, timeout=10)

        still_wait = not any(answer.done() for answer in answers)
    await asyncio.gather(*answers)
    assert (done, still_wait) == ({free}, True)
    await interrupts.aclose()
    engine.dispose()
