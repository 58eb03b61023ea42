"""Delivering: drive a thread's graph with its stored answers. The only code that resumes a graph.

One worker at a time drives a thread, under its lease. It resumes on the thread alone and strictly, with all stored answers of a
task at once, and goes on until the planner has nothing left to do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from langgraph.errors import UnknownInterruptError, is_invalid_resume
from langgraph.types import Command

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.drift import tool_nodes
from symfonic_interrupts.asking.envelope import seal
from symfonic_interrupts.asking.plain_interrupts import Sent
from symfonic_interrupts.core.checkpoints import read_tasks
from symfonic_interrupts.core.effects import Effects, Emit, ReadState, RunGraph, transact
from symfonic_interrupts.core.hub import LEASE, SCOPE, TENANT_KEYS, Hub
from symfonic_interrupts.core.lease import Held, Keep, LeaseKeeper, StopKeeping, take_lease
from symfonic_interrupts.core.rows import open_events, scope_of, stored_answer, used_answer_event
from symfonic_interrupts.delivering.evidence import (
    Outlook,
    Standing,
    checkpoint_at,
    head_id,
    id_of,
    leaves_of,
    left_behind,
    look,
    used_before,
)
from symfonic_interrupts.delivering.failed_thread import FailedThread, Raised, failed_thread
from symfonic_interrupts.delivering.planner import Plan, plan
from symfonic_interrupts.delivering.progress import (
    Delivery,
    Progress,
    breakpoints_of,
    custom_chunk,
    jtis_of,
    native_values,
    with_breakpoints,
)
from symfonic_interrupts.errors import CheckpointMissing, RegistrationError, StoreError, ThreadBusy
from symfonic_interrupts.saver.saver import InterruptSaver
from symfonic_interrupts.store.operations import Failure
from symfonic_interrupts.store.rows import PauseRow, PauseWithAnswer


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
            recovering: leave threads that are being driven alone; implies `by_itself`.
            by_itself: nobody asked for this delivery: leave threads that failed alone.
            crashed: the thread is known to be unfinished.
            on_failure: is told what is kept of a failure, before it is raised.

        Raises:
            CheckpointMissing, ThreadBusy, StoreError: and whatever the graph raises.
        """
        self._hub.database.check_open()
        thread_id = str(thread_id)  # as LangGraph does
        kwargs = self.check_kwargs(graph_kwargs, thread_id)
        wait = self._hub.config.lease_wait * (0 if recovering else 1)
        take = take_lease(self._hub, self._saver.graph, thread_id, wait, breakpoints_of(kwargs))
        keeper, rows = held or (yield from take)
        self._hub.failpoint("lease_taken")
        keeper.side_by_side = self._side_by_side
        progress = Progress(rows)
        by_itself = by_itself or recovering
        if by_itself and keeper.lease.failed:  # meanwhile: it is not looked for
            yield from transact(self._hub.operations.leasing.end_lease, keeper.lease, clean=False)
            return Delivery(thread_id)
        clean = False
        try:
            kwargs = with_breakpoints(kwargs, keeper.lease.breakpoints)
            crashed = crashed or keeper.lease.taken_over
            yield from self._drive(thread_id, kwargs, keeper, progress, by_itself=by_itself, crashed=crashed)
            clean = True
        except Exception as error:
            # what the graph itself raises is an end like any other; what the store or the lease raises is not
            clean = not keeper.failed and not isinstance(error, StoreError | ThreadBusy)
            if error is not progress.raised and not progress.ran and keeper.lease.failed:
                clean = False  # it was not tried again, and has failed as before
            raise
        finally:
            at = failure = None
            try:
                yield StopKeeping(keeper)
                if clean and progress.ran and not progress.over:
                    at = yield from head_id(thread_id)
                if clean and (progress.raised is not None or progress.failure is not None):
                    failure = yield from self._failure(thread_id, kwargs, keeper, progress)
            except asyncio.CancelledError:
                clean = False
                raise
            finally:
                if not progress.over:
                    end = self._hub.operations.leasing.end_lease
                    used = sorted(keeper.used)
                    failed_at = yield from transact(
                        end, keeper.lease, clean=clean, used=used, checkpoint_id=at, failure=failure
                    )
                    if failure is not None and failed_at is not None:
                        on_failure(failed_thread(thread_id, failed_at, failure))
            self._hub.failpoint("lease_released")
        return (yield from self._report(thread_id, kwargs, progress))

    # -- driving

    def _drive(
        self,
        thread_id: str,
        kwargs: dict[str, Any],
        keeper: LeaseKeeper,
        progress: Progress,
        *,
        by_itself: bool,
        crashed: bool,
    ) -> Effects[None]:
        tried: set[str] = set()
        head = yield from checkpoint_at(thread_id)
        while True:
            if head is None:
                # the answers stay: this may be the wrong saver, and the right one can still deliver them
                raise CheckpointMissing(
                    "the thread has no checkpoint in this graph's saver: it was deleted, or this is not the saver or the"
                    " graph that asked; its answers stay stored"
                )
            at = str(head.config["configurable"]["checkpoint_id"])
            if any(row["checkpoint_id"] < at for row in progress.rows):
                used = yield from used_before(at, progress.rows)
                changed = yield from transact(
                    self._hub.operations.settling.advance, self._saver.graph, thread_id, at, used=used
                )
                progress.note_ends(changed)
                progress.rows = yield from transact(
                    self._hub.operations.reading.load_thread, self._saver.graph, thread_id
                )
            facts = yield from self._facts(head, progress, frozenset(tried), retry_failed=not by_itself)
            step = plan(**facts, crashed=False)
            outlook = None
            if step.proceed or (crashed and not progress.ran):
                sending = [row for together in step.resume.values() for row in together]
                outlook = yield from self._look(thread_id, kwargs, head, progress.rows, sending)
                if crashed and outlook.work:
                    step = plan(**facts, crashed=True)
            if outlook is not None:
                if by_itself and outlook.failed:
                    step.resume, step.proceed = {}, False
                    progress.failure = Raised.kept(*outlook.failed[0])
                elif outlook.at_breakpoint and not outlook.failed:
                    step.proceed = False
            yield from self._settle(thread_id, progress, jtis_of(step.applied), jtis_of(step.unused))
            if not step.resume and not step.proceed:
                if step.homeless:
                    raise RegistrationError(
                        f"no task of the graph took the answer to {step.homeless[0]['interrupt_id']}: the node that asked was"
                        " renamed or removed; the answer stays stored until that node is back or the thread goes on"
                    )
                return
            answers = [row for together in step.resume.values() for row in together]
            tried.update(jtis_of(answers))
            keeper.brought.update(jtis_of(answers))
            keeper.rows = progress.rows
            # of one that a node took before it was cut off, it is told already
            keeper.sent.update(row["jti"] for row in answers if row["used_at"] is None)
            for row in progress.rows:
                if row["state"] == "answered" and not row["native"]:
                    keeper.expected.setdefault(row["leaf_task_id"], set()).add(row["jti"])
            config = yield from self._config(thread_id, kwargs, keeper, answers or progress.rows)
            if not progress.ran:
                if keeper.lease.failed:
                    yield from transact(self._hub.operations.leasing.try_again, keeper.lease)
                yield Keep(keeper)
            progress.ran = True
            graph_kwargs = {key: value for key, value in kwargs.items() if key != "config"}
            command = self._command(thread_id, step, keeper)
            self._hub.failpoint("resume_started")
            keeper.check()  # LangGraph would refuse answers that another worker has delivered, in words of its own
            keeper.reached = None
            try:
                progress.output = yield from RunGraph(command, config, graph_kwargs)
            except Exception as error:
                # those are LangGraph's refusals of what was sent: no node went on with it
                if not (is_invalid_resume(error) or isinstance(error, UnknownInterruptError)):
                    progress.raised = error
                raise
            self._hub.failpoint("run_ended")
            # a run that stored no checkpoint asks again where it stood; or the thread was moved on, or deleted, meanwhile
            head = None if keeper.reached else (yield from checkpoint_at(thread_id))
            place = keeper.reached or id_of(head)
            if place is None:
                continue
            conclude = self._hub.operations.leasing.conclude
            found = yield from transact(conclude, keeper.lease, place, list(progress.ids), sorted(keeper.used))
            progress.rows, progress.over = found.rows, found.over
            progress.ended.update(found.states)
            progress.note_ends(found.moved)  # also answers that came while the run went on without them
            self._hub.failpoint("applied_marked")
            if progress.over:
                return
            head = head or (yield from checkpoint_at(thread_id))

    def _facts(
        self, head: Any, progress: Progress, tried: frozenset[str], *, retry_failed: bool
    ) -> Effects[dict[str, Any]]:
        """What the planner decides by, but for what a run that died has left."""
        answered = [row for row in progress.rows if row["state"] == "answered"]
        progress.ids.update((row["jti"], row["interrupt_id"]) for row in answered)
        tasks = read_tasks(head.pending_writes)
        leaves = yield from leaves_of(answered, {("", head.config["configurable"]["checkpoint_id"]): tasks})
        return {
            "head": tasks,
            "leaves": leaves,
            "answered": answered,
            "native_values": native_values(answered),
            "tried": tried,
            "may_proceed": not progress.ran,
            "retry_failed": retry_failed,
            "left": (yield from left_behind(answered, leaves, tasks)),
        }

    def _look(
        self,
        thread_id: str,
        kwargs: dict[str, Any],
        head: Any,
        rows: list[PauseWithAnswer],
        sending: list[PauseWithAnswer],
    ) -> Effects[Outlook]:
        ended = yield from transact(
            self._hub.operations.reading.ended_natives, self._saver.graph, thread_id, str(id_of(head))
        )
        return (yield from look(self.graph, thread_id, kwargs, head, Standing.of(rows, ended, sending)))

    def _failure(
        self, thread_id: str, kwargs: dict[str, Any], keeper: LeaseKeeper, progress: Progress
    ) -> Effects[Failure | None]:
        """What is kept of a failure; None where the thread has no pause that it could belong to."""
        had = [row for row in progress.rows if row["jti"] in keeper.brought | keeper.used]
        had = had or [row for row in progress.rows if row["state"] == "answered"]
        about: PauseRow | None = (
            had[0]
            if had
            else (yield from transact(self._hub.operations.reading.load_latest, self._saver.graph, thread_id))
        )
        if about is None:
            return None
        raised = progress.failure
        if progress.raised is not None:
            raised = Raised.by(progress.raised, (yield from self._node_that_raised(thread_id, kwargs, progress.rows)))
        assert raised is not None, "asked for what was raised"
        ids = tuple(sorted({row["interrupt_id"] for row in had} or {about["interrupt_id"]}))
        return Failure(raised.node, raised.error_type, raised.message, about, ids)

    def _node_that_raised(
        self, thread_id: str, kwargs: dict[str, Any], rows: list[PauseWithAnswer]
    ) -> Effects[str | None]:
        try:
            head = yield from checkpoint_at(thread_id)
            outlook = yield from self._look(thread_id, kwargs, head, rows, [])
        except Exception:  # the failure itself is to be told, not that its place cannot be read
            return None
        return outlook.failed[0][0] if outlook.failed else None

    def _settle(self, thread_id: str, progress: Progress, applied: list[str], unused: list[str]) -> Effects[None]:
        if applied or unused:
            moved, progress.rows = yield from transact(
                self._hub.operations.settling.settle, self._saver.graph, thread_id, applied, unused
            )
            progress.note_ends(moved)

    # -- what the graph is called with

    def _command(self, thread_id: str, step: Plan, keeper: LeaseKeeper) -> Command[Any] | None:
        keeper.natives, keeper.envelopes = {}, []
        if not step.resume:
            return None
        resume: dict[str, Any] = {}
        for langgraph_id, rows in step.resume.items():
            answers = [stored_answer(self._hub, row) for row in rows]
            if rows[0]["native"]:
                resume[langgraph_id] = value = json.loads(answers[0].response)
                event = used_answer_event(answers[0], None, rows[0]["run_id"])
                place = (rows[0]["leaf_task_id"], rows[0]["slot"])
                keeper.natives[place] = value
                self._saver.natives.send(
                    thread_id, Sent(rows[0]["jti"], *place, value, rows[0]["checkpoint_id"], event)
                )
            else:
                resume[langgraph_id] = envelope = seal(answers)
                keeper.envelopes.append(envelope)
        return Command(resume=resume)

    def _config(
        self, thread_id: str, kwargs: dict[str, Any], keeper: LeaseKeeper, rows: list[PauseWithAnswer]
    ) -> Effects[dict[str, Any]]:
        config = dict(kwargs.get("config") or {})
        row: PauseRow | None = rows[0] if rows else None
        if row is None:
            row = yield from transact(self._hub.operations.reading.load_latest, self._saver.graph, thread_id)
        own: dict[str, Any] = {"thread_id": thread_id, names.STRICT_RESUME: True, LEASE: keeper}
        if row is not None:
            scope = own[SCOPE] = scope_of(row)
            if self._hub.config.scope_resolver is None:
                parts = (scope.tenant_id, scope.sub_tenant_id, scope.namespace)
                own.update((key, part) for key, part in zip(TENANT_KEYS, parts, strict=True) if part is not None)
        return {**config, "configurable": {**(config.get("configurable") or {}), **own}}

    def check_kwargs(self, graph_kwargs: dict[str, Any], thread_id: str | None = None) -> dict[str, Any]:
        """The keyword arguments for the graph's call, if a delivery may be made with them. Raises RegistrationError."""
        if thread_id is not None and not thread_id:
            raise RegistrationError("thread_id must be a non-empty string")
        configurable = dict((graph_kwargs.get("config") or {}).get("configurable") or {})
        refused = [key for key in (*TENANT_KEYS, "checkpoint_id", "checkpoint_ns", SCOPE, LEASE) if key in configurable]
        if refused:
            raise RegistrationError(
                f"config['configurable'][{refused[0]!r}] must not be given here: a pause is resumed in its own scope, at the"
                " thread's newest checkpoint"
            )
        if thread_id is not None and str(configurable.get("thread_id", thread_id)) != thread_id:
            raise RegistrationError("config['configurable']['thread_id'] is another thread than the one to deliver")
        if unknown := {"input", "resume"} & graph_kwargs.keys():
            raise RegistrationError(f"{min(unknown)!r} must not be given here: the stored answers are what is sent")
        if unknown := {"scope", "actor", "token", "response"} & graph_kwargs.keys():
            raise RegistrationError(
                f"{min(unknown)!r} must not be given here: a stored answer runs in the scope of its pause, which was checked"
                " when it was answered"
            )
        return graph_kwargs

    # -- what is told of it

    def _report(self, thread_id: str, kwargs: dict[str, Any], progress: Progress) -> Effects[Delivery]:
        standing = [row for row in progress.rows if row["state"] == "pending" and not row["overdue"]]
        pauses = open_events(self._hub, standing)
        output = progress.output
        if not progress.ran:
            for event in pauses:
                if (chunk := custom_chunk(self.graph, kwargs, event)) is not None:
                    yield from Emit(chunk)
            state = yield from ReadState({"configurable": {"thread_id": thread_id}})
            output = dict(state.values) if isinstance(state.values, dict) else state.values
            if state.interrupts and isinstance(output, dict):
                output["__interrupt__"] = list(state.interrupts)
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
