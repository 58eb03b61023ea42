"""One delivery of one thread: run its graph with what the planner says, until nothing is left to do.

`Drive` goes round: catch up with the thread's head, decide the next step, run the graph with it, conclude.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.errors import UnknownInterruptError, is_invalid_resume
from langgraph.types import Command

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.envelope import seal
from symfonic_interrupts.asking.plain_interrupts import Sent
from symfonic_interrupts.core.checkpoints import read_tasks
from symfonic_interrupts.core.delivery_run import DeliveryRun
from symfonic_interrupts.core.effects import Effects, RunGraph, transact
from symfonic_interrupts.core.hub import DELIVERY_RUN, SCOPE, TENANT_KEYS, Hub
from symfonic_interrupts.core.lease import StartRenewing
from symfonic_interrupts.core.rows import scope_of, stored_answer, used_answer_event
from symfonic_interrupts.delivering.evidence import (
    Outlook,
    Standing,
    checkpoint_at,
    id_of,
    leaves_of,
    left_behind,
    look,
    used_before,
)
from symfonic_interrupts.delivering.failed_thread import Raised
from symfonic_interrupts.delivering.planner import Plan, plan
from symfonic_interrupts.delivering.progress import Progress, jtis_of, native_values
from symfonic_interrupts.errors import CheckpointMissing, RegistrationError
from symfonic_interrupts.saver.saver import InterruptSaver
from symfonic_interrupts.store.operations import Failure
from symfonic_interrupts.store.rows import PauseRow, PauseWithAnswer


class Drive:
    """Drives one thread under its lease.

    Args:
        kwargs: for the graph's own call; `config` may be among them.
        run: what this delivery and the saver tell each other.
        by_itself: nobody asked for this delivery: nodes that raised are not run again.
    """

    def __init__(
        self,
        hub: Hub,
        graph: Any,
        saver: InterruptSaver,
        thread_id: str,
        kwargs: dict[str, Any],
        run: DeliveryRun,
        progress: Progress,
        *,
        by_itself: bool,
    ) -> None:
        self._hub = hub
        self._graph = graph
        self._saver = saver
        self._thread_id = thread_id
        self._kwargs = kwargs
        self._run = run
        self._progress = progress
        self._by_itself = by_itself
        self._tried: set[str] = set()

    def go(self, *, crashed: bool) -> Effects[None]:
        """Drive the thread until the planner has nothing left to do.

        Args:
            crashed: the run before did not end cleanly, and may have left work.
        """
        head = yield from checkpoint_at(self._thread_id)
        while True:
            if head is None:
                # the answers stay: this may be the wrong saver, and the right one can still deliver them
                raise CheckpointMissing(
                    "the thread has no checkpoint in this graph's saver: it was deleted, or this is not the saver or the"
                    " graph that asked; its answers stay stored"
                )
            yield from self._catch_up(head)
            step = yield from self._decide(head, crashed=crashed)
            yield from self._settle(step)
            if not step.resume and not step.proceed:
                if step.homeless:
                    raise RegistrationError(
                        f"no task of the graph took the answer to {step.homeless[0]['interrupt_id']}: the node that asked was"
                        " renamed or removed; the answer stays stored until that node is back or the thread goes on"
                    )
                return
            yield from self._run_graph(step)
            head = yield from self._conclude()
            if self._progress.over:
                return

    # -- the four steps

    def _catch_up(self, head: CheckpointTuple) -> Effects[None]:
        """Close what the thread has left behind: somebody else may have run it on."""
        at = str(id_of(head))
        progress, operations = self._progress, self._hub.operations
        if any(names.came_before(row["checkpoint_id"], at) for row in progress.rows):
            used = yield from used_before(at, progress.rows)
            changed = yield from transact(
                operations.settling.advance, self._saver.graph, self._thread_id, at, used=used
            )
            progress.note_ends(changed)
            progress.rows = yield from transact(operations.reading.load_thread, self._saver.graph, self._thread_id)

    def _decide(self, head: CheckpointTuple, *, crashed: bool) -> Effects[Plan]:
        """The planner's next step, as far as no breakpoint and no failure stands in its way."""
        facts = yield from self._facts(head)
        step = plan(**facts, crashed=False)
        if not step.proceed and (not crashed or self._progress.ran):
            return step
        outlook = yield from self._look(head, step.answers)
        if crashed and outlook.work and not self._progress.ran:
            step = plan(**facts, crashed=True)
        if self._by_itself and outlook.failed:
            step.resume, step.proceed = {}, False
            self._progress.failure = Raised.kept(*outlook.failed[0])
        elif outlook.at_breakpoint and not outlook.failed:
            step.proceed = False
        return step

    def _run_graph(self, step: Plan) -> Effects[None]:
        """Run the graph with the step's answers, or on without one."""
        run, progress = self._run, self._progress
        answers = step.answers
        self._tried.update(jtis_of(answers))
        run.brought.update(jtis_of(answers))
        run.rows = progress.rows
        # of one that a node took before it was cut off, it is announced already
        run.unannounced.update(row["jti"] for row in answers if row["used_at"] is None)
        for row in progress.rows:
            if row["state"] == "answered" and not row["native"]:
                run.expected.setdefault(row["leaf_task_id"], set()).add(row["jti"])
        config = yield from self._config(answers or progress.rows)
        if not progress.ran:
            if run.lease.lease.failed:
                yield from transact(self._hub.operations.leasing.try_again, run.lease.lease)
            yield from StartRenewing(run.lease)
        progress.ran = True
        graph_kwargs = {key: value for key, value in self._kwargs.items() if key != "config"}
        command = self._command(step)
        self._hub.failpoint("resume_started")
        run.lease.check()  # LangGraph would refuse answers that another worker has delivered, in words of its own
        run.reached = None
        try:
            progress.output = yield from RunGraph(command, config, graph_kwargs)
        except Exception as error:
            # those are LangGraph's refusals of what was sent: no node went on with it
            if not (is_invalid_resume(error) or isinstance(error, UnknownInterruptError)):
                progress.raised = error
            raise
        self._hub.failpoint("run_ended")

    def _conclude(self) -> Effects[CheckpointTuple | None]:
        """Note how the thread's answers stand after a run. Gives the thread's head, where the drive goes on."""
        run, progress = self._run, self._progress
        # a run that stored no checkpoint asks again where it stood; or the thread was moved on, or deleted, meanwhile
        head = None if run.reached else (yield from checkpoint_at(self._thread_id))
        at = run.reached or id_of(head)
        if at is None:
            return None
        conclude = self._hub.operations.leasing.conclude
        conclusion = yield from transact(conclude, run.lease.lease, at, list(progress.ids), sorted(run.used))
        progress.rows, progress.over = conclusion.rows, conclusion.over
        progress.ended.update(conclusion.states)
        progress.note_ends(conclusion.moved)  # also answers that came while the run went on without them
        self._hub.failpoint("applied_marked")
        if progress.over:
            return head
        return head or (yield from checkpoint_at(self._thread_id))

    def _settle(self, step: Plan) -> Effects[None]:
        applied, unused = jtis_of(step.applied), jtis_of(step.unused)
        if applied or unused:
            settle = self._hub.operations.settling.settle
            moved, rows = yield from transact(settle, self._saver.graph, self._thread_id, applied, unused)
            self._progress.rows = rows
            self._progress.note_ends(moved)

    # -- what is decided by

    def _facts(self, head: CheckpointTuple) -> Effects[dict[str, Any]]:
        """What the planner decides by, but for what a run that died has left."""
        progress = self._progress
        answered = [row for row in progress.rows if row["state"] == "answered"]
        progress.ids.update((row["jti"], row["interrupt_id"]) for row in answered)
        tasks = read_tasks(head.pending_writes)
        leaves = yield from leaves_of(answered, {("", str(id_of(head))): tasks})
        return {
            "head": tasks,
            "leaves": leaves,
            "answered": answered,
            "native_values": native_values(answered),
            "tried": frozenset(self._tried),
            "may_proceed": not progress.ran,
            "retry_failed": not self._by_itself,
            "left": (yield from left_behind(answered, leaves, tasks)),
        }

    def _look(self, head: CheckpointTuple | None, sending: list[PauseWithAnswer]) -> Effects[Outlook]:
        """What the thread's tasks would do if the graph ran on."""
        ended = yield from transact(
            self._hub.operations.reading.ended_natives, self._saver.graph, self._thread_id, str(id_of(head))
        )
        standing = Standing.of(self._progress.rows, ended, sending)
        return (yield from look(self._graph, self._thread_id, self._kwargs, head, standing))

    # -- a failure

    def failure(self) -> Effects[Failure | None]:
        """What is kept of the failure of this drive; None where the thread has no pause that it could belong to."""
        run, progress = self._run, self._progress
        had = [row for row in progress.rows if row["jti"] in run.brought | run.used]
        had = had or [row for row in progress.rows if row["state"] == "answered"]
        about: PauseRow | None = had[0] if had else (yield from self._latest())
        if about is None:
            return None
        raised = progress.failure
        if progress.raised is not None:
            raised = Raised.by(progress.raised, (yield from self._node_that_raised()))
        assert raised is not None, "asked for what was raised"
        ids = tuple(sorted({row["interrupt_id"] for row in had} or {about["interrupt_id"]}))
        return Failure(raised.node, raised.error_type, raised.message, about, ids)

    def _node_that_raised(self) -> Effects[str | None]:
        try:
            head = yield from checkpoint_at(self._thread_id)
            outlook = yield from self._look(head, [])
        except Exception:  # the failure itself is to be kept, not that its place cannot be read
            return None
        return outlook.failed[0][0] if outlook.failed else None

    def _latest(self) -> Effects[PauseRow | None]:
        return (yield from transact(self._hub.operations.reading.load_latest, self._saver.graph, self._thread_id))

    # -- what the graph is called with

    def _command(self, step: Plan) -> Command[Any] | None:
        self._run.natives, self._run.envelopes = {}, []
        if not step.resume:
            return None
        resume: dict[str, Any] = {}
        for langgraph_id, rows in step.resume.items():
            answers = [stored_answer(self._hub, row) for row in rows]
            if rows[0]["native"]:
                resume[langgraph_id] = value = json.loads(answers[0].response)
                event = used_answer_event(self._hub, answers[0], None, rows[0]["run_id"])
                task_and_slot = (rows[0]["leaf_task_id"], rows[0]["slot"])
                self._run.natives[task_and_slot] = value
                sent = Sent(rows[0]["jti"], *task_and_slot, value, rows[0]["checkpoint_id"], event)
                self._saver.natives.send(self._thread_id, sent)
            else:
                resume[langgraph_id] = envelope = seal(answers)
                self._run.envelopes.append(envelope)
        return Command(resume=resume)

    def _config(self, rows: list[PauseWithAnswer]) -> Effects[dict[str, Any]]:
        """The run's config: the caller's, on this thread alone, in the scope of its pauses."""
        config: Mapping[str, Any] = self._kwargs.get("config") or {}
        row = rows[0] if rows else (yield from self._latest())
        own: dict[str, Any] = {"thread_id": self._thread_id, names.STRICT_RESUME: True, DELIVERY_RUN: self._run}
        if row is not None:
            scope = own[SCOPE] = scope_of(row)
            if self._hub.config.scope_resolver is None:
                parts = (scope.tenant_id, scope.sub_tenant_id, scope.namespace)
                own.update((key, part) for key, part in zip(TENANT_KEYS, parts, strict=True) if part is not None)
        return {**config, "configurable": {**(config.get("configurable") or {}), **own}}
