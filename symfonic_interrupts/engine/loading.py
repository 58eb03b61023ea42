"""What the saver does when a checkpoint is read: remember where threads are paused, and hand out no answer a second time."""

from __future__ import annotations

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from symfonic_interrupts.engine import langgraph_names as names
from symfonic_interrupts.engine.announcing import Config, PutWatch, Remembered
from symfonic_interrupts.engine.context import Engine
from symfonic_interrupts.engine.envelope import jtis_in
from symfonic_interrupts.engine.planner import is_marker, read_tasks


class Loader:
    """Looks at the checkpoints of one graph as they are read.

    Args:
        paused: where (thread, checkpoint) of paused threads are noted.
    """

    def __init__(self, engine: Engine, graph: str, puts: PutWatch, paused: Remembered) -> None:
        self._engine = engine
        self._graph = graph
        self._puts = puts
        self._paused = paused
        self._loaded = Remembered()

    def loads(self, config: Config | None) -> None:
        """Note that a run looked for this namespace here. A replayed subgraph asks with `list`, others with `get_tuple`."""
        place = (config or {}).get("configurable", {})
        if ns := place.get("checkpoint_ns", ""):
            self._loaded.note((str(place.get("thread_id")), ns))

    @staticmethod
    def brings_answers(config: Config, found: CheckpointTuple) -> bool:
        """Whether a root checkpoint was asked for by its id, and has answers of ours in its writes."""
        place = config["configurable"]
        return bool(place.get("checkpoint_id") and not place.get("checkpoint_ns", "")) and any(
            channel == RESUME and jtis_in(value) for _, channel, value in found.pending_writes or ()
        )

    @staticmethod
    def head_of(found: CheckpointTuple) -> Config:
        """Where the newest root checkpoint of this one's thread is."""
        return {"configurable": {"thread_id": found.config["configurable"]["thread_id"], "checkpoint_ns": ""}}

    @staticmethod
    def unless_left(found: CheckpointTuple, head: CheckpointTuple | None) -> CheckpointTuple:
        """The checkpoint, without its answers where the thread has gone on from it: each was used, and counts once.

        A raw resume at such a checkpoint runs its finished nodes again, and LangGraph would hand them the same answers.
        """
        if (
            head is None
            or head.config["configurable"]["checkpoint_id"] == found.config["configurable"]["checkpoint_id"]
        ):
            return found
        kept = [w for w in found.pending_writes or () if not (w[1] == RESUME and jtis_in(w[2]))]
        return found._replace(pending_writes=kept)

    def saw(self, config: Config, found: CheckpointTuple | None) -> CheckpointTuple | None:
        """Remember where threads are paused. Leaves out a bare resume that one of our pauses refused."""
        if not config["configurable"].get("checkpoint_ns"):
            self._forget_broken(str(config["configurable"].get("thread_id")))
        self.loads(config)
        if found is None:
            return None
        place = found.config["configurable"]
        if place.get("checkpoint_ns", ""):
            return found
        if not config["configurable"].get("checkpoint_id"):
            self._engine.executions.was_read((self._graph, str(place["thread_id"])))
        key = (str(place["thread_id"]), place["checkpoint_id"])
        self._puts.ended(key)
        writes = found.pending_writes or ()
        tasks = read_tasks(writes) if any(channel == INTERRUPT for _, channel, _ in writes) else {}
        if tasks or config["configurable"].get("checkpoint_id"):
            self._paused.note(key)
        if any(is_marker(i.value) for task in tasks.values() for i in task.pending):
            # LangGraph stored the refused value under the null task, and would give it to the step's next question.
            kept = [w for w in writes if not (w[0] == names.NULL_TASK_ID and w[1] == RESUME)]
            return found._replace(pending_writes=kept)
        return found

    def _forget_broken(self, thread_id: str) -> None:
        """What a run asked that then could not store its checkpoint is asked anew, by another task."""
        if (lost := self._puts.begun(thread_id)) is not None:
            self._engine.executions.drop(self._engine.executions.since((self._graph, thread_id), lost))

    def loaded(self, thread_id: str, ns: str) -> bool:
        """Whether a run of this thread began by loading this namespace: a graph without a saver of its own does not."""
        return not ns or (thread_id, ns) in self._loaded
