"""Open pauses, from the store alone."""

from __future__ import annotations

from symfonic_interrupts.engine.context import Engine
from symfonic_interrupts.engine.rows import open_events
from symfonic_interrupts.engine.steps import Steps, transact
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.scope import FrameworkTenantScope

MOST_PENDING = 1000


def list_pending(
    engine: Engine,
    graph: str,
    scope: FrameworkTenantScope | None,
    include_sub_scopes: bool,
    name: str | None,
    thread_id: str | None,
    limit: int,
    after: str | None,
) -> Steps[list[PauseEvent]]:
    """The open pauses of a scope with freshly minted tokens, newest first. See `ResumeAdapter.pending`."""
    engine.database.check_open()
    if type(limit) is not int or not 1 <= limit <= MOST_PENDING:
        raise ValueError(
            f"limit must be a whole number from 1 to {MOST_PENDING}; the next page begins `after` the last"
        )
    crossing = [r.name for r in engine.registry.values() if r.cross_scope_allowed] if include_sub_scopes else None
    rows = yield transact(
        engine.operations.list_open,
        graph=graph,
        scope=engine.require_scope(scope, "pass scope=FrameworkTenantScope(...)"),
        sub_scope_names=crossing,
        name=name,
        thread_id=None if thread_id is None else str(thread_id),  # as LangGraph does
        limit=limit,
        after=after,
    )
    return open_events(engine, rows)
