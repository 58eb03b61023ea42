"""What the tasks of running graphs have asked and been answered, in this process.

LangGraph runs a node again from its start for every answer. An `Execution` is one such pass of one task: the questions it has
asked so far, the answers that came with the resume, and which of them it has used. Calls that run side by side within one
task (a ToolNode) share it, and each gets the answer that was given to its own question. It is dropped when the task's
write is recorded, or the thread has moved on.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

from langgraph.errors import GraphInterrupt
from langgraph.runtime import ExecutionInfo

from symfonic_interrupts import forks
from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.events import AnswerEvent
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.tokens.receipt import Receipt

MOST_EXECUTIONS = 10_000
MOST_REMEMBERED = 10_000

Thread = tuple[str, str]
"""A thread of a graph: (graph's name, thread id)."""


class Remembered(OrderedDict[Any, Any]):
    """A mapping that forgets its oldest entries: memory of what this process saw, never the truth."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        super().__init__()
        self._most = most
        self._noting = forks.Lock()

    def note(self, key: Any, value: Any = True) -> None:
        """Remember a value."""
        with self._noting:
            self[key] = value
            while len(self) > self._most:
                self.popitem(last=False)

    def forget(self, key: Any) -> Any:
        """The value that was remembered, which is remembered no more; or None."""
        with self._noting:
            return self.pop(key, None)


@dataclass(frozen=True, slots=True)
class Question:
    """One ask: what, of whom, and by which task."""

    interrupt_id: str
    name: str
    payload: str = field(repr=False)
    request_hash: str
    occurrence: int
    scope: FrameworkTenantScope
    asked_at: datetime
    leaf_ns: str
    leaf_checkpoint_id: str
    leaf_task_id: str
    run_id: str | None
    native: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it arrives in a node: its receipt, and the response's canonical JSON."""

    receipt: Receipt
    response: str = field(repr=False)
    sealed: dict[str, Any] = field(repr=False)

    @property
    def fits(self) -> tuple[str, str, str]:
        """The question that it answers."""
        return self.receipt.interrupt_id, self.receipt.name, self.receipt.request_hash


@dataclass(slots=True)
class Execution:
    """One pass of one task. Its methods are called with `lock` held."""

    info: ExecutionInfo
    graph: str
    thread_id: str
    task_id: str
    ns: str
    root_checkpoint_id: str
    lock: threading.RLock = field(default_factory=threading.RLock)
    asked: dict[str, Question] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    refused: Exception | None = None
    refused_question: Question | None = None
    raised: GraphInterrupt | None = None  # as which its last question went to LangGraph
    surfaced: set[str] = field(default_factory=set)  # LangGraph's ids of the interrupts that it really raised
    writes: Any = None  # the task's writes, where they can be seen
    used: dict[str, Answer] = field(default_factory=dict)
    told: dict[str, AnswerEvent] = field(default_factory=dict)  # of the answers used, by jti, as far as they were made
    received: set[str] = field(default_factory=set)
    noted: set[str] = field(default_factory=set)  # jtis whose use is known outside this execution
    ended: bool = False  # its task has finished with a question that nobody was asked
    is_old: bool = False  # the node that it ran in, or below, has begun anew since
    of_before: bool = False  # the thread was read since: another run may have begun, and this one have died
    _waiting: dict[tuple[str, str, str], Answer] = field(default_factory=dict)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def ask(self, name: str, payload: str, request_hash: str, scope: FrameworkTenantScope, now: datetime) -> Question:
        """Note a question. The same one, asked again in this execution, is another occurrence of it."""
        occurrence = self._counts[name, request_hash]
        self._counts[name, request_hash] += 1
        question = Question(
            interrupt_id=interrupt_id(self.thread_id, self.task_id, name, request_hash, occurrence),
            name=name,
            payload=payload,
            request_hash=request_hash,
            occurrence=occurrence,
            scope=scope,
            asked_at=now,
            leaf_ns=self.ns,
            leaf_checkpoint_id=self.info.checkpoint_id,
            leaf_task_id=self.task_id,
            run_id=self.info.run_id,
        )
        self.asked[question.interrupt_id] = question
        return question

    def take(self, question: Question) -> Answer | None:
        """The answer to exactly this question, if it has come. Each is taken once."""
        answer = self._waiting.pop((question.interrupt_id, question.name, question.request_hash), None)
        if answer is not None:
            self.answered.add(question.interrupt_id)
            self.used[answer.receipt.jti] = answer
        return answer

    def receive(self, answers: Iterable[Answer]) -> None:
        """Keep what a resume brought; each token's answer counts once."""
        for answer in answers:
            if answer.receipt.jti not in self.received:
                self.received.add(answer.receipt.jti)
                self._waiting.setdefault(answer.fits, answer)  # the first answer to a question counts

    @property
    def has_finished(self) -> bool:
        """Whether its task has finished, and so cannot be told anything any more. Also where that cannot be seen."""
        if self.writes is None:
            return True
        return any(channel not in names.CONTROL_CHANNELS for channel, _ in list(self.writes))

    def unanswered(self) -> list[Question]:
        """What this execution has asked and not been told."""
        return [question for id_, question in list(self.asked.items()) if id_ not in self.answered]


def _unasked(executions: Iterable[Execution]) -> list[Execution]:
    """Of each task's newest execution, those that asked and were not told."""
    newest = {execution.task_id: execution for execution in executions}
    return [e for e in newest.values() if e.refused is None and e.unanswered()]


def take_swallowed(executions: Iterable[Execution]) -> list[Question]:
    """What these executions, which are over without a pause, asked and were never told in any pass of their task.

    Each is given out once: a task's writes and the next checkpoint may be stored at the same time.
    """
    asked: dict[tuple[str, str], Question] = {}
    answered: set[tuple[str, str]] = set()
    for execution in executions:
        with execution.lock:
            if execution.refused is None:
                for question in execution.unanswered():
                    asked[execution.task_id, question.interrupt_id] = execution.asked.pop(question.interrupt_id)
            answered.update((execution.task_id, id_) for id_ in execution.answered)
    return [question for key, question in asked.items() if key not in answered]


class Executions:
    """The executions of this process, found by the running task, by thread and task, or by question."""

    def __init__(self, most: int = MOST_EXECUTIONS) -> None:
        self._most = most
        self._lock = forks.Lock()
        self._by_info: OrderedDict[int, Execution] = OrderedDict()  # an Execution holds its info, so the id stays taken
        self._by_thread: dict[Thread, dict[int, Execution]] = {}
        self._over: OrderedDict[int, ExecutionInfo] = OrderedDict()  # held, so that their ids stay taken
        self._asked = Remembered(most)  # the last that asked a question, by thread and question, though it is over

    def of(self, graph: str, info: ExecutionInfo, configurable: Mapping[str, Any]) -> Execution:
        """The execution that `info` (`get_runtime().execution_info`) belongs to, in a task with this `configurable`.

        A call that outlives its pass gets one of its own, which is not kept: the pass is recorded, and asks in the next.
        """
        key = names.execution_key(info)
        with self._lock:
            found = self._by_info.get(key)
            if found is None:
                found = Execution(
                    info,
                    graph=graph,
                    thread_id=str(info.thread_id),
                    task_id=names.running_task_id(configurable, info.task_id),
                    ns=names.writes_ns(configurable, info.checkpoint_id),
                    root_checkpoint_id=names.root_checkpoint_id(configurable, info.checkpoint_id),
                    writes=names.writes_of_task(configurable),
                )
                if key in self._over:
                    return found
                self._by_info[key] = found
                self._by_thread.setdefault((graph, found.thread_id), {})[key] = found
                while len(self._by_info) > self._most:
                    self._forget(next(iter(self._by_info.values())))
            return found

    def of_task(self, thread: Thread, task_id: str) -> list[Execution]:
        """The executions of one task; more than one only where several runs drive the same thread."""
        with self._lock:
            return [e for e in self._by_thread.get(thread, {}).values() if e.task_id == task_id]

    def under(self, thread: Thread, task_ns: str) -> list[Execution]:
        """The executions of the task at this namespace and of all tasks below it, oldest first."""
        if thread not in self._by_thread:
            return []
        with self._lock:
            found = list(self._by_thread.get(thread, {}).values())
        return [e for e in found if names.is_below(e.info.checkpoint_ns, task_ns)]

    def swallowed_under(self, thread: Thread, info: ExecutionInfo) -> list[Execution]:
        """Of a task that has returned and of all tasks below it, the executions that asked and were not told.

        Of one task only the newest counts, and nothing that was asked before this pass of the node began.
        """
        own = names.execution_key(info)
        found = [(names.execution_key(e.info) == own, e) for e in self.under(thread, info.checkpoint_ns)]
        current = [(is_own, e) for is_own, e in found if is_own or not e.is_old]
        return _unasked(e for _, e in sorted(current, key=itemgetter(0)))  # the pass's own is the newest

    def begin(self, thread: Thread, info: ExecutionInfo) -> None:
        """A pass of a node begins: what was asked in it before, or below it, is of an earlier one."""
        for execution in self.under(thread, info.checkpoint_ns):
            execution.is_old = True

    def end_swallowed(self, thread: Thread, task_id: str) -> bool:
        """Note that a task has finished; returns whether it asked and was not told."""
        found = [e for e in _unasked(self.of_task(thread, task_id)) if not e.is_old]
        for execution in found:
            execution.ended = True
        return bool(found)

    def swallowed_before(self, thread: Thread, ns: str, checkpoint_id: str) -> bool:
        """Whether a subgraph's checkpoint of this id lies behind a task, of it or below it, that finished though it asked and
        was not told."""
        found = [e for e in _unasked(self.of_thread(thread)) if names.is_below(e.ns, ns) and not e.is_old]
        behind = [e for e in found if names.came_before(e.info.checkpoint_id, checkpoint_id)]
        return any(e.ended or (e.writes and e.has_finished) for e in behind)

    def of_thread(self, thread: Thread) -> list[Execution]:
        """All executions of a thread, in whatever namespace."""
        with self._lock:
            return list(self._by_thread.get(thread, {}).values())

    def any_of(self, thread: Thread) -> bool:
        """Whether the thread has any."""
        return thread in self._by_thread

    def asking(self, thread: Thread, interrupt_id: str, checkpoint_id: str) -> Execution | None:
        """The latest execution that asked this question. Of the step at this root checkpoint, also one that is over: a task
        passes on what a task below it asked, and the lower one's writes may be recorded before."""
        with self._lock:
            found = [e for e in self._by_thread.get(thread, {}).values() if interrupt_id in e.asked]
            if found:
                return found[-1]
        over: Execution | None = self._asked.get((thread, interrupt_id))
        return over if over is not None and over.root_checkpoint_id == checkpoint_id else None

    def before(self, thread: Thread, checkpoint_id: str) -> list[Execution]:
        """Executions of steps that lie behind the root checkpoint of this id."""
        if thread not in self._by_thread:
            return []
        with self._lock:
            found = self._by_thread.get(thread, {}).values()
            return [e for e in found if names.came_before(e.root_checkpoint_id, checkpoint_id)]

    def since(self, thread: Thread, checkpoint_id: str) -> list[Execution]:
        """Executions at the checkpoint of this id, in whatever namespace, and at newer ones."""
        if thread not in self._by_thread:
            return []
        with self._lock:
            found = self._by_thread.get(thread, {}).values()
            return [e for e in found if not names.came_before(e.info.checkpoint_id, checkpoint_id)]

    def was_read(self, thread: Thread) -> None:
        """The thread's newest checkpoint was read, as a run does when it begins."""
        if thread not in self._by_thread:
            return
        with self._lock:
            for execution in self._by_thread.get(thread, {}).values():
                execution.of_before = True

    def below(self, thread: Thread, ns: str, checkpoint_id: str) -> list[Execution]:
        """Executions of a subgraph's steps that lie behind that subgraph's checkpoint of this id."""
        if thread not in self._by_thread:
            return []
        with self._lock:
            found = self._by_thread.get(thread, {}).values()
            return [e for e in found if e.ns == ns and names.came_before(e.info.checkpoint_id, checkpoint_id)]

    def drop(self, executions: Sequence[Execution]) -> None:
        """Forget executions that are over."""
        with self._lock:
            for execution in executions:
                self._forget(execution)
                if execution.surfaced:
                    for asked in execution.asked:
                        self._asked.note(((execution.graph, execution.thread_id), asked), execution)
                self._over[names.execution_key(execution.info)] = execution.info
            while len(self._over) > self._most:
                self._over.popitem(last=False)

    def _forget(self, execution: Execution) -> None:
        self._by_info.pop(names.execution_key(execution.info), None)
        place = (execution.graph, execution.thread_id)
        thread = self._by_thread.get(place, {})
        thread.pop(names.execution_key(execution.info), None)
        if not thread:
            self._by_thread.pop(place, None)

    def __len__(self) -> int:
        return len(self._by_info)


def interrupt_id(thread_id: str, task_id: str, name: str, request_hash: str, occurrence: int) -> str:
    """`i-` and 12 hex digits that follow from the question, so it keeps its id when a node runs again."""
    text = canonical_json([thread_id, task_id, name, request_hash, occurrence])
    return "i-" + hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]
