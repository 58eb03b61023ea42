"""The wrapper around a graph's checkpointer: where a pause becomes durable, known and announced.

It delegates every method to the wrapped saver, and looks at three: `put_writes` (a question was asked, an answer was used),
`put` (the thread moved on) and `get_tuple` (the thread may be paused there). Threads that are not paused cost no
statement. A pause is announced only after its checkpoint, its row and its marker are stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from symfonic_interrupts.asking.plain_interrupts import NativeAnswers
from symfonic_interrupts.core.effects import Backend, Effects, T, sync_only
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.performing import aperform, perform
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.registration_checks import NAME_PATTERN
from symfonic_interrupts.saver.optional_methods import class_around
from symfonic_interrupts.saver.recorder import Recorder


class InterruptSaver(BaseCheckpointSaver[Any]):
    """A `BaseCheckpointSaver` around another. Made by `Interrupts.checkpointer`.

    Of the optional methods (`delete_thread`, `copy_thread`, `prune`, ... and their twins) it has those that the wrapped saver
    has. Deleting a thread revokes its pauses; a copied thread asks anew when it runs, and gets tokens of its own.

    Attributes:
        inner: the wrapped saver; also reached by any attribute that this class does not have (`setup`, `conn`, ...).
        hub: the hub it belongs to.
        graph: the graph's name, part of its tokens' audience.
        door: what the guards of its nodes ask.
    """

    def __new__(cls, inner: Any = None, *_: Any, **__: Any) -> InterruptSaver:
        made: InterruptSaver = super().__new__(class_around(inner, cls))
        return made

    def __init__(self, inner: BaseCheckpointSaver[Any], hub: Hub, *, graph: str) -> None:
        if isinstance(inner, InterruptSaver):
            raise RegistrationError("checkpointer: this saver is wrapped already; wrap the bare one, once")
        if not isinstance(inner, BaseCheckpointSaver):
            raise RegistrationError(
                f"checkpointer must be a BaseCheckpointSaver, not {type(inner).__name__}"
                " (from_conn_string gives a context manager: use what `with` gives)"
            )
        if not isinstance(graph, str) or not NAME_PATTERN.match(graph):
            raise RegistrationError("graph must look like an identifier of at most 64 characters")
        super().__init__(serde=inner.serde)
        self.inner = inner
        self.hub = hub
        self.graph = graph
        self._recorder = Recorder(hub, inner, graph)
        self._loading = self._recorder.loading
        self._backend = Backend(hub.database, inner)
        self.door = self._recorder.door

    @property
    def natives(self) -> NativeAnswers:
        """Memory of answers that deliveries of this process sent to native nodes."""
        return self._recorder.natives

    def perform(self, effects: Effects[T]) -> T:
        """Carry out effects of the door, and return what they return."""
        return perform(effects, self._backend)

    async def aperform(self, effects: Effects[T]) -> T:
        """`perform` for coroutines: returns and raises the same."""
        return await aperform(effects, self._backend)

    @property
    def guarded(self) -> bool:
        """Whether an adapter has guarded the nodes of this saver's graph."""
        return self._loading.guarded

    def note_guards(self) -> None:
        """The nodes of this saver's graph are guarded now."""
        self._loading.guarded = True

    def keeps(self, thread_id: str, checkpoint_ns: str) -> bool:
        """Whether the (sub)graph at this namespace keeps its checkpoints here; not with `checkpointer=False`."""
        return self._loading.loaded(thread_id, checkpoint_ns)

    # -- methods that record or check

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if self._recorder.concerns(config, writes):
            perform(self._recorder.put_writes(config, writes, task_id, task_path), self._backend)
        else:
            self.inner.put_writes(*self._recorder.inner_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if self._recorder.concerns(config, writes):
            await aperform(self._recorder.put_writes(config, writes, task_id, task_path), self._backend)
        else:
            await self.inner.aput_writes(*self._recorder.inner_writes(config, writes, task_id, task_path))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        if self._recorder.moves_on(config, metadata):
            effects = self._recorder.put(config, checkpoint, metadata, new_versions)
            stored: RunnableConfig = perform(effects, self._backend)
            return stored
        try:
            stored = self.inner.put(config, checkpoint, metadata, new_versions)
            self._recorder.stored(config, checkpoint)
        except BaseException:
            self._recorder.not_stored(config, checkpoint)
            raise
        return stored

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        if self._recorder.moves_on(config, metadata):
            effects = self._recorder.put(config, checkpoint, metadata, new_versions)
            stored: RunnableConfig = await aperform(effects, self._backend)
            return stored
        try:
            stored = await self.inner.aput(config, checkpoint, metadata, new_versions)
            self._recorder.stored(config, checkpoint)
        except BaseException:
            self._recorder.not_stored(config, checkpoint)
            raise
        return stored

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        self.hub.database.check_sync()
        checkpoint = self._loading.note_read(config, self.inner.get_tuple(config))
        if checkpoint is not None and self._loading.must_admit(config, checkpoint):
            return perform(self._loading.admit(config, checkpoint), self._backend)
        return checkpoint

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        self.hub.database.check_open()
        try:
            checkpoint = await self.inner.aget_tuple(config)
        except NotImplementedError:
            raise sync_only(self.inner) from None
        checkpoint = self._loading.note_read(config, checkpoint)
        if checkpoint is not None and self._loading.must_admit(config, checkpoint):
            return await aperform(self._loading.admit(config, checkpoint), self._backend)
        return checkpoint

    # -- methods that only pass the call on

    @property
    def config_specs(self) -> list[Any]:
        return self.inner.config_specs

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        self._loading.note_load(config)
        return self.inner.list(config, filter=filter, before=before, limit=limit)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        self._loading.note_load(config)
        async for checkpoint in self.inner.alist(config, filter=filter, before=before, limit=limit):
            yield checkpoint

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self.inner.get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self.inner.aget_delta_channel_history(config=config, channels=channels)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.inner.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> InterruptSaver:
        inner = self.inner.with_allowlist(extra_allowlist)
        if inner is self.inner:
            return self
        clone = InterruptSaver(inner, self.hub, graph=self.graph)
        clone._loading.guarded = self._loading.guarded
        return clone

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # before `__init__`: there is nothing to pass on to
            raise AttributeError(name)
        return getattr(self.inner, name)
