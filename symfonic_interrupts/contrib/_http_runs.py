"""Answers that come by HTTP, and the runs that follow them, apart from the requests that started them.

A client that goes away ends nothing: its answer and its run have tasks of their own. Where a task ends with the process, the
answer is stored, and `recover()` delivers it. What a graph raised is logged with its traceback, as the application's own text;
nothing of an answer is added to it, and no client is told.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Literal, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.contrib._http_problems import AfterAnswer, GraphFailed
from symfonic_interrupts.contrib._http_shares import Shares, Turns
from symfonic_interrupts.core.results import AnswerReceipt
from symfonic_interrupts.delivering.failed_thread import log_failure
from symfonic_interrupts.delivering.progress import Delivery
from symfonic_interrupts.errors import (
    AnswerUnused,
    CheckpointMissing,
    InterruptError,
    KeyRingError,
    RegistrationError,
    StoreError,
    ThreadBusy,
    UnknownInterrupt,
    UsageError,
)
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.scope import FrameworkTenantScope

log = logging.getLogger("symfonic_interrupts.http")

T = TypeVar("T")
Mode = Literal["auto", "async", "sync"]

CHUNKS_AHEAD = 64
"""How far a run may be ahead of a client that reads slowly. It waits for it then."""

PATIENCE = 60.0
"""Seconds that it waits. After that the client gets no more, and the run goes on alone."""

_OUR_OWN = (AnswerUnused, CheckpointMissing, ThreadBusy, StoreError, RegistrationError, KeyRingError)
"""What a delivery itself raises. Other errors, also of this library, come out of the graph's nodes."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is calling.

    Attributes:
        scope: where the caller belongs; from your session, never from the request.
        actor: who answers, in your words, at most 255 characters; recorded. None: not known.
    """

    scope: FrameworkTenantScope
    actor: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, as it came in."""

    token: str
    response: Any
    identity: Identity
    key: str | None

    def __repr__(self) -> str:
        return "Answer()"


class Chunks:
    """What a run streams, on its way to the one client that reads it, if any does."""

    def __init__(self, ahead: int = CHUNKS_AHEAD, patience: float = PATIENCE) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(ahead)
        self._patience = patience
        self._left = False

    async def put(self, chunk: Any) -> None:
        """Pass a chunk on. Does not wait for a client that is gone."""
        if self._left:
            return
        try:
            await asyncio.wait_for(self._queue.put(chunk), self._patience)
        except TimeoutError:
            self.leave()

    def put_all(self, chunks: Iterator[Any]) -> None:
        """Pass all chunks on, from a thread."""
        for chunk in chunks:
            anyio.from_thread.run(self.put, chunk)

    def leave(self) -> None:
        """Nobody reads any more."""
        self._left = True
        while not self._queue.empty():  # so that one who waits for room goes on
            self._queue.get_nowait()
        self._queue.put_nowait(_END)

    async def read(self) -> AsyncGenerator[Any, None]:
        """The chunks, until the run ends."""
        try:
            while (chunk := await self._queue.get()) is not _END:
                yield chunk
        finally:
            self.leave()


_END = object()
CANCEL_WAIT = 2.0
"""Seconds that cancelled runs get to give back what they hold."""


class Run:
    """An answer on its way, and the run after it.

    Attributes:
        accepted: the receipt, as soon as the answer is stored; else why it was refused.
        finished: what the delivery did, or how it failed: AfterAnswer. None where `accepted` failed, or another run delivers.
        awaited: somebody is to be told what the delivery did.
        chunks: what the graph streams, where that was asked for.
    """

    def __init__(self, chunks: Chunks | None, *, awaited: bool) -> None:
        self.awaited = awaited
        self.accepted: asyncio.Future[AnswerReceipt] = asyncio.get_running_loop().create_future()
        self.finished: asyncio.Task[Delivery | None]
        self.chunks = chunks


class Runs:
    """Starts runs and keeps them until they end."""

    def __init__(
        self,
        adapter: ResumeAdapter,
        *,
        mode: Mode,
        stream_mode: Sequence[str],
        run_kwargs: Callable[[str, Identity], Mapping[str, Any]] | None,
        threads: int,
        shares: Shares,
        shutdown_wait: timedelta,
    ) -> None:
        self._adapter = adapter
        self._shares = shares
        self._is_async: bool | None = {"async": True, "sync": False}.get(mode)
        self._stream_mode = list(stream_mode)
        self._run_kwargs = run_kwargs
        # apart: an answer is stored at once, however many runs there are
        self._answering, self._running = anyio.CapacityLimiter(threads), anyio.CapacityLimiter(threads)
        self._turns = Turns(adapter.graph.checkpointer.hub.config.lease_wait)
        self._shutdown_wait = shutdown_wait.total_seconds()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, answer: Answer, *, stream: bool = False, awaited: bool = True) -> Run:
        """Begin with an answer. The run goes on whether or not anybody waits for it.

        Raises:
            TenantBusy: nothing is stored.
        """
        scope = answer.identity.scope
        self._shares.take(scope)
        run = Run(Chunks() if stream else None, awaited=awaited)
        run.accepted.add_done_callback(_seen)
        run.finished = asyncio.create_task(self._work(run, answer))
        run.finished.add_done_callback(_seen)
        run.finished.add_done_callback(self._tasks.discard)
        run.finished.add_done_callback(lambda _: self._shares.give_back(scope))
        self._tasks.add(run.finished)
        return run

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """For the application: at its end, runs that go on get some time. The answers of those that do not end are stored."""
        yield
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._shutdown_wait)
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # the store must not be closed under them; one that stands in a thread cannot be ended
            await asyncio.wait(self._tasks, timeout=CANCEL_WAIT)

    async def _work(self, run: Run, answer: Answer) -> Delivery | None:
        try:
            receipt = await self._answer(answer)
        except asyncio.CancelledError:
            run.accepted.cancel()
            raise
        except Exception as error:
            run.accepted.set_exception(error)
            return None
        run.accepted.set_result(receipt)
        if not run.awaited and self._turns.will_be_run(receipt.thread_id):
            return None
        try:
            async with self._turns.of(receipt.thread_id):
                return await self._deliver(receipt, answer.identity, run.chunks)
        except Exception as error:
            raise _after(error, receipt) from None
        finally:
            if run.chunks is not None:
                await run.chunks.put(_END)

    async def _answer(self, answer: Answer) -> AnswerReceipt:
        adapter, who = self._adapter, answer.identity
        if await self._runs_async():
            return await adapter.aanswer(
                answer.token, answer.response, scope=who.scope, actor=who.actor, idempotency_key=answer.key
            )
        return await self._in_thread(
            lambda: adapter.answer(
                answer.token, answer.response, scope=who.scope, actor=who.actor, idempotency_key=answer.key
            ),
            self._answering,
        )

    async def reissue(self, interrupt_id: str, ttl: timedelta | None, identity: Identity) -> PauseEvent:
        """`ResumeAdapter.reissue`, in the way in which this graph's saver can be read."""
        if await self._runs_async():
            return await self._adapter.areissue(interrupt_id, ttl=ttl, scope=identity.scope)
        return await self._in_thread(
            lambda: self._adapter.reissue(interrupt_id, ttl=ttl, scope=identity.scope), self._answering
        )

    async def _deliver(self, receipt: AnswerReceipt, identity: Identity, chunks: Chunks | None) -> Delivery:
        thread_id, adapter = receipt.thread_id, self._adapter
        kwargs = dict(self._run_kwargs(thread_id, identity)) if self._run_kwargs is not None else {}
        delivery = Delivery(thread_id)
        if chunks is not None:
            kwargs["stream_mode"] = self._stream_mode
            if await self._runs_async():
                async for chunk in adapter.astream_delivery(thread_id, **kwargs):
                    await chunks.put(chunk)
            else:
                await self._in_thread(
                    lambda: chunks.put_all(adapter.stream_delivery(thread_id, **kwargs)), self._running
                )
        elif await self._runs_async():
            delivery = await adapter.adeliver(thread_id, **kwargs)
        else:
            delivery = await self._in_thread(lambda: adapter.deliver(thread_id, **kwargs), self._running)
        if receipt.interrupt_id not in delivery.applied and await self._is_unused(receipt, identity):
            raise AnswerUnused("the answer was accepted and recorded, but the graph finished without using it")
        return delivery

    async def _is_unused(self, receipt: AnswerReceipt, identity: Identity) -> bool:
        try:
            seen = await self._adapter.aview(receipt.interrupt_id, scope=identity.scope, thread_id=receipt.thread_id)
            return seen.state == "unused"
        except UnknownInterrupt:  # purged meanwhile
            return False

    async def _runs_async(self) -> bool:
        """Whether the graph can be run async: its saver says so. LangGraph's sync savers raise NotImplementedError."""
        if self._is_async is None:
            nowhere = {"configurable": {"thread_id": f"no-thread-{uuid.uuid4()}", "checkpoint_ns": ""}}
            try:
                await self._adapter.graph.checkpointer.inner.aget_tuple(nowhere)
            except NotImplementedError:
                self._is_async = False
            else:
                self._is_async = True
        return self._is_async

    @staticmethod
    async def _in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
        # not the server's own pool of threads: a run may take minutes, and would hold up the application's other routes
        return await anyio.to_thread.run_sync(work, limiter=limiter)


def _after(error: Exception, receipt: AnswerReceipt) -> AfterAnswer:
    """What a client is told of an error that came after its answer was stored."""
    level = logging.INFO if isinstance(error, AnswerUnused | ThreadBusy) else logging.ERROR
    log.log(level, "delivery of %s failed: %s in %s", receipt.interrupt_id, type(error).__name__, _place(error))
    told: InterruptError
    if isinstance(error, UsageError):  # of what `run_kwargs` returned: the client can do nothing about it
        error = RegistrationError(f"run_kwargs: {error}")
    if isinstance(error, _OUR_OWN):
        told = error
    else:
        log_failure(receipt.thread_id, error)
        told = GraphFailed("the answer is stored, but the graph failed; another delivery of the thread tries again")
    return AfterAnswer(told, interrupt_id=receipt.interrupt_id, thread_id=receipt.thread_id)


def _place(error: Exception) -> str:
    """Where an error was raised, without its text, which may hold anything."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"


def _seen(task: asyncio.Future[Any]) -> None:
    """Nobody may be left to wait for it; that is no warning."""
    if not task.cancelled():
        task.exception()
