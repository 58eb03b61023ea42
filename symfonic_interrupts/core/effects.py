"""The one seam between sync and async in this library.

What the saver, the adapter and the janitor do is written once, as generators that yield steps (a transaction, a checkpoint to
read, a graph to run, a wait) and get back their results. `perform` carries the steps out; `aperform` does with await.
`perform_stream` and `aperform_stream` also pass on the chunks of the graphs that are run.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.threads import Threads

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tools:
    """What steps are carried out with."""

    database: Database
    saver: Any
    graph: Any = None


class Step:
    """Something to do, sync or async."""

    __slots__ = ()

    def do(self, tools: Tools) -> Any:
        raise NotImplementedError

    async def ado(self, tools: Tools) -> Any:
        raise NotImplementedError


Steps = Generator[Step, Any, T]
"""A generator that yields steps and returns a T."""


@dataclass(frozen=True)
class Transact(Step):
    """Run a transaction body."""

    body: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def do(self, tools: Tools) -> Any:
        return tools.database.run(self.body, *self.args, **self.kwargs)

    async def ado(self, tools: Tools) -> Any:
        return await tools.database.arun(self.body, *self.args, **self.kwargs)


def transact(body: Callable[..., Any], *args: Any, **kwargs: Any) -> Transact:
    """The step that runs `body(connection, *args, **kwargs)` in one transaction."""
    return Transact(body, args, kwargs)


@dataclass(frozen=True)
class CallSaver(Step):
    """Call a method of the wrapped saver: `name`, or `a` + name."""

    name: str
    args: tuple[Any, ...]

    def do(self, tools: Tools) -> Any:
        try:
            return getattr(tools.saver, self.name)(*self.args)
        except (asyncio.InvalidStateError, NotImplementedError):
            raise RegistrationError(
                f"checkpointer: {type(tools.saver).__name__} is async only here; await the method with the `a` before its"
                " name (aanswer, adeliver, ainvoke, ...), or wrap a sync saver"
            ) from None

    async def ado(self, tools: Tools) -> Any:
        try:
            return await getattr(tools.saver, "a" + self.name)(*self.args)
        except NotImplementedError:
            raise sync_only(tools.saver) from None


def sync_only(saver: Any) -> RegistrationError:
    """The error for a sync saver in an async run."""
    name = type(saver).__name__
    return RegistrationError(
        f"checkpointer: {name} is sync only, and the graph runs async; wrap its async sibling (such as Async{name}),"
        " or use invoke and stream"
    )


@dataclass(frozen=True)
class Compute(Step):
    """Work something out that an application's own code has a part in, or a client's data: async, not on the event loop."""

    threads: Threads
    work: Callable[[], Any]

    def do(self, tools: Tools) -> Any:
        return self.work()

    async def ado(self, tools: Tools) -> Any:
        return await self.threads.run(self.work)


@dataclass(frozen=True)
class Wait(Step):
    """Let time pass. Seconds."""

    seconds: float

    def do(self, tools: Tools) -> None:
        time.sleep(self.seconds)

    async def ado(self, tools: Tools) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True)
class WaitFor(Step):
    """Wait for what another thread or task will say. Its answer, or False where it said nothing within `seconds`."""

    signal: concurrent.futures.Future[bool]
    seconds: float

    def do(self, tools: Tools) -> bool:
        try:
            return self.signal.result(self.seconds)
        except concurrent.futures.TimeoutError:
            return False

    async def ado(self, tools: Tools) -> bool:
        if self.signal.done():
            return self.signal.result()
        done, _ = await asyncio.wait([asyncio.wrap_future(self.signal)], timeout=self.seconds)
        return bool(done) and self.signal.result()


@dataclass(frozen=True)
class ReadState(Step):
    """The graph's own view of a thread (`get_state`)."""

    config: dict[str, Any]

    def do(self, tools: Tools) -> Any:
        return tools.graph.get_state(self.config)

    async def ado(self, tools: Tools) -> Any:
        return await tools.graph.aget_state(self.config)


@dataclass(frozen=True)
class ReadHistory(Step):
    """The thread's newest states, newest first (`get_state_history`)."""

    config: dict[str, Any]
    limit: int

    def do(self, tools: Tools) -> Any:
        return list(tools.graph.get_state_history(self.config, limit=self.limit))

    async def ado(self, tools: Tools) -> Any:
        return [state async for state in tools.graph.aget_state_history(self.config, limit=self.limit)]


@dataclass(frozen=True)
class RunGraph(Step):
    """Run the graph with `input`; `invoke`, or `stream` where the performer passes chunks on."""

    input: Any
    config: dict[str, Any]
    kwargs: dict[str, Any]

    def do(self, tools: Tools) -> Any:
        return tools.graph.invoke(self.input, self.config, **self.kwargs)

    async def ado(self, tools: Tools) -> Any:
        return await tools.graph.ainvoke(self.input, self.config, **self.kwargs)


@dataclass(frozen=True)
class Emit(Step):
    """Pass a chunk on to whoever reads the stream; nothing where nobody does."""

    chunk: Any

    def do(self, tools: Tools) -> None:
        return None

    async def ado(self, tools: Tools) -> None:
        return None


class _Abandoned(BaseException):
    """Whoever read the chunks has stopped. Steps get this instead of GeneratorExit, after which a generator may not yield."""


class _Advance:
    """Feeds results and errors back into a generator of steps."""

    def __init__(self, steps: Steps[Any]) -> None:
        self._steps = steps
        self.result: Any = None
        self.error: BaseException | None = None

    def next(self) -> Step:
        """The next step; StopIteration carries the final result."""
        result, error = self.result, self.error
        self.result = self.error = None
        return self._steps.send(result) if error is None else self._steps.throw(error)


def perform(steps: Steps[T], tools: Tools) -> T:
    """Carry the steps out, and return what they return."""
    advance = _Advance(steps)
    while True:
        try:
            step = advance.next()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            advance.result = step.do(tools)
        except BaseException as error:
            advance.error = error


async def aperform(steps: Steps[T], tools: Tools) -> T:
    """Carry the steps out with await, and return what they return."""
    advance = _Advance(steps)
    while True:
        try:
            step = advance.next()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            advance.result = await step.ado(tools)
        except BaseException as error:
            advance.error = error


def perform_stream(steps: Steps[T], tools: Tools) -> Generator[Any, None, T]:
    """Carry the steps out, yielding the chunks of every graph that is run, and return what they return."""
    advance = _Advance(steps)
    while True:
        try:
            step = advance.next()
        except StopIteration as end:
            result: T = end.value
            return result
        except _Abandoned:
            raise GeneratorExit from None
        try:
            if isinstance(step, RunGraph):
                advance.result = yield from tools.graph.stream(step.input, step.config, **step.kwargs)
            elif isinstance(step, Emit):
                yield step.chunk
            else:
                advance.result = step.do(tools)
        except GeneratorExit:
            advance.error = _Abandoned()
        except BaseException as error:
            advance.error = error


async def aperform_stream(steps: Steps[Any], tools: Tools) -> AsyncGenerator[Any, None]:
    """Carry the steps out with await, yielding the chunks of every graph that is run."""
    advance = _Advance(steps)
    while True:
        try:
            step = advance.next()
        except StopIteration:
            return
        except _Abandoned:
            raise GeneratorExit from None
        try:
            if isinstance(step, RunGraph):
                chunks = tools.graph.astream(step.input, step.config, **step.kwargs)
                try:
                    async for chunk in chunks:
                        yield chunk
                finally:
                    await chunks.aclose()
            elif isinstance(step, Emit):
                yield step.chunk
            else:
                advance.result = await step.ado(tools)
        except GeneratorExit:
            advance.error = _Abandoned()
        except BaseException as error:
            advance.error = error
