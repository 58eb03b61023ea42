"""Finding this library's events in what LangGraph streams, whatever the mode and version, and a typed channel for runs of v3.

It only looks: it takes nothing out of a stream, changes nothing, and makes no event of data that merely looks like one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any, overload

from langgraph.stream import (
    AsyncGraphRunStream,
    GraphRunStream,
    ProtocolEvent,
    StreamChannel,
)

from symfonic_interrupts.events import AnyEvent
from symfonic_interrupts.langgraph_internals import RunChannel


@overload
def interrupt_events(source: AsyncIterator[Any] | AsyncGraphRunStream) -> AsyncGenerator[AnyEvent, None]: ...
@overload
def interrupt_events(source: Iterator[Any] | GraphRunStream) -> Generator[AnyEvent, None, None]: ...
@overload
def interrupt_events(source: Any) -> list[AnyEvent]: ...
def interrupt_events(source: Any) -> Any:
    """The interrupt events in one chunk of a stream, or in a whole stream.

    A chunk may come from `stream` or `astream` with any `stream_mode`, `subgraphs` and `version`, from `astream_events`
    version "v2", or from a run of version "v3". Events travel in mode "custom": where it was not asked for, there are none.
    Of `astream_events` only what the outermost runnable streams counts, for the inner ones say the same before it.

    Args:
        source: a chunk; or an iterator, an async iterator or a v3 run, which is read to its end, and closed when the result is.

    Returns:
        The events in order: of a chunk a list, of an iterator an iterator, of an async iterator an async iterator.
    """
    if isinstance(source, AsyncIterator | AsyncGraphRunStream):
        return _in_async_stream(source)
    if isinstance(source, Iterator | GraphRunStream):
        return _in_stream(source)
    return _in_chunk(source)


class InterruptTransformer(RunChannel):
    """The channel `interrupt_events` of a run of `stream_events(version="v3")`: its interrupt events, and nothing else.

    Pass the class as `transformers=[InterruptTransformer]`, where a graph is compiled or where it is called. The run then has
    `run.interrupt_events`, a channel of events; the same events stay in the run's other channels. All events of a run, also
    of its subgraphs, are in the channel of the run itself.
    """

    required_stream_modes = ("custom",)

    def __init__(self, scope: tuple[str, ...] = ()) -> None:
        super().__init__(scope)
        self._found: StreamChannel[AnyEvent] = StreamChannel()

    def init(self) -> dict[str, StreamChannel[AnyEvent]]:
        """The channel, by its name."""
        return {"interrupt_events": self._found}

    def process(self, event: ProtocolEvent) -> bool:
        """Copy an interrupt event into the channel, and let every event pass."""
        for found in _in_chunk(event):
            self._found.push(found)
        return True


def _in_stream(stream: Iterator[Any] | GraphRunStream) -> Generator[AnyEvent, None, None]:
    try:
        for chunk in stream:
            yield from _in_chunk(chunk)
    finally:
        close = getattr(stream, "abort", None) if isinstance(stream, GraphRunStream) else getattr(stream, "close", None)
        if close is not None:
            close()


async def _in_async_stream(stream: AsyncIterator[Any] | AsyncGraphRunStream) -> AsyncGenerator[AnyEvent, None]:
    try:
        async for chunk in stream:
            for event in _in_chunk(chunk):
                yield event
    finally:
        if isinstance(stream, AsyncGraphRunStream):
            await stream.abort()
        elif (close := getattr(stream, "aclose", None)) is not None:
            await close()


def _in_chunk(chunk: Any) -> list[AnyEvent]:
    if isinstance(chunk, dict):
        chunk = _streamed_in(chunk)
    if isinstance(chunk, list):
        return [event for part in chunk for event in _in_chunk(part)]
    if isinstance(chunk, tuple) and chunk:
        chunk = chunk[-1]  # (mode, data), (namespace, data) or (namespace, mode, data)
    return [chunk] if isinstance(chunk, AnyEvent) else []


def _streamed_in(part: dict[str, Any]) -> Any:
    """What a node wrote: of a v2 part its data, of a v3 event the same, of an `astream_events` event its chunk."""
    if part.get("type") == "custom":
        return part.get("data")
    if part.get("type") == "event" and part.get("method") == "custom":
        return part["params"]["data"]
    if part.get("event") == "on_chain_stream" and not part.get("parent_ids"):
        return part["data"].get("chunk")
    return None
