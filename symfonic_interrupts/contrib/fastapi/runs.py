"""Answers that come by HTTP and the runs of the graph that follow, in tasks apart from the requests that started them.

A client that disconnects ends neither its answer nor its run. Where the process ends during a run, the answer is stored, and
`recover()` delivers it. What a graph raises is logged with its traceback, without the answer; clients are told only that it
failed.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Literal, TypeVar

import anyio
import anyio.to_thread

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.contrib.fastapi.chunks import Chunks
from symfonic_interrupts.contrib.fastapi.problems import AfterAnswer, GraphFailed
from symfonic_interrupts.contrib.fastapi.shares import Shares, Turns
from symfonic_interrupts.core.results import AnswerReceipt
from symfonic_interrupts.delivering.failed_thread import log_failure
from symfonic_interrupts.delivering.progress import Delivery
from symfonic_interrupts.errors import (
    AnswerUnused,
    CheckpointMissing,
    KeyRingError,
    RegistrationError,
    StoreError,
    ThreadBusy,
    UnknownInterrupt,
    UsageError,
)
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.identity import Identity

log = logging.getLogger("symfonic_interrupts.http")

T = TypeVar("T")
Mode = Literal["auto", "async", "sync"]

CANCEL_WAIT = 2.0
"""Seconds for cancelled runs to release their leases and connections."""

_OUR_OWN = (AnswerUnused, CheckpointMissing, ThreadBusy, StoreError, RegistrationError, KeyRingError)
"""What a delivery itself raises. Any other error, also one of this library, was raised by a node of the graph."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a pause: its token, who answers, and the `Idempotency-Key`, if there is one."""

    token: str
    response: Any
    identity: Identity
    key: str | None

    def __repr__(self) -> str:
        return "Answer()"


class Run:
    """An answer that is being stored, and the run after it.

    Attributes:
        chunks: what the graph streams; None where no client reads it.
        awaited: a request waits for the delivery's result.
        accepted: the receipt, as soon as the answer is stored; or the error that refused it.
        finished: the delivery, or AfterAnswer. None where the answer was refused, or another run delivers it.
    """

    def __init__(self, chunks: Chunks | None, *, awaited: bool) -> None:
        self.chunks = chunks
        self.awaited = awaited
        self.accepted: asyncio.Future[AnswerReceipt] = asyncio.get_running_loop().create_future()
        self.finished: asyncio.Task[Delivery | None]


class Runs:
    """Starts runs and keeps them until they end. For one event loop; the arguments are those of `interrupt_router`."""

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
        # two limits, so that an answer is stored at once however many runs there are
        self._answering, self._running = anyio.CapacityLimiter(threads), anyio.CapacityLimiter(threads)
        self._turns = Turns(adapter.config.lease_wait)
        self._shutdown_wait = shutdown_wait.total_seconds()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, answer: Answer, *, stream: bool = False, awaited: bool = True) -> Run:
        """Store an answer and run the graph with it, in a task that goes on whether or not anybody waits for it.

        Args:
            stream: the graph's chunks are wanted.
            awaited: somebody waits for the delivery. Else it may be left to a run of the thread that has yet to begin.

        Raises:
            TenantBusy: nothing is stored.
        """
        scope = answer.identity.scope
        self._shares.take(scope)
        run = Run(Chunks() if stream else None, awaited=awaited)
        run.accepted.add_done_callback(_mark_as_seen)
        run.finished = asyncio.create_task(self._work(run, answer))
        run.finished.add_done_callback(_mark_as_seen)
        run.finished.add_done_callback(self._tasks.discard)
        run.finished.add_done_callback(lambda _: self._shares.give_back(scope))
        self._tasks.add(run.finished)
        return run

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """The router's lifespan. When the application ends, its runs get `shutdown_wait`; then they are cancelled."""
        yield
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._shutdown_wait)
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # before the store is closed; a run in a thread cannot be cancelled, and is not waited for
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
            raise _after_answer(error, receipt) from None
        finally:
            if run.chunks is not None:
                await run.chunks.end()

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
        """`ResumeAdapter.reissue`, in a thread where the graph's saver is sync."""
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
        if self._is_async is None:
            self._is_async = await self._adapter.runs_async()
        return self._is_async

    @staticmethod
    async def _in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
        # its own limit: a run may take minutes, and would use up the threads of the application's other routes
        return await anyio.to_thread.run_sync(work, limiter=limiter)


def _after_answer(error: Exception, receipt: AnswerReceipt) -> AfterAnswer:
    """Log an error that came after an answer was stored; returns what the client is told."""
    level = logging.INFO if isinstance(error, AnswerUnused | ThreadBusy) else logging.ERROR
    log.log(level, "delivery of %s failed: %s in %s", receipt.interrupt_id, type(error).__name__, _line_of(error))
    if isinstance(error, UsageError):  # of what `run_kwargs` returned: the client can do nothing about it
        error = RegistrationError(f"run_kwargs: {error}")
    if not isinstance(error, _OUR_OWN):
        log_failure(receipt.thread_id, error)
        error = GraphFailed("the answer is stored, but the graph failed; another delivery of the thread tries again")
    return AfterAnswer(error, interrupt_id=receipt.interrupt_id, thread_id=receipt.thread_id)


def _line_of(error: Exception) -> str:
    """File name and line where an error was raised. Its own text may hold anything, so it is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"


def _mark_as_seen(future: asyncio.Future[Any]) -> None:
    """Take a future's error, so that asyncio does not warn where nobody waits for it any more."""
    if not future.cancelled():
        future.exception()
