"""What the contract suite runs on: six kinds of store, the rows it writes, and races whose contenders start together."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from symfonic_interrupts import FrameworkTenantScope, KeyRing
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Claim, Event, Operations
from symfonic_interrupts.store.row_mac import seal_row
from symfonic_interrupts.store.rows import PauseRow
from tests.harness import KEY

KEYS = KeyRing([KEY])
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
KINDS = ("url", "engine", "async engine")
ASKED: Event = ("interrupt", {"name": "approval"})


class Store:
    """A `Database` of one kind, used the way its kind is used: an `AsyncEngine` with await, the others in threads.

    Attributes:
        database: the store under test.
        operations: the transactions, with the system's clock.
        url: for looking at the tables from outside.
    """

    def __init__(self, database: Database, url: str) -> None:
        self.database = database
        self.operations = Operations(system_clock)
        self.url = url
        self._observer = sa.create_engine(url)

    async def do(self, body: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`body(connection, ...)` in one transaction."""
        if self.database.async_only:
            return await self.database.arun(body, *args, **kwargs)
        return await asyncio.to_thread(self.database.run, body, *args, **kwargs)

    async def create_schema(self) -> None:
        """Make the tables, as this kind does it."""
        if self.database.async_only:
            await self.database.acreate_schema()
        else:
            self.database.create_schema()

    async def race(self, calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        """All transactions at once: threads, or tasks of an `AsyncEngine`. Their results, in order."""
        if self.database.async_only:
            start = asyncio.Barrier(len(calls))

            async def contend(body: Callable[..., Any], args: tuple[Any, ...]) -> Any:
                async with start:
                    pass
                return await self.database.arun(body, *args)

            results = await asyncio.gather(*(contend(body, args) for body, args in calls), return_exceptions=True)
            for failed in (result for result in results if isinstance(result, BaseException)):
                raise failed  # only now, when nobody uses a connection any more
            return list(results)
        return await asyncio.to_thread(self._race_threads, calls)

    def _race_threads(self, calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        start = threading.Barrier(len(calls))

        def contend(body: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            start.wait(timeout=20)
            return self.database.run(body, *args)

        with ThreadPoolExecutor(len(calls)) as pool:
            return [f.result(timeout=40) for f in [pool.submit(contend, body, args) for body, args in calls]]

    async def open(self, *rows: PauseRow) -> list[PauseRow]:
        """Open these pauses, each with its event row."""
        described = [(row, ASKED) for row in rows]
        opened, _ = await self.do(self.operations.opening.open_pauses, described, reseal)
        return list(opened)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """What a statement finds, seen from another connection."""
        with self._observer.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    def execute(self, statement: str) -> None:
        """Change something by hand."""
        with self._observer.begin() as connection:
            connection.exec_driver_sql(statement)

    def states(self) -> dict[str, str]:
        """The state of every pause, by jti."""
        return dict(self.rows("SELECT jti, state FROM interrupt_pauses"))  # type: ignore[arg-type]

    def event_types(self) -> list[str]:
        """The types of the event rows but those of questions, oldest first."""
        return [
            kind for (kind,) in self.rows("SELECT type FROM interrupt_events WHERE type <> 'interrupt' ORDER BY id")
        ]

    def checked_out(self) -> int:
        """How many connections of the store's own pool are in use."""
        engine: Any = self.database.connections.sync or self.database.connections._async
        return int(engine.pool.checkedout())

    def dispose(self) -> None:
        self._observer.dispose()


@asynccontextmanager
async def open_store(kind: str, url: str) -> AsyncIterator[Store]:
    """A store of one of `KINDS` over the database at `url`, without its tables."""
    if kind == "engine":
        engine = sa.create_engine(url, connect_args=_patience(url))
        _hurry(engine)
        store = Store(Database(engine, clock=system_clock), url)
    elif kind == "async engine":
        aengine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:", 1), connect_args=_patience(url))
        _hurry(aengine.sync_engine)
        store = Store(Database(aengine, clock=system_clock), url)
    else:
        store = Store(Database(url, clock=system_clock), url)
    try:
        yield store
    finally:
        await store.database.aclose()
        if kind == "engine":
            engine.dispose()
        elif kind == "async engine":
            await aengine.dispose()
        store.dispose()


def _patience(url: str) -> dict[str, Any]:
    return {"timeout": 30} if url.startswith("sqlite") else {}


def _hurry(engine: sa.Engine) -> None:
    if (
        engine.dialect.name == "sqlite"
    ):  # an application's engine keeps SQLite's slow journal: no need to wait for disks
        sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF").close())


def wait_until_blocked(url: str, call: Future[Any], statement: str) -> None:
    """Return when a statement like this one waits for another session's lock (PostgreSQL), as `call` is expected to."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE :statement"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    give_up = time.monotonic() + 20
    with engine.connect() as connection:
        while not connection.execute(sa.text(waiting), {"statement": statement}).scalar():
            assert not call.done(), "it did not wait"
            assert time.monotonic() < give_up, "it neither waited nor ended"
            wait([call], timeout=0.05)
    engine.dispose()


_numbers = itertools.count(1)


def checkpoint(number: int) -> str:
    """A checkpoint id; a higher number is a newer one."""
    return f"1f000000-0000-6000-8000-{number:012x}"


def pause_row(*, sealed: bool = True, scope: FrameworkTenantScope | None = None, **changes: Any) -> PauseRow:
    """A pending pause of its own task, open for an hour."""
    number = next(_numbers)
    scope = scope or FrameworkTenantScope("acme")
    now = datetime.now(UTC)
    row = {
        "interrupt_id": f"i-{number:012x}",
        "jti": f"{number:032x}",
        "graph": "default",
        "audience": "symfonic-interrupts/default",
        "name": "approval",
        "thread_id": "t1",
        "checkpoint_id": checkpoint(1),
        "task_id": f"task-{number}",
        "leaf_ns": "",
        "leaf_checkpoint_id": checkpoint(1),
        "leaf_task_id": f"task-{number}",
        "langgraph_id": f"{number:032x}",
        "slot": 0,
        "occurrence": 0,
        "native": False,
        "payload": '{"amount":90,"order":"A1"}',
        "request_hash": "a-request-hash",
        "tenant_id": scope.tenant_id,
        "sub_tenant_id": scope.sub_tenant_id,
        "namespace": scope.namespace,
        "scope_hash": scope.scope_hash,
        "run_id": None,
        "created_at": now,
        "expires_at": now + HOUR,
        "requested_by": None,
        "trace_context": None,
        "votes": None,
        "seal": None,
        "state": "pending",
        "used_at": None,
        "skipped_at": None,
        "confirmed_at": None,
        **changes,
    }
    return seal_row(row, KEYS) if sealed else row


def overdue_row(**changes: Any) -> PauseRow:
    """A pending pause whose time is over."""
    now = datetime.now(UTC)
    return pause_row(**{"created_at": now - HOUR, "expires_at": now - MINUTE, **changes})


def asked_again(row: PauseRow, **changes: Any) -> PauseRow:
    """The same question as a later run asks it: another jti, and whatever else is different."""
    return seal_row({**row, "jti": f"{next(_numbers):032x}", **changes}, KEYS)


def reseal(row: PauseRow) -> PauseRow:
    """The row with a MAC that fits."""
    return seal_row(row, KEYS)


def answer_claim(response: str = '{"approved":true}') -> Claim:
    """The claim that stores an answer."""
    return Claim("answered", "answered", response=response, response_hash="a-hash", receipt="{}", scope_hash="a-scope")


def told(kind: str) -> Callable[[datetime], Event]:
    """What writes an event row of this type."""
    return lambda at: (kind, {"at": at.isoformat()})
