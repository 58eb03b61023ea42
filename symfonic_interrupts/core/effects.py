"""The one seam between sync and async in this library.

What the saver, the adapter and the janitor do is written once, as generators that yield effects (a transaction, a checkpoint to
read, a graph to run, a wait) and get back their results. `core.performing` carries them out.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import sqlalchemy as sa
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import StateSnapshot

from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.threads import Threads

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Backend:
    """What effects are carried out with: the pause store, the wrapped saver, and the compiled graph where one is driven."""

    database: Database
    saver: Any
    graph: Any = None


class Effect(Generic[T]):
    """Something to be done, sync (`do`) or async (`ado`), that gives a T. In a generator: `result = yield from effect`."""

    __slots__ = ()

    def do(self, backend: Backend) -> T:
        raise NotImplementedError

    async def ado(self, backend: Backend) -> T:
        raise NotImplementedError

    def __iter__(self) -> Effects[T]:
        result: T = yield self
        return result


Effects = Generator[Effect[Any], Any, T]
"""A generator that yields effects, is sent their results, and returns a T."""


@dataclass(frozen=True)
class Transact(Effect[T]):
    """Run a transaction body."""

    body: Callable[..., T]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def do(self, backend: Backend) -> T:
        return backend.database.run(self.body, *self.args, **self.kwargs)

    async def ado(self, backend: Backend) -> T:
        return await backend.database.arun(self.body, *self.args, **self.kwargs)


def transact(body: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> Transact[T]:
    """The effect that runs `body(connection, *args, **kwargs)` in one transaction."""
    return Transact(body, args, kwargs)


class SaverCall(Effect[T]):
    """A method of the wrapped saver, or its async twin."""

    def call(self, saver: Any) -> T:
        raise NotImplementedError

    async def acall(self, saver: Any) -> T:
        raise NotImplementedError

    def do(self, backend: Backend) -> T:
        try:
            return self.call(backend.saver)
        except (asyncio.InvalidStateError, NotImplementedError):
            raise RegistrationError(
                f"checkpointer: {type(backend.saver).__name__} is async only here; await the method with the `a` before its"
                " name (aanswer, adeliver, ainvoke, ...), or wrap a sync saver"
            ) from None

    async def ado(self, backend: Backend) -> T:
        try:
            return await self.acall(backend.saver)
        except NotImplementedError:
            raise sync_only(backend.saver) from None


@dataclass(frozen=True)
class GetTuple(SaverCall[CheckpointTuple | None]):
    """Read a checkpoint."""

    config: Any

    def call(self, saver: Any) -> CheckpointTuple | None:
        checkpoint: CheckpointTuple | None = saver.get_tuple(self.config)
        return checkpoint

    async def acall(self, saver: Any) -> CheckpointTuple | None:
        checkpoint: CheckpointTuple | None = await saver.aget_tuple(self.config)
        return checkpoint


@dataclass(frozen=True)
class ListThreads(SaverCall[list[str]]):
    """The ids of all threads that have a checkpoint, the one that was written last first. Reads every checkpoint."""

    def call(self, saver: Any) -> list[str]:
        return list(dict.fromkeys(_thread_of(found) for found in saver.list(None)))

    async def acall(self, saver: Any) -> list[str]:
        return list(dict.fromkeys([_thread_of(found) async for found in saver.alist(None)]))


def _thread_of(found: CheckpointTuple) -> str:
    return str(found.config["configurable"]["thread_id"])


@dataclass(frozen=True)
class Put(SaverCall[RunnableConfig]):
    """Store a checkpoint. Gives the config that names it."""

    config: Any
    checkpoint: Any
    metadata: Any
    new_versions: Any

    def call(self, saver: Any) -> RunnableConfig:
        stored: RunnableConfig = saver.put(self.config, self.checkpoint, self.metadata, self.new_versions)
        return stored

    async def acall(self, saver: Any) -> RunnableConfig:
        stored: RunnableConfig = await saver.aput(self.config, self.checkpoint, self.metadata, self.new_versions)
        return stored


@dataclass(frozen=True)
class PutWrites(SaverCall[None]):
    """Store a task's writes.

    Attributes:
        args: config, writes, task id and, for savers that know it, the task's path.
    """

    args: tuple[Any, ...]

    def call(self, saver: Any) -> None:
        saver.put_writes(*self.args)

    async def acall(self, saver: Any) -> None:
        await saver.aput_writes(*self.args)


def sync_only(saver: Any) -> RegistrationError:
    """The error for a sync saver in an async run."""
    name = type(saver).__name__
    return RegistrationError(
        f"checkpointer: {name} is sync only, and the graph runs async; wrap its async sibling (such as Async{name}),"
        " or use invoke and stream"
    )


@dataclass(frozen=True)
class Compute(Effect[T]):
    """Call `work`, which may be slow: it runs code of the application, or checks a client's data.

    Async, it runs in one of `threads`, so that the event loop is free meanwhile.
    """

    threads: Threads
    work: Callable[[], T]

    def do(self, backend: Backend) -> T:
        return self.work()

    async def ado(self, backend: Backend) -> T:
        return await self.threads.run(self.work)


@dataclass(frozen=True)
class Wait(Effect[None]):
    """Sleep for this many seconds."""

    seconds: float

    def do(self, backend: Backend) -> None:
        time.sleep(self.seconds)

    async def ado(self, backend: Backend) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True)
class WaitFor(Effect[bool]):
    """Wait until another thread or task sets the result of `signal`. Gives the result, or False after `seconds` without one."""

    signal: concurrent.futures.Future[bool]
    seconds: float

    def do(self, backend: Backend) -> bool:
        try:
            return self.signal.result(self.seconds)
        except concurrent.futures.TimeoutError:
            return False

    async def ado(self, backend: Backend) -> bool:
        if self.signal.done():
            return self.signal.result()
        done, _ = await asyncio.wait([asyncio.wrap_future(self.signal)], timeout=self.seconds)
        return bool(done) and self.signal.result()


@dataclass(frozen=True)
class ReadState(Effect[StateSnapshot]):
    """The graph's own view of a thread (`get_state`)."""

    config: dict[str, Any]

    def do(self, backend: Backend) -> StateSnapshot:
        state: StateSnapshot = backend.graph.get_state(self.config)
        return state

    async def ado(self, backend: Backend) -> StateSnapshot:
        state: StateSnapshot = await backend.graph.aget_state(self.config)
        return state


@dataclass(frozen=True)
class ReadHistory(Effect[list[StateSnapshot]]):
    """The thread's newest states, newest first (`get_state_history`)."""

    config: dict[str, Any]
    limit: int

    def do(self, backend: Backend) -> list[StateSnapshot]:
        return list(backend.graph.get_state_history(self.config, limit=self.limit))

    async def ado(self, backend: Backend) -> list[StateSnapshot]:
        return [state async for state in backend.graph.aget_state_history(self.config, limit=self.limit)]


@dataclass(frozen=True)
class RunGraph(Effect[Any]):
    """Run the graph with `input`; `invoke`, or `stream` where the performer passes chunks on."""

    input: Any
    config: dict[str, Any]
    kwargs: dict[str, Any]

    def do(self, backend: Backend) -> Any:
        return backend.graph.invoke(self.input, self.config, **self.kwargs)

    async def ado(self, backend: Backend) -> Any:
        return await backend.graph.ainvoke(self.input, self.config, **self.kwargs)


@dataclass(frozen=True)
class Emit(Effect[None]):
    """Pass a chunk on to the reader of the stream. Without a reader it does nothing."""

    chunk: Any

    def do(self, backend: Backend) -> None:
        return None

    async def ado(self, backend: Backend) -> None:
        return None
