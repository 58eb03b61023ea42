"""What the saver adds to the wrapped one: it opens pauses, notes used answers, closes passed pauses, and announces."""

from __future__ import annotations

import concurrent.futures
import inspect
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.door import Door
from symfonic_interrupts.asking.drift import Drift, missed_answers, note_drifts
from symfonic_interrupts.asking.plain_interrupts import NativeAnswers
from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.core.delivery_run import DeliveryRun, delivery_run_of
from symfonic_interrupts.core.effects import Effects, Put, PutWrites, WaitFor, transact
from symfonic_interrupts.core.executions import Execution, Remembered, take_swallowed
from symfonic_interrupts.core.hub import Hub, audit_log
from symfonic_interrupts.core.rows import pause_record
from symfonic_interrupts.errors import ScopeRequired
from symfonic_interrupts.events import AnswerEvent, PauseEvent
from symfonic_interrupts.saver.announcer import PUT_WAIT_SECONDS, Announcer, Config, PutWatch
from symfonic_interrupts.saver.reads import Loader
from symfonic_interrupts.saver.writes import WritesReader, Writing, finishes
from symfonic_interrupts.store.row_mac import seal_row
from symfonic_interrupts.store.rows import EventSubject, PauseRow


class Recorder:
    """The effects of the saver's `put_writes` and `put`."""

    def __init__(self, hub: Hub, inner: BaseCheckpointSaver[Any], graph: str) -> None:
        self._hub = hub
        self._graph = graph
        self.natives = NativeAnswers()
        self._reader = WritesReader(hub, graph, self.natives)
        self._paused = Remembered()
        self._puts = PutWatch()
        self.loading = Loader(hub, graph, self._puts, self._paused, self.natives)
        self.door = Door(hub, graph, self.loading.cached_above, self.natives)
        self._announcer = Announcer(hub)
        self._takes_path = "task_path" in inspect.signature(inner.put_writes).parameters

    # -- put

    def moves_on(self, config: Config, metadata: Any) -> bool:
        """Whether the thread may have pauses or answers that this checkpoint passes, or a delivery stores it. All others are
        only passed on."""
        configurable = config["configurable"]
        thread_id = str(configurable["thread_id"])
        return (
            delivery_run_of(config, self._graph) is not None
            or (thread_id, configurable.get("checkpoint_id")) in self._paused
            or metadata.get("source") == "fork"
            or self._announcer.has_any(thread_id)
            or self._hub.executions.has_any((self._graph, thread_id))
            or self.natives.has_any(thread_id)
        )

    def stored(self, config: Config, checkpoint: Any) -> None:
        """Note that a checkpoint which was only passed on is stored: its pauses wait for that."""
        if not config["configurable"].get("checkpoint_ns", ""):
            self._puts.ended((str(config["configurable"]["thread_id"]), checkpoint["id"]))
        self._hub.failpoint("checkpoint_written")

    def not_stored(self, config: Config, checkpoint: Any) -> None:
        """Note that a checkpoint could not be stored: pauses that wait for it are refused."""
        self._puts.failed(str(config["configurable"]["thread_id"]), checkpoint["id"])

    def put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Effects[Any]:
        """Store a checkpoint, and close the pauses that it passes."""
        try:
            with _while_held(delivery_run_of(config, self._graph)):
                return (yield from self._put(config, checkpoint, metadata, new_versions))
        except BaseException:
            self.not_stored(config, checkpoint)
            raise

    def _put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Effects[Any]:
        configurable = config["configurable"]
        args = (config, checkpoint, metadata, new_versions)
        thread_id = str(configurable["thread_id"])
        thread = (self._graph, thread_id)
        run = delivery_run_of(config, self._graph)
        if ns := configurable.get("checkpoint_ns", ""):
            if self._asks_after_all and self._hub.executions.swallowed_before(thread, ns, checkpoint["id"]):
                # this run ends when the subgraph returns; the next must not begin behind the question, so nothing is stored
                return {
                    "configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}
                }
            yield from self._note(run, thread_id, self._hub.executions.below(thread, ns, checkpoint["id"]), {})
            stored = yield from Put(*args)
            self._hub.failpoint("checkpoint_written")
            return stored
        over = self._hub.executions.before(thread, checkpoint["id"])
        natives = self.natives.used_before(thread_id, checkpoint["id"])
        used = yield from self._note(run, thread_id, over, natives)
        before = configurable.get("checkpoint_id")
        # a delivery closes the pauses that it passes when it ends
        passes = run is None and ((thread_id, before) in self._paused or metadata.get("source") == "fork")
        if passes:
            yield from transact(self._hub.operations.upkeep.doubt, self._graph, thread_id)
        result = yield from Put(*args)
        self._puts.ended((thread_id, checkpoint["id"]))
        if run is not None:
            run.reached = checkpoint["id"]
        self._hub.failpoint("checkpoint_written")
        self._paused.forget((thread_id, before))
        if passes or (used and run is None):
            # LangGraph drops the writes of a superstep that new input cuts short
            dropped = before if metadata.get("source") == "input" else None
            advance = self._hub.operations.settling.advance
            yield from transact(advance, self._graph, thread_id, checkpoint["id"], settle=False, dropped=dropped)
        if metadata.get("source") == "loop":
            # without those of a run that died: they asked, but their tasks did not finish
            parent = before or ""
            ended = [
                e
                for e in over
                if e.root_checkpoint_id == parent
                or (names.came_before(parent, e.root_checkpoint_id) and not e.from_earlier_run)
            ]
            yield from self._report_swallowed(config, ended)
        self._hub.executions.drop(over)
        self._announcer.emit(config, names.NULL_TASK_ID, self._announcer.outgoing(thread_id))
        return result

    def _note(
        self, run: DeliveryRun | None, thread_id: str, over: list[Execution], natives: dict[str, AnswerEvent]
    ) -> Effects[bool]:
        """Note, before a checkpoint, which answers the finished executions used: under durability "exit" nothing else shows it.

        Returns whether there were any.
        """
        used = {jti: event for e in over for jti, event in self._reader.used_in(e).items()} | natives
        known = {jti for e in over for jti in e.noted}
        writing = {} if run is None else run.writing
        for jti in used.keys() & writing.keys():
            # a checkpoint that is stored without the write would make the answer look unused
            if (yield from WaitFor(writing[jti], PUT_WAIT_SECONDS)):
                known.add(jti)
        if unknown := {jti: event for jti, event in used.items() if jti not in known}:
            yield from self._mark(run, thread_id, unknown, note=unknown)
            for execution in over:
                execution.noted.update(unknown)
        return bool(used)

    @property
    def _asks_after_all(self) -> bool:
        """Whether a node that swallowed a question may not finish."""
        return self.loading.guarded and self._hub.config.on_swallowed == "ask"

    # -- put_writes

    def concerns(self, config: Config, writes: Sequence[tuple[str, Any]]) -> bool:
        """Whether these writes hold a question or an answer, or belong to a delivery or to a thread that has asked. All others
        are only passed on."""
        configurable = config["configurable"]
        return (
            delivery_run_of(config, self._graph) is not None
            or any(channel in (INTERRUPT, RESUME) for channel, _ in writes)
            or self._hub.executions.has_any((self._graph, str(configurable["thread_id"])))
        )

    def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Effects[None]:
        """Store a task's writes; open its questions before, and announce them after."""
        with _while_held(delivery_run_of(config, self._graph)):
            drift = yield from self._put_writes(config, writes, task_id, task_path)
        if (
            drift is not None
        ):  # after the write, which has not failed: what this raises must not count against the lease
            drift.report()

    def inner_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> tuple[Any, ...]:
        """The arguments for the wrapped saver's `put_writes`; some savers know no task paths."""
        return (config, writes, task_id, task_path) if self._takes_path else (config, writes, task_id)

    def _put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Effects[Drift | None]:
        configurable = config["configurable"]
        args = self.inner_writes(config, writes, task_id, task_path)
        is_root = not configurable.get("checkpoint_ns", "")
        thread_id = str(configurable["thread_id"])
        run = delivery_run_of(config, self._graph)
        is_over = self._asks_after_all and finishes(writes)
        if is_over and self._hub.executions.end_swallowed((self._graph, thread_id), task_id):
            return None  # its output is not stored: the guarded node around it raises the question, or PauseSwallowed
        writing = self._reader.read(config, writes, task_id, is_root=is_root)
        opened: list[PauseRow] = []
        drift: Drift | None = None
        if writing.rows:
            yield from self._puts.wait_for(thread_id, configurable["checkpoint_id"])
            missed = missed_answers(run, writing.executions)
            opened = yield from self._open(run, thread_id, writing)
            known = {row["jti"] for row in writing.rows}
            drift = yield from note_drifts(self._hub, missed, [row for row in opened if row["jti"] in known])
            if drift is not None and drift.is_last:
                self._hub.executions.drop(writing.executions)
                return drift
        elif writing.used or writing.unused:
            yield from self._mark(run, thread_id, writing.used, writing.unused, note=writing.hidden)
        with _noting_end(run, writing.used):
            yield from PutWrites(args)
        if writing.asks:
            self._hub.failpoint("marker_written")
        elif writing.used or writing.unused:
            self._hub.failpoint("answer_durable")
        if writing.uncovered:
            yield from self._report_uncovered(config, writing.uncovered)
        if writing.finishes and not writing.asks:
            yield from self._report_swallowed(config, writing.executions)
        self._hub.executions.drop(writing.executions)
        if is_root:
            events: list[PauseEvent | AnswerEvent] = list(self._announcer.outgoing(thread_id))
            events += self._announcer.new_pauses(configurable, opened, [row["scope_hash"] for row in writing.rows])
            self._announcer.emit(config, task_id, events)
            if events:
                self._hub.failpoint("event_emitted")
        return drift

    def _report_swallowed(self, config: Config, over: list[Execution]) -> Effects[None]:
        """Report the questions of tasks that finished without their answers."""
        if questions := take_swallowed(over):
            yield from self.door.report_swallowed(questions, str(config["configurable"]["thread_id"]))

    def _report_uncovered(self, config: Config, paths: list[str]) -> Effects[None]:
        """Record and warn that no point covers the native questions of these nodes, while it covers others."""
        configurable = config["configurable"]
        for path in paths:
            with suppress(ScopeRequired):
                scope = self._hub.scope_of_run(config)
                about: EventSubject = {
                    "graph": self._graph,
                    "thread_id": str(configurable["thread_id"]),
                    "interrupt_id": "",
                    "name": path,
                    "tenant_id": scope.tenant_id,
                    "sub_tenant_id": scope.sub_tenant_id,
                    "namespace": scope.namespace,
                }
                yield from transact(
                    self._hub.operations.recording.record, about, ("interrupt_uncovered", {"node": path})
                )
            audit_log.warning("interrupt_uncovered %s", canonical_json({"graph": self._graph, "node": path}))
            with suppress(UserWarning):
                warnings.warn(
                    f"node {path!r} of graph {self._graph!r} asks by interrupt(), and no point covers it: whoever knows the"
                    " thread may answer, and nothing is recorded. Name it in nodes= of a point",
                    UserWarning,
                    stacklevel=2,
                )

    def _open(self, run: DeliveryRun | None, thread_id: str, writing: Writing) -> Effects[list[PauseRow]]:
        described = [(row, pause_record(self._hub, row)) for row in writing.rows]
        opened, marked = yield from transact(
            self._hub.operations.opening.open_pauses,
            described,
            self._reseal,
            used=list(writing.used),
            unused=writing.unused,
        )
        self._hub.failpoint("pause_opened")
        self._queue_events(run, thread_id, writing.used, writing.unused, marked)
        return opened

    def _reseal(self, row: PauseRow) -> PauseRow:
        return seal_row(row, self._hub.keys)

    def _mark(
        self,
        run: DeliveryRun | None,
        thread_id: str,
        used: dict[str, AnswerEvent],
        unused: Sequence[str] = (),
        *,
        note: Iterable[str] = (),
    ) -> Effects[None]:
        """Note which answers were used and which were not.

        A delivery keeps this in memory until it ends, and stores only those in `note` at once; any other run stores all.
        """
        at_once = list(used) if run is None else list(note)
        marked: list[str] = []
        if at_once or unused:
            marked = yield from transact(self._hub.operations.settling.mark_used, at_once, list(unused))
        self._queue_events(run, thread_id, used, unused, marked)

    def _queue_events(
        self,
        run: DeliveryRun | None,
        thread_id: str,
        used: dict[str, AnswerEvent],
        unused: Sequence[str],
        marked: Iterable[str],
    ) -> None:
        """Queue the events of answers that were used for the first time.

        Args:
            marked: jtis that were newly marked as used; in a delivery those count that it sent and did not announce yet.
        """
        if run is not None:
            marked = run.unannounced & used.keys()
            run.unannounced.difference_update(used)
            run.used.update(used)
            run.used.difference_update(unused)
        self._announcer.queue(thread_id, [used[jti] for jti in used if jti in set(marked)])


@contextmanager
def _noting_end(run: DeliveryRun | None, used: Iterable[str]) -> Iterator[None]:
    """A context for the write that says that these answers were used: its end is noted in `run.writing`."""
    if run is None:
        yield
        return
    stored: concurrent.futures.Future[bool] = concurrent.futures.Future()
    run.writing.update(dict.fromkeys(used, stored))
    try:
        yield
    except BaseException:
        stored.set_result(False)
        raise
    stored.set_result(True)


@contextmanager
def _while_held(run: DeliveryRun | None) -> Iterator[None]:
    """A context for the writes of a delivery: refused where it has lost its thread; a failure is noted in its lease.

    Raises:
        ThreadBusy: another worker may have taken the thread.
    """
    if run is None:
        yield
        return
    with run.lease.for_writing():
        yield
