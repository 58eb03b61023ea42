"""What graph tests share: a bench that calls graphs and adapters sync or async, a clock that is set by hand, a few models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import BaseModel

from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, Interrupts, KeyRing, ResumeAdapter
from symfonic_interrupts.events import AnswerEvent, PauseEvent

ACME = FrameworkTenantScope("acme")
KEY = b"a test key of thirty-two bytes.."


class Refund(BaseModel):
    """What is shown."""

    order: str
    amount: int


class Decision(BaseModel):
    """What may be answered."""

    approved: bool
    note: str = ""


class SetClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, step: timedelta) -> None:
        self.now += step


class Bench:
    """Calls the sync or the async twin of a method, so that a test has one body.

    Attributes:
        interrupts: over the test's own database.
        clock: its clock.
    """

    def __init__(
        self, mode: str, store_url: str, interrupts: Interrupts, saver: BaseCheckpointSaver[Any], clock: SetClock
    ):
        self.mode = mode
        self.store_url = store_url
        self.interrupts = interrupts
        self.saver = saver
        self.clock = clock

    async def call(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """`target.method(...)` in a thread, or `await target.amethod(...)`."""
        if self.mode == "async":
            return await getattr(target, "a" + method)(*args, **kwargs)
        return await asyncio.to_thread(getattr(target, method), *args, **kwargs)

    async def collect(self, target: Any, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """All that `target.method(...)` or `target.amethod(...)` yields."""
        if self.mode == "async":
            return [chunk async for chunk in getattr(target, "a" + method)(*args, **kwargs)]
        return await asyncio.to_thread(lambda: list(getattr(target, method)(*args, **kwargs)))

    def compile(self, builder: Any, *, graph: str = "default", **options: Any) -> tuple[Any, ResumeAdapter]:
        """The builder's graph with the wrapped saver, and its adapter."""
        compiled = builder.compile(checkpointer=self.interrupts.checkpointer(self.saver, graph=graph), **options)
        return compiled, self.interrupts.resume_adapter(compiled)

    def rows(self, statement: str = "SELECT name, state FROM interrupt_pauses ORDER BY id") -> list[tuple[Any, ...]]:
        """What a statement finds in the pause store."""
        engine = sa.create_engine(self.store_url)
        try:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.exec_driver_sql(statement)]
        finally:
            engine.dispose()

    def states(self) -> list[str]:
        """The states of all pauses, oldest first."""
        return [state for _, state in self.rows()]

    def refunds(self, name: str = "approval", **options: Any) -> Any:
        """A point with `Refund` and `Decision`."""
        return self.interrupts.register_interrupt(name, payload_schema=Refund, response_schema=Decision, **options)


def thread(thread_id: str = "t1", **configurable: Any) -> dict[str, Any]:
    """The config of a run in tenant `acme`."""
    return {"configurable": {"thread_id": thread_id, "tenant_id": "acme", **configurable}}


def pauses(chunks: list[Any]) -> list[PauseEvent]:
    """The pause events in what a stream yielded, of any shape."""
    return [event for event in events(chunks) if event.type in ("interrupt", "ask_user_question")]


def answers(chunks: list[Any]) -> list[AnswerEvent]:
    """The answer events in what a stream yielded, of any shape."""
    return [event for event in events(chunks) if event.type in ("interrupt_resolved", "ask_user_answered")]


def events(chunks: list[Any]) -> list[Any]:
    """Our events in what a stream yielded, of any shape, in order."""
    found = []
    for chunk in chunks:
        for part in chunk if isinstance(chunk, tuple) else (chunk,):
            if hasattr(part, "interrupt_id"):
                found.append(part)
    return found


CONFIG = FrameworkConfig(experimental_interrupt=True, default_scope=ACME)


@asynccontextmanager
async def open_bench(
    mode: str, store_url: str, tmp_path: Path, config: FrameworkConfig = CONFIG
) -> AsyncIterator[Bench]:
    """A bench; the saver's database is the store's on PostgreSQL, and a file beside it on SQLite."""
    clock = SetClock()
    async with AsyncExitStack() as stack:
        saver: Any
        if store_url.startswith("sqlite"):
            path = str(tmp_path / "checkpoints.db")
            if mode == "async":
                saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
            else:
                saver = stack.enter_context(SqliteSaver.from_conn_string(path))
        else:
            url = store_url.replace("postgresql+psycopg://", "postgresql://", 1)
            if mode == "async":
                saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
                await saver.setup()
            else:
                saver = stack.enter_context(PostgresSaver.from_conn_string(url))
                saver.setup()
        interrupts = Interrupts(store_url, keys=KeyRing([KEY]), config=config, clock=clock)
        interrupts.create_schema()
        stack.callback(interrupts.close)
        yield Bench(mode, store_url, interrupts, saver, clock)
