"""What the saver does when a checkpoint is read: it remembers where threads are paused, and gives a run only those stored
answers that may count.

LangGraph keeps the answers that a task had in the task's RESUME write, and hands them to it again when it runs again. A run
gets only those that are still on their way: at the thread's newest checkpoint, with a row that has the very same answer. All
others lose their content. A delivery knows its thread's rows; any other run that loads such a write costs one read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.envelope import VOID, Loaded, answers_in, is_envelope, jtis_in
from symfonic_interrupts.asking.plain_interrupts import NativeAnswers, Sent, covers
from symfonic_interrupts.core.checkpoints import is_marker, read_tasks
from symfonic_interrupts.core.delivery_run import delivery_run_of
from symfonic_interrupts.core.effects import Effects, GetTuple, transact
from symfonic_interrupts.core.executions import Remembered
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.rows import stored_answer, used_answer_event
from symfonic_interrupts.errors import RegistrationError, ThreadBusy
from symfonic_interrupts.saver.announcer import Config, PutWatch
from symfonic_interrupts.store.rows import PauseWithAnswer


class Loader:
    """Looks at the checkpoints of one graph as they are read.

    Args:
        paused: where (thread, checkpoint) of paused threads are noted.
        natives: where native answers that a run was handed are noted.

    Attributes:
        guarded: an adapter was made for the graph of this saver, so its nodes have their guards.
    """

    def __init__(self, hub: Hub, graph: str, puts: PutWatch, paused: Remembered, natives: NativeAnswers) -> None:
        self._hub = hub
        self._graph = graph
        self._puts = puts
        self._paused = paused
        self._natives = natives
        self._loaded = Remembered()
        self.guarded = False

    def note_load(self, config: Config | None) -> None:
        """Note that a run reads this namespace: a replayed subgraph by `list`, any other by `get_tuple`."""
        configurable = (config or {}).get("configurable", {})
        if ns := configurable.get("checkpoint_ns", ""):
            thread_id = str(configurable.get("thread_id"))
            above = [self._loaded.get((thread_id, around)) for around in names.namespaces_above(ns)]
            cached = names.cached_task(configurable) if names.is_a_run(configurable) else None
            self._loaded.note((thread_id, ns), cached or next(filter(None, above), ""))

    def loaded(self, thread_id: str, ns: str) -> bool:
        """Whether a run of this thread has read this namespace. A graph with `checkpointer=False` reads none."""
        return not ns or (thread_id, ns) in self._loaded

    def cached_above(self, thread_id: str, ns: str) -> str:
        """The name of a task around the graph at this namespace whose result goes into a cache; or an empty text."""
        return self._loaded.get((thread_id, ns)) or ""

    # -- after a checkpoint was read

    def note_read(self, config: Config, checkpoint: CheckpointTuple | None) -> CheckpointTuple | None:
        """Note what was read, and whether the thread is paused there.

        Returns the checkpoint, without a bare resume that one of our pauses refused.
        """
        if not config["configurable"].get("checkpoint_ns"):
            self._forget_broken(str(config["configurable"].get("thread_id")))
        self.note_load(config)
        if checkpoint is None:
            return None
        position = checkpoint.config["configurable"]
        if position.get("checkpoint_ns", ""):
            return checkpoint
        if not config["configurable"].get("checkpoint_id"):
            self._hub.executions.note_read((self._graph, str(position["thread_id"])))
        key = (str(position["thread_id"]), position["checkpoint_id"])
        self._puts.ended(key)
        writes = checkpoint.pending_writes or ()
        tasks = read_tasks(writes) if any(channel == INTERRUPT for _, channel, _ in writes) else {}
        if tasks or config["configurable"].get("checkpoint_id"):
            self._paused.note(key)
        if any(is_marker(i.value) for task in tasks.values() for i in task.pending):
            # LangGraph keeps the refused value under the null task, and would give it to the next question of this checkpoint.
            return checkpoint._replace(pending_writes=_without_bare(writes))
        return checkpoint

    def must_admit(self, config: Config, checkpoint: CheckpointTuple) -> bool:
        """Whether a run begins here that would be handed stored answers, or could answer a native question."""
        return names.is_a_run(config["configurable"]) and (
            any(channel == RESUME for _, channel, _ in checkpoint.pending_writes or ())
            or bool(self._unwatched_questions(config, checkpoint))
            or self._begins_unguarded(checkpoint)
        )

    def _begins_unguarded(self, checkpoint: CheckpointTuple) -> bool:
        """Whether a run from this root checkpoint begins at a node that a point covers and that no adapter has guarded here.
        An earlier run may have been refused when that node asked, so no question stands that would say so."""
        if self.guarded or checkpoint.config["configurable"].get("checkpoint_ns", ""):
            return False
        covered = {path.partition(names.NS_END)[0] for _, path in self._hub.covered_nodes(self._graph)}
        return bool(covered) and not covered.isdisjoint(names.next_nodes(checkpoint.checkpoint))

    def _unwatched_questions(self, config: Config, checkpoint: CheckpointTuple) -> set[str]:
        """LangGraph's ids of the native questions that stand at this root checkpoint, where their nodes may have
        no guard: this run is not of a graph with an adapter, or nothing that is registered here covers them."""
        if (
            checkpoint.config["configurable"].get("checkpoint_ns", "")
            or delivery_run_of(config, self._graph) is not None
        ):
            return set()
        if self.guarded and covers(self._hub, self._graph):
            return set()
        tasks = read_tasks(checkpoint.pending_writes)
        return {i.id for task in tasks.values() for i in task.pending if not is_marker(i.value)}

    def _refuse_unwatched(self, thread_id: str, questions: set[str]) -> Effects[None]:
        """Refuse a run in which no guard would check what a covered node is resumed with. Raises RegistrationError."""
        if covers(self._hub, self._graph):
            raise self._unguarded()
        rows, _ = yield from transact(self._hub.operations.reading.load_answers, self._graph, thread_id)
        for row in rows:
            if row["native"] and row["langgraph_id"] in questions:
                raise RegistrationError(
                    f"graph {self._graph!r} waits for {row['name']!r}, whose nodes are not registered in this process: register"
                    " the point with its nodes, and call interrupts.resume_adapter(graph), before the graph runs"
                )

    def _unguarded(self) -> RegistrationError:
        return RegistrationError(
            f"graph {self._graph!r} waits at native questions, and its nodes are not guarded in this process: call"
            " interrupts.resume_adapter(graph) before the graph runs"
        )

    def admit(self, config: Config, checkpoint: CheckpointTuple) -> Effects[CheckpointTuple]:
        """The checkpoint with those of its stored answers that may enter this run.

        Raises:
            ThreadBusy: an answer may, but another worker holds the thread.
            StoreError: the row of one was changed in the database.
            RegistrationError: a covered native question stands here, and no guard would check what it is resumed with.
        """
        position = checkpoint.config["configurable"]
        thread_id, ns = str(position["thread_id"]), position.get("checkpoint_ns", "")
        if self._begins_unguarded(checkpoint):
            raise self._unguarded()
        if unwatched := self._unwatched_questions(config, checkpoint):
            yield from self._refuse_unwatched(thread_id, unwatched)
        writes = list(checkpoint.pending_writes or ())
        run = delivery_run_of(config, self._graph)
        held = False
        if run is not None:
            rows = run.rows
        elif not (yield from self._is_newest(config, checkpoint)):
            # a raw resume at such a checkpoint runs its finished nodes again, and LangGraph would hand them the same answers
            kept = [w for w in _without_bare(writes) if not (w[1] == RESUME and jtis_in(w[2]))]
            return checkpoint._replace(pending_writes=[_marked(w) for w in kept])
        else:
            rows, held = yield from transact(self._hub.operations.reading.load_answers, self._graph, thread_id)
        if run is not None or not self._stands_elsewhere(writes, {row["langgraph_id"] for row in rows}):
            writes = _without_bare(writes)
        answered = [row for row in rows if row["state"] == "answered" and row["leaf_ns"] == ns]
        admitted = False
        for index, (task_id, channel, value) in enumerate(writes):
            if channel == RESUME and task_id != names.NULL_TASK_ID:
                of_task = [row for row in answered if row["leaf_task_id"] == task_id]
                loaded = self._admitted(of_task, value)
                if run is not None and (sent := run.native_slots.get(task_id)) is not None:
                    loaded.cut(sent)  # what a raw resume left behind must not take the place of the answer that is sent
                admitted = admitted or bool(loaded.admitted or loaded.jtis)
                writes[index] = (task_id, channel, loaded)
        if admitted and held:
            raise ThreadBusy(
                "another worker drives this thread with its stored answers; it, or recover(), finishes what is begun"
            )
        return checkpoint._replace(pending_writes=writes)

    def _stands_elsewhere(self, writes: list[tuple[str, str, Any]], ours: set[str]) -> bool:
        """Whether a bare resume that is stored here may have been sent to a question that is none of ours. Any other is left
        out: it would go to the next question, or be refused at each run."""
        standing = [i for task in read_tasks(writes).values() for i in task.pending]
        foreign = standing and not any(i.id in ours or is_marker(i.value) for i in standing)
        return bool(foreign) and not covers(self._hub, self._graph)

    def _is_newest(self, config: Config, checkpoint: CheckpointTuple) -> Effects[bool]:
        """Whether a run continues from here: from the thread's newest checkpoint, or from the newest of a
        subgraph below it."""
        requested, position = config["configurable"], checkpoint.config["configurable"]
        ns = position.get("checkpoint_ns", "")
        root_id = names.root_checkpoint_id(requested, "") if ns else position["checkpoint_id"]
        if ns and requested.get("checkpoint_id"):
            return False
        if ns or requested.get("checkpoint_id"):
            root: Config = {"configurable": {"thread_id": position["thread_id"], "checkpoint_ns": ""}}
            head = yield from GetTuple(root)
            return head is not None and bool(head.config["configurable"]["checkpoint_id"] == root_id)
        return True

    def _admitted(self, rows: list[PauseWithAnswer], value: Any) -> Loaded:
        """A task's stored answers. Those that its rows do not hold as answered, word for word, lose their content."""
        kept: list[Any] = []
        slots: set[int] = set()
        jtis: set[str] = set()
        texts = {row["jti"]: stored_answer(self._hub, row).response for row in rows}
        points = any(not row["native"] for row in rows)
        for slot, item in enumerate(value if isinstance(value, list | tuple) else [value]):
            if is_envelope(item):
                fitting = [a for a in answers_in(item) if texts.get(a["receipt"].get("jti")) == a.get("response")]
                jtis.update(a["receipt"]["jti"] for a in fitting)
                kept.append({"answers": fitting} if fitting else VOID)
                slots.update([slot] if fitting else [])
                continue
            for row in rows:
                if row["native"] and row["slot"] == slot and json.loads(texts[row["jti"]]) == item:
                    slots.add(slot)
                    self._note_native(row, item)
            kept.append(VOID if points and slot not in slots else item)
        return Loaded(kept, admitted=slots, jtis=jtis)

    def _note_native(self, row: PauseWithAnswer, value: Any) -> None:
        """Note that the run was given this native answer: the delivery that sent it may have died before it noted its use."""
        event = used_answer_event(self._hub, stored_answer(self._hub, row), None, row["run_id"])
        task_and_slot = (row["leaf_task_id"], row["slot"])
        self._natives.send(row["thread_id"], Sent(row["jti"], *task_and_slot, value, row["checkpoint_id"], event))

    def _forget_broken(self, thread_id: str) -> None:
        """Drop executions whose checkpoint was not stored: their questions are asked anew, by other tasks."""
        if (unstored := self._puts.begun(thread_id)) is not None:
            self._hub.executions.drop(self._hub.executions.since((self._graph, thread_id), unstored))


def _marked(write: tuple[str, str, Any]) -> tuple[str, str, Any]:
    task_id, channel, value = write
    if channel != RESUME:
        return write
    return task_id, channel, Loaded(value if isinstance(value, list | tuple) else [value])


def _without_bare(writes: Iterable[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
    return [w for w in writes if not (w[0] == names.NULL_TASK_ID and w[1] == RESUME)]
