"""The statements for the holds on threads."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from symfonic_interrupts.store.schema import UtcDateTime, leases
from symfonic_interrupts.store.statements.parts import (
    ANSWERED,
    ASKED,
    LEASE,
    LEASE_OF_THREAD,
    OF_THREAD,
    PENDING,
    Dialect,
)

_FAILURE = ("failed_node", "failed_type", "failed_message", "failed_ids", "tenant_id", "sub_tenant_id", "namespace")


class Leasing:
    """A thread is driven by one worker at a time. The statements about a lease change nothing where another owner has it.

    Attributes:
        take_lease: take a thread's lease, new or lapsed. Returns `fence`, `failed_at` and `breakpoints`; nothing where a
            worker holds it.
        renew_lease: hold it for longer. Returns `fence`.
        end_lease: give it back.
        end_lease_if_over: give it back if no answer is left to deliver and no older question to supersede. Returns `left`:
            whether the thread has open questions.
        lapse_lease: leave the row, lapsed: the thread is unfinished.
        fail_lease: leave the row, lapsed, with a `Failure`'s parameters. Returns `failed_at`.
        try_again: forget the failure while the lease is held.
        forget_failure: delete the row of a failure at this time, where nobody holds the thread.
        forget_thread: delete the row of any failure, where nobody holds the thread.
    """

    def __init__(self, dialect: Dialect) -> None:
        now, later = dialect.now, dialect.later
        new: Any = dialect.insert(leases).values(
            graph=bindparam("graph"),
            thread_id=bindparam("thread_id"),
            owner=bindparam("owner"),
            fence=1,
            expires_at=later,
            breakpoints=bindparam("breakpoints"),
        )
        self.take_lease = new.on_conflict_do_update(
            index_elements=[LEASE.graph, LEASE.thread_id],
            set_={
                "owner": new.excluded.owner,
                "fence": LEASE.fence + 1,
                "expires_at": later,
                "breakpoints": sa.func.coalesce(new.excluded.breakpoints, LEASE.breakpoints),
            },
            where=LEASE.expires_at <= now,
        ).returning(LEASE.fence, LEASE.failed_at, LEASE.breakpoints)
        held = (*LEASE_OF_THREAD, LEASE.owner == bindparam("the_owner"))
        self.renew_lease = sa.update(leases).where(*held).values(expires_at=later).returning(LEASE.fence)
        self.end_lease = sa.delete(leases).where(*held)
        left = sa.exists().where(*OF_THREAD, ASKED)
        self.end_lease_if_over = (
            sa.delete(leases)
            .where(
                *held,
                ~sa.exists().where(*OF_THREAD, *ANSWERED),
                # older questions are superseded first: whoever answers one now has its token, and waits for the lease
                ~sa.exists().where(*OF_THREAD, *PENDING, dialect.older),
            )
            .returning(left.label("left"))
        )
        self.lapse_lease = sa.update(leases).where(*held).values(expires_at=now)
        self.fail_lease = (
            sa.update(leases)
            .where(*held)
            .values(expires_at=now, failed_at=now, **{c: bindparam(f"c_{c}") for c in _FAILURE})
            .returning(LEASE.failed_at)
        )
        self.try_again = sa.update(leases).where(*held).values(failed_at=None, **dict.fromkeys(_FAILURE))
        lapsed = LEASE.expires_at <= now
        same_failure = LEASE.failed_at == bindparam("the_time", type_=UtcDateTime)
        self.forget_failure = sa.delete(leases).where(*LEASE_OF_THREAD, same_failure, lapsed)
        self.forget_thread = sa.delete(leases).where(*LEASE_OF_THREAD, LEASE.failed_at.is_not(None), lapsed)
