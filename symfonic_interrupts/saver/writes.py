"""Reads the writes of a task: which questions were asked, and which answers were used or left unused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.types import Interrupt

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.envelope import jtis_in
from symfonic_interrupts.asking.plain_interrupts import NativeAnswers, covers, native_question
from symfonic_interrupts.core.checkpoints import is_marker
from symfonic_interrupts.core.delivery_run import delivery_run_of
from symfonic_interrupts.core.executions import Execution, Question
from symfonic_interrupts.core.hub import Hub, audit_log
from symfonic_interrupts.core.rows import new_row, used_answer_event
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.events import AnswerEvent
from symfonic_interrupts.saver.announcer import Config
from symfonic_interrupts.store.rows import PauseRow


@dataclass(slots=True)
class Writing:
    """What one `put_writes` says.

    Attributes:
        rows: new pauses.
        executions: those that end with these writes.
        used: by jti, the events of answers that were used.
        unused: jtis of answers that the task did without.
        hidden: jtis of used answers that a saver may not keep in the RESUME write, so the row must say it.
        uncovered: paths of nodes with a native question that no point covers.
        asks, finishes: the writes hold an interrupt; the task's output.
    """

    rows: list[PauseRow] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    used: dict[str, AnswerEvent] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    asks: bool = False
    finishes: bool = False


def finishes(writes: Sequence[tuple[str, Any]]) -> bool:
    """Whether these writes are a task's output."""
    return any(channel not in names.CONTROL_CHANNELS for channel, _ in writes)


class WritesReader:
    """Reads the writes of one graph's tasks, with what this process remembers of their executions."""

    def __init__(self, hub: Hub, graph: str, natives: NativeAnswers) -> None:
        self._hub = hub
        self._graph = graph
        self.natives = natives

    def read(self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, *, is_root: bool) -> Writing:
        """What these writes of a task say.

        Raises:
            StoreError: a point's question that this process does not remember.
            PayloadInvalid, RegistrationError, ScopeRequired, FeatureDisabled: a native question that cannot become a pause.
        """
        executions = self._hub.executions
        thread_id = str(config["configurable"]["thread_id"])
        writing = Writing()
        unused: set[str] = set()
        for channel, value in writes:
            if channel == INTERRUPT:
                if not names.is_a_run(config["configurable"]):
                    # a thread is being copied; its questions are asked anew when the copy runs
                    audit_log.info("interrupt_copied: outside of a run, so no pause was opened")
                    continue
                for surfaced in names.interrupts_in(value):
                    self._read_question(config, surfaced, writes, task_id, writing, is_root=is_root)
            elif channel == RESUME and task_id != names.NULL_TASK_ID:
                brought = set(jtis_in(value))
                passes = executions.of_task((self._graph, thread_id), task_id)
                for execution in passes:  # several, where a slow call outlived its pass
                    writing.used.update({j: e for j, e in self.used_in(execution).items() if j in brought})
                if passes:
                    unused |= brought
                writing.used.update(self.natives.used_in(thread_id, task_id, value))
            elif channel == ERROR and not any(c == RESUME for c, _ in writes):
                # the task was cut off, by a timeout or because a sibling failed: LangGraph keeps no RESUME write of it
                cut_off = self._taken_by(thread_id, task_id, value, everywhere=is_root)
                writing.used.update(cut_off)
                writing.hidden += cut_off
        writing.asks = any(channel == INTERRUPT for channel, _ in writes)
        writing.finishes = finishing = finishes(writes)
        run = delivery_run_of(config, self._graph)
        if finishing and run is not None:
            unused |= run.expected.get(task_id, set())  # brought to an earlier pass; the last one did not take it
        writing.unused = sorted(unused - writing.used.keys())
        if writing.used and finishing:
            first = next(value for channel, value in writes if channel == RESUME)
            kept = {*jtis_in(first), *self.natives.used_in(thread_id, task_id, first)}
            writing.hidden = [jti for jti in writing.used if jti not in kept]
        if is_root and not writing.asks:
            writing.executions += executions.of_task((self._graph, thread_id), task_id)
        return writing

    def _taken_by(self, thread_id: str, task_id: str, error: Any, *, everywhere: bool) -> dict[str, AnswerEvent]:
        """The answers that a task took before it was cut off, by jti.

        Nobody knows whether a native answer was taken. After a timeout it counts as taken: what it allowed may have happened.

        Args:
            everywhere: also those that were taken in the graphs below it.
        """
        thread = (self._graph, thread_id)
        executions = self._hub.executions
        passes = executions.of_thread(thread) if everywhere else executions.of_task(thread, task_id)
        taken = {jti: event for e in passes for jti, event in self.used_in(e).items() if jti not in e.noted}
        if isinstance(error, TimeoutError | asyncio.CancelledError):
            taken.update(self.natives.sent_to(thread_id, task_id))
        return taken

    def _read_question(
        self, config: Config, surfaced: Interrupt, writes: Any, task_id: str, writing: Writing, *, is_root: bool
    ) -> None:
        configurable = config["configurable"]
        thread_id = str(configurable["thread_id"])
        slot = max((len(v) for c, v in writes if c == RESUME and isinstance(v, list | tuple)), default=0)
        questions: list[Question] = []
        execution = None
        if is_point := is_marker(surfaced.value):
            root_id = names.root_checkpoint_id(configurable, configurable["checkpoint_id"])
            execution = self._hub.executions.asking((self._graph, thread_id), surfaced.value["interrupt_id"], root_id)
            if execution is not None and surfaced.id not in execution.surfaced:
                execution, is_point = None, False  # a native question in the form of a point's
        if is_point:
            if execution is None and is_root and surfaced.value["name"] in self._hub.registry:
                raise StoreError(
                    "a pause cannot be opened: what its node asked is not known any more; run the thread again"
                )
            if execution is not None and is_root:
                with execution.lock:
                    questions = execution.unanswered()
                writing.executions.append(execution)
        else:
            native = native_question(self._hub, self.natives, self._graph, config, surfaced, slot, task_id)
            questions = [native] if native is not None else []
            if native is None and self.natives.position(surfaced.id) is None:
                self._note_uncovered(config, surfaced, writing)
            slot = native.occurrence if native is not None else slot
        for question in questions:
            row = new_row(
                self._hub,
                question,
                graph=self._graph,
                thread_id=thread_id,
                checkpoint_id=configurable["checkpoint_id"],
                task_id=task_id,
                langgraph_id=surfaced.id,
                slot=slot,
            )
            writing.rows.append(row)

    def _note_uncovered(self, config: Config, surfaced: Interrupt, writing: Writing) -> None:
        """Note a native question that no point covers, where other questions of the graph are covered: likely an oversight."""
        if not covers(self._hub, self._graph):
            return
        asker = self.natives.asker(surfaced.id)
        if asker is None:
            ns = config["configurable"].get("checkpoint_ns", "")
            asker = names.node_path(ns) + names.NS_END + "?" if ns else None
        if asker is not None and self._hub.first_time(("uncovered", self._graph, asker)):
            writing.uncovered.append(asker)

    def used_in(self, execution: Execution) -> dict[str, AnswerEvent]:
        """By jti, the events of the answers that this execution used."""
        with execution.lock:
            for jti in execution.used.keys() - execution.used_events.keys():
                answer = execution.used[jti]
                question = execution.asked.get(answer.receipt.interrupt_id)
                execution.used_events[jti] = used_answer_event(self._hub, answer, question, execution.info.run_id)
            return {jti: execution.used_events[jti] for jti in execution.used}
