"""The statements that spend tokens. Whoever inserts a token's `jti` has moved its pause out of `pending`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from symfonic_interrupts.store.schema import consumed_tokens, pauses
from symfonic_interrupts.store.statements.parts import (
    MOVED,
    OF_THREAD,
    PAUSE,
    PENDING,
    PLACEHOLDER,
    TOKEN,
    TOKEN_COLUMNS,
    WITH_JTI,
    WITH_JTIS,
    Dialect,
)


class Claiming:
    """Tokens are spent once. The `claim_` statements take a `Claim`'s parameters, and return `jti` and `at` of each token
    that they have spent.

    Attributes:
        claim_in_time: the token of a pause whose time to answer is not over.
        claim_overdue: the token of a pause whose time to answer is over.
        claim_any: the token of a pause, whatever its time.
        claim_older: all tokens of a thread that belong to older checkpoints.
        claim_thread: all tokens of a thread.
        claim_slots: the tokens of a task's native questions that come before a slot.
        set_state: the new state of a pause whose token was spent.
        set_states: the new state of pauses that are still in the old one. Returns them as `MovedPause`.
        reissue: a new token for a pause that has not changed since it was read. Returns its id.
    """

    def __init__(self, dialect: Dialect) -> None:
        now = dialect.now
        self.claim_in_time = _claim(dialect, WITH_JTI, PAUSE.expires_at > now)
        self.claim_overdue = _claim(dialect, WITH_JTI, PAUSE.expires_at <= now)
        self.claim_any = _claim(dialect, WITH_JTI)
        self.claim_older = _claim(dialect, *OF_THREAD, dialect.older)
        self.claim_thread = _claim(dialect, *OF_THREAD)
        self.claim_slots = _claim(
            dialect,
            *OF_THREAD,
            PAUSE.native,
            PAUSE.leaf_task_id == bindparam("the_task"),
            PAUSE.slot < bindparam("the_slot", type_=sa.Integer),
        )
        self.set_state = sa.update(pauses).where(PAUSE.jti == bindparam("the_jti")).values(state=bindparam("new_state"))
        self.set_states = (
            sa.update(pauses)
            .where(WITH_JTIS, PAUSE.state == bindparam("old_state"))
            .values(state=bindparam("new_state"))
            .returning(*MOVED)
        )
        self.reissue = (
            sa.update(pauses)
            .where(
                PAUSE.jti == bindparam("the_jti"),
                PAUSE.state == bindparam("old_state"),
                PAUSE.mac == bindparam("old_mac"),  # the new MAC covers the values that were read
            )
            .values(state="pending", **{c: PLACEHOLDER[c] for c in ("jti", "expires_at", "mac_kid", "mac")})
            .returning(PAUSE.id)
        )


def _claim(dialect: Dialect, *where: Any) -> Any:
    values = [_value(name, dialect) for name in TOKEN_COLUMNS]
    # Whoever spends several tokens does so in one order. Two callers that want the same ones then wait for each other once;
    # in different orders, each would wait for the other.
    in_order = dialect.by_bytes(PAUSE.jti)
    rows = sa.select(*values).select_from(pauses).where(*PENDING, *where).order_by(in_order)
    return (
        dialect.insert(consumed_tokens)
        .from_select(list(TOKEN_COLUMNS), rows)
        .on_conflict_do_nothing()
        .returning(TOKEN.jti, TOKEN.at)
    )


def _value(name: str, dialect: Dialect) -> Any:
    if name == "at":
        return dialect.now
    return PAUSE.jti if name == "jti" else bindparam(f"c_{name}", type_=TOKEN[name].type)
