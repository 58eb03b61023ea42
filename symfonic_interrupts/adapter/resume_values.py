"""What the value of a `Command(resume=...)` says: which question it answers, and with what. Pure functions.

LangGraph has two forms (`langgraph.types.Command.resume`): a mapping of interrupt ids to answers, and a bare answer to the one
question that waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from langgraph.types import Command

from symfonic_interrupts.errors import PauseSuperseded, TokenConsumed, UsageError
from symfonic_interrupts.store.rows import PauseRow

_AN_ID = re.compile(r"i-[0-9a-f]{12}|[0-9a-f]{32}", re.ASCII)
"""An interrupt id of this library, or of LangGraph."""

BY_ID = 'send {interrupt id: answer}, such as Command(resume={"i-...": ...})'


def is_resume(value: object) -> bool:
    """Whether a graph is called with an answer."""
    return isinstance(value, Command) and value.resume is not None


def check_plain(command: Command[Any], configurable: Mapping[str, Any]) -> None:
    """Raise UsageError where an answer comes with anything else, or at an old checkpoint."""
    if command.update is not None or command.goto or command.graph is not None:
        raise UsageError(
            "Command: resume must come alone, without update, goto or graph; send those in a call of their own"
        )
    for key in ("checkpoint_id", "checkpoint_ns"):
        if configurable.get(key):
            raise UsageError(
                f"config['configurable'][{key!r}]: an answer counts at the thread's newest checkpoint; leave it out"
            )
    if not configurable.get("thread_id"):
        raise UsageError("config['configurable']['thread_id'] is missing: an answer is for one thread")


def by_id(resume: object) -> dict[str, Any] | None:
    """The answers by interrupt id; None where it is a bare answer. As in LangGraph, a mapping whose keys all look like ids."""
    if not isinstance(resume, Mapping) or not resume:
        return None
    answers = dict(resume)
    return answers if all(isinstance(key, str) and _AN_ID.fullmatch(key) for key in answers) else None


def matched(answers: Mapping[str, Any], rows: Sequence[PauseRow]) -> list[tuple[PauseRow, Any]]:
    """Each answer with the open question that its id names.

    Args:
        rows: the thread's open and answered pauses.

    Raises:
        TokenConsumed: the question is answered already.
        PauseSuperseded: no question of this thread waits under that id any more.
        UsageError: two answers to one question, or an id that several questions share.
    """
    found: dict[str, tuple[PauseRow, Any]] = {}
    for key, answer in answers.items():
        named = [row for row in rows if key in (row["interrupt_id"], row["langgraph_id"])]
        waiting = [row for row in named if row["state"] == "pending"]
        if not named:
            raise PauseSuperseded(f"{key}: no question of this thread waits under that id any more")
        if not waiting:
            raise TokenConsumed(f"{key}: this question is answered already", state="answered")
        if len(waiting) > 1:
            ids = ", ".join(row["interrupt_id"] for row in waiting)
            raise UsageError(
                f"{key}: several questions of one task wait under LangGraph's id; answer each by its own: {ids}"
            )
        if waiting[0]["jti"] in found:
            raise UsageError(f"{key}: this question stands in the answer twice, under LangGraph's id and ours")
        found[waiting[0]["jti"]] = waiting[0], answer
    return list(found.values())


def the_one_waiting(rows: Sequence[PauseRow], *, driven: bool, arrived: datetime) -> PauseRow:
    """The question that a bare answer is for: the only one that waits, and had been asked when the answer came.

    Args:
        rows: the thread's open and answered pauses.
        driven: a worker drives the thread now.
        arrived: when the call came (UTC).

    Raises:
        TokenConsumed: another answer is under way, so it cannot be told which question was meant.
        PauseSuperseded: no question waits, or it was asked after the call came.
        UsageError: several wait.
    """
    waiting = [row for row in rows if row["state"] == "pending"]
    if driven or len(waiting) < len(rows):
        raise TokenConsumed(f"another answer to this thread is under way; {BY_ID}", state="answered")
    if len(waiting) > 1:
        raise UsageError(f"{len(waiting)} questions wait in this thread; {BY_ID}")
    if not waiting:
        raise PauseSuperseded("no question waits in this thread")
    if waiting[0]["created_at"] > arrived:
        raise PauseSuperseded(f"the question that waits was asked after this answer was sent; {BY_ID}")
    return waiting[0]
