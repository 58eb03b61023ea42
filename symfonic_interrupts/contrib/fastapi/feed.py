"""The stream of a scope's recorded events, as they come in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.contrib.fastapi.problems import CursorInvalid
from symfonic_interrupts.contrib.fastapi.sse import Message, error_message
from symfonic_interrupts.errors import InterruptError, UsageError
from symfonic_interrupts.events import RecordedEvent
from symfonic_interrupts.scope import FrameworkTenantScope

MOST_AT_ONCE = 100
"""How many events are read from the table at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """The recorded events of a scope, as they come in.

    Attributes:
        adapter: whose graph's events.
        scope: of the caller; events of other scopes are left out.
        include_sub_scopes: also events of scopes below it.
        thread_id: only events of this thread; None: of all.
        poll: how often the table is read.
        longest: the stream ends after this time. The client connects again, and is identified again.
    """

    adapter: ResumeAdapter
    scope: FrameworkTenantScope
    include_sub_scopes: bool
    thread_id: str | None
    poll: timedelta
    longest: timedelta

    async def start(self, after: str | None, *, replay: bool) -> tuple[str | None, list[RecordedEvent]]:
        """Where the stream begins, and the first events from there. Call it before the response begins, as it may refuse.

        Args:
            after: a cursor, or None for what comes next.
            replay: without a cursor, begin with the oldest event.

        Raises:
            CursorInvalid, StoreError
        """
        cursor = await self.adapter.aevent_cursor(scope=self.scope) if after is None and not replay else after
        return cursor, await self._read(cursor)

    async def messages(self, cursor: str | None, found: list[RecordedEvent]) -> AsyncIterator[Message]:
        """The messages from what `start` returned, until the time is over or the store fails."""
        # the client keeps this id: should it lose the connection before the first event, it goes on from here
        if cursor is not None:
            yield Message(cursor=cursor)
        end = anyio.current_time() + self.longest.total_seconds()
        while True:
            for event in found:
                cursor = event.cursor
                yield Message(event.type, _shown(event), cursor)
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
        except UsageError:
            raise CursorInvalid("Last-Event-ID and `after` take the id of an event of this stream") from None


def _shown(event: RecordedEvent) -> dict[str, Any]:
    """The event as JSON data; a `delivery_failed` without the exception's message, which may hold anything."""
    left_out = {"body": {"message"}} if event.type == "delivery_failed" else None
    return event.model_dump(mode="json", exclude=left_out)
