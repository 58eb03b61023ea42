"""What the killed processes do: an application that runs threads and answers their questions, and one that mends what it left.

A life writes down what it was told, before it goes on: what stands in its journal was acknowledged. Whoever mends starts with
the journal, the checkpoints and the store, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from symfonic_interrupts import FrameworkConfig, Interrupts, Janitor, KeyRing, ResumeAdapter
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.testing import Failpoint, failpoints
from tests.crash.shapes import SHAPES, Points, clock, empty
from tests.harness import ACME, KEY, thread

CONFIG = FrameworkConfig(experimental_interrupt=True, default_scope=ACME)
AHEAD = 2 * CONFIG.lease_ttl
"""How far the clock of the last mender is ahead: nobody has to wait until what the dead began counts as left behind."""

MOST_ROUNDS = 25
WAYS = ("invoke", "stream", "answer", "together")
"""How a life answers: in one with the delivery, each before its delivery, or all before one delivery."""

EXPIRED = sa.text("SELECT interrupt_id FROM interrupt_pauses WHERE graph = :graph AND state = 'expired'")


@dataclass(frozen=True)
class Place:
    """Where and how the threads of one test run; the same for all its processes.

    Attributes:
        store: URL of the pause store.
        checkpoints: PostgreSQL URL, or an SQLite file.
        mode: sync or async.
        durability: LangGraph's.
        directory: of journals and reports.
    """

    store: str
    checkpoints: str
    mode: str
    durability: str
    directory: str

    def arguments(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """One victim: it runs a graph of its own (so that nobody else's recovery touches it) on up to three threads.

    Attributes:
        name: of the graph, the journal and the threads.
        shape: which graph.
        way: how questions are answered.
        at, times: killed when it reaches this failpoint for this time; None: never.
    """

    name: str
    shape: str
    way: str
    at: Failpoint | None = None
    times: int = 0

    @property
    def threads(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(3 if self.at else 1)]


class Journal:
    """What happened, a JSON line each; written through to the disk before it returns."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, what: str, thread_id: str, **more: Any) -> None:
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, (json.dumps({"what": what, "thread": thread_id, **more}) + "\n").encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def noted(self, what: str, thread_id: str) -> list[dict[str, Any]]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        found = [json.loads(line) for line in lines]
        return [entry for entry in found if entry["what"] == what and entry["thread"] == thread_id]


class World:
    """An application: `Interrupts`, a saver and the points, called sync or async."""

    def __init__(self, place: Place, interrupts: Interrupts, saver: Any) -> None:
        self.place = place
        self.interrupts = interrupts
        self._saver = saver
        self._points = Points(interrupts, awaits=place.mode == "async")
        self._engine = sa.create_engine(place.store)

    async def call(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """`target.method(...)`, or `await target.amethod(...)`."""
        if self.place.mode == "sync":
            return getattr(target, method)(*args, **kwargs)
        return await getattr(target, "a" + method)(*args, **kwargs)

    async def exhaust(self, target: Any, method: str, *args: Any, **kwargs: Any) -> None:
        """Read a stream to its end."""
        if self.place.mode == "sync":
            for _ in getattr(target, method)(*args, **kwargs):
                pass
        else:
            async for _ in getattr(target, "a" + method)(*args, **kwargs):
                pass

    def adapter(self, case: Case) -> tuple[ResumeAdapter, Janitor]:
        """The case's graph with the saver, and its janitor."""
        saver = self.interrupts.checkpointer(self._saver, graph=case.name)
        graph = SHAPES[case.shape](self._points).compile(checkpointer=saver)
        durability = {"durability": self.place.durability}
        adapter = self.interrupts.resume_adapter(graph, run_kwargs=lambda thread_id, scope: durability)
        return adapter, self.interrupts.janitor(adapter)

    def expired(self, case: Case) -> list[str]:
        """Interrupt ids of the case's pauses that have lapsed."""
        with self._engine.connect() as connection:
            return list(connection.execute(EXPIRED, {"graph": case.name}).scalars())


@asynccontextmanager
async def world(place: Place, ahead: timedelta = timedelta(0)) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        saver: Any
        if place.checkpoints.startswith("postgresql"):
            url = place.checkpoints.replace("postgresql+psycopg://", "postgresql://", 1)
            if place.mode == "sync":
                saver = stack.enter_context(PostgresSaver.from_conn_string(url))
            else:
                saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
        elif place.mode == "sync":
            saver = stack.enter_context(SqliteSaver.from_conn_string(place.checkpoints))
        else:
            saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(place.checkpoints))
        keys = KeyRing([KEY])
        interrupts = stack.enter_context(
            Interrupts(place.store, keys=keys, config=CONFIG, clock=lambda: clock() + ahead)
        )
        yield World(place, interrupts, saver)


def run(mode: str, work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; in sync mode without an event loop, as nothing is awaited there."""
    if mode == "async":
        asyncio.run(work)
        return
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("sync work awaited something")


# -- a life


def live(ready: Callable[[], object], place: dict[str, Any], case: dict[str, Any]) -> None:
    """A task of the forking process: live a case, until killed."""
    run(place["mode"], _live(Place(**place), Case(**case), ready))


async def _live(place: Place, case: Case, ready: Callable[[], object]) -> None:
    left = case.times

    def reached(at: Failpoint) -> None:
        nonlocal left
        if at == case.at:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async with world(place) as here:
        with failpoints(here.interrupts, reached):
            ready()
            for thread_id in case.threads:
                await _Life(here, case, thread_id).live()


class _Life:
    """One thread's way, from its first run to its end."""

    def __init__(self, here: World, case: Case, thread_id: str) -> None:
        self.here = here
        self.case = case
        self.thread_id = thread_id
        self.adapter, self.janitor = here.adapter(case)
        self.journal = Journal(Path(here.place.directory) / case.name)
        self.durability = here.place.durability
        self.answered = len(self.journal.noted("acknowledged", thread_id))

    async def live(self) -> None:
        self.journal.note("begun", self.thread_id)
        await self.run_graph(empty())
        for _ in range(MOST_ROUNDS):
            if self.case.shape == "overdue":
                await self.here.call(self.janitor, "sweep")
                await self.reissue()
            if not await self.answer(self.case.way):
                break
        else:
            raise AssertionError("a life does not end")

    async def run_graph(self, given: Any) -> None:
        await self.here.call(self.adapter.graph, "invoke", given, thread(self.thread_id), durability=self.durability)
        self.journal.note("ran", self.thread_id)

    async def reissue(self) -> None:
        """Give pauses that nobody answered in time a new time."""
        for interrupt_id in self.here.expired(self.case):
            await self.here.call(self.adapter, "reissue", interrupt_id, ttl=timedelta(hours=1))

    async def pending(self) -> list[PauseEvent]:
        found: list[PauseEvent] = await self.here.call(self.adapter, "pending", thread_id=self.thread_id)
        return found

    async def answer(self, way: str) -> bool:
        """Answer the newest question, or all of them. Returns whether there was one."""
        events = await self.pending()
        for event in events[: None if way == "together" else 1]:
            response = {"approved": True, "note": f"{os.getpid()}.{self.answered}"}
            self.answered += 1
            told = {"order": event.payload["order"], "note": response["note"]}
            if way == "invoke":
                await self.here.call(self.adapter, way, event.pause_token, response, durability=self.durability)
            elif way == "stream":
                await self.here.exhaust(self.adapter, way, event.pause_token, response, durability=self.durability)
            else:
                await self.here.call(self.adapter, "answer", event.pause_token, response)
            self.journal.note("acknowledged", self.thread_id, **told)
        if events and way in ("answer", "together"):
            await self.here.call(self.adapter, "deliver", self.thread_id, durability=self.durability)
        return bool(events)


# -- mending


def mend_early(ready: Callable[[], object], place: dict[str, Any], case: dict[str, Any], seed: int) -> None:
    """A task of the forking process: mend one case at once, while the leases of the dead still hold; to be killed, too."""
    run(place["mode"], _mend(Place(**place), [Case(**case)], ready, random.Random(seed), {}, timedelta(0)))


def mend(ready: Callable[[], object], place: dict[str, Any], cases: list[dict[str, Any]], seed: int) -> None:
    """A task of the forking process: mend all these cases, when no lease of the dead holds any more; report of each."""
    here = Place(**place)
    reports: dict[str, Any] = {}
    run(here.mode, _mend(here, [Case(**case) for case in cases], ready, random.Random(seed), reports, AHEAD))
    (Path(here.directory) / "reports.json").write_text(json.dumps(reports))


async def _mend(
    place: Place,
    cases: list[Case],
    ready: Callable[[], object],
    chance: random.Random,
    reports: dict[str, Any],
    ahead: timedelta,
) -> None:
    async with world(place, ahead) as here:
        ready()
        for case in cases:
            for thread_id in case.threads:
                mending = _Mending(here, case, thread_id, chance)
                if mending.journal.noted("begun", thread_id):
                    await mending.mend()
                    reports[thread_id] = await mending.report()


class _Mending(_Life):
    """One thread, brought to its end by a process that knows nothing of it but what is stored."""

    def __init__(self, here: World, case: Case, thread_id: str, chance: random.Random) -> None:
        super().__init__(here, case, thread_id)
        self.chance = chance
        self.problems: list[str] = []

    async def mend(self) -> None:
        if not self.journal.noted("ran", self.thread_id):
            await self.run_again()
        for _ in range(MOST_ROUNDS):
            deliveries = await self.here.call(self.adapter, "recover")
            swept = await self.here.call(self.janitor, "sweep")
            for delivery in (*deliveries, *swept.deliveries):
                if delivery.error is not None:
                    self.problems.append(f"delivery of {delivery.thread_id}: {delivery.error!r}")
            await self.reissue()
            self.look_for_repeats(await self.pending())
            try:
                if not await self.answer(self.chance.choice((*WAYS, "leave to recovery"))):
                    return
            except Exception as error:
                self.problems.append(f"a token does not work: {error!r}")
        self.problems.append("it does not end")

    async def run_again(self) -> None:
        """What the application does where its own run died: it lets it go on, or begins it where nothing was stored."""
        state = await self.here.call(self.adapter.graph, "get_state", thread(self.thread_id))
        if not state.created_at:
            await self.run_graph(empty())
        elif not await self.pending() and (state.next or state.tasks):
            await self.run_graph(None)

    def look_for_repeats(self, events: list[PauseEvent]) -> None:
        known = {entry["order"] for entry in self.journal.noted("acknowledged", self.thread_id)}
        self.problems += [f"asked again: {e.payload['order']}" for e in events if e.payload["order"] in known]

    async def report(self) -> dict[str, Any]:
        state = await self.here.call(self.adapter.graph, "get_state", thread(self.thread_id))
        return {
            "log": [*state.values.get("log", ()), *state.values.get("below", ())],
            "unfinished": [str(task.name) for task in state.tasks] + list(state.next),
            "problems": self.problems,
        }
