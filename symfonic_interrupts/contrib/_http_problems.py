"""Errors as problem documents (RFC 9457): one `code` for each class of error, with the status that the class names.

No document echoes what the client sent, names another tenant's point, or tells what a graph or the server raised.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from symfonic_interrupts.contrib._http_json import json_data
from symfonic_interrupts.errors import InterruptError, ScopeMismatch, StoreError

log = logging.getLogger("symfonic_interrupts.http")

PROBLEM_TYPE = "urn:symfonic-interrupts:problem:"
RETRY_AFTER = {425: "1", 429: "5", 503: "5"}
"""Seconds after which the same request is worth another try."""

NO_STORE = {"Cache-Control": "no-store"}
_TOKEN = re.compile(r"eyJ[\w-]*\.[\w-]+\.[\w-]*", re.ASCII)
_TOKEN_PARAMETERS = re.compile(r"(?:^|[&?;])(?:pause_|access_)?token=", re.IGNORECASE)


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


class ProblemResponse(JSONResponse):
    media_type = "application/problem+json"


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
    """`endless`: so much of the body may still come that the connection is better closed than read to its end."""

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
    """The document of an error, as JSON data, with the facts that the error carries."""
    status, code = error.http_status, error.code
    detail = next((text for kind, text in _SAFE_DETAILS.items() if isinstance(error, kind)), str(error))
    if status == 500:
        detail = "the server is not set up for this request; its log says more"
    document = {
        "type": PROBLEM_TYPE + code,
        "title": _title(code),
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
        log.error("request failed: %s: %s", error.code, error)  # our own words: nobody's data is in them
    sent = {**NO_STORE, **(headers or {})}
    if status in RETRY_AFTER:
        sent["Retry-After"] = RETRY_AFTER[status]
    if status == 401:
        sent["WWW-Authenticate"] = "Bearer" if isinstance(error, TokenMissing) else 'Bearer error="invalid_token"'
    return ProblemResponse(problem(error, **facts), status_code=status, headers=sent)


def problem_docs(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses with problem documents, for these statuses."""
    content = {ProblemResponse.media_type: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[int | str, dict[str, Any]] = {
        status: {"description": _TOLD[status], "content": content} for status in statuses
    }
    # FastAPI makes a component only of what is some response's model, and names that response application/json as well
    found[500]["model"] = Problem
    return found


_TOLD = {
    400: "A token in the URL, a body that is no JSON, a token of another point, or no scope",
    401: "No pause token, or none that was issued here; or not signed in",
    403: "The pause belongs to another scope; or not allowed",
    404: "No such pause, point or thread",
    405: "The method is not offered here",
    409: "The token was spent, or its question no longer stands; or the graph did not use the answer",
    410: "The time to answer is over",
    413: "The body is too large",
    415: "The body is not application/json",
    422: "The answer or the request does not fit; the token is not spent",
    424: "The answer is stored, but the graph failed",
    425: "The pause is not stored yet; try again",
    429: "The answer is stored, but another worker is driving the thread; or the tenant has too much under way, and nothing is",
    500: "The server is not set up for this",
    503: "The pause store cannot be used at present",
}


class ProblemRoute(APIRoute):
    """A route whose errors are problem documents, whatever handlers the application has, and that takes no token in a URL."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except InterruptError as error:
                return problem_response(error, _closing(error, request))
            except AfterAnswer as after:
                return problem_response(after.error, **after.facts)
            except RequestValidationError as error:
                return problem_response(_request_invalid(error))
            except HTTPException as error:
                return _from_http(error)

        return handle

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _hide_token(scope):
            message = "a token in a URL ends up in logs and histories; send it in the body or as Bearer"
            await problem_response(TokenInUrl(message))(scope, receive, send)
            return
        try:
            await super().handle(scope, receive, send)
        except HTTPException as error:
            if error.status_code != 405:
                raise
            refused = MethodNotAllowed("this method is not offered here; the header Allow names those that are")
            await problem_response(refused, headers=dict(error.headers or {}))(scope, receive, send)


def _closing(error: InterruptError, request: Request) -> dict[str, str]:
    """A server goes on reading what nobody wants, unless it is told to close. HTTP/2 has no such header."""
    endless = isinstance(error, BodyTooLarge) and error.endless
    return {"Connection": "close"} if endless and request.scope.get("http_version", "1.1").startswith("1") else {}


def _title(code: str) -> str:
    return code.replace("_", " ").capitalize().replace(" url", " URL")


def _request_invalid(error: RequestValidationError) -> RequestInvalid:
    found = [{key: item[key] for key in ("type", "loc", "msg")} for item in error.errors()]
    return RequestInvalid("the request does not fit; `errors` says where", errors=found)


def _from_http(error: HTTPException) -> ProblemResponse:
    """What the application's own dependencies raise, such as the one that says who is calling."""
    codes = {401: "not_authenticated", 403: "not_allowed", 404: "not_found", 429: "too_many_requests"}
    code = codes.get(error.status_code, "http_error")
    document = {
        "type": PROBLEM_TYPE + code,
        "title": _title(code),
        "status": error.status_code,
        "detail": error.detail,
        "code": code,
    }
    headers = {**NO_STORE, **(error.headers or {})}
    if error.status_code == 401 and not any(name.lower() == "www-authenticate" for name in headers):
        headers["WWW-Authenticate"] = "Bearer"
    return ProblemResponse(json_data(document), status_code=error.status_code, headers=headers)


def _hide_token(scope: Scope) -> bool:
    """Whether there is a token in the URL. It is taken out, so that the server does not write it to its access log."""
    query = scope.get("query_string", b"").decode("latin-1")
    in_query = bool(_TOKEN_PARAMETERS.search(unquote_plus(query)) or _TOKEN.search(unquote_plus(query)))
    in_path = bool(_TOKEN.search(scope["path"]))
    if in_query or in_path:
        scope["query_string"] = b""
    if in_path:
        scope["path"] = _TOKEN.sub("-", scope["path"])
        scope["raw_path"] = scope["path"].encode()
    return in_query or in_path
