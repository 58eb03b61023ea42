"""Calls that are cancelled, abandoned or fail at any instant, in a process that lives on: one retry tells what counted.

A retry gives the result, or `TokenConsumed` with a state that says that the answer counted. Either way the thread ends with the
answer in its state once, and nobody waits for a lease that nobody holds any more. 200 calls; 1,000 with `SYMFONIC_LONG=1`.
"""

from __future__ import annotations

import asyncio
import operator
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
import sqlalchemy as sa
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from sqlalchemy.ext.asyncio import create_async_engine

from symfonic_interrupts import FrameworkConfig, Interrupts, KeyRing, TokenConsumed
from tests.crash.conftest import COUNTS
from tests.harness import ACME, KEY, Decision, Refund, thread

CALLS = 336 if os.environ.get("SYMFONIC_LONG") == "1" else 68
"""On each of three kinds of store."""

CONFIG = FrameworkConfig(experimental_interrupt=True, default_scope=ACME)
SECONDS = CONFIG.lease_ttl.total_seconds() / 2
"""A retry takes less, also on a busy machine, unless it waits for a lease to lapse."""

PAUSES = "SELECT state, count(*) FROM interrupt_pauses GROUP BY state"
EVENTS = "SELECT type, count(*) FROM interrupt_events GROUP BY type ORDER BY type"
LEASES = "SELECT thread_id FROM interrupt_thread_leases"
KINDS = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("async engine", marks=pytest.mark.postgres),
]


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class World:
    """One application: a graph of three nodes, the middle one a gate, and its adapter."""

    def __init__(self, interrupts: Interrupts, saver: Any, observer: sa.Engine) -> None:
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

        async def before(state: State) -> State:
            return {"log": ["before"]}

        @point.node(payload=lambda state: Refund(order="A1", amount=1))
        async def gate(state: State, decision: Decision) -> State:
            await asyncio.sleep(0)
            return {"log": [decision.note]}

        async def after(state: State) -> State:
            await asyncio.sleep(0)
            return {"log": ["after"]}

        builder = StateGraph(State).add_sequence([("before", before), ("gate", gate), ("after", after)])
        self.graph: Any = builder.add_edge(START, "before").compile(checkpointer=interrupts.checkpointer(saver))
        self.adapter = interrupts.resume_adapter(self.graph)
        self.usual: dict[str, float] = {}
        self._observer = observer

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self._observer.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    async def token(self, thread_id: str) -> str:
        (event,) = await self.adapter.apending(thread_id=thread_id)
        return event.pause_token


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        saver: Any
        if request.param == "sqlite":
            url: str = request.getfixturevalue("sqlite_url")
            saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")))
        else:
            url = request.getfixturevalue("postgres_url")
            plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
            saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(plain))
        await saver.setup()
        observer = sa.create_engine(url)
        stack.callback(observer.dispose)
        store: Any = url
        if request.param == "async engine":
            store = create_async_engine(url)
            stack.push_async_callback(store.dispose)
        interrupts = Interrupts(store, keys=KeyRing([KEY]), config=CONFIG)
        stack.push_async_callback(interrupts.aclose)
        await interrupts.acreate_schema()
        yield World(interrupts, saver, observer)


# -- what is cancelled, and what its caller does then


class Caller:
    """One thread, and somebody who calls about it and tries again once."""

    def __init__(self, world: World, thread_id: str) -> None:
        self.world = world
        self.thread_id = thread_id
        self.answer = {"approved": True, "note": f"note of {thread_id}"}
        self.token = ""

    async def pause(self) -> None:
        await self.world.graph.ainvoke({"log": []}, thread(self.thread_id))
        self.token = await self.world.token(self.thread_id)

    async def ainvoke(self) -> None:
        await self.world.adapter.ainvoke(self.token, self.answer)

    async def aanswer(self) -> None:
        await self.world.adapter.aanswer(self.token, self.answer)

    async def adeliver(self) -> None:
        await self.world.adapter.adeliver(self.thread_id)

    async def astream(self, most: int = 100) -> None:
        chunks = self.world.adapter.astream(self.token, self.answer, stream_mode=["updates", "custom"])
        try:
            async for _ in chunks:
                most -= 1
                if most == 0:
                    break
        finally:
            await chunks.aclose()

    async def run(self) -> None:
        """The application's own run, from wherever it stands."""
        state = await self.world.graph.aget_state(thread(self.thread_id))
        if not state.interrupts:
            await self.world.graph.ainvoke(None if state.created_at else {"log": []}, thread(self.thread_id))

    async def finish(self, call: str) -> str:
        """Try once more, then do what remains to be done. Returns what the retry said."""
        said = "result"
        try:
            await getattr(self, call)()
        except TokenConsumed as error:
            said = error.state
        if call == "run":
            self.token = await self.world.token(self.thread_id)
            await self.aanswer()
        await self.adeliver()
        return said


CALLED = ("ainvoke", "aanswer", "adeliver", "astream", "run")


async def prepared(world: World, call: str, thread_id: str) -> Caller:
    caller = Caller(world, thread_id)
    if call != "run":
        await caller.pause()
    if call == "adeliver":
        await caller.aanswer()
    return caller


async def cancelled_after(seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
    """Begin the work and cancel it after so long. Whether it was cancelled before it ended."""
    task = asyncio.ensure_future(work())
    await asyncio.wait({task}, timeout=seconds)
    task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        return True
    await task
    return False


async def nothing_runs_any_more() -> None:
    """LangGraph may still be storing what a cancelled run of the application's own has done: wait before it runs again."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=SECONDS)


async def test_calls_cancelled_at_any_instant_are_told_by_one_retry_and_each_answer_counts_once(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(1)
    for call in CALLED:  # once in peace, twice over: the second says how long it takes
        for number in range(2):
            caller = await prepared(world, call, f"{call}-in-peace-{number}")
            begun = time.monotonic()
            await getattr(caller, call)()
            world.usual[call] = time.monotonic() - begun
            await caller.finish(call)
    counts: Counter[str] = Counter()
    for number in range(CALLS):
        call = CALLED[number % len(CALLED)]
        caller = await prepared(world, call, f"t{number}")
        if call == "astream" and chance.random() < 0.5:
            await caller.astream(most=chance.randint(1, 3))
            counts["abandoned"] += 1
        elif await cancelled_after(chance.uniform(0, world.usual[call]), getattr(caller, call)):
            counts["cancelled"] += 1
            if call == "run":
                await nothing_runs_any_more()
        begun = time.monotonic()
        said = await caller.finish(call)
        assert time.monotonic() - begun < SECONDS, f"the retry of {call} waited for the lease of the cancelled call"

        assert said in ("result", "answered", "applied")
        assert said == "result" or call in ("ainvoke", "aanswer", "astream")
        state = await world.graph.aget_state(thread(caller.thread_id))
        assert (state.values, state.tasks) == ({"log": ["before", caller.answer["note"], "after"]}, ())
        counts[f"retry of {call}: {said}"] += 1

    total = CALLS + 2 * len(CALLED)
    assert counts["cancelled"] > CALLS / 4
    assert world.rows(PAUSES) == [("applied", total)]
    assert world.rows(EVENTS) == [("interrupt", total), ("interrupt_resolved", total)]
    assert world.rows(LEASES) == []
    record_property(COUNTS, dict(sorted(counts.items())))


class HeldSaver(AsyncSqliteSaver):
    """A saver whose checkpoints wait, from when it is told to, until it lets them go.

    Attributes:
        stored: ids of the checkpoints that it has stored.
    """

    held = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.stored: list[str] = []

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.held:
            self.begun.set()
            await self.may_go_on.wait()
        stored = await super().aput(config, checkpoint, metadata, new_versions)
        self.stored.append(checkpoint["id"])
        return stored


async def test_a_delivery_that_is_cancelled_while_its_run_ends_writes_nothing_after_it_gave_its_thread_back(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with HeldSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        assert isinstance(saver, HeldSaver)
        observer = sa.create_engine(sqlite_url)
        with Interrupts(sqlite_url, keys=KeyRing([KEY]), config=CONFIG) as interrupts:
            world = World(interrupts, saver, observer)
            caller = await prepared(world, "adeliver", "t1")
            saver.held = True
            delivering = asyncio.ensure_future(world.adapter.adeliver("t1", durability="async"))
            await asyncio.wait_for(saver.begun.wait(), SECONDS)
            done, _ = await asyncio.wait({delivering}, timeout=0.3)
            assert not done, "its nodes have run, and it waits for their checkpoints"

            delivering.cancel()
            await asyncio.wait({delivering}, timeout=0.1)
            saver.may_go_on.set()
            await asyncio.wait({delivering}, timeout=SECONDS)

            assert delivering.cancelled()
            before = list(saver.stored)
            await nothing_runs_any_more()
            assert saver.stored == before
            delivery = await world.adapter.adeliver("t1")
            assert delivery.output == {"log": ["before", caller.answer["note"], "after"]}
            assert (world.rows(PAUSES), world.rows(LEASES)) == ([("applied", 1)], [])
        observer.dispose()


async def test_a_call_that_is_cancelled_while_it_takes_its_thread_does_not_keep_it(
    sqlite_url: str, tmp_path: Path
) -> None:
    impatient = replace(CONFIG, lease_wait=timedelta(0))
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        observer = sa.create_engine(sqlite_url)
        with Interrupts(sqlite_url, keys=KeyRing([KEY]), config=impatient) as interrupts:
            world = World(interrupts, saver, observer)
            caller = await prepared(world, "ainvoke", "t1")
            with observer.connect() as other:
                other.exec_driver_sql("BEGIN IMMEDIATE")
                invoking = asyncio.ensure_future(caller.ainvoke())
                done, _ = await asyncio.wait({invoking}, timeout=0.3)
                assert not done, "it waits for the lock to store the answer and to take the thread"
                invoking.cancel()
                other.exec_driver_sql("ROLLBACK")
            await asyncio.wait({invoking}, timeout=SECONDS)

            assert invoking.cancelled()
            assert world.rows(PAUSES) == [("answered", 1)]
            delivery = await world.adapter.adeliver("t1")
            assert delivery.output == {"log": ["before", caller.answer["note"], "after"]}
            assert world.rows(LEASES) == []
        observer.dispose()


class FailingSaver(AsyncSqliteSaver):
    """A saver that fails once to store the checkpoint of the first step."""

    failed = False

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if metadata["step"] == 1 and not self.failed:
            self.failed = True
            raise OSError("the disk is full")
        return await super().aput(config, checkpoint, metadata, new_versions)


async def test_a_question_of_a_run_that_failed_before_it_was_open_is_not_taken_for_a_swallowed_one(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with FailingSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        observer = sa.create_engine(sqlite_url)
        with Interrupts(sqlite_url, keys=KeyRing([KEY]), config=CONFIG) as interrupts:
            world = World(interrupts, saver, observer)
            with pytest.raises(OSError, match="the disk is full"):
                await world.graph.ainvoke({"log": []}, thread("t1"), durability="async")
            await world.graph.ainvoke(None, thread("t1"))

            result = await world.adapter.ainvoke(await world.token("t1"), {"approved": True, "note": "yes"})

            assert result == {"log": ["before", "yes", "after"]}
            assert world.rows(EVENTS) == [("interrupt", 1), ("interrupt_resolved", 1)]
        observer.dispose()
