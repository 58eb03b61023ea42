"""Guards around the nodes of a compiled graph: what makes a task pass its door (`door`).

A guard is put on when the adapter is made. It finds the saver in the running task's config, so it does nothing in a run under
another saver, and a node that several graphs share is guarded once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp

from symfonic_interrupts import langgraph_internals as names


def guard_node(node: Any) -> None:
    """Guard a node of a compiled graph, before and after its body. One that is guarded already stays as it is."""
    if not any(isinstance(writer, Leaving) for writer in names.writers_of(node)):
        names.put_around(node, _guarded, Leaving())


def unguarded(bound: Any) -> Any:
    """The runnable inside a guard; itself where it has none."""
    return bound.bound if isinstance(bound, Entering) else bound


def _guarded(bound: Any, is_first: bool) -> Entering:
    return bound if isinstance(bound, Entering) else Entering(bound, is_first=is_first)


def _saver_of(config: RunnableConfig | None) -> Any:
    saver = names.checkpointer_of((config or {}).get("configurable") or {})
    return saver if getattr(saver, "door", None) is not None else None


class Entering(Runnable[Any, Any]):
    """A node's body, or a part of it, behind its door. It starts no run of its own, so callbacks see the body alone."""

    def __init__(self, bound: Runnable[Any, Any], *, is_first: bool) -> None:
        self.bound = bound
        self.is_first = is_first
        self.name = getattr(bound, "name", None)

    @contextmanager
    def _door(self, config: RunnableConfig | None) -> Iterator[None]:
        saver = _saver_of(config)
        if saver is None or config is None:
            yield
            return
        if self.is_first:
            saver.door.begin(config)
        if saver.door.concerns(config):
            saver.perform(saver.door.enter(config))
        try:
            yield
        except GraphBubbleUp as error:
            saver.perform(saver.door.bubbled(config, error))
            raise

    @asynccontextmanager
    async def _adoor(self, config: RunnableConfig | None) -> AsyncIterator[None]:
        saver = _saver_of(config)
        if saver is None or config is None:
            yield
            return
        if self.is_first:
            saver.door.begin(config)
        if saver.door.concerns(config):
            await saver.aperform(saver.door.enter(config))
        try:
            yield
        except GraphBubbleUp as error:
            await saver.aperform(saver.door.bubbled(config, error))
            raise

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - Runnable's name
        with self._door(config):
            return self.bound.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        async with self._adoor(config):
            return await self.bound.ainvoke(input, config, **kwargs)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:  # noqa: A002
        with self._door(config):
            yield from self.bound.stream(input, config, **kwargs)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:  # noqa: A002
        async with self._adoor(config):
            async for chunk in self.bound.astream(input, config, **kwargs):
                yield chunk

    def transform(
        self,
        input: Iterator[Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        with self._door(config):
            yield from self.bound.transform(input, config, **kwargs)

    async def atransform(
        self,
        input: AsyncIterator[Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        async with self._adoor(config):
            async for chunk in self.bound.atransform(input, config, **kwargs):
                yield chunk


class Leaving(Runnable[Any, Any]):
    """The guard between a node's body and its writes."""

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        saver = _saver_of(config)
        if saver is not None and saver.door.must_leave(config):
            saver.perform(saver.door.leave(config))
        return input

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        saver = _saver_of(config)
        if saver is not None and saver.door.must_leave(config):
            await saver.aperform(saver.door.leave(config))
        return input
