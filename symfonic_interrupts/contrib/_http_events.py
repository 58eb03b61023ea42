"""Server-sent events: how a run's chunks and recorded events are written, and the stream of recorded events.

A stream never holds what another scope may not see, and nothing of what it holds is logged, whatever the level.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from symfonic_interrupts.contrib._http_json import json_data, json_text
from symfonic_interrupts.contrib._http_problems import CursorInvalid, problem
from symfonic_interrupts.contrib._http_requests import is_of_scope
from symfonic_interrupts.engine.resume import ResumeAdapter
from symfonic_interrupts.errors import InterruptError
from symfonic_interrupts.events import AnyEvent, RecordedEvent
from symfonic_interrupts.scope import FrameworkTenantScope

MOST_AT_ONCE = 100
SEND_TIMEOUT = 30.0
"""Seconds after which a client that does not read is left."""


class Message(ServerSentEvent):
    """One server-sent event whose data is JSON on one line."""

    def __init__(self, event: str | None = None, data: Any = None, cursor: str | None = None) -> None:
        super().__init__(None if event is None else json_text(data), event=event, id=cursor)

    def encode(self) -> bytes:
        return _Unlogged(super().encode())


class _Unlogged(bytes):
    """Bytes that say nothing of themselves: sse-starlette writes what it sends to its debug log, tokens and all."""

    def __repr__(self) -> str:
        return "<event>"

    __str__ = __repr__


def event_stream(
    messages: AsyncIterator[Message],
    *,
    ping: timedelta,
    headers: dict[str, str],
    at_end: Callable[[], None] = lambda: None,
) -> EventSourceResponse:
    """The response that sends these, with pings in between that keep proxies from closing it."""
    found = _Stream(messages, ping=ping.total_seconds(), send_timeout=SEND_TIMEOUT, headers=headers)
    found.at_end = at_end
    return found


class _Stream(EventSourceResponse):
    """Calls `at_end` when it ends, also where the client left before the first message was asked for."""

    at_end: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.at_end()


def chunk_message(chunk: Any, scope: FrameworkTenantScope) -> Message | None:
    """A chunk of a run: its stream mode, or the type of our event, names the message. None where it is not for this scope."""
    if isinstance(chunk, dict) and chunk.keys() >= {"type", "data"}:  # LangGraph's version "v2"
        mode, data = str(chunk["type"]), chunk["data"]
    else:
        mode, data = str(chunk[-2]), chunk[-1]  # (mode, data), or (namespace, mode, data)
    if isinstance(data, AnyEvent):
        token = getattr(data, "pause_token", None)
        return None if token is not None and not is_of_scope(token, scope) else Message(data.type, data)
    return Message(mode, data)


def error_message(error: InterruptError, **facts: Any) -> Message:
    """The last message of a stream that failed: the problem document."""
    return Message("error", problem(error, **facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """The recorded events of a scope, as they come in.

    Attributes:
        poll: how often the table is looked at.
        longest: after this time the stream ends and the client connects again, so that who it is gets checked again.
    """

    adapter: ResumeAdapter
    scope: FrameworkTenantScope
    include_sub_scopes: bool
    thread_id: str | None
    poll: timedelta
    longest: timedelta

    async def start(self, after: str | None, *, replay: bool) -> tuple[str | None, list[RecordedEvent]]:
        """Where the stream begins, and what stands there. What can be refused is refused here.

        Args:
            after: a cursor, or None for what comes next.
            replay: without a cursor, begin with the oldest event.

        Raises:
            CursorInvalid, StoreError
        """
        cursor = await self.adapter.aevent_cursor(scope=self.scope) if after is None and not replay else after
        return cursor, await self._read(cursor)

    async def messages(self, cursor: str | None, found: list[RecordedEvent]) -> AsyncIterator[Message]:
        """The messages from there on, until the client goes."""
        # without it, a client that loses the connection before the first event would not know where to go on
        if cursor is not None:
            yield Message(cursor=cursor)
        end = anyio.current_time() + self.longest.total_seconds()
        while True:
            for event in found:
                cursor = event.cursor
                yield Message(event.type, _told(event), cursor)
            if anyio.current_time() >= end:
                return
            if len(found) < MOST_AT_ONCE:
                await anyio.sleep(self.poll.total_seconds())
            try:
                found = await self._read(cursor)
            except InterruptError as error:
                yield error_message(error)
                return

    async def _read(self, cursor: str | None) -> list[RecordedEvent]:
        try:
            return await self.adapter.aevents(
                scope=self.scope,
                include_sub_scopes=self.include_sub_scopes,
                thread_id=self.thread_id,
                after=cursor,
                limit=MOST_AT_ONCE,
            )
        except ValueError:
            raise CursorInvalid("Last-Event-ID and `after` take the id of an event of this stream") from None


def _told(event: RecordedEvent) -> Any:
    """The event as JSON data; a `delivery_failed` without the exception's message, which may hold anything."""
    unsaid = {"body": {"message"}} if event.type == "delivery_failed" else None
    return json_data(event.model_dump(mode="json", exclude=unsaid))
