"""A thread stays with its worker for as long as that lives; a worker that lost its hold notices before it writes.

Leases last one second here, by the system's clock. Worker processes are stopped (SIGSTOP) where a failpoint says so, and go
on (SIGCONT) when another worker has finished the thread.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import operator
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
import sqlalchemy as sa
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import FrameworkConfig, Interrupts, KeyRing, ResumeAdapter, ThreadBusy
from symfonic_interrupts.testing import failpoints
from tests.crash.workers import Place
from tests.harness import ACME, KEY, Decision, Refund, thread

PERIOD = timedelta(seconds=1)
SECONDS = 60
LEASES = "SELECT thread_id, owner, fence FROM interrupt_thread_leases"
EVENTS = "SELECT thread_id, type FROM interrupt_events WHERE type <> 'interrupt' ORDER BY id"


class State(TypedDict):
    log: Annotated[list[str], operator.add]


Body = Callable[[Decision], Any]
Where = tuple[str, str, str]
"""The strings of a `Place`: store, checkpoints, file of effects."""


def gate_graph(place: Place, interrupts: Interrupts, in_body: Body | None = None) -> StateGraph[State]:
    """A gate whose body first does what it is given, and a node after it. Both note in the file that they ran."""
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

    def gate(state: State, decision: Decision) -> dict[str, Any]:
        place.note(f"gate:{decision.note}")
        if in_body is not None:
            in_body(decision)
        return {"log": [decision.note]}

    async def agate(state: State, decision: Decision) -> dict[str, Any]:
        place.note(f"gate:{decision.note}")
        assert in_body is not None
        await in_body(decision)
        return {"log": [decision.note]}

    def after(state: State) -> dict[str, Any]:
        place.note(f"after:{state['log'][-1]}")
        return {"log": ["after"]}

    is_async = in_body is not None and asyncio.iscoroutinefunction(in_body)
    body: Any = agate if is_async else gate
    asking = point.node(payload=lambda state: Refund(order="A1", amount=90))(body)
    return StateGraph(State).add_sequence([("gate", asking), ("after", after)]).add_edge(START, "gate")


def config(wait: timedelta = timedelta(seconds=45)) -> FrameworkConfig:
    return FrameworkConfig(experimental_interrupt=True, default_scope=ACME, lease_ttl=PERIOD, lease_wait=wait)


@pytest.fixture
def other(place: Place) -> Iterator[ResumeAdapter]:
    """Another worker on the same thread, with a hub and connections of its own. It waits for three lease periods."""
    with ExitStack() as stack:
        yield place.open_adapter(stack, gate_graph, config=config(3 * PERIOD))


@pytest.fixture
async def open_async(place: Place) -> AsyncIterator[Callable[[Body], Any]]:
    """Opens an async worker whose gate does this in its body."""
    async with AsyncExitStack() as stack:

        async def opened(in_body: Body) -> ResumeAdapter:
            saver: Any
            if place.checkpoints.startswith("postgresql"):
                url = place.checkpoints.replace("postgresql+psycopg://", "postgresql://", 1)
                saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
            else:
                saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(place.checkpoints))
            hub = stack.enter_context(Interrupts(place.store, keys=KeyRing([KEY]), config=config()))
            return hub.resume_adapter(gate_graph(place, hub, in_body).compile(checkpointer=hub.checkpointer(saver)))

        yield opened


def pause(adapter: ResumeAdapter, thread_id: str = "t1") -> str:
    """The token of a new thread."""
    adapter.graph.invoke({"log": []}, thread(thread_id))
    (event,) = adapter.pending(thread_id=thread_id)
    return event.pause_token


def yes(note: str) -> dict[str, Any]:
    return {"approved": True, "note": note}


# -- a long node


def test_a_node_of_more_than_three_lease_periods_stays_with_its_worker(
    place: Place, record: Any, other: ResumeAdapter
) -> None:
    held = []

    def long_work(decision: Decision) -> None:
        held.extend(record(LEASES))
        began = time.monotonic()
        with pytest.raises(ThreadBusy):  # it has waited for three lease periods
            other.deliver("t1")
        assert time.monotonic() - began > 3
        held.extend(record(LEASES))
        assert other.recover() == []

    with ExitStack() as stack:
        holder = place.open_adapter(stack, gate_graph, long_work, config=config())

        result = holder.invoke(pause(holder), yes("go"))

    assert result == {"log": ["go", "after"]}
    check_once(place, record, held)


async def test_an_async_node_of_more_than_three_lease_periods_stays_with_its_worker(
    place: Place, record: Any, other: ResumeAdapter, open_async: Any
) -> None:
    held = []

    async def long_work(decision: Decision) -> None:
        held.extend(record(LEASES))
        with pytest.raises(ThreadBusy):
            await asyncio.to_thread(other.deliver, "t1")
        held.extend(record(LEASES))

    holder = await open_async(long_work)
    token = await asyncio.to_thread(pause, other)

    result = await holder.ainvoke(token, yes("go"))

    assert result == {"log": ["go", "after"]}
    check_once(place, record, held)


def check_once(place: Place, record: Any, held: list[Any]) -> None:
    """One worker held the thread all the time, and each body ran once."""
    (before, after) = held
    assert (before, before[0], before[2]) == (after, "t1", 1)
    assert place.noted() == ["gate:go", "after:go"]
    assert record("SELECT state FROM interrupt_pauses") == [("applied",)]
    assert record(EVENTS) == [("t1", "interrupt_resolved")]
    assert record(LEASES) == []


# -- a worker that stood still


async def test_a_worker_whose_event_loop_stood_still_notices_before_it_writes(
    place: Place, record: Any, other: ResumeAdapter, open_async: Any
) -> None:
    took_over = []

    async def stand_still(decision: Decision) -> None:
        took_over.append(other.deliver("t1"))  # blocks the loop, so nothing renews the lease

    holder = await open_async(stand_still)
    token = await asyncio.to_thread(pause, other)

    with pytest.raises(ThreadBusy, match="lost its hold"):
        await holder.ainvoke(token, yes("go"), durability="sync")  # "async": it notices while the next node runs

    (delivery,) = took_over
    assert (delivery.output, delivery.ran, len(delivery.applied)) == ({"log": ["go", "after"]}, True, 1)
    assert place.noted() == ["gate:go", "gate:go", "after:go"]
    assert other.graph.get_state(thread()).values == {"log": ["go", "after"]}
    assert record("SELECT state FROM interrupt_pauses") == [("applied",)]
    assert record(EVENTS) == [("t1", "interrupt_resolved")]
    assert (record(LEASES), other.recover()) == ([], [])


PLACES = ("lease_taken", "resume_started", "body", "checkpoint_written", "run_ended")
"""Where the worker is stopped, in the order in which it gets there."""

ENDS = {
    "lease_taken": "['lease_taken', 'after']",  # it has read nothing yet, and finds the thread finished
    "resume_started": "ThreadBusy",
    "body": "ThreadBusy",
    "checkpoint_written": "ThreadBusy",
    "run_ended": "['run_ended', 'after']",  # all was written before it was stopped
}
BODIES = {"lease_taken": 1, "resume_started": 1, "body": 2, "checkpoint_written": 1, "run_ended": 1}


def work(where: Where, tokens: dict[str, str], pipe: Any) -> None:
    """A process: answer and deliver each token, standing at the place that it is named after; say how each ended."""
    place = Place(*where)
    here = ""

    def stand(reached: str) -> None:
        if reached == here:
            pipe.send("stands")
            pipe.recv()

    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(place.store, keys=KeyRing([KEY]), config=config()))
        saver = interrupts.checkpointer(place.open_saver(stack))
        graph = gate_graph(place, interrupts, lambda _: stand("body")).compile(checkpointer=saver)
        adapter = interrupts.resume_adapter(graph)
        for here, token in tokens.items():
            with failpoints(interrupts, stand):
                try:
                    end = str(adapter.invoke(token, yes(here), durability="sync")["log"])
                except Exception as error:
                    end = type(error).__name__
            pipe.send(end)


class Stoppable:
    """The process that works, as its test sees it."""

    def __init__(self, process: Any, pipe: Any) -> None:
        self._process = process
        self._pipe = pipe

    def hear(self) -> str:
        assert self._pipe.poll(SECONDS), "the process says nothing"
        heard: str = self._pipe.recv()
        return heard

    def stop(self) -> None:
        """Stop it, and wait until it stands."""
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def say(self, line: str) -> None:
        self._pipe.send(line)


@contextmanager
def working(where: Where, tokens: dict[str, str]) -> Iterator[Stoppable]:
    """A process that works on these tokens; it is gone when the block ends."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=work, args=(where, tokens, its))
    process.start()
    try:
        yield Stoppable(process, mine)
    finally:
        process.kill()  # SIGKILL ends a stopped process, too
        process.join(SECONDS)
        mine.close()
        its.close()


def stands_free(place: Place) -> bool:
    """Whether no transaction is under way: one of a process that stands still would hold up everybody."""
    if place.store.startswith("postgresql"):
        engine = sa.create_engine(place.store)
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(f"{LEASES} FOR UPDATE NOWAIT")
        except sa.exc.OperationalError:
            return False
        finally:
            engine.dispose()
        return True
    for file in (str(sa.make_url(place.store).database), place.checkpoints):
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
    return True


def test_a_stopped_worker_notices_that_its_lease_has_lapsed_and_the_other_one_finishes(
    place: Place, record: Any, other: ResumeAdapter
) -> None:
    tokens = {here: pause(other, here) for here in PLACES}
    with working((place.store, place.checkpoints, place.effects), tokens) as holder:
        for here in PLACES:
            assert holder.hear() == "stands"
            holder.stop()
            while not stands_free(place):  # it renews its lease just now
                holder.go_on()
                holder.stop()

            delivery = other.deliver(here)

            assert delivery.output == {"log": [here, "after"]}
            assert (len(delivery.applied), delivery.unused, delivery.open) == (1, (), ())
            holder.go_on()
            holder.say("go on")
            assert holder.hear() == ENDS[here]

    assert [place.noted().count(f"gate:{here}") for here in PLACES] == [BODIES[here] for here in PLACES]
    assert [other.graph.get_state(thread(here)).values["log"] for here in PLACES] == [
        [here, "after"] for here in PLACES
    ]
    assert [other.graph.get_state(thread(here)).next for here in PLACES] == [()] * len(PLACES)
    assert record("SELECT thread_id, state FROM interrupt_pauses ORDER BY id") == [(here, "applied") for here in PLACES]
    assert record(EVENTS) == [(here, "interrupt_resolved") for here in PLACES]
    assert (record(LEASES), other.recover(), other.pending()) == ([], [], [])
