"""The router's errors, and how errors are told to clients: as problem documents (RFC 9457) with a code and a status.

A document contains nothing that the client sent, no other tenant's names, and no text of what a graph or the server raised.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from symfonic_interrupts.contrib.fastapi.json_output import json_data
from symfonic_interrupts.contrib.fastapi.responses import NO_STORE, ProblemResponse
from symfonic_interrupts.errors import InterruptError, ScopeMismatch, StoreError

log = logging.getLogger("symfonic_interrupts.http")

PROBLEM_TYPE = "urn:symfonic-interrupts:problem:"
RETRY_AFTER = {425: "1", 429: "5", 503: "5"}
"""Seconds to wait before the same request, by status."""


class Problem(BaseModel):
    """Why a request was refused, or what went wrong (RFC 9457, `application/problem+json`)."""

    type: str = Field(description="a URN that ends in the code")
    title: str = Field(description="the kind of error in words; the same for each code")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what is wrong here, and what to do")
    code: str = Field(description="the kind of error, for programs")
    errors: list[dict[str, Any]] | None = Field(None, description="with 422: type, loc and msg of each error")
    expired_at: datetime | None = Field(None, description="with token_expired: when the time was over (UTC)")
    state: str | None = Field(None, description="with token_consumed: what became of the pause")
    answer_stored: bool | None = Field(None, description="true where the answer was accepted and stored all the same")
    interrupt_id: str | None = Field(None, description="with answer_stored: the pause")
    thread_id: str | None = Field(None, description="with answer_stored: the thread")


class TokenMissing(InterruptError):
    code = "token_missing"
    http_status = 401


class TokenInUrl(InterruptError):
    code = "token_in_url"
    http_status = 400


class NameMismatch(InterruptError):
    code = "name_mismatch"
    http_status = 400


class BodyMalformed(InterruptError):
    code = "body_malformed"
    http_status = 400


class CursorInvalid(InterruptError):
    code = "cursor_invalid"
    http_status = 400


class BodyTooLarge(InterruptError):
    """A body above the limit.

    Attributes:
        endless: the rest of the body is so long, or of unknown length, that the server should close the connection.
    """

    code = "body_too_large"
    http_status = 413

    def __init__(self, message: str, *, endless: bool = False) -> None:
        super().__init__(message)
        self.endless = endless


class MediaTypeUnsupported(InterruptError):
    code = "media_type_unsupported"
    http_status = 415


class RequestInvalid(InterruptError):
    code = "request_invalid"
    http_status = 422

    def __init__(self, message: str, *, errors: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.errors = errors


class TenantBusy(InterruptError):
    code = "tenant_busy"
    http_status = 429


class GraphFailed(InterruptError):
    code = "graph_failed"
    http_status = 424


class MethodNotAllowed(InterruptError):
    code = "method_not_allowed"
    http_status = 405


class AfterAnswer(Exception):
    """An error that came after the answer was stored.

    Attributes:
        error: what a client is told.
        facts: of the stored answer, for the problem document.
    """

    def __init__(self, error: InterruptError, *, interrupt_id: str, thread_id: str) -> None:
        super().__init__(error.code)
        self.error = error
        self.facts: dict[str, Any] = {"answer_stored": True, "interrupt_id": interrupt_id, "thread_id": thread_id}


_SAFE_DETAILS: dict[type[InterruptError], str] = {
    ScopeMismatch: "this pause belongs to another scope; answer it from there",
    StoreError: "the pause store cannot be used at present; try again",
}


def problem(error: InterruptError, **facts: Any) -> dict[str, Any]:
    """The document of an error, as JSON data. `facts` are further fields of `Problem`."""
    status, code = error.http_status, error.code
    detail = next((text for kind, text in _SAFE_DETAILS.items() if isinstance(error, kind)), str(error))
    if status == 500:
        detail = "the server is not set up for this request; its log says more"
    document = {
        "type": PROBLEM_TYPE + code,
        "title": title_of(code),
        "status": status,
        "detail": detail,
        "code": code,
        **{key: getattr(error, key, None) for key in ("errors", "expired_at", "state")},
        **facts,
    }
    return {key: value for key, value in json_data(document).items() if value not in (None, [])}


def problem_response(error: InterruptError, headers: dict[str, str] | None = None, **facts: Any) -> ProblemResponse:
    """The error's document, with its status and the headers that go with it."""
    status = error.http_status
    if status >= 500:
        log.error(
            "request failed: %s: %s", error.code, error
        )  # the message of a 5xx is this library's own, without data
    sent = {**NO_STORE, **(headers or {})}
    if status in RETRY_AFTER:
        sent["Retry-After"] = RETRY_AFTER[status]
    if status == 401:
        sent["WWW-Authenticate"] = "Bearer" if isinstance(error, TokenMissing) else 'Bearer error="invalid_token"'
    return ProblemResponse(problem(error, **facts), status_code=status, headers=sent)


def title_of(code: str) -> str:
    """A code in words."""
    return code.replace("_", " ").capitalize().replace(" url", " URL")
