"""Native `interrupt()` calls in nodes that a registration covers with `nodes`.

LangGraph says which task asked, not which node: the node's name is found by computing, for each registered name, the
interrupt id that LangGraph would give it. No code in such a node checks a receipt, so its answer travels as plain data, and the
node's door (`door`) checks what comes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langgraph.types import Interrupt

from symfonic_interrupts import forks
from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.canonical import sha256
from symfonic_interrupts.core.executions import Question, Remembered, interrupt_id
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.events import AnswerEvent
from symfonic_interrupts.registration import InterruptRegistration
from symfonic_interrupts.scope import FrameworkTenantScope

MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class NativePosition:
    """Where a native question stands: its registration and the task that asked.

    Attributes:
        node: the node's path in the root graph, as `sub:node`.
        slot: how many questions the task has asked before.
    """

    registration: InterruptRegistration
    node: str
    leaf_ns: str
    leaf_checkpoint_id: str
    leaf_task_id: str
    slot: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A native answer on its way into a task."""

    jti: str
    task_id: str
    slot: int
    value: Any
    checkpoint_id: str
    event: AnswerEvent


class NativeAnswers:
    """Memory of native questions seen in subgraphs, and of native answers that were sent."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._positions: OrderedDict[str, NativePosition] = OrderedDict()
        self._sent: OrderedDict[str, list[Sent]] = OrderedDict()
        self._guarded = Remembered()
        self._askers = Remembered()

    def guarded(self, task_id: str) -> None:
        """Note that this task passed its door."""
        self._guarded.note(task_id)

    def was_guarded(self, task_id: str) -> bool:
        """Whether this process remembers that the task passed its door."""
        return task_id in self._guarded

    def asked_by(self, langgraph_id: str, path: str) -> None:
        """Note which node asked. The first call counts: graphs above the node pass the same interrupt on."""
        if self._askers.get(langgraph_id) is None:
            self._askers.note(langgraph_id, path)

    def asker(self, langgraph_id: str) -> str | None:
        """The path of the node that asked, where its guard saw it."""
        path: str | None = self._askers.get(langgraph_id)
        return path

    def remember(self, langgraph_id: str, position: NativePosition) -> None:
        """Note where an interrupt was seen in its own graph: the write of the root graph has only its id."""
        with self._lock:
            self._positions[langgraph_id] = position
            while len(self._positions) > MOST_REMEMBERED:
                self._positions.popitem(last=False)

    def position(self, langgraph_id: str) -> NativePosition | None:
        """Where this interrupt was seen in its own graph; None where it was not."""
        with self._lock:
            return self._positions.get(langgraph_id)

    def send(self, thread_id: str, sent: Sent) -> None:
        """Note an answer that a delivery is about to resume with, or that a run was handed again."""
        with self._lock:
            others = [earlier for earlier in self._sent.get(thread_id, ()) if earlier.jti != sent.jti]
            self._sent[thread_id] = [*others, sent]
            while len(self._sent) > MOST_REMEMBERED:
                self._sent.popitem(last=False)

    def has_any(self, thread_id: str) -> bool:
        """Whether answers were sent to this thread that the next checkpoint may settle."""
        return thread_id in self._sent

    def used_in(self, thread_id: str, task_id: str, resume: Any) -> dict[str, AnswerEvent]:
        """By jti, the events of sent answers that this RESUME write has in their slots. They stay noted."""
        with self._lock:
            sent = list(self._sent.get(thread_id, ()))
        return {s.jti: s.event for s in sent if s.task_id == task_id and stands_in(resume, s.slot, s.value)}

    def sent_to(self, thread_id: str, task_id: str) -> dict[str, AnswerEvent]:
        """By jti, the events of answers that were sent to this task."""
        with self._lock:
            return {s.jti: s.event for s in self._sent.get(thread_id, ()) if s.task_id == task_id}

    def used_before(self, thread_id: str, checkpoint_id: str) -> dict[str, AnswerEvent]:
        """By jti, the events of sent answers to questions of earlier root checkpoints. They are forgotten."""
        if thread_id not in self._sent:
            return {}
        with self._lock:
            sent = self._sent.pop(thread_id, [])
            if remaining := [s for s in sent if not names.came_before(s.checkpoint_id, checkpoint_id)]:
                self._sent[thread_id] = remaining
        return {s.jti: s.event for s in sent if names.came_before(s.checkpoint_id, checkpoint_id)}


def stands_in(resume: Any, slot: int, value: Any) -> bool:
    """Whether a RESUME write has this value in this slot."""
    return isinstance(resume, list | tuple) and len(resume) > slot and bool(resume[slot] == value)


def native_question(
    hub: Hub, memory: NativeAnswers, graph: str, config: Any, surfaced: Interrupt, slot: int, task_id: str
) -> Question | None:
    """The question of a native interrupt, if a registration covers its node. None in a subgraph's own write: the write of the
    root graph follows, and only after that can the thread be resumed.

    Raises:
        PayloadInvalid: the interrupt's value does not fit the payload schema.
        RegistrationError: no guard has checked what this node was resumed with.
    """
    place = config["configurable"]
    ns = place.get("checkpoint_ns", "")
    found = asked_here(hub, graph, ns, surfaced, slot, task_id)
    if found is not None:
        registration, node = found
        memory.remember(surfaced.id, NativePosition(registration, node, ns, place["checkpoint_id"], task_id, slot))
    seen = memory.position(surfaced.id)
    if seen is None or ns:
        return None
    _require_guard(hub, memory, graph, seen)  # here: what is raised below, the question's own GraphInterrupt hides
    return question_at(hub, seen, str(place["thread_id"]), surfaced.value, lambda: hub.scope_of_run(config))


def question_at(
    hub: Hub, place: NativePosition, thread_id: str, value: Any, scope: Callable[[], FrameworkTenantScope]
) -> Question:
    """The question that stands at a place.

    Args:
        value: of the native interrupt.
        scope: whose it is.

    Raises:
        PayloadInvalid: the value does not fit the payload schema.
    """
    registration = place.registration
    registration.check(hub.config)
    model = registration.native_payload(value, node=place.node)
    payload = registration.payload_text(model, limit=hub.config.max_payload_bytes)
    request_hash = sha256(payload)
    return Question(
        interrupt_id=interrupt_id(thread_id, place.leaf_task_id, registration.name, request_hash, place.slot),
        name=registration.name,
        payload=payload,
        request_hash=request_hash,
        occurrence=place.slot,
        scope=scope(),
        asked_at=hub.now(),
        leaf_ns=place.leaf_ns,
        leaf_checkpoint_id=place.leaf_checkpoint_id,
        leaf_task_id=place.leaf_task_id,
        run_id=None,
        native=True,
    )


def covering(hub: Hub, graph: str, path: str) -> InterruptRegistration | None:
    """The point that covers the native questions of this node."""
    return next((registration for registration, node in hub.covered_nodes(graph) if node == path), None)


def covers(hub: Hub, graph: str) -> bool:
    """Whether any point covers native questions of this graph, as far as this process knows."""
    entries = [node for registration in hub.registry.values() for node in registration.nodes]
    return any("/" not in node or node.startswith(f"{graph}/") for node in entries)


def _require_guard(hub: Hub, memory: NativeAnswers, graph: str, position: NativePosition) -> None:
    """Raise RegistrationError where no guard has checked what the node was resumed with."""
    known = hub.graph_nodes.get(graph)
    # a node that only exists inside a tool cannot be seen when the adapter is made
    if memory.was_guarded(position.leaf_task_id) or (known is not None and position.node not in known):
        return
    raise RegistrationError(
        f"node {position.node!r} of graph {graph!r} asks, but it is not guarded, so any resume would count as an answer: call"
        " interrupts.resume_adapter(graph) in this process before the graph runs"
    )


def asked_here(
    hub: Hub, graph: str, ns: str, surfaced: Interrupt, slot: int, task_id: str
) -> tuple[InterruptRegistration, str] | None:
    """The covered node whose question has this interrupt id, and its registration; None: no covered node of this graph."""
    above = names.node_path(ns) if ns else ""
    for registration, node in hub.covered_nodes(graph):
        parent, _, own = node.rpartition(names.NS_END)
        if parent == above and names.interrupt_id(ns, own, task_id, slot) == surfaced.id:
            return registration, node
    return None
