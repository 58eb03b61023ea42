"""Server-sent events: how a run's chunks, recorded events and errors are written.

A stream holds nothing that its caller's scope may not see, and nothing of it is logged at any level.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from symfonic_interrupts.contrib.fastapi.json_output import json_text
from symfonic_interrupts.contrib.fastapi.problems import problem
from symfonic_interrupts.contrib.fastapi.requests import is_of_scope
from symfonic_interrupts.errors import InterruptError
from symfonic_interrupts.events import AnyEvent
from symfonic_interrupts.scope import FrameworkTenantScope

SEND_TIMEOUT = 30.0
"""Seconds after which the connection of a client that does not read is given up."""


class Message(ServerSentEvent):
    """One server-sent event whose data is JSON on one line."""

    def __init__(self, event: str | None = None, data: Any = None, cursor: str | None = None) -> None:
        super().__init__(None if event is None else json_text(data), event=event, id=cursor)

    def encode(self) -> bytes:
        return _Unlogged(super().encode())


class _Unlogged(bytes):
    """Bytes whose text form is empty of content: sse-starlette writes all that it sends, also tokens, to its debug log."""

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
    """The response that sends these messages.

    Args:
        messages: closed with the response.
        ping: how often a silent stream sends a comment, so that no proxy closes it.
        headers: of the response.
        at_end: called once, however the response ends.
    """
    found = _Stream(messages, ping=ping.total_seconds(), send_timeout=SEND_TIMEOUT, headers=headers)
    found.at_end = at_end
    return found


class _Stream(EventSourceResponse):
    """Calls `at_end` when it ends, also where the client leaves before the first message."""

    at_end: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.at_end()


def chunk_message(chunk: Any, scope: FrameworkTenantScope) -> Message | None:
    """A chunk of a run, named by its stream mode or by the type of our event. None: it has a token of another scope."""
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
