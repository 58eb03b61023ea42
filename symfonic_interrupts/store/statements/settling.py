"""The statements for what becomes of answers."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from symfonic_interrupts.store.schema import in_state, pauses
from symfonic_interrupts.store.statements.parts import ANSWERED, MOVED, OF_THREAD, PAUSE, WITH_JTIS, Dialect


class Settling:
    """Answers are used or skipped by nodes, and end as `applied` or `unused`.

    Attributes:
        mark_used: a node has used these answers. Returns the jtis of those not known to be used before.
        mark_skipped: a node was given these answers and asked for something else.
        settle_used: used answers of older checkpoints are applied. Returns `MovedPause` rows.
        settle_older: all answers of older checkpoints end, as `applied` where they were used (also: where their jtis are
            given), else as `unused`. Returns `MovedPause` rows.
        drop_answers: all answers of a thread end as `unused`. Returns `MovedPause` rows.
        drop_applied: what was applied in a dropped checkpoint was not used after all. Returns `MovedPause` rows.
        skip_dropped: what nodes had taken in a dropped checkpoint does not count as used.
    """

    def __init__(self, dialect: Dialect) -> None:
        now = dialect.now
        self.mark_used = (
            sa.update(pauses)
            .where(WITH_JTIS, in_state("answered"), PAUSE.used_at.is_(None))
            .values(used_at=now, skipped_at=None)
            .returning(PAUSE.jti)
        )
        self.mark_skipped = (
            sa.update(pauses).where(WITH_JTIS, in_state("answered")).values(used_at=None, skipped_at=now)
        )
        self.settle_used = (
            sa.update(pauses)
            .where(*OF_THREAD, *ANSWERED, PAUSE.used_at.is_not(None), dialect.older)
            .values(state="applied")
            .returning(*MOVED)
        )
        self.settle_older = (
            sa.update(pauses)
            .where(*OF_THREAD, *ANSWERED, dialect.older)
            .values(state=sa.case((sa.or_(PAUSE.used_at.is_not(None), WITH_JTIS), "applied"), else_="unused"))
            .returning(*MOVED)
        )
        self.drop_answers = sa.update(pauses).where(*OF_THREAD, *ANSWERED).values(state="unused").returning(*MOVED)
        # only an incomplete step can be dropped: one in which another question was still open
        sibling = pauses.alias()
        self.drop_applied = (
            sa.update(pauses)
            .where(
                *OF_THREAD,
                in_state("applied"),
                PAUSE.checkpoint_id == bindparam("the_dropped"),
                sa.exists().where(
                    sibling.c.graph == bindparam("the_graph"),
                    sibling.c.thread_id == bindparam("the_thread"),
                    sibling.c.checkpoint_id == bindparam("the_dropped"),
                    sibling.c.state.in_(("pending", "answered", "expired", "revoked")),
                ),
            )
            .values(state="unused", used_at=None, skipped_at=now)
            .returning(*MOVED)
        )
        self.skip_dropped = (
            sa.update(pauses)
            .where(*OF_THREAD, *ANSWERED, PAUSE.checkpoint_id == bindparam("the_dropped"))
            .values(used_at=None, skipped_at=now)
        )
