"""Open pauses, single pauses and events, from the store alone. Nothing here changes anything."""

from __future__ import annotations

import json
from typing import Any

from symfonic_interrupts.core.arguments import SCOPE_REMEDY, checked_limit
from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.results import PauseView, view_of
from symfonic_interrupts.core.rows import check_authentic, open_events, scope_of
from symfonic_interrupts.errors import UnknownInterrupt, UsageError
from symfonic_interrupts.events import PauseEvent, RecordedEvent
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.rows import EventRow, PauseRow, columns_of
from symfonic_interrupts.store.same_ids import the_one_meant
from symfonic_interrupts.tokens.cursor import Position, Reader, open_position, seal_position


def list_pending(
    hub: Hub,
    graph: str,
    *,
    scope: FrameworkTenantScope | None,
    include_sub_scopes: bool,
    limit: int,
    thread_id: str | None,
    **filters: str | None,
) -> Effects[list[PauseEvent]]:
    """The open pauses of a scope with freshly minted tokens, newest first. See `ResumeAdapter.pending`."""
    hub.database.check_open()
    query: dict[str, Any] = {
        "graph": graph,
        "limit": checked_limit(limit, "the next page begins `after` the last"),
        "thread_id": None if thread_id is None else str(thread_id),  # as LangGraph does
        **_whose(hub, scope, include_sub_scopes),
        **filters,
    }
    if query["interrupt_id"] is not None:
        the_one_meant((yield from transact(hub.operations.reading.list_open, **{**query, "limit": 2})))
    events: list[PauseEvent] = []
    while True:  # altered rows are left out, and the page is filled with the rows after them
        rows = yield from transact(hub.operations.reading.list_open, **query)
        events += open_events(hub, rows)
        if len(rows) < limit or len(events) >= limit:
            return events[:limit]
        query["after"] = rows[-1]["id"]


def view_pause(
    hub: Hub, graph: str, interrupt_id: str, scope: FrameworkTenantScope | None, thread_id: str | None
) -> Effects[PauseView]:
    """One pause, for its own scope. See `ResumeAdapter.view`."""
    hub.database.check_open()
    given = hub.require_scope(scope, SCOPE_REMEDY)
    thread = None if thread_id is None else str(thread_id)
    rows = yield from transact(hub.operations.reading.find_pauses, graph, str(interrupt_id), thread)
    for row in rows:
        if row["tenant_id"] == given.tenant_id or row["scope_hash"] == given.scope_hash:
            check_authentic(hub, row)  # another tenant does not learn that a row was altered
    meant = the_one_meant([row for row in rows if _sees(hub, given, row)])
    if meant is None:
        raise UnknownInterrupt("no pause of this graph and scope has that interrupt_id")
    return view_of(meant, hub.registry.named(meant["name"]), hub.now())


def _sees(hub: Hub, scope: FrameworkTenantScope, row: PauseRow) -> bool:
    owner = scope_of(row)
    registration = hub.registry.get(row["name"])
    return scope == owner or bool(registration and registration.cross_scope_allowed and scope.contains(owner))


def list_events(
    hub: Hub,
    graph: str,
    *,
    scope: FrameworkTenantScope | None,
    include_sub_scopes: bool,
    thread_id: str | None,
    after: str | None,
    limit: int,
) -> Effects[list[RecordedEvent]]:
    """What was recorded of a scope's pauses, oldest first. See `ResumeAdapter.events`."""
    hub.database.check_open()
    whose = _whose(hub, scope, include_sub_scopes)
    reader = graph, whose["scope"].scope_hash
    rows = yield from transact(
        hub.operations.reading.list_events,
        graph=graph,
        limit=checked_limit(limit, "go on `after` the last cursor"),
        thread_id=None if thread_id is None else str(thread_id),
        after=None if after is None else _position(hub, after, reader),
        **whose,
    )
    return [_recorded(hub, row, reader) for row in rows]


def event_cursor(hub: Hub, graph: str, scope: FrameworkTenantScope | None) -> Effects[str]:
    """The cursor of now. See `ResumeAdapter.event_cursor`."""
    hub.database.check_open()
    reader = graph, hub.require_scope(scope, SCOPE_REMEDY).scope_hash
    position = yield from transact(hub.operations.reading.events_end)
    return seal_position(position, hub.keys, reader, fresh=True)


def _whose(hub: Hub, scope: FrameworkTenantScope | None, include_sub_scopes: bool) -> dict[str, Any]:
    crossing = [r.name for r in hub.registry.values() if r.cross_scope_allowed] if include_sub_scopes else None
    return {"scope": hub.require_scope(scope, SCOPE_REMEDY), "sub_scope_names": crossing}


def _recorded(hub: Hub, row: EventRow, reader: Reader) -> RecordedEvent:
    facts = columns_of(row, "at", "type", "name", "interrupt_id", "thread_id")
    cursor = seal_position((row["xid"], row["id"]), hub.keys, reader)
    return RecordedEvent(cursor=cursor, scope=scope_of(row), body=json.loads(row["body"]), **facts)


def _position(hub: Hub, cursor: str, reader: Reader) -> Position:
    position = open_position(cursor, hub.keys, reader)
    if position is None:
        raise UsageError(
            "after must be a cursor that events() or event_cursor() gave out for this graph and scope; None begins with the"
            " oldest event"
        )
    return position
