"""What the saver does beside passing on: open pauses, note used answers, close what the thread has left behind, announce."""

from __future__ import annotations

import concurrent.futures
import inspect
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables.config import set_config_context
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph.runtime import get_runtime
from langgraph.types import Interrupt

from symfonic_interrupts.engine import langgraph_names as names
from symfonic_interrupts.engine.context import LEASE, Engine
from symfonic_interrupts.engine.envelope import jtis_in
from symfonic_interrupts.engine.lease import LeaseKeeper
from symfonic_interrupts.engine.native import NativeAnswers, native_question
from symfonic_interrupts.engine.planner import interrupts_in, is_marker, read_tasks
from symfonic_interrupts.engine.questions import Execution, Question
from symfonic_interrupts.engine.rows import new_row, pause_event, pause_record, used_answer_event
from symfonic_interrupts.engine.steps import CallSaver, Steps, WaitFor, transact
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.events import AnswerEvent, PauseEvent
from symfonic_interrupts.store.row_mac import seal_row
from symfonic_interrupts.store.schema import PauseRow

MOST_REMEMBERED = 10_000
PUT_WAIT_SECONDS = 60.0

Config = Any
"""LangGraph's `RunnableConfig`, whose `configurable` has more keys than its type says."""


class Remembered(OrderedDict[Any, Any]):
    """A mapping that forgets its oldest entries: memory of what this process saw, never the truth."""

    def note(self, key: Any, value: Any = True) -> None:
        self[key] = value
        while len(self) > MOST_REMEMBERED:
            self.popitem(last=False)


@dataclass(slots=True)
class Writing:
    """What one `put_writes` means for the record."""

    rows: list[PauseRow] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    used: dict[str, AnswerEvent] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)  # used, and a saver may not keep the RESUME write that tells


class Recorder:
    """The steps behind the saver's `put_writes`, `put` and `get_tuple`."""

    def __init__(self, engine: Engine, inner: BaseCheckpointSaver[Any], graph: str) -> None:
        self._engine = engine
        self._graph = graph
        self.natives = NativeAnswers()
        self._lock = threading.Lock()
        self._paused = Remembered()
        self._durable = Remembered()
        self._emitted = Remembered()
        self._outbox = Remembered()
        self._loaded = Remembered()
        self._takes_path = "task_path" in inspect.signature(inner.put_writes).parameters

    # -- get_tuple

    def saw(self, config: Config, found: CheckpointTuple | None) -> CheckpointTuple | None:
        """Remember where threads are paused. Leaves out a bare resume that one of our pauses refused."""
        if ns := config["configurable"].get("checkpoint_ns", ""):
            with self._lock:
                self._loaded.note((str(config["configurable"].get("thread_id")), ns))
        if found is None:
            return None
        place = found.config["configurable"]
        if place.get("checkpoint_ns", ""):
            return found
        key = (str(place["thread_id"]), place["checkpoint_id"])
        self._put_ended(key)
        writes = found.pending_writes or ()
        tasks = read_tasks(writes) if any(channel == INTERRUPT for _, channel, _ in writes) else {}
        with self._lock:
            if tasks or config["configurable"].get("checkpoint_id"):
                self._paused.note(key)
        if any(is_marker(i.value) for task in tasks.values() for i in task.pending):
            # LangGraph stored the refused value under the null task, and would give it to the step's next question.
            kept = [w for w in writes if not (w[0] == names.NULL_TASK_ID and w[1] == RESUME)]
            return found._replace(pending_writes=kept)
        return found

    def loaded(self, thread_id: str, ns: str) -> bool:
        """Whether a run of this thread began by loading this namespace: a graph without a saver of its own does not."""
        with self._lock:
            return not ns or (thread_id, ns) in self._loaded

    # -- put

    def moves_on(self, config: Config, metadata: Any) -> bool:
        """Whether this checkpoint may leave something behind, or belongs to a delivery. Others are passed on."""
        place = config["configurable"]
        thread_id = str(place["thread_id"])
        return (
            LEASE in place
            or (thread_id, place.get("checkpoint_id")) in self._paused
            or metadata.get("source") == "fork"
            or thread_id in self._outbox
            or self._engine.executions.any_of(thread_id)
            or self.natives.any_of(thread_id)
        )

    @contextmanager
    def noticing_put(self, config: Config, checkpoint: Any) -> Iterator[None]:
        """Around a put that is only passed on: pauses of this checkpoint wait for it."""
        thread_id = str(config["configurable"]["thread_id"])
        try:
            yield
        except BaseException:
            self._put_failed(thread_id)
            raise
        if not config["configurable"].get("checkpoint_ns", ""):
            self._put_ended((thread_id, checkpoint["id"]))

    def put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Steps[Any]:
        """Store a checkpoint; close what it leaves behind."""
        with _under_lease(config):
            return (yield from self._put(config, checkpoint, metadata, new_versions))

    def _put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Steps[Any]:
        place = config["configurable"]
        args = (config, checkpoint, metadata, new_versions)
        if place.get("checkpoint_ns", ""):
            return (yield CallSaver("put", args))
        thread_id = str(place["thread_id"])
        over = self._engine.executions.before(thread_id, checkpoint["id"])
        used = {jti: event for e in over for jti, event in self._used(e).items()}
        used.update(self.natives.used_before(thread_id, checkpoint["id"]))
        lease: LeaseKeeper | None = place.get(LEASE)
        noted = lease.used if lease is not None else set()
        if unnoted := {jti: event for jti, event in used.items() if jti not in noted}:
            # before the checkpoint: under durability "exit" it is the only trace that the answers were used
            yield from self._mark(lease, thread_id, unnoted, note=unnoted)
        try:
            result = yield CallSaver("put", args)
        except BaseException:
            self._put_failed(thread_id)
            raise
        self._put_ended((thread_id, checkpoint["id"]))
        with self._lock:
            left = self._paused.pop((thread_id, place.get("checkpoint_id")), None)
        if (left or used or metadata.get("source") == "fork") and lease is None:
            # a delivery closes what it leaves behind when it ends
            yield transact(self._engine.operations.advance, self._graph, thread_id, checkpoint["id"], settle=False)
        self._engine.executions.drop(over)
        self._emit(config, names.NULL_TASK_ID, self._outgoing(thread_id))
        return result

    # -- put_writes

    def concerns(self, config: Config, writes: Sequence[tuple[str, Any]]) -> bool:
        """Whether these writes ask, or tell of an answer, or belong to a delivery or an asking thread. Others are passed on."""
        place = config["configurable"]
        return (
            LEASE in place
            or any(channel in (INTERRUPT, RESUME) for channel, _ in writes)
            or self._engine.executions.any_of(str(place["thread_id"]))
        )

    def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Steps[None]:
        """Store a task's writes; open its questions before, and announce them after."""
        with _under_lease(config):
            yield from self._put_writes(config, writes, task_id, task_path)

    def inner_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> tuple[Any, ...]:
        """The arguments for the wrapped saver's `put_writes`; some savers know no task paths."""
        return (config, writes, task_id, task_path) if self._takes_path else (config, writes, task_id)

    def _put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Steps[None]:
        place = config["configurable"]
        args = self.inner_writes(config, writes, task_id, task_path)
        is_root = not place.get("checkpoint_ns", "")
        thread_id = str(place["thread_id"])
        writing = self._read(config, writes, task_id, is_root=is_root)
        opened: list[PauseRow] = []
        if writing.rows:
            yield from self._wait_for_checkpoint(thread_id, place["checkpoint_id"])
            opened = yield from self._open(place.get(LEASE), thread_id, writing)
        elif writing.used or writing.unused:
            yield from self._mark(place.get(LEASE), thread_id, writing.used, writing.unused, note=writing.hidden)
        yield CallSaver("put_writes", args)
        self._engine.executions.drop(writing.executions)
        if is_root:
            events: list[PauseEvent | AnswerEvent] = list(self._outgoing(thread_id))
            events += self._new_pauses(place, opened)
            self._emit(config, task_id, events)

    def _read(self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, *, is_root: bool) -> Writing:
        executions = self._engine.executions
        thread_id = str(config["configurable"]["thread_id"])
        writing = Writing()
        for channel, value in writes:
            if channel == INTERRUPT:
                for surfaced in interrupts_in(value):
                    self._read_question(config, surfaced, writes, task_id, writing, is_root=is_root)
            elif channel == RESUME and task_id != names.NULL_TASK_ID:
                brought = set(jtis_in(value))
                for execution in executions.of_task(thread_id, task_id):
                    used = {jti: e for jti, e in self._used(execution).items() if jti in brought}
                    writing.used.update(used)
                    writing.unused += brought - set(used)
                writing.used.update(self.natives.used_in(thread_id, task_id, value))
        if writing.used and any(channel not in names.CONTROL_CHANNELS for channel, _ in writes):
            first = next(value for channel, value in writes if channel == RESUME)
            kept = {*jtis_in(first), *self.natives.used_in(thread_id, task_id, first)}
            writing.hidden = [jti for jti in writing.used if jti not in kept]
        if is_root and all(channel != INTERRUPT for channel, _ in writes):
            writing.executions += executions.of_task(thread_id, task_id)
        return writing

    def _read_question(
        self, config: Config, surfaced: Interrupt, writes: Any, task_id: str, writing: Writing, *, is_root: bool
    ) -> None:
        place = config["configurable"]
        thread_id = str(place["thread_id"])
        slot = max((len(v) for c, v in writes if c == RESUME and isinstance(v, list | tuple)), default=0)
        questions: list[Question] = []
        if is_marker(surfaced.value):
            execution = self._engine.executions.asking(thread_id, surfaced.value["interrupt_id"])
            if execution is not None and is_root:
                with execution.lock:
                    questions = execution.unanswered()
                writing.executions.append(execution)
        else:
            native = native_question(self._engine, self.natives, self._graph, config, surfaced, slot, task_id)
            questions = [native] if native is not None else []
            slot = native.occurrence if native is not None else slot
        for question in questions:
            row = new_row(
                self._engine,
                question,
                graph=self._graph,
                thread_id=thread_id,
                checkpoint_id=place["checkpoint_id"],
                task_id=task_id,
                langgraph_id=surfaced.id,
                slot=slot,
            )
            writing.rows.append(row)

    def _open(self, lease: LeaseKeeper | None, thread_id: str, writing: Writing) -> Steps[list[PauseRow]]:
        described = [(row, pause_record(row)) for row in writing.rows]
        opened, marked = yield transact(
            self._engine.operations.open_pauses, described, self._reseal, used=list(writing.used), unused=writing.unused
        )
        self._tell(lease, thread_id, writing.used, writing.unused, marked)
        return opened  # type: ignore[no-any-return]

    def _reseal(self, row: PauseRow) -> PauseRow:
        return seal_row(row, self._engine.keys)

    def _mark(
        self,
        lease: LeaseKeeper | None,
        thread_id: str,
        used: dict[str, AnswerEvent],
        unused: Sequence[str] = (),
        *,
        note: Iterable[str] = (),
    ) -> Steps[None]:
        """Note which answers were used. A delivery knows until it ends, and is spared a transaction but for `note`."""
        must = list(used) if lease is None else list(note)
        marked: list[str] = []
        if must or unused:
            marked = yield transact(self._engine.operations.mark_used, must, list(unused))
        self._tell(lease, thread_id, used, unused, marked)

    def _tell(
        self,
        lease: LeaseKeeper | None,
        thread_id: str,
        used: dict[str, AnswerEvent],
        unused: Sequence[str],
        marked: Iterable[str],
    ) -> None:
        """Queue the events of answers used for the first time: those this delivery sent, or those newly marked."""
        if lease is not None:
            marked = lease.sent & used.keys()
            lease.sent.difference_update(used)
            lease.used.update(used)
            lease.used.difference_update(unused)
        self._queue(thread_id, [used[jti] for jti in used if jti in set(marked)])

    def _used(self, execution: Execution) -> dict[str, AnswerEvent]:
        with execution.lock:
            used = list(execution.used.values())
        return {
            a.receipt.jti: used_answer_event(a, execution.asked.get(a.receipt.interrupt_id), execution.info.run_id)
            for a in used
        }

    # -- the order of checkpoint and writes

    def _wait_for_checkpoint(self, thread_id: str, checkpoint_id: str) -> Steps[None]:
        # Under durability "async" a checkpoint is put in the background, and a question can come before it is stored.
        key = (thread_id, checkpoint_id)
        with self._lock:
            if self._durable.get(key) is True:
                return
            signal = self._durable.get(key) or concurrent.futures.Future()
            self._durable.note(key, signal)
        if not (yield WaitFor(signal, PUT_WAIT_SECONDS)):
            raise StoreError(
                "the checkpoint of a pause was not stored, so the pause is not opened; run the thread again"
            )

    def _put_ended(self, key: tuple[str, str]) -> None:
        with self._lock:
            signal = self._durable.get(key)
            self._durable.note(key)
        if isinstance(signal, concurrent.futures.Future):
            signal.set_result(True)

    def _put_failed(self, thread_id: str) -> None:
        # LangGraph does not try the puts after a failed one: whoever waits for them would wait in vain
        with self._lock:
            waiting = [key for key, signal in self._durable.items() if key[0] == thread_id and signal is not True]
            signals = [self._durable.pop(key) for key in waiting]
        for signal in signals:
            signal.set_result(False)

    # -- announcing

    def _queue(self, thread_id: str, events: list[AnswerEvent]) -> None:
        if events:
            with self._lock:
                self._outbox.note(thread_id, [*self._outbox.get(thread_id, []), *events])

    def _outgoing(self, thread_id: str) -> list[AnswerEvent]:
        with self._lock:
            found: list[AnswerEvent] = self._outbox.pop(thread_id, [])
        return found

    def _new_pauses(self, place: Config, opened: list[PauseRow]) -> list[PauseEvent]:
        """The events of pending rows, each once in a run."""
        runtime = place.get(names.RUNTIME)
        events = []
        for row in opened:
            key = (id(runtime), row["jti"])
            with self._lock:
                told = key in self._emitted
                self._emitted.note(key, runtime)  # holding the runtime keeps its id from being another's
            if row["state"] == "pending" and not told:
                events.append(pause_event(self._engine, row))
        return events

    @staticmethod
    def _emit(config: Config, task_id: str, events: Sequence[PauseEvent | AnswerEvent]) -> None:
        place = config["configurable"]
        if not events or place.get(names.RUNTIME) is None:
            return
        own = names.task_ns("", "x", task_id)
        there: Config = {**config, "configurable": {**place, "checkpoint_ns": own}}
        with set_config_context(there) as context:
            for event in events:
                context.run(_write, event)


def _write(event: PauseEvent | AnswerEvent) -> None:
    get_runtime().stream_writer(event)


@contextmanager
def _under_lease(config: Config) -> Iterator[None]:
    """Refuse to write for a delivery that has lost its thread; tell it when a write fails, so that recovery looks again."""
    lease = config["configurable"].get(LEASE)
    if lease is None:
        yield
        return
    lease.check()
    try:
        yield
    except BaseException:
        lease.failed = True
        raise
