"""The SQL of the store, built once per dialect with SQLAlchemy Core.

Whatever decides between two callers is one statement with RETURNING. `now` is the database's clock on PostgreSQL, and a
bound parameter on SQLite, which has no clock that the tests could set.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.dialects import postgresql, sqlite

from symfonic_interrupts.store.schema import (
    NOT_SUPERSEDED,
    QUESTION,
    UtcDateTime,
    consumed_tokens,
    events,
    in_state,
    leases,
    pauses,
    refusals,
)

_P, _C, _E, _L, _R = pauses.c, consumed_tokens.c, events.c, leases.c, refusals.c
PLACEHOLDER = {
    column.name: bindparam(column.name, type_=column.type)
    for column in pauses.columns
    if column.name not in ("id", "drifts")
}
_MOVED = [
    _P[c]
    for c in ("jti", "state", "graph", "thread_id", "interrupt_id", "name", "tenant_id", "sub_tenant_id", "namespace")
]
"""What is told of a pause that moved: enough for its event row."""

ASKED = in_state("pending", "answered")
PENDING, ANSWERED = (ASKED, in_state("pending")), (ASKED, in_state("answered"))
"""In words from which SQLite, too, sees that the index of what is asked will do."""

_CLAIMED = (
    "jti",
    "outcome",
    "at",
    "response",
    "response_hash",
    "receipt",
    "actor",
    "scope_hash",
    "defaulted",
    "idempotency_key",
)


@cache
def statements(dialect: str) -> Statements:
    """The statements for `sqlite` or `postgresql`."""
    return Statements(dialect)


class Statements:
    """Prebuilt statements; each attribute says what it does and what it returns."""

    def __init__(self, dialect: str) -> None:
        self.is_postgres = dialect == "postgresql"
        self._insert: Any = postgresql.insert if self.is_postgres else sqlite.insert
        now: Any = (
            sa.func.clock_timestamp(type_=UtcDateTime()) if self.is_postgres else bindparam("now", type_=UtcDateTime)
        )
        later: Any = (
            sa.func.clock_timestamp(type_=UtcDateTime()) + bindparam("ttl", type_=sa.Interval)
            if self.is_postgres
            else bindparam("later", type_=UtcDateTime)
        )
        in_thread = (_P.graph == bindparam("graph"), _P.thread_id == bindparam("thread_id"))
        # `the_`: SQLAlchemy keeps column names for the values of an UPDATE
        of_thread = (_P.graph == bindparam("the_graph"), _P.thread_id == bindparam("the_thread"))
        # LangGraph's checkpoint ids are UUIDv6: their byte order is their age
        older: Any = _bytes_of(_P.checkpoint_id, self.is_postgres) < bindparam("the_checkpoint")

        # -- opening
        self.open_pause = self._insert(pauses).values(**PLACEHOLDER).on_conflict_do_nothing().returning(_P.id)
        same_question = (*in_thread, *(_P[c] == bindparam(c) for c in ("name", "request_hash", "occurrence")))
        here = sa.and_(_P.langgraph_id == bindparam("langgraph_id"), NOT_SUPERSEDED)
        asked = sa.and_(_P.leaf_task_id == bindparam("leaf_task_id"), ASKED)
        self.find_question = (
            sa.select(pauses)
            .where(*same_question, sa.or_(here, asked))
            .order_by(sa.case((ASKED, 0), else_=1), _P.id.desc())
            .limit(1)
        )
        self.move_question = (
            sa.update(pauses)
            .where(_P.jti == bindparam("the_jti"), in_state("pending"))
            .values(**{c: PLACEHOLDER[c] for c in ("langgraph_id", "slot", "mac_kid", "mac")})
            .returning(_P.id)
        )

        # -- claiming: whoever inserts the jti has moved the pause out of `pending`
        self.claim_in_time = self._claim(now, _P.jti == bindparam("jti"), _P.expires_at > now)
        self.claim_overdue = self._claim(now, _P.jti == bindparam("jti"), _P.expires_at <= now)
        self.claim_any = self._claim(now, _P.jti == bindparam("jti"))
        self.claim_older = self._claim(now, *of_thread, older)
        self.claim_thread = self._claim(now, *of_thread)
        self.claim_slots = self._claim(
            now,
            *of_thread,
            _P.native,
            _P.leaf_task_id == bindparam("the_task"),
            _P.slot < bindparam("the_slot", type_=sa.Integer),
        )
        unfit = (_P.jti.in_(bindparam("jtis", expanding=True)), in_state("answered"))
        self.unfit_answers = sa.select(pauses).where(*unfit)
        self.set_drifts = (
            sa.update(pauses)
            .where(_P.jti.in_(bindparam("jtis", expanding=True)))
            .values(drifts=bindparam("the_number"))
        )
        self.set_state = sa.update(pauses).where(_P.jti == bindparam("the_jti")).values(state=bindparam("new_state"))
        self.set_states = (
            sa.update(pauses)
            .where(_P.jti.in_(bindparam("jtis", expanding=True)), _P.state == bindparam("old_state"))
            .values(state=bindparam("new_state"))
            .returning(*_MOVED)
        )

        self.reissue = (
            sa.update(pauses)
            .where(
                _P.jti == bindparam("the_jti"),
                _P.state == bindparam("old_state"),
                _P.mac == bindparam("old_mac"),  # the new one covers what was read
            )
            .values(state="pending", **{c: PLACEHOLDER[c] for c in ("jti", "expires_at", "mac_kid", "mac")})
            .returning(_P.id)
        )

        # -- the answer's way through the graph
        self.mark_used = (
            sa.update(pauses)
            .where(_P.jti.in_(bindparam("jtis", expanding=True)), in_state("answered"), _P.used_at.is_(None))
            .values(used_at=now, skipped_at=None)
            .returning(_P.jti)
        )
        self.mark_skipped = (
            sa.update(pauses)
            .where(_P.jti.in_(bindparam("jtis", expanding=True)), in_state("answered"))
            .values(used_at=None, skipped_at=now)
        )
        self.settle_used = (
            sa.update(pauses)
            .where(*of_thread, *ANSWERED, _P.used_at.is_not(None), older)
            .values(state="applied")
            .returning(*_MOVED)
        )
        self.settle_older = (
            sa.update(pauses)
            .where(*of_thread, *ANSWERED, older)
            .values(
                state=sa.case(
                    (sa.or_(_P.used_at.is_not(None), _P.jti.in_(bindparam("jtis", expanding=True))), "applied"),
                    else_="unused",
                )
            )
            .returning(*_MOVED)
        )
        self.drop_answers = sa.update(pauses).where(*of_thread, *ANSWERED).values(state="unused").returning(*_MOVED)
        # the step of a checkpoint is left out only where it was not complete: where a question of it was still open
        sibling = pauses.alias()
        self.drop_applied = (
            sa.update(pauses)
            .where(
                *of_thread,
                in_state("applied"),
                _P.checkpoint_id == bindparam("the_dropped"),
                sa.exists().where(
                    sibling.c.graph == bindparam("the_graph"),
                    sibling.c.thread_id == bindparam("the_thread"),
                    sibling.c.checkpoint_id == bindparam("the_dropped"),
                    sibling.c.state.in_(("pending", "answered", "expired", "revoked")),
                ),
            )
            .values(state="unused", used_at=None, skipped_at=now)
            .returning(*_MOVED)
        )
        self.skip_dropped = (
            sa.update(pauses)
            .where(*of_thread, *ANSWERED, _P.checkpoint_id == bindparam("the_dropped"))
            .values(used_at=None, skipped_at=now)
        )

        # -- reading
        with_answer = pauses.outerjoin(consumed_tokens, _P.jti == _C.jti)
        answer_columns = [_C[c].label(f"answer_{c}") for c in _CLAIMED if c != "jti"]
        self.load_pause = (
            sa.select(pauses, *answer_columns, (_P.expires_at <= now).label("overdue"))
            .select_from(with_answer)
            .where(_P.jti == bindparam("jti"))
        )
        with_id = sa.select(sa.func.max(_P.id)).where(
            _P.graph == bindparam("graph"), _P.interrupt_id == bindparam("interrupt_id")
        )
        newest_of_each = with_id.group_by(*(_P[c] for c in ("thread_id", "leaf_task_id", *QUESTION)))
        self.find_by_id = (
            sa.select(pauses, *answer_columns, (_P.expires_at <= now).label("overdue"))
            .select_from(with_answer)
            .where(_P.id.in_(newest_of_each))
            .order_by(_P.id.desc())
        )
        self.load_outcome = sa.select(_C.outcome).where(_C.jti == bindparam("jti"))
        self.load_thread = (
            sa.select(pauses, *answer_columns, (_P.expires_at <= now).label("overdue"))
            .select_from(with_answer)
            .where(*in_thread, ASKED)
        )
        self.states_of = sa.select(_P.jti, _P.state).where(_P.jti.in_(bindparam("jtis", expanding=True)))
        self.load_latest = sa.select(pauses).where(*in_thread).order_by(_P.id.desc()).limit(1)
        # a time that stands while the statement runs: by one that moves, PostgreSQL cannot stop at the first that is not due
        moment: Any = sa.func.statement_timestamp(type_=UtcDateTime()) if self.is_postgres else now
        self.due = (
            sa.select(pauses)
            .where(
                _P.graph == bindparam("graph"),
                in_state("pending"),
                _P.expires_at <= moment,
                sa.tuple_(_P.expires_at, _P.id)
                > sa.tuple_(bindparam("after_time", type_=UtcDateTime), bindparam("after_id", type_=_P.id.type)),
            )
            .order_by(_P.expires_at, _P.id)
            .limit(bindparam("most"))
        )
        self.open_in_time = sa.select(pauses).where(*PENDING, _P.expires_at > now)

        # -- events
        self.add_event = sa.insert(events).values(
            {
                **{c.name: bindparam(c.name, type_=c.type) for c in events.columns if c.name not in _LATER_EVENT},
                "at": now,
                "xid": _as_number(sa.func.pg_current_xact_id()) if self.is_postgres else sa.literal(0),
            }
        )
        # On PostgreSQL ids are given out in another order than transactions end. What a reader sees, and where it goes on,
        # is decided by transactions: those below the oldest that still runs have all ended.
        oldest: Any = _as_number(sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot()))
        next_one: Any = _as_number(sa.func.pg_snapshot_xmax(sa.func.pg_current_snapshot()))
        settled = sa.or_(_E.xid < oldest, _E.xid >= next_one) if self.is_postgres else sa.true()
        self.list_events = sa.select(events).where(settled).order_by(_E.xid, _E.id)
        self.events_end = (
            sa.select(oldest, sa.literal(0))
            if self.is_postgres
            else sa.select(sa.literal(0), sa.func.coalesce(sa.func.max(_E.id), 0))
        )

        # -- refusals: counted, and told once in a while. `told` is `count` again where this one is to be told.
        refused: Any = self._insert(refusals).values(
            jti=bindparam("jti"),
            scope_hash=bindparam("scope_hash"),
            code=bindparam("code"),
            count=1,
            told=1,
            told_at=moment,
        )
        due: Any = _R.told_at <= (
            moment - bindparam("every", type_=sa.Interval)
            if self.is_postgres
            else bindparam("told_before", type_=UtcDateTime)
        )
        self.count_refusal = refused.on_conflict_do_update(
            index_elements=[_R.jti, _R.scope_hash, _R.code],
            set_={
                "count": _R.count + 1,
                "told": sa.case((due, _R.count + 1), else_=_R.told),
                "told_at": sa.case((due, moment), else_=_R.told_at),
            },
        ).returning(_R.count, _R.told)

        # -- leases
        taken: Any = self._insert(leases).values(
            graph=bindparam("graph"),
            thread_id=bindparam("thread_id"),
            owner=bindparam("owner"),
            fence=1,
            expires_at=later,
            breakpoints=bindparam("breakpoints"),
        )
        self.take_lease = taken.on_conflict_do_update(
            index_elements=[_L.graph, _L.thread_id],
            set_={
                "owner": taken.excluded.owner,
                "fence": _L.fence + 1,
                "expires_at": later,
                "breakpoints": sa.func.coalesce(taken.excluded.breakpoints, _L.breakpoints),
            },
            where=_L.expires_at <= now,
        ).returning(_L.fence, _L.failed_at, _L.breakpoints)
        held = (
            _L.graph == bindparam("the_graph"),
            _L.thread_id == bindparam("the_thread"),
            _L.owner == bindparam("the_owner"),
        )
        self.renew_lease = sa.update(leases).where(*held).values(expires_at=later).returning(_L.fence)
        self.end_lease = sa.delete(leases).where(*held)
        left = sa.exists().where(*of_thread, ASKED)
        self.end_lease_if_over = (
            sa.delete(leases)
            .where(
                *held,
                ~sa.exists().where(*of_thread, *ANSWERED),
                # first to be superseded: whoever answers one now has its token, and waits for the lease
                ~sa.exists().where(*of_thread, *PENDING, older),
            )
            .returning(left.label("left"))
        )
        self.lapse_lease = sa.update(leases).where(*held).values(expires_at=now)
        self.fail_lease = (
            sa.update(leases)
            .where(*held)
            .values(expires_at=now, failed_at=now, **{c: bindparam(f"c_{c}") for c in _FAILURE})
            .returning(_L.failed_at)
        )
        self.try_again = sa.update(leases).where(*held).values(failed_at=None, **dict.fromkeys(_FAILURE))
        failed_at = (_L.failed_at == bindparam("the_time", type_=UtcDateTime), _L.expires_at <= now)
        in_lease = (_L.graph == bindparam("the_graph"), _L.thread_id == bindparam("the_thread"))
        self.forget_failure = sa.delete(leases).where(*in_lease, *failed_at)
        self.forget_thread = sa.delete(leases).where(*in_lease, _L.failed_at.is_not(None), _L.expires_at <= now)

        # -- recovery
        driven = sa.exists().where(_L.graph == _P.graph, _L.thread_id == _P.thread_id, _L.expires_at > now)
        self.load_answers = self.load_thread.add_columns(driven.label("held"))
        # being driven, or failed: that is for an explicit delivery alone
        live = sa.exists().where(
            _L.graph == _P.graph, _L.thread_id == _P.thread_id, sa.or_(_L.expires_at > now, _L.failed_at.is_not(None))
        )
        self.undelivered_threads = (
            sa.select(_P.thread_id)
            .where(_P.graph == bindparam("graph"), *ANSWERED, _P.used_at.is_(None), ~live)
            .group_by(_P.thread_id)
            .order_by(sa.func.min(_P.id))
        )
        leased = sa.exists().where(_L.graph == _P.graph, _L.thread_id == _P.thread_id)
        self.failed_threads = (
            sa.select(leases)
            .where(_L.graph == bindparam("graph"), _L.failed_at.is_not(None), _L.expires_at <= now)
            .order_by(_L.failed_at, _L.thread_id)
        )
        self.failed_answered = self.failed_threads.where(
            sa.exists().where(_P.graph == _L.graph, _P.thread_id == _L.thread_id, *ANSWERED, _P.used_at.is_(None))
        )
        # used, and neither settled nor noted as failed: the thread waits for another answer, or an older release saw it fail
        self.used_threads = (
            sa.select(pauses)
            .where(_P.graph == bindparam("graph"), *ANSWERED, _P.used_at.is_not(None), ~leased)
            .order_by(_P.id)
        )
        self.lapsed_threads = (
            sa.select(_L.thread_id)
            .where(_L.graph == bindparam("graph"), _L.expires_at <= now, _L.failed_at.is_(None))
            .order_by(_L.expires_at)
        )
        self.ended_natives = sa.select(_P.langgraph_id).where(
            *in_thread, _P.checkpoint_id == bindparam("checkpoint_id"), _P.native, in_state("applied", "unused")
        )
        self.unconfirmed = (
            sa.select(pauses)
            .where(
                _P.graph == bindparam("graph"),
                *PENDING,
                _P.confirmed_at.is_(None),
                _P.created_at < bindparam("created_before", type_=UtcDateTime),
                ~live,
            )
            .order_by(_P.id)
            .limit(bindparam("most"))
        )
        # -- keys and leftovers
        open_or_due = in_state("pending", "answered", "expired")
        self.keys_in_use = sa.select(_P.mac_kid, sa.func.count()).where(open_or_due).group_by(_P.mac_kid)
        self.undelivered_receipts = (
            sa.select(_C.receipt).join(pauses, _P.jti == _C.jti).where(*ANSWERED, _C.receipt.is_not(None))
        )
        ended = in_state("applied", "unused", "superseded", "revoked", "expired")
        before = bindparam("before", type_=UtcDateTime)
        self.purge_pauses = sa.delete(pauses).where(ended, _P.expires_at < now, _P.created_at < before)
        orphaned = ~sa.exists().where(_P.jti == _C.jti)
        self.purge_tokens = sa.delete(consumed_tokens).where(_C.at < before, orphaned)
        self.purge_refusals = sa.delete(refusals).where(_R.told_at < before, ~sa.exists().where(_P.jti == _R.jti))
        self.purge_events = sa.delete(events).where(_E.at < before)
        self.doubt = (
            sa.update(pauses).where(*of_thread, *PENDING, _P.confirmed_at.is_not(None)).values(confirmed_at=None)
        )
        self.confirm = sa.update(pauses).where(_P.jti.in_(bindparam("jtis", expanding=True))).values(confirmed_at=now)

    def _claim(self, now: Any, *where: Any) -> Any:
        values = [
            now if c == "at" else _P.jti if c == "jti" else bindparam(f"c_{c}", type_=_C[c].type) for c in _CLAIMED
        ]
        # whoever spends several tokens does so in one order: two that want the same ones wait for each other once, not for ever
        in_order = _bytes_of(_P.jti, self.is_postgres)
        rows = sa.select(*values).select_from(pauses).where(*PENDING, *where).order_by(in_order)
        return (
            self._insert(consumed_tokens)
            .from_select(list(_CLAIMED), rows)
            .on_conflict_do_nothing()
            .returning(_C.jti, _C.at)
        )


_FAILURE = ("failed_node", "failed_type", "failed_message", "failed_ids", "tenant_id", "sub_tenant_id", "namespace")
_LATER_EVENT = frozenset(("id", "xid", "at", "trace_context", "seal"))


def _as_number(xid: Any) -> Any:
    return sa.cast(sa.cast(xid, sa.Text), sa.BigInteger)  # PostgreSQL has no cast from xid8 to bigint


def _bytes_of(column: Any, is_postgres: bool) -> Any:
    """The column, compared by its bytes whatever the database's collation."""
    return column.collate("C") if is_postgres else column
