"""What a request says: its body within a limit, its pause token, and how the client wants to be answered.

A token is taken from the body or from `Authorization: Bearer`, never from a URL. A body is parsed only after its size is
known, and a large one only after a genuine token was found in it, so that nobody without one can keep the server busy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeVar

import anyio.to_thread
import jwt
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from symfonic_interrupts.contrib.fastapi.json_input import parse_json
from symfonic_interrupts.contrib.fastapi.models import AnswerBody, TokenBody
from symfonic_interrupts.contrib.fastapi.problems import (
    BodyMalformed,
    BodyTooLarge,
    MediaTypeUnsupported,
    RequestInvalid,
    TokenMissing,
)
from symfonic_interrupts.errors import InterruptError
from symfonic_interrupts.scope import FrameworkTenantScope

LONGEST_KEY = 255
"""Characters of an `Idempotency-Key`."""

LARGE = 16 * 1024
"""Bytes above which a body is parsed only if it holds a genuine token, and in a thread."""

LONG_BODY = 16
"""How many times the limit a refused body may be before the server closes the connection instead of reading it."""

MOST_TOKENS = 4
"""How many fields named `token` of a large body are tried, at any depth."""

_REMEDY = "send the pause token in the body, as `token`, or as `Authorization: Bearer`"
_TOKEN_FIELD = re.compile(rb'"token"\s*:\s*"([\w.-]+)"', re.ASCII)

B = TypeVar("B", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Sent:
    """A token and, where the route takes one, the answer that came with it."""

    token: str
    response: Any = None

    def __repr__(self) -> str:
        return "Sent()"

    def claim(self, name: str) -> Any:
        """A claim of the token, which is not verified here: only for comparing. None where it cannot be read."""
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
        """The token of a request without an answer. Raises as `answer` does."""
        return Sent(_token(request, await self._read(request, TokenBody)))

    async def answer(self, request: Request) -> Sent:
        """The token and the answer of a request.

        Raises:
            BodyTooLarge, MediaTypeUnsupported, BodyMalformed, RequestInvalid, TokenMissing
            TokenInvalid, TokenExpired: the body is large, and no token in it is genuine.
        """
        body = await self._read(request, AnswerBody)
        return Sent(_token(request, body), body.response)

    async def small(self, request: Request, model: type[B]) -> B:
        """The body of a request without a token: at most `LARGE` bytes."""
        return await self._read(request, model, limit=min(LARGE, self._limit))

    async def _read(self, request: Request, model: type[B], limit: int | None = None) -> B:
        body = await _within(request, limit or self._limit)
        if not body:
            return _validated({}, model)
        media = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if media != "application/json":  # a form of another site cannot send this type without CORS
            raise MediaTypeUnsupported("send the body as application/json")
        if len(body) <= LARGE:
            return _validated(parse_json(body), model)
        self._expect_token(request, body)
        return await anyio.to_thread.run_sync(lambda: _validated(parse_json(body), model), limiter=self._parsers)

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


def _validated(data: Any, model: type[B]) -> B:
    if not isinstance(data, dict):
        raise BodyMalformed("the body must be a JSON object")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False, include_input=False)
        # the name of an unknown key is text of the client's, so it is not repeated
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
