"""What a request says: its body within a limit, its pause token, and how the client wants to be answered.

A token is taken from the body or from `Authorization: Bearer`, never from a URL. Nothing is parsed before its size is
known, and nothing large before a genuine token was seen in it: whoever has none cannot make the server work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeVar

import anyio.to_thread
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
from symfonic_interrupts.errors import InterruptError
from symfonic_interrupts.scope import FrameworkTenantScope

LONGEST_KEY = 255

LARGE = 16 * 1024
"""Bytes beyond which a body is parsed only with a genuine token, and off the event loop."""

LONG_BODY = 16
"""So many times the limit, a body that is refused is not waited for."""

MOST_VALUES = 10_000
MOST_NESTED = 100
"""What a body may hold. A few bytes of JSON can become much memory and many calls."""

MOST_TOKENS = 4
"""How many fields named `token` of a large body are looked at, wherever they stand in it."""

_REMEDY = "send the pause token in the body, as `token`, or as `Authorization: Bearer`"
_TOKEN_FIELD = re.compile(rb'"token"\s*:\s*"([\w.-]+)"', re.ASCII)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


B = TypeVar("B", bound=BaseModel)


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


class Bodies:
    """Reads the bodies of requests.

    Args:
        limit: the largest, in bytes.
        verify: raises TokenInvalid or TokenExpired where a token is not genuine; asks no database.
    """

    def __init__(self, limit: int, verify: Callable[[str], Any]) -> None:
        self._limit = limit
        self._verify = verify
        self._parsers = anyio.CapacityLimiter(2)

    async def token(self, request: Request) -> Sent:
        """The token of a request that has nothing else to say."""
        return Sent(_token(request, await self._read(request, TokenBody)))

    async def answer(self, request: Request) -> Sent:
        """The token and the answer.

        Raises:
            BodyTooLarge, MediaTypeUnsupported, BodyMalformed, RequestInvalid, TokenMissing
            TokenInvalid, TokenExpired: the body is large, and holds no genuine token.
        """
        body = await self._read(request, AnswerBody)
        return Sent(_token(request, body), body.response)

    async def small(self, request: Request, model: type[B]) -> B:
        """A body without a token, so it must not be large."""
        return await self._read(request, model, limit=min(LARGE, self._limit))

    async def _read(self, request: Request, model: type[B], limit: int | None = None) -> B:
        body = await _within(request, limit or self._limit)
        if not body:
            return _fitted({}, model)
        media = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if media != "application/json":  # what a form on another site can send without asking is not taken
            raise MediaTypeUnsupported("send the body as application/json")
        if len(body) <= LARGE:
            return _fitted(_parse(body), model)
        self._expect_token(request, body)
        return await anyio.to_thread.run_sync(lambda: _fitted(_parse(body), model), limiter=self._parsers)

    def _expect_token(self, request: Request, body: bytes) -> None:
        given = [found[1].decode("ascii") for found in islice(_TOKEN_FIELD.finditer(body), MOST_TOKENS)]
        refused: InterruptError = TokenMissing(_REMEDY)
        for token in [*given, *_bearer(request)]:
            try:
                self._verify(token)
            except InterruptError as error:
                refused = error
            else:
                return
        raise refused


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
    for token in (body.token, *_bearer(request)):
        if token is not None:
            return token
    raise TokenMissing(_REMEDY)


def _bearer(request: Request) -> list[str]:
    """The token of `Authorization: Bearer`, if there is one. It may also be the application's own."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    return [credentials.strip()] if scheme.lower() == "bearer" and credentials.strip() else []


def _fitted(data: Any, model: type[B]) -> B:
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
    given = request.headers.get("content-length", "")
    length = int(given) if given.isdecimal() and len(given) <= 15 else None
    endless = length is None or length > LONG_BODY * limit
    refused = BodyTooLarge(f"the body must have at most {limit} bytes", endless=endless)
    if length is not None and length > limit:
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
    _check_shape(body)
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BodyMalformed("the body must be JSON (RFC 8259) in UTF-8, with no key twice in an object") from None


def _check_shape(body: bytes) -> None:
    """Count values and nesting before there is an object for each of them."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") <= MOST_NESTED:  # most bodies: no need to look closer
        return
    marks = _STRING.sub(b"", body)
    if marks.count(b",") + marks.count(b"[") + marks.count(b"{") > MOST_VALUES:
        raise BodyTooLarge(f"the body must have at most {MOST_VALUES} values")
    depth = 0
    for found in _BRACKET.finditer(marks):
        depth += 1 if found[0] in b"[{" else -1
        if depth > MOST_NESTED:
            raise BodyMalformed(f"the body must not be nested deeper than {MOST_NESTED}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)
