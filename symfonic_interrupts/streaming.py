"""Picks this library's events out of a LangGraph stream of any mode and version; and a typed channel for runs of v3.

The stream itself is not changed. Data that only resemble an event are not taken for one.
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
    version "v2", or from a run of version "v3". Events are streamed in mode "custom": without that mode there are none.
    In `astream_events`, only the chunks of the outermost runnable are read, because the inner runnables stream the same events.

    Args:
        source: a chunk; or an iterator, an async iterator or a v3 run, which is read to its end, and closed when the result is.

    Returns:
        The events in order: for a chunk a list, for an iterator an iterator, for an async iterator an async iterator.
    """
    if isinstance(source, AsyncIterator | AsyncGraphRunStream):
        return _in_async_stream(source)
    if isinstance(source, Iterator | GraphRunStream):
        return _in_stream(source)
    return _in_chunk(source)


class InterruptTransformer(RunChannel):
    """Adds the channel `interrupt_events`, which has only the interrupt events, to a run of `stream_events(version="v3")`.

    Pass the class as `transformers=[InterruptTransformer]` when the graph is compiled or called. The run then has the channel
    `run.interrupt_events`, with the events of the run and of its subgraphs. They also stay in the run's other channels.
    """

    required_stream_modes = ("custom",)

    def __init__(self, scope: tuple[str, ...] = ()) -> None:
        super().__init__(scope)
        self._events: StreamChannel[AnyEvent] = StreamChannel()

    def init(self) -> dict[str, StreamChannel[AnyEvent]]:
        """The channel, by its name."""
        return {"interrupt_events": self._events}

    def process(self, event: ProtocolEvent) -> bool:
        """Copy interrupt events into the channel. Returns True: the event also stays where it is."""
        for interrupt_event in _in_chunk(event):
            self._events.push(interrupt_event)
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
        chunk = _written_data(chunk)
    if isinstance(chunk, list):
        return [event for part in chunk for event in _in_chunk(part)]
    if isinstance(chunk, tuple) and chunk:
        chunk = chunk[-1]  # (mode, data), (namespace, data) or (namespace, mode, data)
    return [chunk] if isinstance(chunk, AnyEvent) else []


def _written_data(part: dict[str, Any]) -> Any:
    """What a node wrote to the stream: the data of a v2 part or a v3 event, or the chunk of an `astream_events` event."""
    if part.get("type") == "custom":
        return part.get("data")
    if part.get("type") == "event" and part.get("method") == "custom":
        return part["params"]["data"]
    if part.get("event") == "on_chain_stream" and not part.get("parent_ids"):
        return part["data"].get("chunk")
    return None
