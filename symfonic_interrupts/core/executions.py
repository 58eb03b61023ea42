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
    """A mapping that forgets its oldest entries. It says what this process saw; what is true stands in the database."""

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
        """Remove a value and return it; None where there is none."""
        with self._noting:
            return self.pop(key, None)


@dataclass(frozen=True, slots=True)
class Question:
    """One call of `pause`, `ask` or a native `interrupt()`: what is asked, in which scope, and by which task.

    Attributes:
        payload: canonical JSON of what is shown.
        request_hash: SHA-256 of `payload`, base64url.
        occurrence: how often the task has asked the same before, in this pass; of a native question its slot.
        leaf_ns, leaf_checkpoint_id, leaf_task_id: the task that asked, which may be one of a subgraph.
    """

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
    """An answer as it arrives in a node.

    Attributes:
        receipt: the receipt, checked.
        response: canonical JSON of the response.
        sealed: the receipt as it was signed.
    """

    receipt: Receipt
    response: str = field(repr=False)
    sealed: dict[str, Any] = field(repr=False)

    @property
    def fits(self) -> tuple[str, str, str]:
        """The question that it answers: (interrupt id, name of the point, request hash)."""
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
    raised: GraphInterrupt | None = None  # what its last question raised
    surfaced: set[str] = field(default_factory=set)  # LangGraph's ids of the interrupts that it raised
    writes: Any = None  # the task's writes, where they can be seen
    used: dict[str, Answer] = field(default_factory=dict)
    used_events: dict[str, AnswerEvent] = field(default_factory=dict)  # by jti, those made so far for `used`
    received: set[str] = field(default_factory=set)
    noted: set[str] = field(default_factory=set)  # jtis whose use is stored
    ended: bool = False  # its task has finished and swallowed a question
    from_earlier_pass: bool = False  # its node, or one above it, has begun another pass since
    from_earlier_run: bool = False  # the thread was read since, so its run may have died and another have begun
    _waiting: dict[tuple[str, str, str], Answer] = field(default_factory=dict)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def ask(self, name: str, payload: str, request_hash: str, scope: FrameworkTenantScope, now: datetime) -> Question:
        """Note a question. Asked again in this execution, the same one counts as another occurrence."""
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
        """The answer to exactly this question, or None where it has not come. Each answer is taken once."""
        answer = self._waiting.pop((question.interrupt_id, question.name, question.request_hash), None)
        if answer is not None:
            self.answered.add(question.interrupt_id)
            self.used[answer.receipt.jti] = answer
        return answer

    def receive(self, answers: Iterable[Answer]) -> None:
        """Keep the answers that a resume brought. Each jti counts once."""
        for answer in answers:
            if answer.receipt.jti not in self.received:
                self.received.add(answer.receipt.jti)
                self._waiting.setdefault(answer.fits, answer)  # the first answer to a question counts

    @property
    def has_finished(self) -> bool:
        """Whether its task has finished, and takes no answer any more. True also where its writes cannot be seen."""
        if self.writes is None:
            return True
        return any(channel not in names.CONTROL_CHANNELS for channel, _ in list(self.writes))

    def unanswered(self) -> list[Question]:
        """The questions of this execution that got no answer."""
        return [question for id_, question in list(self.asked.items()) if id_ not in self.answered]


def _swallowing(executions: Iterable[Execution]) -> list[Execution]:
    """Of each task's newest execution, those with a question that got no answer."""
    newest = {execution.task_id: execution for execution in executions}
    return [e for e in newest.values() if e.refused is None and e.unanswered()]


def take_swallowed(executions: Iterable[Execution]) -> list[Question]:
    """The questions of these executions, which ended without a pause, that got no answer in any pass of their task.

    Each is returned once: a task's writes and the next checkpoint may be stored at the same time.
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
        self._by_info: OrderedDict[int, Execution] = OrderedDict()  # by `id()` of its info, which it keeps alive
        self._by_thread: dict[Thread, dict[int, Execution]] = {}
        self._over: OrderedDict[int, ExecutionInfo] = OrderedDict()  # finished passes, by the same key; kept alive, too
        self._asked = Remembered(most)  # by (thread, interrupt id), the last execution that asked it and is over

    def of(self, graph: str, info: ExecutionInfo, configurable: Mapping[str, Any]) -> Execution:
        """The execution that `info` (`get_runtime().execution_info`) belongs to, in a task with this `configurable`.

        A call that outlives its pass gets an execution of its own, which is not kept: its pass is recorded already, and it asks
        again in the next.
        """
        key = names.execution_key(info)
        with self._lock:
            execution = self._by_info.get(key)
            if execution is None:
                execution = Execution(
                    info,
                    graph=graph,
                    thread_id=str(info.thread_id),
                    task_id=names.running_task_id(configurable, info.task_id),
                    ns=names.writes_ns(configurable, info.checkpoint_id),
                    root_checkpoint_id=names.root_checkpoint_id(configurable, info.checkpoint_id),
                    writes=names.writes_of_task(configurable),
                )
                if key in self._over:
                    return execution
                self._by_info[key] = execution
                self._by_thread.setdefault((graph, execution.thread_id), {})[key] = execution
                while len(self._by_info) > self._most:
                    self._forget(next(iter(self._by_info.values())))
            return execution

    def of_task(self, thread: Thread, task_id: str) -> list[Execution]:
        """The executions of one task; more than one only where several runs drive the same thread."""
        with self._lock:
            return [e for e in self._by_thread.get(thread, {}).values() if e.task_id == task_id]

    def under(self, thread: Thread, task_ns: str) -> list[Execution]:
        """The executions of the task at this namespace and of all tasks below it, oldest first."""
        if thread not in self._by_thread:
            return []
        with self._lock:
            executions = list(self._by_thread.get(thread, {}).values())
        return [e for e in executions if names.is_below(e.info.checkpoint_ns, task_ns)]

    def swallowed_under(self, thread: Thread, info: ExecutionInfo) -> list[Execution]:
        """Of a task that has returned and of all tasks below it, the executions with a question that got no answer.

        Of each task only the newest execution counts, and none of an earlier pass of the node.
        """
        own = names.execution_key(info)
        executions = [(names.execution_key(e.info) == own, e) for e in self.under(thread, info.checkpoint_ns)]
        current = [(is_own, e) for is_own, e in executions if is_own or not e.from_earlier_pass]
        return _swallowing(e for _, e in sorted(current, key=itemgetter(0)))  # own executions last: they are the newest

    def begin(self, thread: Thread, info: ExecutionInfo) -> None:
        """Note that a pass of a node begins: what was asked in the node or below it belongs to earlier passes."""
        for execution in self.under(thread, info.checkpoint_ns):
            execution.from_earlier_pass = True

    def end_swallowed(self, thread: Thread, task_id: str) -> bool:
        """Note that a task has finished. Returns whether it has a question that got no answer."""
        swallowing = [e for e in _swallowing(self.of_task(thread, task_id)) if not e.from_earlier_pass]
        for execution in swallowing:
            execution.ended = True
        return bool(swallowing)

    def swallowed_before(self, thread: Thread, ns: str, checkpoint_id: str) -> bool:
        """Whether, before this checkpoint of the subgraph at `ns`, a task of it or below it finished with a question that got
        no answer."""
        swallowing = [
            e for e in _swallowing(self.of_thread(thread)) if names.is_below(e.ns, ns) and not e.from_earlier_pass
        ]
        earlier = [e for e in swallowing if names.came_before(e.info.checkpoint_id, checkpoint_id)]
        return any(e.ended or (e.writes and e.has_finished) for e in earlier)

    def of_thread(self, thread: Thread) -> list[Execution]:
        """All executions of a thread, in any namespace."""
        with self._lock:
            return list(self._by_thread.get(thread, {}).values())

    def has_any(self, thread: Thread) -> bool:
        """Whether this process remembers an execution of the thread."""
        return thread in self._by_thread

    def asking(self, thread: Thread, interrupt_id: str, checkpoint_id: str) -> Execution | None:
        """The latest execution that asked this question, or None.

        Also one that is over, if it belongs to this root checkpoint: a task passes on what a task below it asked, and the
        writes of the lower one may be recorded first.
        """
        with self._lock:
            askers = [e for e in self._by_thread.get(thread, {}).values() if interrupt_id in e.asked]
            if askers:
                return askers[-1]
        over: Execution | None = self._asked.get((thread, interrupt_id))
        return over if over is not None and over.root_checkpoint_id == checkpoint_id else None

    def before(self, thread: Thread, checkpoint_id: str) -> list[Execution]:
        """Executions that belong to an earlier root checkpoint than this one."""
        if thread not in self._by_thread:
            return []
        with self._lock:
            executions = self._by_thread.get(thread, {}).values()
            return [e for e in executions if names.came_before(e.root_checkpoint_id, checkpoint_id)]

    def since(self, thread: Thread, checkpoint_id: str) -> list[Execution]:
        """Executions at the checkpoint of this id or at newer ones, in any namespace."""
        if thread not in self._by_thread:
            return []
        with self._lock:
            executions = self._by_thread.get(thread, {}).values()
            return [e for e in executions if not names.came_before(e.info.checkpoint_id, checkpoint_id)]

    def note_read(self, thread: Thread) -> None:
        """Note that the thread's newest checkpoint was read, as a run does when it begins."""
        if thread not in self._by_thread:
            return
        with self._lock:
            for execution in self._by_thread.get(thread, {}).values():
                execution.from_earlier_run = True

    def below(self, thread: Thread, ns: str, checkpoint_id: str) -> list[Execution]:
        """Executions of the subgraph at `ns` that belong to an earlier checkpoint of it than this one."""
        if thread not in self._by_thread:
            return []
        with self._lock:
            executions = self._by_thread.get(thread, {}).values()
            return [e for e in executions if e.ns == ns and names.came_before(e.info.checkpoint_id, checkpoint_id)]

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
        thread = (execution.graph, execution.thread_id)
        executions = self._by_thread.get(thread, {})
        executions.pop(names.execution_key(execution.info), None)
        if not executions:
            self._by_thread.pop(thread, None)

    def __len__(self) -> int:
        return len(self._by_info)


def interrupt_id(thread_id: str, task_id: str, name: str, request_hash: str, occurrence: int) -> str:
    """The id of a question: `i-` and 12 hex digits of a hash, so that it is the same when the node runs again."""
    text = canonical_json([thread_id, task_id, name, request_hash, occurrence])
    return "i-" + hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]
