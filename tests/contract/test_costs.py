"""What one pause and its answer cost, counted exactly, so that no change adds a statement, a wait or a read unseen.

How each thing is counted stands in `tests/costs.py`. The graph's checkpoints are kept in memory: whatever goes to a database
here is the pause store's. Where a number changes, say why in the changelog, and change the README's table with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from symfonic_interrupts import Interrupts, KeyRing
from tests.costs import DurableCommits, Statements, Wire, synced_commits
from tests.harness import CONFIG, KEY, Bench, Refund, SetClock, thread


class Cost(NamedTuple):
    """What a step costs in the pause store.

    Attributes:
        statements: of SQL, without BEGIN and COMMIT; the same on both databases.
        writing, reading: transactions.
        synced: commits that wait until they are on the disk.
        round_trips: over the wire to PostgreSQL, with BEGIN and COMMIT: one for each statement, two for each transaction that
            writes, none for one that only reads.
    """

    statements: int
    writing: int
    reading: int
    synced: int
    round_trips: int


COSTS = {
    "a run that never pauses": Cost(statements=0, writing=0, reading=0, synced=0, round_trips=0),
    "the run that pauses": Cost(statements=2, writing=1, reading=0, synced=1, round_trips=4),
    "pending": Cost(statements=1, writing=0, reading=1, synced=0, round_trips=1),
    "invoke": Cost(statements=8, writing=2, reading=1, synced=2, round_trips=12),
    "answer": Cost(statements=4, writing=1, reading=1, synced=1, round_trips=6),
    "deliver": Cost(statements=4, writing=2, reading=0, synced=2, round_trips=8),
}

PREPARED = 6
"""After so many runs of a statement psycopg has prepared it on the connection, and runs it in one round trip from then on."""


class State(TypedDict, total=False):
    result: str


class CountingSaver(InMemorySaver):
    """A saver that counts what it is asked to do, sync or async (its async methods call the sync ones)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def get_tuple(self, config: Any) -> Any:
        self.calls["get_tuple"] += 1
        return super().get_tuple(config)

    def put(self, *args: Any) -> Any:
        self.calls["put"] += 1
        return super().put(*args)

    def put_writes(self, *args: Any) -> None:
        self.calls["put_writes"] += 1
        super().put_writes(*args)


def before(state: State) -> dict[str, Any]:
    return {"result": ""}


def asking(gate: Any) -> Any:
    """A graph with a step before the one that asks."""
    builder = StateGraph(State).add_node("before", before).add_node("gate", gate)
    return builder.add_edge(START, "before").add_edge("before", "gate")


class Cycles:
    """Everything that a caller does about one question, again and again."""

    def __init__(self, bench: Bench) -> None:
        self._call = bench.call
        node = bench.refunds().node(payload=lambda state: Refund(order="A", amount=1))
        self._graph, self._adapter = bench.compile(asking(node(lambda state, decision: {"result": "paid"})))
        plain = StateGraph(State).add_node("before", before).add_edge(START, "before")
        self._plain = plain.compile(checkpointer=bench.interrupts.checkpointer(bench.saver, graph="plain"))
        self._threads = 0

    async def run(self, count: Callable[[], int] = int) -> dict[str, int]:
        """All steps. By step, by how much `count()` grew."""
        grown: dict[str, int] = {}

        async def step(name: str, target: Any, method: str, *args: Any) -> Any:
            begun = count()
            result = await self._call(target, method, *args)
            grown[name] = count() - begun
            return result

        await step("a run that never pauses", self._plain, "invoke", {}, self._new_thread())
        await step("the run that pauses", self._graph, "invoke", {}, self._new_thread())
        (event,) = await step("pending", self._adapter, "pending")
        output = await step("invoke", self._adapter, "invoke", event.pause_token, {"approved": True})
        assert output["result"] == "paid"

        await self._call(self._graph, "invoke", {}, self._new_thread())
        (event,) = await self._call(self._adapter, "pending")
        await step("answer", self._adapter, "answer", event.pause_token, {"approved": True})
        delivery = await step("deliver", self._adapter, "deliver", event.thread_id)
        assert delivery.output["result"] == "paid"
        return grown

    def _new_thread(self) -> dict[str, Any]:
        self._threads += 1
        return thread(f"t{self._threads}")


@asynccontextmanager
async def opened(url: str, mode: str, saver: InMemorySaver | None = None) -> AsyncIterator[Bench]:
    """A bench over this store, with checkpoints in memory."""
    interrupts = Interrupts(url, keys=KeyRing([KEY]), config=CONFIG)
    bench = Bench(mode, url, interrupts, saver or InMemorySaver(), SetClock())
    try:
        await bench.call(interrupts, "create_schema")
        yield bench
    finally:
        await interrupts.aclose()


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def column(name: str) -> dict[str, int]:
    """One kind of cost, by step."""
    return {step: getattr(cost, name) for step, cost in COSTS.items()}


@pytest.mark.usefixtures("with_tables")
async def test_a_cycle_takes_exactly_these_statements_and_transactions(store_url: str, mode: str) -> None:
    count = Statements()
    async with opened(store_url, mode) as bench:
        cycles = Cycles(bench)
        await cycles.run()  # the first one looks at the schema's version, too
        with count.counting():
            found = {name: await cycles.run(partial(getattr, count, name)) for name in Cost._fields[:3]}

    assert found == {name: column(name) for name in Cost._fields[:3]}


@pytest.mark.postgres
@pytest.mark.usefixtures("with_tables")
@pytest.mark.parametrize("driver", ["psycopg", "psycopg_async"])
async def test_a_cycle_takes_exactly_these_round_trips_to_postgresql(postgres_url: str, driver: str) -> None:
    mode = "async" if driver == "psycopg_async" else "sync"
    with Wire(postgres_url.replace("+psycopg", f"+{driver}", 1)) as wire:
        async with opened(wire.url, mode) as bench:
            cycles = Cycles(bench)
            for _ in range(PREPARED):
                await cycles.run()
            assert await cycles.run(lambda: wire.round_trips) == column("round_trips")


@pytest.mark.postgres
@pytest.mark.usefixtures("with_tables")
async def test_a_cycle_has_exactly_these_commits_wait_for_postgresqls_log(postgres_url: str, mode: str) -> None:
    count = DurableCommits()
    async with opened(postgres_url, mode) as bench:
        cycles = Cycles(bench)
        await cycles.run()
        with count.counting():
            assert await cycles.run(lambda: count.commits) == column("synced")


async def test_a_cycle_has_exactly_these_commits_synced_to_an_sqlite_file(
    sqlite_url: str, tmp_path: Path, mode: str
) -> None:
    async with opened(sqlite_url, mode) as bench:
        cycles = Cycles(bench)
        await cycles.run()
        assert await cycles.run(lambda: synced_commits(tmp_path / "interrupts.db")) == column("synced")


async def test_a_cycle_asks_the_wrapped_saver_for_exactly_this_much_more_than_langgraph_does(
    sqlite_url: str, mode: str
) -> None:
    ours, natives = CountingSaver(), CountingSaver()

    def gate(state: State) -> dict[str, Any]:
        return {"result": "paid" if interrupt("?") else ""}

    async with opened(sqlite_url, mode, ours) as bench:
        native = asking(gate).compile(checkpointer=natives)
        (asked,) = (await bench.call(native, "invoke", {}, thread()))["__interrupt__"]
        resumed = await bench.call(native, "invoke", Command(resume={asked.id: True}), thread())
        assert resumed["result"] == "paid"
        node = bench.refunds().node(payload=lambda state: Refund(order="A", amount=1))
        graph, adapter = bench.compile(asking(node(lambda state, decision: {"result": "paid"})))
        await bench.call(graph, "invoke", {}, thread())
        (event,) = await bench.call(adapter, "pending")
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True})

    assert {call: ours.calls[call] - natives.calls[call] for call in natives.calls} == {
        "get_tuple": 2,  # to see that the question still stands, and where the thread is when its delivery begins
        "put": 0,
        "put_writes": 0,
    }
