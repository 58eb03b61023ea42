"""One delivery of one thread: run its graph with what the planner says, until nothing is left to do.

`Drive` goes round: catch up with the thread's head, plan, run the graph with the plan's answers, conclude.
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
        run: what this delivery and the saver share.
        by_itself: no caller asked for this delivery: nodes that raised are not run again.
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
            next_plan = yield from self._plan(head, crashed=crashed)
            yield from self._settle(next_plan)
            if not next_plan.resume and not next_plan.proceed:
                if next_plan.homeless:
                    homeless_id = next_plan.homeless[0]["interrupt_id"]
                    raise RegistrationError(
                        f"no task of the graph took the answer to {homeless_id}: the node that asked was"
                        " renamed or removed; the answer stays stored until that node is back or the thread goes on"
                    )
                return
            yield from self._run_graph(next_plan)
            head = yield from self._conclude()
            if self._progress.over:
                return

    # -- one round

    def _catch_up(self, head: CheckpointTuple) -> Effects[None]:
        """Close the pauses that the thread has passed: a run of the application's own may have moved it on."""
        head_id = str(id_of(head))
        progress, operations = self._progress, self._hub.operations
        if any(names.came_before(row["checkpoint_id"], head_id) for row in progress.rows):
            used = yield from used_before(head_id, progress.rows)
            changed = yield from transact(
                operations.settling.advance, self._saver.graph, self._thread_id, head_id, used=used
            )
            progress.note_ends(changed)
            progress.rows = yield from transact(operations.reading.load_thread, self._saver.graph, self._thread_id)

    def _plan(self, head: CheckpointTuple, *, crashed: bool) -> Effects[Plan]:
        """What to do next. Stops at a breakpoint, and at a failure where no caller asked for this delivery."""
        facts = yield from self._facts(head)
        next_plan = plan(**facts, crashed=False)
        if not next_plan.proceed and (not crashed or self._progress.ran):
            return next_plan
        outlook = yield from self._look(head, next_plan.answers)
        if crashed and outlook.work and not self._progress.ran:
            next_plan = plan(**facts, crashed=True)
        if self._by_itself and outlook.failed:
            next_plan.resume, next_plan.proceed = {}, False
            self._progress.failure = Raised.kept(*outlook.failed[0])
        elif outlook.at_breakpoint and not outlook.failed:
            next_plan.proceed = False
        return next_plan

    def _run_graph(self, next_plan: Plan) -> Effects[None]:
        """Run the graph with the plan's answers, or on without any."""
        run, progress = self._run, self._progress
        answers = next_plan.answers
        self._tried.update(jtis_of(answers))
        run.brought.update(jtis_of(answers))
        run.rows = progress.rows
        # an answer that a node took before it was cut off is announced already
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
        command = self._command(next_plan)
        self._hub.failpoint("resume_started")
        run.lease.check()  # else LangGraph would refuse the answers that another worker has delivered, with an error of its own
        run.reached = None
        try:
            progress.output = yield from RunGraph(command, config, graph_kwargs)
        except Exception as error:
            # these two say that LangGraph refused what was sent: no node has run
            if not (is_invalid_resume(error) or isinstance(error, UnknownInterruptError)):
                progress.raised = error
            raise
        self._hub.failpoint("run_ended")

    def _conclude(self) -> Effects[CheckpointTuple | None]:
        """Store how the thread's answers ended in a run. Gives the checkpoint to go on from."""
        run, progress = self._run, self._progress
        # a run that stored no checkpoint has asked again; or meanwhile the thread was moved on, or deleted
        head = None if run.reached else (yield from checkpoint_at(self._thread_id))
        head_id = run.reached or id_of(head)
        if head_id is None:
            return None
        conclude = self._hub.operations.leasing.conclude
        conclusion = yield from transact(conclude, run.lease.lease, head_id, list(progress.ids), sorted(run.used))
        progress.rows, progress.over = conclusion.rows, conclusion.over
        progress.ended.update(conclusion.states)
        progress.note_ends(conclusion.moved)  # also answers that came during the run and that it did without
        self._hub.failpoint("applied_marked")
        if progress.over:
            return head
        return head or (yield from checkpoint_at(self._thread_id))

    def _settle(self, next_plan: Plan) -> Effects[None]:
        """Store which answers have ended."""
        applied, unused = jtis_of(next_plan.applied), jtis_of(next_plan.unused)
        if applied or unused:
            settle = self._hub.operations.settling.settle
            moved, rows = yield from transact(settle, self._saver.graph, self._thread_id, applied, unused)
            self._progress.rows = rows
            self._progress.note_ends(moved)

    # -- what the planner needs

    def _facts(self, head: CheckpointTuple) -> Effects[dict[str, Any]]:
        """The arguments of `plan`, without `crashed`."""
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
        """How the thread stands: what would run if the graph ran on."""
        ended = yield from transact(
            self._hub.operations.reading.ended_natives, self._saver.graph, self._thread_id, str(id_of(head))
        )
        standing = Standing.of(self._progress.rows, ended, sending)
        return (yield from look(self._graph, self._thread_id, self._kwargs, head, standing))

    # -- a failure

    def failure(self) -> Effects[Failure | None]:
        """The failure of this drive, as it is stored; None where the thread has no pause that it could belong to."""
        run, progress = self._run, self._progress
        delivered = [row for row in progress.rows if row["jti"] in run.brought | run.used]
        delivered = delivered or [row for row in progress.rows if row["state"] == "answered"]
        subject: PauseRow | None = delivered[0] if delivered else (yield from self._latest())
        if subject is None:
            return None
        raised = progress.failure
        if progress.raised is not None:
            raised = Raised.by(progress.raised, (yield from self._node_that_raised()))
        assert raised is not None, "`failure` is called only after something was raised"
        ids = tuple(sorted({row["interrupt_id"] for row in delivered} or {subject["interrupt_id"]}))
        return Failure(raised.node, raised.error_type, raised.message, subject, ids)

    def _node_that_raised(self) -> Effects[str | None]:
        try:
            head = yield from checkpoint_at(self._thread_id)
            outlook = yield from self._look(head, [])
        except Exception:  # the failure is stored all the same, without its node
            return None
        return outlook.failed[0][0] if outlook.failed else None

    def _latest(self) -> Effects[PauseRow | None]:
        return (yield from transact(self._hub.operations.reading.load_latest, self._saver.graph, self._thread_id))

    # -- what the graph is called with

    def _command(self, next_plan: Plan) -> Command[Any] | None:
        """The graph's input: the answers to send, by LangGraph's interrupt id; None where it only runs on."""
        self._run.natives, self._run.envelopes = {}, []
        if not next_plan.resume:
            return None
        resume: dict[str, Any] = {}
        for langgraph_id, rows in next_plan.resume.items():
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
