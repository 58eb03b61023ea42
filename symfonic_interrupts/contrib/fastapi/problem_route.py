"""Routes whose errors are problem documents, and which refuse a token in the URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import unquote_plus

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from symfonic_interrupts.contrib.fastapi.json_output import json_data
from symfonic_interrupts.contrib.fastapi.problems import (
    PROBLEM_TYPE,
    AfterAnswer,
    BodyTooLarge,
    MethodNotAllowed,
    RequestInvalid,
    TokenInUrl,
    problem_response,
    title_of,
)
from symfonic_interrupts.contrib.fastapi.responses import NO_STORE, ProblemResponse
from symfonic_interrupts.errors import InterruptError

_TOKEN = re.compile(r"eyJ[\w-]*\.[\w-]+\.[\w-]*", re.ASCII)
_TOKEN_PARAMETERS = re.compile(r"(?:^|[&?;])(?:pause_|access_)?token=", re.IGNORECASE)


class ProblemRoute(APIRoute):
    """A route that answers errors itself, whatever handlers the application has, and refuses a token in the URL."""

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
    """The header that makes the server close the connection instead of reading an endless body. HTTP/2 has none."""
    endless = isinstance(error, BodyTooLarge) and error.endless
    return {"Connection": "close"} if endless and request.scope.get("http_version", "1.1").startswith("1") else {}


def _request_invalid(error: RequestValidationError) -> RequestInvalid:
    found = [{key: item[key] for key in ("type", "loc", "msg")} for item in error.errors()]
    return RequestInvalid("the request does not fit; `errors` says where", errors=found)


def _from_http(error: HTTPException) -> ProblemResponse:
    """An HTTPException of the application's own dependencies, such as the one that says who is calling."""
    codes = {401: "not_authenticated", 403: "not_allowed", 404: "not_found", 429: "too_many_requests"}
    code = codes.get(error.status_code, "http_error")
    document = {
        "type": PROBLEM_TYPE + code,
        "title": title_of(code),
        "status": error.status_code,
        "detail": error.detail,
        "code": code,
    }
    headers = {**NO_STORE, **(error.headers or {})}
    if error.status_code == 401 and not any(name.lower() == "www-authenticate" for name in headers):
        headers["WWW-Authenticate"] = "Bearer"
    return ProblemResponse(json_data(document), status_code=error.status_code, headers=headers)


def _hide_token(scope: Scope) -> bool:
    """Whether there is a token in the URL. It is removed from the scope, so that no access log gets it."""
    query = scope.get("query_string", b"").decode("latin-1")
    in_query = bool(_TOKEN_PARAMETERS.search(unquote_plus(query)) or _TOKEN.search(unquote_plus(query)))
    in_path = bool(_TOKEN.search(scope["path"]))
    if in_query or in_path:
        scope["query_string"] = b""
    if in_path:
        scope["path"] = _TOKEN.sub("-", scope["path"])
        scope["raw_path"] = scope["path"].encode()
    return in_query or in_path
