"""Tokens for questions that were asked before this library came: native interrupts that stand in a thread's checkpoint, and
whose node a point covers now.

A pause is opened from the checkpoint alone: no node runs. What cannot be had that way is reported, and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Interrupt

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.answering.redeem import Redeemer
from symfonic_interrupts.asking.plain_interrupts import NativePosition, asked_here, question_at
from symfonic_interrupts.core.checkpoints import TaskState, is_marker, read_tasks, waiting_in
from symfonic_interrupts.core.effects import Backend, Effects, GetTuple, ListThreads, transact
from symfonic_interrupts.core.executions import Question
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.performing import aperform, perform
from symfonic_interrupts.core.rows import new_row, pause_event, pause_record
from symfonic_interrupts.errors import (
    CheckpointMissing,
    InterruptError,
    PauseNotReady,
    PauseSuperseded,
    ScopeMismatch,
    StoreError,
    UsageError,
)
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.operations import Claim
from symfonic_interrupts.store.row_mac import seal_row
from symfonic_interrupts.store.rows import PauseRow

MOST_GRAPHS_IN_A_TASK = 100
"""So many graphs that one function runs one after the other are looked through for the one that asks."""


@dataclass(frozen=True, slots=True)
class NotAdopted:
    """A question, or a whole thread, that got no token.

    Attributes:
        thread_id: the thread.
        code: `uncovered`: no point covers its node. `answered_before`: its node has an answer without a token already.
            `moved_on`: the thread went on meanwhile. `ended`: it had a token that is expired or revoked; see `reissue`.
            `of_a_point`: a point asked it, whose pause is not in this store. `checkpoint_missing`: no such thread.
            `unreadable`: the saver raised. Else the code of this library's error, such as `payload_invalid`,
            `scope_required`, `scope_mismatch`.
        reason: what that means and what to do, in a sentence; no payload is in it.
        langgraph_id: LangGraph's id of the interrupt; None where the whole thread is meant.
        node: the path of the node that asks, as far as it is known.
    """

    thread_id: str
    code: str
    reason: str
    langgraph_id: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Adoption:
    """What `adopt` did.

    Attributes:
        adopted: the pauses that it opened, with their tokens. Those that were open before are in `pending`.
        left: what it could not adopt, and why.
    """

    adopted: tuple[PauseEvent, ...] = ()
    left: tuple[NotAdopted, ...] = ()


class _Left(Exception):
    """Why a question is not adopted."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Adopting:
    """The part of a resume adapter that adopts."""

    graph_name: str
    _hub: Hub
    _redeemer: Redeemer
    _backend: Backend

    def adopt(self, thread_ids: Sequence[str] | None = None, *, scope: FrameworkTenantScope | None = None) -> Adoption:
        """Give tokens to native questions that stand already, and whose nodes a point covers now. Runs no node; any number of
        processes may do it, any number of times, while threads run.

        Args:
            thread_ids: these threads; None: all that the saver has, for which it reads every checkpoint.
            scope: whose the questions are of threads that do not say it; a thread of another scope is left alone. What a
                thread says stands in its checkpoint's metadata (`tenant_id`, ..., or what `scope_resolver` finds there).
                None: `FrameworkConfig.default_scope`.

        Returns:
            The new pauses, and what was left and why. One thread's error does not hold up the others. The time to answer
            begins now.

        Raises:
            ScopeRequired: `scope` is no scope.
            StoreError: the store cannot be used.
            UsageError: `thread_ids` are no thread ids.
        """
        return perform(self._adopt(thread_ids, scope), self._backend)

    async def aadopt(
        self, thread_ids: Sequence[str] | None = None, *, scope: FrameworkTenantScope | None = None
    ) -> Adoption:
        """`adopt` for coroutines: returns and raises the same."""
        return await aperform(self._adopt(thread_ids, scope), self._backend)

    def _adopt(self, thread_ids: Sequence[str] | None, scope: FrameworkTenantScope | None) -> Effects[Adoption]:
        self._hub.database.check_open()
        if scope is not None:
            self._hub.require_scope(scope, "")
        threads = _checked(thread_ids) if thread_ids is not None else (yield from ListThreads())
        adopter = Adopter(self._hub, self.graph_name, self._redeemer, scope)
        for thread_id in threads:
            yield from adopter.adopt(thread_id)
        return Adoption(tuple(adopter.adopted), tuple(adopter.left))


class Adopter:
    """Adopts the questions of one thread after the other.

    Args:
        scope: of threads that name none; others are left alone.
    """

    def __init__(self, hub: Hub, graph: str, redeemer: Redeemer, scope: FrameworkTenantScope | None) -> None:
        self._hub = hub
        self._graph = graph
        self._redeemer = redeemer
        self._scope = scope
        self.adopted: list[PauseEvent] = []
        self.left: list[NotAdopted] = []

    def adopt(self, thread_id: str) -> Effects[None]:
        """Adopt what stands at the thread's head; note what is left."""
        try:
            head = yield from GetTuple(_at(thread_id, ""))
        except (
            Exception
        ) as error:  # it may be of the saver's database: one thread's checkpoint does not hold up the others
            self.left.append(NotAdopted(thread_id, "unreadable", f"its checkpoint: {type(error).__name__}"))
            return
        if head is None:
            text = "the thread has no checkpoint in this graph's saver"
            self.left.append(NotAdopted(thread_id, CheckpointMissing.code, text))
            return
        waiting = waiting_in(read_tasks(head.pending_writes))
        standing: dict[str, tuple[str, Interrupt]] = {}
        for task_id, asked in waiting.items():
            for surfaced in asked:
                standing.setdefault(surfaced.id, (task_id, surfaced))
        if not standing:
            return
        rows = yield from transact(self._hub.operations.reading.load_thread, self._graph, thread_id)
        known = {row["langgraph_id"] for row in rows}
        for langgraph_id, (task_id, surfaced) in standing.items():
            if langgraph_id in known:
                continue
            place: NativePosition | None = None
            try:
                place = yield from self._place(thread_id, head, surfaced)
                self.adopted.append((yield from self._open(head, task_id, surfaced, place)))
            except _Known:
                continue
            except StoreError:
                raise
            except (_Left, InterruptError) as error:
                node = place.node if place is not None else self._node_at_root(task_id, surfaced)
                self.left.append(NotAdopted(thread_id, error.code, str(error), langgraph_id, node))
            except Exception as error:  # of the saver, of a resolver or of a model that an application wrote
                self.left.append(NotAdopted(thread_id, "unreadable", type(error).__name__, langgraph_id))

    # -- where it stands

    def _place(self, thread_id: str, head: CheckpointTuple, surfaced: Interrupt) -> Effects[NativePosition]:
        found = yield from self._look(thread_id, "", head, surfaced)
        if found is None and is_marker(surfaced.value):
            raise _Left(
                "of_a_point", "a point asked it, whose pause is not in this store; run the thread again to ask anew"
            )
        if found is None:
            raise _Left("uncovered", "no point covers the node that asks; name it in nodes= of a point")
        place, leaf = found
        if isinstance(leaf.resume, list | tuple) and leaf.resume:
            raise _Left(
                "answered_before",
                "its node has been answered without a token before this question; run the thread again without an answer, and"
                " all its questions are asked anew",
            )
        return place

    def _look(
        self, thread_id: str, ns: str, at: CheckpointTuple, surfaced: Interrupt
    ) -> Effects[tuple[NativePosition, TaskState] | None]:
        """Where the interrupt was asked: by a task of the checkpoint at `ns`, or of a graph below it."""
        tasks = read_tasks(at.pending_writes)
        asking = {id_: task for id_, task in tasks.items() if any(i.id == surfaced.id for i in task.pending)}
        for task_id, task in asking.items():
            slot = len(task.resume) if isinstance(task.resume, list | tuple) else 0
            found = asked_here(self._hub, self._graph, ns, surfaced, slot, task_id)
            if found is not None:
                registration, node = found
                place = NativePosition(
                    registration, node, ns, str(at.config["configurable"]["checkpoint_id"]), task_id, slot
                )
                return place, task
        for task_id in asking:
            for below in self._below(ns, task_id):
                for number in range(MOST_GRAPHS_IN_A_TASK):
                    ns_below = f"{below}{names.NS_SEPARATOR}{number}" if number else below
                    checkpoint = yield from GetTuple(_at(thread_id, ns_below))
                    if checkpoint is None:
                        break
                    deeper = yield from self._look(thread_id, ns_below, checkpoint, surfaced)
                    if deeper is not None:
                        return deeper
        return None

    def _below(self, ns: str, task_id: str) -> Iterator[str]:
        """The namespaces that a graph may have which this task runs, as far as nodes in it are covered."""
        above = names.node_path(ns).split(names.NS_END) if ns else []
        runs = set()
        for _, path in self._hub.covered_nodes(self._graph):
            parts = path.split(names.NS_END)
            if len(parts) > len(above) + 1 and parts[: len(above)] == above:
                runs.add(parts[len(above)])
        for node in sorted(runs):
            yield names.task_ns(ns, node, task_id)
            yield f"{ns}{names.NS_SEPARATOR}{node}" if ns else node  # a graph with a memory of its own

    def _node_at_root(self, task_id: str, surfaced: Interrupt) -> str | None:
        nodes = self._hub.graph_nodes.get(self._graph, frozenset())
        return next((n for n in sorted(nodes) if names.interrupt_id("", n, task_id) == surfaced.id), None)

    # -- opening it

    def _open(
        self, head: CheckpointTuple, task_id: str, surfaced: Interrupt, place: NativePosition
    ) -> Effects[PauseEvent]:
        at = head.config["configurable"]
        thread_id = str(at["thread_id"])
        question: Question = question_at(
            self._hub, place, thread_id, surfaced.value, lambda: self._scope_of(thread_id, head.metadata)
        )
        row = new_row(
            self._hub,
            question,
            graph=self._graph,
            thread_id=thread_id,
            checkpoint_id=str(at["checkpoint_id"]),
            task_id=task_id,
            langgraph_id=surfaced.id,
            slot=place.slot,
        )
        described = [(row, pause_record(self._hub, row))]
        (opened,), _ = yield from transact(self._hub.operations.opening.open_pauses, described, self._reseal)
        if opened["jti"] != row["jti"]:
            if opened["state"] in ("expired", "revoked"):
                raise _Left("ended", f"its pause is {opened['state']}; reissue {opened['interrupt_id']}")
            raise _Known
        self._hub.failpoint("pause_opened")
        yield from self._still_stands(row)
        return pause_event(self._hub, row)

    def _still_stands(self, row: PauseRow) -> Effects[None]:
        """A run that read the thread before the pause was opened may have gone on, and knows nothing of it."""
        try:
            yield from self._redeemer.check_head(row)
        except (PauseSuperseded, PauseNotReady, CheckpointMissing):
            event = ("interrupt_superseded", {"name": row["name"]})
            yield from transact(self._hub.operations.claiming.close, row, Claim("superseded", "superseded"), event)
            raise _Left("moved_on", "the thread went on meanwhile, and the question no longer stands") from None

    def _scope_of(self, thread_id: str, metadata: Mapping[str, Any]) -> FrameworkTenantScope:
        """The scope that the run named which stored the checkpoint: LangGraph keeps `configurable` in its metadata."""
        named = {key: value for key, value in metadata.items() if isinstance(value, str | int | float | bool)}
        config = {"configurable": {**named, "thread_id": thread_id}, "metadata": dict(metadata)}
        found = self._hub.named_scope(config)
        if found is not None and self._scope is not None and found != self._scope:
            raise ScopeMismatch("the thread belongs to another scope than the one that is given")
        return self._hub.require_scope(found or self._scope, "pass scope=FrameworkTenantScope(...)")

    def _reseal(self, row: PauseRow) -> PauseRow:
        return seal_row(row, self._hub.keys)


class _Known(Exception):
    """The question has a pause: open, or answered."""


def _at(thread_id: str, ns: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}


def _checked(thread_ids: Sequence[str]) -> list[str]:
    if isinstance(thread_ids, str | bytes) or not isinstance(thread_ids, Sequence):
        raise UsageError("thread_ids must be a list of thread ids, or None for all threads")
    if not all(isinstance(thread_id, str) and thread_id for thread_id in thread_ids):
        raise UsageError("thread_ids: each must be a text that is not empty")
    return list(dict.fromkeys(thread_ids))
