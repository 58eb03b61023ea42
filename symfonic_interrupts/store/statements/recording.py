"""The statements that write down what happened."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from symfonic_interrupts.store.schema import UtcDateTime, events, refusals
from symfonic_interrupts.store.statements.parts import REFUSAL, Dialect, as_number

_NOT_GIVEN = frozenset(("id", "xid", "at", "trace_context", "seal"))


class Recording:
    """Event rows, and refusals that are counted.

    Attributes:
        add_event: insert an event row.
        count_refusal: count a refusal, by token, scope and code. Returns `count` and `told`: the count that the newest event
            row names. They are equal where this refusal is due for an event row.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.add_event = sa.insert(events).values(
            {
                **{c.name: bindparam(c.name, type_=c.type) for c in events.columns if c.name not in _NOT_GIVEN},
                "at": dialect.now,
                "xid": as_number(sa.func.pg_current_xact_id()) if dialect.is_postgres else sa.literal(0),
            }
        )
        moment = dialect.moment
        first: Any = dialect.insert(refusals).values(
            jti=bindparam("jti"),
            scope_hash=bindparam("scope_hash"),
            code=bindparam("code"),
            count=1,
            told=1,
            told_at=moment,
        )
        due: Any = REFUSAL.told_at <= (
            moment - bindparam("every", type_=sa.Interval)
            if dialect.is_postgres
            else bindparam("told_before", type_=UtcDateTime)
        )
        self.count_refusal = first.on_conflict_do_update(
            index_elements=[REFUSAL.jti, REFUSAL.scope_hash, REFUSAL.code],
            set_={
                "count": REFUSAL.count + 1,
                "told": sa.case((due, REFUSAL.count + 1), else_=REFUSAL.told),
                "told_at": sa.case((due, moment), else_=REFUSAL.told_at),
            },
        ).returning(REFUSAL.count, REFUSAL.told)
