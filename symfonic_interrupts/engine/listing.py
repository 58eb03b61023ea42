"""Open pauses, single pauses and events, from the store alone. Nothing here changes anything."""

from __future__ import annotations

import json
from typing import Any

from symfonic_interrupts.engine.context import Engine
from symfonic_interrupts.engine.rows import check_authentic, open_events, scope_of
from symfonic_interrupts.engine.steps import Steps, transact
from symfonic_interrupts.engine.views import PauseView, view_of
from symfonic_interrupts.errors import UnknownInterrupt
from symfonic_interrupts.events import PauseEvent, RecordedEvent
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.same_ids import the_one_meant
from symfonic_interrupts.store.schema import PauseRow
from symfonic_interrupts.tokens.cursor import Place, Where, open_place, seal_place

MOST_LISTED = 1000
SCOPE_REMEDY = "pass scope=FrameworkTenantScope(...)"


def list_pending(
    engine: Engine,
    graph: str,
    *,
    scope: FrameworkTenantScope | None,
    include_sub_scopes: bool,
    limit: int,
    thread_id: str | None,
    **filters: str | None,
) -> Steps[list[PauseEvent]]:
    """The open pauses of a scope with freshly minted tokens, newest first. See `ResumeAdapter.pending`."""
    engine.database.check_open()
    asked: dict[str, Any] = {
        "graph": graph,
        "limit": checked_limit(limit, "the next page begins `after` the last"),
        "thread_id": None if thread_id is None else str(thread_id),  # as LangGraph does
        **_whose(engine, scope, include_sub_scopes),
        **filters,
    }
    if asked["interrupt_id"] is not None:
        the_one_meant((yield transact(engine.operations.list_open, **{**asked, "limit": 2})))
    events: list[PauseEvent] = []
    while True:  # rows that are left out, because they were altered, hide nothing behind them
        rows = yield transact(engine.operations.list_open, **asked)
        events += open_events(engine, rows)
        if len(rows) < limit or len(events) >= limit:
            return events[:limit]
        asked["after"] = rows[-1]["id"]


def view_pause(
    engine: Engine, graph: str, interrupt_id: str, scope: FrameworkTenantScope | None, thread_id: str | None
) -> Steps[PauseView]:
    """One pause, for its own scope. See `ResumeAdapter.view`."""
    engine.database.check_open()
    given = engine.require_scope(scope, SCOPE_REMEDY)
    thread = None if thread_id is None else str(thread_id)
    rows: list[PauseRow] = yield transact(engine.operations.find_pauses, graph, str(interrupt_id), thread)
    for row in rows:
        if row["tenant_id"] == given.tenant_id or row["scope_hash"] == given.scope_hash:
            check_authentic(engine, row)  # a stranger is not told that another's row was altered
    meant = the_one_meant([row for row in rows if _sees(engine, given, row)])
    if meant is None:
        raise UnknownInterrupt("no pause of this graph and scope has that interrupt_id")
    return view_of(meant, engine.registry.named(meant["name"]), engine.now())


def _sees(engine: Engine, scope: FrameworkTenantScope, row: PauseRow) -> bool:
    owner = scope_of(row)
    registration = engine.registry.get(row["name"])
    return scope == owner or bool(registration and registration.cross_scope_allowed and scope.contains(owner))


def list_events(
    engine: Engine,
    graph: str,
    *,
    scope: FrameworkTenantScope | None,
    include_sub_scopes: bool,
    thread_id: str | None,
    after: str | None,
    limit: int,
) -> Steps[list[RecordedEvent]]:
    """What was recorded of a scope's pauses, oldest first. See `ResumeAdapter.events`."""
    engine.database.check_open()
    whose = _whose(engine, scope, include_sub_scopes)
    where = graph, whose["scope"].scope_hash
    rows = yield transact(
        engine.operations.list_events,
        graph=graph,
        limit=checked_limit(limit, "go on `after` the last cursor"),
        thread_id=None if thread_id is None else str(thread_id),
        after=None if after is None else _place(engine, after, where),
        **whose,
    )
    return [_recorded(engine, row, where) for row in rows]


def event_cursor(engine: Engine, graph: str, scope: FrameworkTenantScope | None) -> Steps[str]:
    """The cursor of now. See `ResumeAdapter.event_cursor`."""
    engine.database.check_open()
    where = graph, engine.require_scope(scope, SCOPE_REMEDY).scope_hash
    place = yield transact(engine.operations.events_end)
    return seal_place(place, engine.keys, where, fresh=True)


def _whose(engine: Engine, scope: FrameworkTenantScope | None, include_sub_scopes: bool) -> dict[str, Any]:
    crossing = [r.name for r in engine.registry.values() if r.cross_scope_allowed] if include_sub_scopes else None
    return {"scope": engine.require_scope(scope, SCOPE_REMEDY), "sub_scope_names": crossing}


def checked_limit(limit: int, remedy: str) -> int:
    """The limit, if it may be asked for. Raises ValueError."""
    if type(limit) is not int or not 1 <= limit <= MOST_LISTED:
        raise ValueError(f"limit must be a whole number from 1 to {MOST_LISTED}; {remedy}")
    return limit


def _recorded(engine: Engine, row: dict[str, Any], where: Where) -> RecordedEvent:
    facts = {key: row[key] for key in ("at", "type", "name", "interrupt_id", "thread_id")}
    cursor = seal_place((row["xid"], row["id"]), engine.keys, where)
    return RecordedEvent(cursor=cursor, scope=scope_of(row), body=json.loads(row["body"]), **facts)


def _place(engine: Engine, cursor: str, where: Where) -> Place:
    place = open_place(cursor, engine.keys, where)
    if place is None:
        raise ValueError(
            "after must be a cursor that events() or event_cursor() gave out for this graph and scope; None begins with the"
            " oldest event"
        )
    return place
