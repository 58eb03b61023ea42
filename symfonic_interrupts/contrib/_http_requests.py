"""What a request says: its body within a limit, its pause token, and how the client wants to be answered.

A token is taken from the body or from `Authorization: Bearer`, never from a URL. Nothing is parsed before its size is known.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import jwt
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect

from symfonic_interrupts.contrib._http_problems import (
    BodyMalformed,
    BodyTooLarge,
    MediaTypeUnsupported,
    RequestInvalid,
    TokenMissing,
)
from symfonic_interrupts.scope import FrameworkTenantScope

LONGEST_KEY = 255


class TokenBody(BaseModel):
    """The body of `POST /inspect`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    token: str | None = Field(None, description="the pause token; or send it as `Authorization: Bearer`")


class AnswerBody(TokenBody):
    """The body of `POST /resume/{name}`."""

    response: Any = Field(description="the answer, as the JSON Schema in the pause's `response_schema` asks for it")


@dataclass(frozen=True, slots=True)
class Sent:
    """A token, and what came with it. `response` is meaningless where none was asked for."""

    token: str
    response: Any = None

    def __repr__(self) -> str:
        return "Sent()"

    def claim(self, name: str) -> Any:
        """What the token says of itself, unverified: for comparing with what a verified answer will be about."""
        try:
            return jwt.decode(self.token, options={"verify_signature": False}).get(name)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None


def is_of_scope(token: str, scope: FrameworkTenantScope) -> bool:
    """Whether a genuine token is of a pause of exactly this scope."""
    return bool(Sent(token).claim("scope_hash") == scope.scope_hash)


async def read_token(request: Request, limit: int) -> Sent:
    """The token of a request that has nothing else to say."""
    return Sent(_token(request, await _read(request, limit, TokenBody)))


async def read_answer(request: Request, limit: int) -> Sent:
    """The token and the answer.

    Raises:
        BodyTooLarge, MediaTypeUnsupported, BodyMalformed, RequestInvalid, TokenMissing
    """
    body = await _read(request, limit, AnswerBody)
    assert isinstance(body, AnswerBody)
    return Sent(_token(request, body), body.response)


def checked_key(given: str | None) -> str | None:
    """The header `Idempotency-Key`, quoted as a structured string or bare. Raises RequestInvalid."""
    if given is None:
        return None
    key = given[1:-1] if len(given) > 1 and given[0] == given[-1] == '"' else given
    if not 0 < len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
        message = f"must be 1 to {LONGEST_KEY} printable ASCII characters"
        raise RequestInvalid(
            f"the header Idempotency-Key {message}",
            errors=[{"type": "string_pattern_mismatch", "loc": ["header", "Idempotency-Key"], "msg": message}],
        )
    return key


def wanted(request: Request) -> Literal["json", "stream", "later"]:
    """How the client wants to be answered: `Prefer: respond-async` (RFC 7240), else by `Accept` (RFC 9110, 12.5.1)."""
    preferences = ",".join(request.headers.getlist("prefer")).lower().split(",")
    if "respond-async" in (preference.split(";")[0].strip() for preference in preferences):
        return "later"
    weights = _weights(",".join(request.headers.getlist("accept")))
    stream = weights.get("text/event-stream", 0.0)
    return "stream" if stream > 0 and stream > weights.get("application/json", 0.0) else "json"


def _weights(accept: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in accept.lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        found[media] = weight
    return found


def _token(request: Request, body: TokenBody) -> str:
    if body.token is not None:
        return body.token
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials.strip():
        return credentials.strip()
    raise TokenMissing("send the pause token in the body, as `token`, or as `Authorization: Bearer`")


async def _read(request: Request, limit: int, model: type[TokenBody]) -> TokenBody:
    body = await _within(request, limit)
    data: Any = {}
    if body:
        media = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if media != "application/json":  # what a form on another site can send without asking is not taken
            raise MediaTypeUnsupported("send the body as application/json")
        data = _parse(body)
    if not isinstance(data, dict):
        raise BodyMalformed("the body must be a JSON object")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False, include_input=False)
        # a key that is unknown is the client's own text, and may be anything
        found = [
            {**item, "loc": ["body"] if item["type"] == "extra_forbidden" else ["body", *item["loc"]]} for item in items
        ]
    raise RequestInvalid("the body does not fit; `errors` says where", errors=[dict(item) for item in found])


async def _within(request: Request, limit: int) -> bytes:
    refused = BodyTooLarge(f"the body must have at most {limit} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 15 or int(length) > limit):
        raise refused
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise refused
    except ClientDisconnect:
        raise BodyMalformed("the body ended early") from None
    return bytes(body)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BodyMalformed("the body must be JSON (RFC 8259) in UTF-8, with no key twice in an object") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)
