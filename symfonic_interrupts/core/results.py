"""What callers get to see of a pause and of an answer. Pure data."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from symfonic_interrupts.registration import InterruptRegistration
from symfonic_interrupts.store.rows import PauseRow, PauseWithAnswer, columns_of


class PauseView(BaseModel):
    """What a pause is about, for the one who is to answer.

    Attributes:
        name, metadata: the point.
        payload: what is asked, as JSON data.
        response_schema: JSON Schema of the answer.
        expires_at: when the token ends (UTC).
        seconds_left: how long the token still lasts; 0.0 when its time is over.
        state: `pending`, or why it cannot be answered: `answered`, `applied`, `unused`, `expired`, `superseded`, `revoked`.
        defaulted: nobody answered in time, and the point's `on_expire` was taken.
        interrupt_id, thread_id: the pause.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    metadata: dict[str, Any]
    payload: Any = Field(repr=False)
    response_schema: dict[str, Any]
    expires_at: datetime
    seconds_left: float
    state: str
    defaulted: bool
    interrupt_id: str
    thread_id: str


class AnswerReceipt(BaseModel):
    """An answer was accepted and stored.

    Attributes:
        interrupt_id, name, thread_id: the pause that it answers.
        answered_at: when (UTC).
        actor: who answered, as the caller named them, or None.
        response_hash: SHA-256 of the answer's canonical JSON, base64url.
    """

    model_config = ConfigDict(frozen=True)
    interrupt_id: str
    name: str
    thread_id: str
    answered_at: datetime
    actor: str | None = Field(repr=False)
    response_hash: str


def view_of(row: PauseWithAnswer, registration: InterruptRegistration, now: datetime) -> PauseView:
    """The view of an authentic row."""
    return PauseView(
        name=registration.name,
        metadata=dict(registration.metadata),
        payload=json.loads(row["payload"]),
        response_schema=registration.response_schema.model_json_schema(),
        expires_at=row["expires_at"],
        seconds_left=max(0.0, (row["expires_at"] - now).total_seconds()),
        state="expired" if row["state"] == "pending" and row["overdue"] else row["state"],
        defaulted=bool(row["answer_defaulted"]),
        interrupt_id=row["interrupt_id"],
        thread_id=row["thread_id"],
    )


def receipt_of(row: PauseRow, at: datetime, actor: str | None, response_hash: str) -> AnswerReceipt:
    """The receipt of an answer to this row."""
    pause = columns_of(row, "interrupt_id", "name", "thread_id")
    return AnswerReceipt(answered_at=at, actor=actor, response_hash=response_hash, **pause)
