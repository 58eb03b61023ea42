"""What the OpenAPI document says of the routes' bodies, streams and errors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from symfonic_interrupts.contrib.fastapi.problems import Problem
from symfonic_interrupts.contrib.fastapi.responses import ProblemResponse

READ_ERRORS = (400, 401, 403, 422, 500, 503)
"""Statuses of every route that reads."""

TOKEN_ERRORS = (*READ_ERRORS, 404, 410, 413, 415)
"""Statuses of every route that takes a token in its body."""

_TEXT = {"type": "string"}
_EVENT = {
    "type": "object",
    "properties": {"event": _TEXT, "data": {**_TEXT, "contentMediaType": "application/json"}, "id": _TEXT},
}
EVENTS = {"description": "Server-sent events", "content": {"text/event-stream": {"itemSchema": _EVENT}}}

_MEANINGS = {
    400: "A token in the URL, a body that is no JSON, a token of another point, or no scope",
    401: "No pause token, or none that was issued here; or not signed in",
    403: "The pause belongs to another scope; or not allowed",
    404: "No such pause, point or thread",
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


def body_docs(model: type[BaseModel], *, required: bool) -> dict[str, Any]:
    """OpenAPI of a request's body."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def problem_docs(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses with problem documents, for these statuses."""
    content = {ProblemResponse.media_type: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[int | str, dict[str, Any]] = {
        status: {"description": _MEANINGS[status], "content": content} for status in statuses
    }
    # `Problem` becomes a component only as the model of some response, which then names application/json too; one is enough
    found[500]["model"] = Problem
    return found
