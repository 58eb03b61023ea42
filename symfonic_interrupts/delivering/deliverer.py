"""Delivering: drive a thread's graph with its stored answers. The only code that resumes a graph.

One worker at a time drives a thread, under its lease. It resumes on the thread alone and strictly, with all stored answers of a
task at once, and goes on until the planner has nothing left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.drift import tool_nodes
from symfonic_interrupts.core.delivery_run import DeliveryRun
from symfonic_interrupts.core.effects import Effects, Emit, ReadState, transact
from symfonic_interrupts.core.hub import DELIVERY_RUN, SCOPE, TENANT_KEYS, Hub
from symfonic_interrupts.core.lease import Held, StopRenewing, take_lease
from symfonic_interrupts.core.rows import open_events
from symfonic_interrupts.delivering.drive import Drive
from symfonic_interrupts.delivering.evidence import head_id
from symfonic_interrupts.delivering.failed_thread import FailedThread, failed_thread
from symfonic_interrupts.delivering.progress import (
    Delivery,
    Progress,
    breakpoints_of,
    custom_chunk,
    with_breakpoints,
)
from symfonic_interrupts.errors import StoreError, ThreadBusy, UsageError
from symfonic_interrupts.saver.saver import InterruptSaver
from symfonic_interrupts.store.operations import Failure


class Deliverer:
    """Drives the threads of one graph."""

    def __init__(self, hub: Hub, graph: Any, saver: InterruptSaver) -> None:
        self._hub = hub
        self.graph = graph
        self._saver = saver
        self._side_by_side = tool_nodes(graph)

    def deliver(
        self,
        thread_id: str,
        graph_kwargs: dict[str, Any],
        *,
        held: Held | None = None,
        recovering: bool = False,
        by_itself: bool = False,
        crashed: bool = False,
        on_failure: Callable[[FailedThread], object] = bool,
    ) -> Effects[Delivery]:
        """Drive one thread.

        Args:
            graph_kwargs: for the graph's own call; `config` may be among them.
            held: the thread's lease, where the caller has taken it.
            recovering: do not wait for a thread that another worker drives; implies `by_itself`.
            by_itself: no caller asked for this delivery: a thread that failed is left alone.
            crashed: the thread is known to be unfinished.
            on_failure: called with what was stored of a failure, before the failure is raised.

        Raises:
            CheckpointMissing, ThreadBusy, StoreError: and whatever the graph raises.
        """
        self._hub.database.check_open()
        thread_id = str(thread_id)  # as LangGraph does
        kwargs = self.check_kwargs(graph_kwargs, thread_id)
        by_itself = by_itself or recovering
        wait = self._hub.config.lease_wait * (0 if recovering else 1)
        take = take_lease(self._hub, self._saver.graph, thread_id, wait, breakpoints_of(kwargs))
        keeper, rows = held or (yield from take)
        self._hub.failpoint("lease_taken")
        if by_itself and keeper.lease.failed:  # it failed after it was listed
            yield from transact(self._hub.operations.leasing.end_lease, keeper.lease, clean=False)
            return Delivery(thread_id)
        kwargs = with_breakpoints(kwargs, keeper.lease.breakpoints)
        progress = Progress(rows)
        run = DeliveryRun(keeper, self._side_by_side)
        drive = Drive(self._hub, self.graph, self._saver, thread_id, kwargs, run, progress, by_itself=by_itself)
        ending = Ending(run, progress)
        try:
            with ending:
                yield from drive.go(crashed=crashed or keeper.lease.taken_over)
        finally:
            failure = yield from self._end(thread_id, drive, run, progress, ending)
            if failure is not None:
                on_failure(failure)
            self._hub.failpoint("lease_released")
        return (yield from self._report(thread_id, kwargs, progress))

    def _end(
        self, thread_id: str, drive: Drive, run: DeliveryRun, progress: Progress, ending: Ending
    ) -> Effects[FailedThread | None]:
        """End the lease, and store the failure of the drive, if it had one."""
        checkpoint_id: str | None = None
        failure: Failure | None = None
        try:
            yield from StopRenewing(run.lease)
            if ending.clean and progress.ran and not progress.over:
                checkpoint_id = yield from head_id(thread_id)
            if ending.clean and (progress.raised is not None or progress.failure is not None):
                failure = yield from drive.failure()
        except asyncio.CancelledError:
            ending.clean = False
            raise
        finally:
            failed_at: datetime | None = None
            if not progress.over:
                failed_at = yield from transact(
                    self._hub.operations.leasing.end_lease,
                    run.lease.lease,
                    clean=ending.clean,
                    used=sorted(run.used),
                    checkpoint_id=checkpoint_id,
                    failure=failure,
                )
        return failed_thread(thread_id, failed_at, failure) if failure is not None and failed_at is not None else None

    def check_kwargs(self, graph_kwargs: dict[str, Any], thread_id: str | None = None) -> dict[str, Any]:
        """The keyword arguments of the graph's call, unchanged. Raises UsageError where a delivery cannot be made with them."""
        if thread_id is not None and not thread_id:
            raise UsageError("thread_id must be a non-empty string")
        configurable = dict((graph_kwargs.get("config") or {}).get("configurable") or {})
        refused = [
            key for key in (*TENANT_KEYS, "checkpoint_id", "checkpoint_ns", SCOPE, DELIVERY_RUN) if key in configurable
        ]
        if refused:
            raise UsageError(
                f"config['configurable'][{refused[0]!r}] must not be given here: a pause is resumed in its own scope, at the"
                " thread's newest checkpoint"
            )
        if thread_id is not None and str(configurable.get("thread_id", thread_id)) != thread_id:
            raise UsageError("config['configurable']['thread_id'] is another thread than the one to deliver")
        if unknown := {"input", "resume"} & graph_kwargs.keys():
            raise UsageError(f"{min(unknown)!r} must not be given here: the stored answers are what is sent")
        if unknown := {"scope", "actor", "token", "response"} & graph_kwargs.keys():
            raise UsageError(
                f"{min(unknown)!r} must not be given here: a stored answer runs in the scope of its pause, which was checked"
                " when it was answered"
            )
        return graph_kwargs

    # -- the result

    def _report(self, thread_id: str, kwargs: dict[str, Any], progress: Progress) -> Effects[Delivery]:
        """What this delivery did. Where it ran nothing, the open pauses are emitted as a run would have done."""
        standing = [row for row in progress.rows if row["state"] == "pending" and not row["overdue"]]
        pauses = open_events(self._hub, standing)
        output = progress.output
        if not progress.ran:
            for event in pauses:
                if (chunk := custom_chunk(self.graph, kwargs, event)) is not None:
                    yield from Emit(chunk)
            state = yield from ReadState({"configurable": {"thread_id": thread_id}})
            output = names.with_interrupts(state.values, state.interrupts)
        ended = dict(progress.ended)
        if unknown := [jti for jti in progress.ids if jti not in ended]:
            ended.update((yield from transact(self._hub.operations.reading.states_of, unknown)))
        return Delivery(
            thread_id,
            output,
            applied=tuple(sorted(progress.ids[jti] for jti, state in ended.items() if state == "applied")),
            unused=tuple(sorted(progress.ids[jti] for jti, state in ended.items() if state == "unused")),
            open=tuple(pauses),
            ran=progress.ran,
        )


class Ending:
    """How a drive ended: cleanly, if it ended by itself or by what the graph itself raised.

    Attributes:
        clean: the thread's lease row need not stay as a sign that something is unfinished.
    """

    def __init__(self, run: DeliveryRun, progress: Progress) -> None:
        self._run = run
        self._progress = progress
        self.clean = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.clean = True
        elif isinstance(error, Exception) and not isinstance(error, StoreError | ThreadBusy):
            failed_as_before = (
                error is not self._progress.raised and not self._progress.ran and self._run.lease.lease.failed
            )
            self.clean = not self._run.lease.failed and not failed_as_before
