"""What the routes take and give, as FastAPI is told of it: parameters, bodies, answers, statuses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from symfonic_interrupts.contrib._http_json import json_data
from symfonic_interrupts.contrib._http_problems import NO_STORE

NAME = r"^[A-Za-z_][A-Za-z0-9_.\-]{0,63}$"
INTERRUPT_ID = r"^i-[0-9a-f]{12}$"
TEXT = r"^[^\x00]+$"

Name = Annotated[str, Path(pattern=NAME, description="the point's name; the token must be one of its pauses")]
InterruptId = Annotated[str, Path(pattern=INTERRUPT_ID)]
Limit = Annotated[int, Query(ge=1, le=1000, description="pauses on a page")]
After = Annotated[str | None, Query(pattern=INTERRUPT_ID, description="`next_after` of the page before")]
OfName = Annotated[str | None, Query(pattern=NAME, description="only pauses of this point")]
State = Annotated[Literal["pending", "failed"], Query(description="`failed`: threads that failed after an answer")]
OfThread = Annotated[str | None, Query(pattern=TEXT, max_length=1024, description="only of this thread")]
SubScopes = Annotated[
    bool, Query(description="also of scopes below the caller's, of points that may be answered from there")
]
Cursor = Annotated[str | None, Query(max_length=100, description="go on after this event; `Last-Event-ID` comes first")]
Replay = Annotated[bool, Query(description="begin with the oldest recorded event instead of the next one")]
LastEventId = Annotated[str | None, Header(max_length=100, description="the id of the last event that was seen")]
IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", description="the same key and answer again: the same receipt again")
]
Prefer = Annotated[str | None, Header(description="`respond-async`: 202 as soon as the answer is stored (RFC 7240)")]

READ_ERRORS = (400, 401, 403, 422, 500, 503)
TOKEN_ERRORS = (*READ_ERRORS, 404, 410, 413, 415)
_TEXT = {"type": "string"}
_EVENT = {
    "type": "object",
    "properties": {"event": _TEXT, "data": {**_TEXT, "contentMediaType": "application/json"}, "id": _TEXT},
}
EVENTS = {"description": "Server-sent events", "content": {"text/event-stream": {"itemSchema": _EVENT}}}


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Any value as JSON, kept by no cache."""
    return JSONResponse(json_data(content), status_code=status, headers={**NO_STORE, **(headers or {})})


def body_docs(model: type[BaseModel], *, required: bool) -> dict[str, Any]:
    """OpenAPI of a request's body."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}
