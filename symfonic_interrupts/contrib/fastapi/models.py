"""The bodies that the routes take and answer with, as the OpenAPI document shows them; and how results become them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from symfonic_interrupts.contrib.fastapi.json_output import json_data
from symfonic_interrupts.core.results import AnswerReceipt, PauseView
from symfonic_interrupts.delivering.failed_thread import FailedThread as Failed
from symfonic_interrupts.events import AskUserQuestionEvent, InterruptEvent, PauseEvent

OpenPause = InterruptEvent | AskUserQuestionEvent


class PendingPage(BaseModel):
    """Open pauses, newest first, with their tokens."""

    items: list[OpenPause]
    next_after: str | None = Field(
        description="the `after` of the next page; null where there is nothing after this page"
    )
    next: str | None = Field(description="the next page's address, relative to this one's")


class PauseDetail(PauseView):
    """One pause, for whoever may answer it."""

    pause_token: str | None = Field(None, repr=False, description="while it can be answered, and `/pending` lists it")


class FailedThread(BaseModel):
    """A thread whose run raised after it had taken an answer. The answer stays stored."""

    thread_id: str
    at: datetime = Field(description="when it failed (UTC)")
    node: str | None = Field(description="the path of the node that raised; null where none did")
    error_type: str


class FailedPage(BaseModel):
    """Failed threads, the longest failed first."""

    items: list[FailedThread]


class TokenBody(BaseModel):
    """The body of `POST /inspect`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    token: str | None = Field(None, description="the pause token; or send it as `Authorization: Bearer`")


class AnswerBody(TokenBody):
    """The body of `POST /resume/{name}`."""

    response: Any = Field(description="the answer, as the JSON Schema in the pause's `response_schema` asks for it")


class Reissue(BaseModel):
    """The body of `POST /pending/{interrupt_id}/reissue`; it may be left out."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    ttl_seconds: int | None = Field(
        None, ge=1, le=10 * 365 * 86400, description="how long the new token lasts; null: as the point says"
    )


class Revoke(BaseModel):
    """The body of `POST /pending/{interrupt_id}/revoke`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    reason: str = Field(min_length=1, max_length=1000, pattern=r"\S", description="recorded")


class Accepted(BaseModel):
    """The answer is stored. Its delivery goes on by itself."""

    interrupt_id: str
    name: str
    thread_id: str
    answered_at: datetime


class ResumeResult(Accepted):
    """The answer is stored, and the graph ran with it, until it ended or waits again."""

    output: Any = Field(description="what the graph returned; null for an answer from another scope")
    open: list[OpenPause] = Field(description="the thread's open pauses that the caller may see, newest first")


def failed_page(found: Sequence[Failed]) -> dict[str, Any]:
    """`FailedPage`, as JSON data, of what `ResumeAdapter.failed` returns; without messages, which may hold anything."""
    items = [FailedThread(thread_id=f.thread_id, at=f.at, node=f.node, error_type=f.error_type) for f in found]
    return FailedPage(items=items).model_dump(mode="json")


def accepted(receipt: AnswerReceipt) -> dict[str, Any]:
    """`Accepted`, as JSON data."""
    found: dict[str, Any] = json_data(receipt)
    return {name: found[name] for name in Accepted.model_fields}


def resumed(receipt: AnswerReceipt, pauses: Sequence[PauseEvent], **output: Any) -> dict[str, Any]:
    """`ResumeResult`, or without an output what ends a stream, as JSON data."""
    found: dict[str, Any] = json_data({**output, "open": list(pauses)})
    return {**accepted(receipt), **found}
