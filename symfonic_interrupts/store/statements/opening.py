"""The statements that open questions."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from symfonic_interrupts.store.schema import NOT_SUPERSEDED, QUESTION, in_state, pauses
from symfonic_interrupts.store.statements.parts import ASKED, IN_THREAD, PAUSE, PLACEHOLDER, WITH_JTIS, Dialect


class Opening:
    """Questions are opened once.

    Attributes:
        open_pause: insert a pause. Returns its id; nothing where the question is there already.
        find_question: the pause of the same question: in the same slot, or still asked by the same task.
        move_question: a pending question is asked under another of LangGraph's ids. Returns its id; nothing where it is no
            longer pending or has another token.
        set_drifts: note how many answers in a row did not fit before a question.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.open_pause = dialect.insert(pauses).values(**PLACEHOLDER).on_conflict_do_nothing().returning(PAUSE.id)
        same_question = (*IN_THREAD, *(PAUSE[c] == bindparam(c) for c in QUESTION))
        same_slot = sa.and_(PAUSE.langgraph_id == bindparam("langgraph_id"), NOT_SUPERSEDED)
        same_task = sa.and_(PAUSE.leaf_task_id == bindparam("leaf_task_id"), ASKED)
        self.find_question = (
            sa.select(pauses)
            .where(*same_question, sa.or_(same_slot, same_task))
            .order_by(sa.case((ASKED, 0), else_=1), PAUSE.id.desc())
            .limit(1)
        )
        self.move_question = (
            sa.update(pauses)
            .where(PAUSE.jti == bindparam("the_jti"), in_state("pending"))
            .values(**{c: PLACEHOLDER[c] for c in ("langgraph_id", "slot", "mac_kid", "mac")})
            .returning(PAUSE.id)
        )
        self.set_drifts = sa.update(pauses).where(WITH_JTIS).values(drifts=bindparam("the_number"))
