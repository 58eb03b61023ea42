"""The statements that only read."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from symfonic_interrupts.store.schema import QUESTION, UtcDateTime, consumed_tokens, events, in_state, leases, pauses
from symfonic_interrupts.store.statements.parts import (
    ANSWERED,
    ASKED,
    EVENT,
    IN_THREAD,
    LEASE,
    PAUSE,
    PENDING,
    TOKEN,
    TOKEN_COLUMNS,
    WITH_JTI,
    WITH_JTIS,
    Dialect,
    as_number,
)


class Reading:
    """Pauses, events and failed threads.

    Attributes:
        load_pause: the pause with this token, as `PauseWithAnswer`.
        load_outcome: what is recorded of a token.
        load_thread: what a thread has asked and not settled, as `PauseWithAnswer`, in no order: to sort, SQLite would read
            the thread's whole past.
        load_answers: `load_thread`, each row with `held`: whether a worker drives the thread.
        load_latest: the thread's newest pause, in any state.
        find_by_id: of each question with this `interrupt_id` the newest row, as `PauseWithAnswer`, newest first.
        states_of: jti and state of the pauses with these tokens.
        unfit_answers: those of these pauses that are answered.
        ended_natives: LangGraph's ids of a checkpoint's native questions whose answers have ended.
        open_in_time: all open pauses; for callers to narrow down.
        due: pending pauses whose time is over, longest overdue first, after a time and an id.
        list_events: all event rows that readers may see, in their order; for callers to narrow down.
        events_end: (transaction, id) before everything that is still to come.
        failed_threads: the leases of threads whose run failed and that nobody drives, as `FailedLease`, oldest first.
        failed_answered: those of them that have an answer which no node has taken.
        used_threads: used answers of threads without a lease.
    """

    def __init__(self, dialect: Dialect) -> None:
        now = dialect.now
        answer_columns = [TOKEN[c].label(f"answer_{c}") for c in TOKEN_COLUMNS if c != "jti"]
        with_answer = sa.select(pauses, *answer_columns, (PAUSE.expires_at <= now).label("overdue")).select_from(
            pauses.outerjoin(consumed_tokens, PAUSE.jti == TOKEN.jti)
        )
        self.load_pause = with_answer.where(WITH_JTI)
        self.load_outcome = sa.select(TOKEN.outcome).where(TOKEN.jti == bindparam("jti"))
        self.load_thread = with_answer.where(*IN_THREAD, ASKED)
        driven = sa.exists().where(
            LEASE.graph == PAUSE.graph, LEASE.thread_id == PAUSE.thread_id, LEASE.expires_at > now
        )
        self.load_answers = self.load_thread.add_columns(driven.label("held"))
        self.load_latest = sa.select(pauses).where(*IN_THREAD).order_by(PAUSE.id.desc()).limit(1)
        newest_of_each = (
            sa.select(sa.func.max(PAUSE.id))
            .where(PAUSE.graph == bindparam("graph"), PAUSE.interrupt_id == bindparam("interrupt_id"))
            .group_by(*(PAUSE[c] for c in ("thread_id", "leaf_task_id", *QUESTION)))
        )
        self.find_by_id = with_answer.where(PAUSE.id.in_(newest_of_each)).order_by(PAUSE.id.desc())
        self.states_of = sa.select(PAUSE.jti, PAUSE.state).where(WITH_JTIS)
        self.unfit_answers = sa.select(pauses).where(WITH_JTIS, in_state("answered"))
        self.ended_natives = sa.select(PAUSE.langgraph_id).where(
            *IN_THREAD, PAUSE.checkpoint_id == bindparam("checkpoint_id"), PAUSE.native, in_state("applied", "unused")
        )
        self.open_in_time = sa.select(pauses).where(*PENDING, PAUSE.expires_at > now)
        self.due = (
            sa.select(pauses)
            .where(
                PAUSE.graph == bindparam("graph"),
                in_state("pending"),
                PAUSE.expires_at <= dialect.moment,
                sa.tuple_(PAUSE.expires_at, PAUSE.id)
                > sa.tuple_(bindparam("after_time", type_=UtcDateTime), bindparam("after_id", type_=PAUSE.id.type)),
            )
            .order_by(PAUSE.expires_at, PAUSE.id)
            .limit(bindparam("most"))
        )

        # On PostgreSQL ids are given out in another order than transactions end. What a reader sees, and where it goes on,
        # is decided by transactions: those below the oldest that still runs have all ended.
        oldest: Any = as_number(sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot()))
        next_one: Any = as_number(sa.func.pg_snapshot_xmax(sa.func.pg_current_snapshot()))
        ended = sa.or_(EVENT.xid < oldest, EVENT.xid >= next_one) if dialect.is_postgres else sa.true()
        self.list_events = sa.select(events).where(ended).order_by(EVENT.xid, EVENT.id)
        self.events_end = (
            sa.select(oldest, sa.literal(0))
            if dialect.is_postgres
            else sa.select(sa.literal(0), sa.func.coalesce(sa.func.max(EVENT.id), 0))
        )

        self.failed_threads = (
            sa.select(leases)
            .where(LEASE.graph == bindparam("graph"), LEASE.failed_at.is_not(None), LEASE.expires_at <= now)
            .order_by(LEASE.failed_at, LEASE.thread_id)
        )
        self.failed_answered = self.failed_threads.where(
            sa.exists().where(
                PAUSE.graph == LEASE.graph, PAUSE.thread_id == LEASE.thread_id, *ANSWERED, PAUSE.used_at.is_(None)
            )
        )
        # Used, not settled, and no failure noted: the thread waits for another answer, or an older release saw it fail.
        leased = sa.exists().where(LEASE.graph == PAUSE.graph, LEASE.thread_id == PAUSE.thread_id)
        self.used_threads = (
            sa.select(pauses)
            .where(PAUSE.graph == bindparam("graph"), *ANSWERED, PAUSE.used_at.is_not(None), ~leased)
            .order_by(PAUSE.id)
        )
