"""Behind a PgBouncer in transaction mode, `prepare_threshold=0` (or None) in the URL leaves nothing bound to a session.

Debian's package `pgbouncer` is not among what CI must have: where it is not installed these tests are skipped, there too.
"""

from __future__ import annotations

import asyncio
import operator
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, StateGraph
from psycopg.rows import dict_row

from symfonic_interrupts import FrameworkConfig, Interrupts, KeyRing, TokenConsumed
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from tests.contract.pgbouncer import NOTHING, SESSIONS, find_program, left_in_sessions, running_pgbouncer
from tests.harness import ACME, KEY, Decision, Refund, thread

pytestmark = pytest.mark.postgres

CONFIG = FrameworkConfig(experimental_interrupt=True, default_scope=ACME, lease_ttl=timedelta(seconds=1))
HOUR = timedelta(hours=1)
LEASE = "SELECT expires_at FROM interrupt_thread_leases"
DEFAULT = Decision(approved=False, note="default")
POINTS: dict[str, dict[str, Any]] = {"plain": {"ttl": HOUR}, "defaulted": {"ttl": HOUR, "on_expire": DEFAULT}}
WORKERS = 6
THREADS = 8


@pytest.fixture
def pooled_url(postgres_url: str) -> Iterator[str]:
    """The URL, for psycopg, of a PgBouncer in front of this test's schema."""
    program = find_program()
    if program is None:
        pytest.skip("PgBouncer is not installed (Debian's package: pgbouncer)")
    with running_pgbouncer(program, postgres_url) as url:
        yield url


class State(TypedDict):
    ask: str
    log: Annotated[list[str], operator.add]


class Worker:
    """One worker's hub, store connections, saver and graph, called sync or async, all through the PgBouncer."""

    def __init__(self, mode: str, interrupts: Interrupts, saver: Any) -> None:
        self.mode = mode
        self.interrupts = interrupts
        self.ran: list[str] = []
        self.body: Any = lambda: None
        builder = StateGraph(State)
        for name, options in POINTS.items():
            point = interrupts.register_interrupt(name, payload_schema=Refund, response_schema=Decision, **options)
            builder.add_node(name, point.node(payload=lambda state: Refund(order="A1", amount=90))(self._body))
        builder.add_conditional_edges(START, lambda state: state["ask"], ["plain", "defaulted"])
        self.graph = builder.compile(checkpointer=interrupts.checkpointer(saver))
        self.adapter = interrupts.resume_adapter(self.graph)
        self.janitor = interrupts.janitor(self.adapter)

    def _body(self, state: State, decision: Decision) -> dict[str, Any]:
        self.body()
        self.ran.append(decision.note)
        return {"log": [decision.note]}

    async def call(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.mode == "async":
            return await getattr(target, "a" + method)(*args, **kwargs)
        return await asyncio.to_thread(getattr(target, method), *args, **kwargs)

    async def ask(self, thread_id: str, ask: str = "plain") -> Any:
        """The event of a new paused thread."""
        output = await self.call(self.graph, "invoke", {"ask": ask, "log": []}, thread(thread_id))
        assert "__interrupt__" in output
        (event,) = await self.call(self.adapter, "pending", thread_id=thread_id)
        return event


@asynccontextmanager
async def open_worker(mode: str, url: str, threshold: str) -> AsyncIterator[Worker]:
    """A worker over the PgBouncer at `url`."""
    driver = "postgresql+psycopg_async:" if mode == "async" else "postgresql+psycopg:"
    store = url.replace("postgresql:", driver, 1) + f"&prepare_threshold={threshold}"
    options: Any = {"autocommit": True, "prepare_threshold": None, "row_factory": dict_row}
    async with AsyncExitStack() as stack:
        saver: Any
        if mode == "async":
            saver = AsyncPostgresSaver(
                await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, **options))
            )
        else:
            saver = PostgresSaver(stack.enter_context(psycopg.Connection.connect(url, **options)))
        interrupts = await stack.enter_async_context(Interrupts(store, keys=KeyRing([KEY]), config=CONFIG))
        worker = Worker(mode, interrupts, saver)
        await worker.call(interrupts, "create_schema")
        await (saver.setup() if mode == "async" else asyncio.to_thread(saver.setup))
        yield worker


def yes(note: str) -> dict[str, Any]:
    return {"approved": True, "note": note}


def until_the_lease_was_renewed(url: str) -> None:
    """Return when another end stands in the one lease that there is."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        first = connection.execute(LEASE).fetchall()
        assert len(first) == 1
        for _ in range(1000):
            if connection.execute(LEASE).fetchall() != first:
                return
            threading.Event().wait(0.01)
    raise AssertionError("it was not renewed")


@pytest.mark.parametrize("threshold", ["0", "None"])
async def test_every_call_works_and_leaves_nothing_in_a_session(mode: str, threshold: str, pooled_url: str) -> None:
    async with open_worker(mode, pooled_url, threshold) as worker:
        call, adapter = worker.call, worker.adapter
        start = await call(adapter, "event_cursor")

        result = await call(adapter, "invoke", (await worker.ask("invoked")).pause_token, yes("invoked"))
        assert result["log"] == ["invoked"]

        await call(adapter, "answer", (await worker.ask("delivered")).pause_token, yes("delivered"))
        assert (await call(adapter, "deliver", "delivered")).output["log"] == ["delivered"]

        await call(adapter, "answer", (await worker.ask("recovered")).pause_token, yes("recovered"))
        worker.body = lambda: until_the_lease_was_renewed(pooled_url)
        assert [delivery.thread_id for delivery in await call(adapter, "recover")] == ["recovered"]
        worker.body = lambda: None

        swept = await worker.ask("swept", "defaulted")
        await call(adapter, "reissue", swept.interrupt_id, ttl=timedelta(seconds=1))
        closed: list[str] = []
        while not closed:  # until a second is over on the database's clock
            closed = [event.thread_id for event in (await call(worker.janitor, "sweep")).events]
        assert closed == ["swept"]

        revoked = await worker.ask("revoked")
        await call(adapter, "revoke", revoked.interrupt_id, reason="a mistake")
        with pytest.raises(TokenConsumed):
            await call(adapter, "answer", revoked.pause_token, yes("revoked"))

        assert await call(adapter, "failed") == []
        told = await call(adapter, "events", after=start, limit=100)
        assert worker.ran == ["invoked", "delivered", "recovered", "default"]
        assert Counter(event.type for event in told) == {
            "interrupt": 5,
            "interrupt_resolved": 4,  # the default answer is one
            "interrupt_reissued": 1,
            "interrupt_expired": 1,
            "interrupt_revoked": 1,
        }
    assert left_in_sessions(pooled_url) == [NOTHING] * SESSIONS


async def test_of_many_workers_at_once_one_answers_each_question_and_one_runs_it(mode: str, pooled_url: str) -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(open_worker(mode, pooled_url, "0")) for _ in range(WORKERS)]
        asked = [await workers[n % WORKERS].ask(f"t{n}") for n in range(THREADS)]

        async def work(number: int) -> list[str]:
            worker, found = workers[number], []
            for event in asked:
                try:
                    await worker.call(worker.adapter, "answer", event.pause_token, yes(event.thread_id))
                    found.append(event.thread_id)
                except TokenConsumed:
                    pass
                await worker.call(worker.adapter, "deliver", event.thread_id)
            await worker.call(worker.adapter, "recover")
            await worker.call(worker.janitor, "sweep")
            return found

        won = await asyncio.gather(*map(work, range(WORKERS)))

        everybody = [event.thread_id for event in asked]
        assert sorted(thread_id for found in won for thread_id in found) == everybody
        assert sorted(note for worker in workers for note in worker.ran) == everybody
    assert left_in_sessions(pooled_url) == [NOTHING] * SESSIONS


def test_without_it_the_sessions_keep_a_setting(pooled_url: str) -> None:
    """So the other tests would see one."""
    database = Database(pooled_url, clock=system_clock)
    database.create_schema()
    database.close()

    found = left_in_sessions(pooled_url)

    assert (0, 0, 0, False, ["lock_timeout=30000"]) in found
