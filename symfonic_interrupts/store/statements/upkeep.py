"""The statements of recovery, of the keys in use, and of the purge."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from symfonic_interrupts.store.schema import UtcDateTime, consumed_tokens, events, in_state, pauses, refusals
from symfonic_interrupts.store.statements.parts import (
    ANSWERED,
    EVENT,
    LEASE,
    OF_THREAD,
    PAUSE,
    PENDING,
    REFUSAL,
    TOKEN,
    WITH_JTIS,
    Dialect,
)


class Upkeep:
    """What a crash may have left, what is signed with which key, and what may be deleted.

    Attributes:
        undelivered_threads: threads with answers that no node has taken; neither driven nor failed.
        lapsed_threads: threads whose lease has lapsed without a failure.
        unconfirmed: pending pauses never seen in their checkpoint, of threads neither driven nor failed.
        confirm: note that pauses stand in their checkpoints.
        doubt: a thread's pending pauses may no longer stand in their checkpoints.
        keys_in_use: key id and number of rows that may still be answered, delivered or reissued.
        undelivered_receipts: the receipts of answers still to be delivered.
        purge_pauses: delete pauses that have ended, were made before a time, and whose time to answer is over.
        purge_tokens, purge_refusals: delete what is older and belongs to no pause any more.
        purge_events: delete event rows that are older.
    """

    def __init__(self, dialect: Dialect) -> None:
        now = dialect.now
        # a failed thread is left to explicit deliveries
        driven_or_failed = sa.exists().where(
            LEASE.graph == PAUSE.graph,
            LEASE.thread_id == PAUSE.thread_id,
            sa.or_(LEASE.expires_at > now, LEASE.failed_at.is_not(None)),
        )
        self.undelivered_threads = (
            sa.select(PAUSE.thread_id)
            .where(PAUSE.graph == bindparam("graph"), *ANSWERED, PAUSE.used_at.is_(None), ~driven_or_failed)
            .group_by(PAUSE.thread_id)
            .order_by(sa.func.min(PAUSE.id))
        )
        self.lapsed_threads = (
            sa.select(LEASE.thread_id)
            .where(LEASE.graph == bindparam("graph"), LEASE.expires_at <= now, LEASE.failed_at.is_(None))
            .order_by(LEASE.expires_at)
        )
        self.unconfirmed = (
            sa.select(pauses)
            .where(
                PAUSE.graph == bindparam("graph"),
                *PENDING,
                PAUSE.confirmed_at.is_(None),
                PAUSE.created_at < bindparam("created_before", type_=UtcDateTime),
                ~driven_or_failed,
            )
            .order_by(PAUSE.id)
            .limit(bindparam("most"))
        )
        self.confirm = sa.update(pauses).where(WITH_JTIS).values(confirmed_at=now)
        self.doubt = (
            sa.update(pauses).where(*OF_THREAD, *PENDING, PAUSE.confirmed_at.is_not(None)).values(confirmed_at=None)
        )

        open_or_due = in_state("pending", "answered", "expired")
        self.keys_in_use = sa.select(PAUSE.mac_kid, sa.func.count()).where(open_or_due).group_by(PAUSE.mac_kid)
        self.undelivered_receipts = (
            sa.select(TOKEN.receipt).join(pauses, PAUSE.jti == TOKEN.jti).where(*ANSWERED, TOKEN.receipt.is_not(None))
        )

        ended = in_state("applied", "unused", "superseded", "revoked", "expired")
        before = bindparam("before", type_=UtcDateTime)
        self.purge_pauses = sa.delete(pauses).where(ended, PAUSE.expires_at < now, PAUSE.created_at < before)
        self.purge_tokens = sa.delete(consumed_tokens).where(
            TOKEN.at < before, ~sa.exists().where(PAUSE.jti == TOKEN.jti)
        )
        self.purge_refusals = sa.delete(refusals).where(
            REFUSAL.told_at < before, ~sa.exists().where(PAUSE.jti == REFUSAL.jti)
        )
        self.purge_events = sa.delete(events).where(EVENT.at < before)
