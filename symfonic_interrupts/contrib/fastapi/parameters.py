"""The parameters of the routes, with their patterns and what the OpenAPI document says of them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Header, Path, Query

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
