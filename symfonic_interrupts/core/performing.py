"""How effects are carried out: sync, with await, and with the chunks of the graphs that are run passed on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any, TypeVar

from symfonic_interrupts.core.effects import Backend, Effect, Effects, Emit, RunGraph

T = TypeVar("T")


class _Abandoned(BaseException):
    """The reader of the chunks has stopped. The effects get this in place of GeneratorExit, after which a generator may not
    yield; they still have a lease to give back."""


class _Advance:
    """Feeds results and errors back into a generator of effects."""

    def __init__(self, effects: Effects[Any]) -> None:
        self._effects = effects
        self.result: Any = None
        self.error: BaseException | None = None

    def next(self) -> Effect[Any]:
        """The next effect; StopIteration carries the final result."""
        result, error = self.result, self.error
        self.result = self.error = None
        return self._effects.send(result) if error is None else self._effects.throw(error)


def perform(effects: Effects[T], backend: Backend) -> T:
    """Carry the effects out, and return what they return."""
    advance = _Advance(effects)
    while True:
        try:
            effect = advance.next()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            advance.result = effect.do(backend)
        except BaseException as error:
            advance.error = error


async def aperform(effects: Effects[T], backend: Backend) -> T:
    """Carry the effects out with await, and return what they return."""
    advance = _Advance(effects)
    while True:
        try:
            effect = advance.next()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            advance.result = await effect.ado(backend)
        except BaseException as error:
            advance.error = error


def perform_stream(effects: Effects[T], backend: Backend) -> Generator[Any, None, T]:
    """Carry the effects out, yielding the chunks of every graph that is run, and return what they return."""
    advance = _Advance(effects)
    while True:
        try:
            effect = advance.next()
        except StopIteration as end:
            result: T = end.value
            return result
        except _Abandoned:
            raise GeneratorExit from None
        try:
            if isinstance(effect, RunGraph):
                advance.result = yield from backend.graph.stream(effect.input, effect.config, **effect.kwargs)
            elif isinstance(effect, Emit):
                yield effect.chunk
            else:
                advance.result = effect.do(backend)
        except GeneratorExit:
            advance.error = _Abandoned()
        except BaseException as error:
            advance.error = error


async def aperform_stream(effects: Effects[Any], backend: Backend) -> AsyncGenerator[Any, None]:
    """Carry the effects out with await, yielding the chunks of every graph that is run."""
    advance = _Advance(effects)
    while True:
        try:
            effect = advance.next()
        except StopIteration:
            return
        except _Abandoned:
            raise GeneratorExit from None
        try:
            if isinstance(effect, RunGraph):
                chunks = backend.graph.astream(effect.input, effect.config, **effect.kwargs)
                try:
                    async for chunk in chunks:
                        yield chunk
                finally:
                    await chunks.aclose()
            elif isinstance(effect, Emit):
                yield effect.chunk
            else:
                advance.result = await effect.ado(backend)
        except GeneratorExit:
            advance.error = _Abandoned()
        except BaseException as error:
            advance.error = error
