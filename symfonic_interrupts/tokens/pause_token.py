"""The pause token: a signed JWT (RFC 7519, HS256) that answers one pause once.

It carries hashes and no data: no thread, tenant or payload. Minting is a pure function of the claims and the key, so a
token can be made again at any time, and a verifier accepts exactly the bytes that minting the same claims would give:
every other spelling of a valid signature (padding, member order, extra claims, another header) is refused with it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import jwt

from symfonic_interrupts.canonical import hash_json, sha256
from symfonic_interrupts.errors import TokenExpired, TokenInvalid
from symfonic_interrupts.registration_checks import NAME_PATTERN
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.tokens.keys import MIN_KEY_BYTES, KeyRing

TOKEN_TYPE = "pause+jwt"  # noqa: S105 - the header's `typ`, not a secret
ALGORITHM = "HS256"
LAST_SECOND = 253402300799
"""The end of the year 9999, the last moment that a datetime can hold."""


@dataclass(frozen=True, slots=True)
class PauseToken:
    """The claims of a pause token.

    Attributes:
        issuer: `iss`.
        audience: `aud`: the configured audience, `/`, and the graph's name.
        issued_at: `iat`, whole seconds since 1970 (UTC).
        expires_at: `exp`, whole seconds since 1970 (UTC).
        jti: the token's id; whoever records it first has spent it.
        name: the point.
        interrupt_id: the pause.
        scope_hash, request_hash, checkpoint_hash: SHA-256, base64url, of the scope, the payload's canonical JSON, and the
            thread, checkpoint and task that asked.
    """

    issuer: str
    audience: str
    issued_at: int
    expires_at: int
    jti: str
    name: str
    interrupt_id: str
    scope_hash: str
    request_hash: str
    checkpoint_hash: str

    def mint(self, keys: KeyRing, *, kid: str | None = None) -> str:
        """The token's text, under 800 characters with the default issuer and audience."""
        kid = kid or keys.signing_kid
        key = keys.derived(kid, "pause-token")
        assert key is not None, "minting uses an active key"
        claims = {
            "iss": self.issuer,
            "aud": self.audience,
            "iat": self.issued_at,
            "exp": self.expires_at,
            "jti": self.jti,
            "name": self.name,
            "interrupt_id": self.interrupt_id,
            "scope_hash": self.scope_hash,
            "request_hash": self.request_hash,
            "checkpoint_hash": self.checkpoint_hash,
        }
        return jwt.encode(claims, key, algorithm=ALGORITHM, headers={"typ": TOKEN_TYPE, "kid": kid})

    @classmethod
    def verify(
        cls,
        token: object,
        keys: KeyRing,
        *,
        issuer: str,
        audience: str,
        now: datetime,
        clock_skew: timedelta = timedelta(0),
        max_bytes: int = 2048,
    ) -> PauseToken:
        """The claims of a token, checked without any database.

        A token is refused here only after `exp` plus `clock_skew`. Whether it came in time is decided when it is spent, by the
        database.

        Raises:
            TokenInvalid: not a token of ours, byte for byte, for this audience.
            TokenExpired: genuine, but its time has been over for longer than `clock_skew`.
        """
        if not isinstance(token, str) or not token.isascii() or not 0 < len(token) <= max_bytes:
            raise TokenInvalid(
                f"the pause token must be ASCII text of at most {max_bytes} characters, as it was given out"
            )
        kid, claims = _decode(token, keys, issuer, audience)
        stated = cls._from_claims(claims)
        if not hmac.compare_digest(stated.mint(keys, kid=kid), token):
            raise TokenInvalid("the pause token is not in the form in which it was given out")
        skew = clock_skew.total_seconds()
        moment = now.timestamp()
        if not stated.issued_at <= moment + skew:
            raise TokenInvalid("the pause token was issued in the future; check the clocks")
        if not moment < stated.expires_at + skew:
            raise TokenExpired("the time to answer is over", expired_at=datetime.fromtimestamp(stated.expires_at, UTC))
        return stated

    @classmethod
    def _from_claims(cls, claims: dict[str, Any]) -> PauseToken:
        try:
            stated = cls(
                issuer=claims["iss"],
                audience=claims["aud"],
                issued_at=claims["iat"],
                expires_at=claims["exp"],
                jti=claims["jti"],
                name=claims["name"],
                interrupt_id=claims["interrupt_id"],
                scope_hash=claims["scope_hash"],
                request_hash=claims["request_hash"],
                checkpoint_hash=claims["checkpoint_hash"],
            )
        except KeyError:
            raise TokenInvalid("the pause token lacks a claim") from None
        for claim in (
            "issuer",
            "audience",
            "jti",
            "name",
            "interrupt_id",
            "scope_hash",
            "request_hash",
            "checkpoint_hash",
        ):
            if type(getattr(stated, claim)) is not str:
                raise TokenInvalid("the pause token has a claim of the wrong type")
        times = (stated.issued_at, stated.expires_at)
        if not all(type(time) is int and 0 <= time <= LAST_SECOND for time in times) or not NAME_PATTERN.match(
            stated.name
        ):
            raise TokenInvalid("the pause token has a claim of the wrong type")
        return stated

    @staticmethod
    def hash_scope(scope: FrameworkTenantScope) -> str:
        """SHA-256 of the canonical JSON array of the scope's three parts, base64url."""
        return scope.scope_hash

    @staticmethod
    def hash_payload(payload: Any) -> str:
        """SHA-256 of the canonical JSON of a payload given as JSON data, base64url: the `request_hash`."""
        return hash_json(payload)

    @staticmethod
    def hash_checkpoint(thread_id: str, checkpoint_ns: str, checkpoint_id: str, task_id: str) -> str:
        """SHA-256 of the thread, checkpoint and task that asked, base64url: the `checkpoint_hash`."""
        return hash_json([thread_id, checkpoint_ns, checkpoint_id, task_id])

    @staticmethod
    def hash_payload_text(text: str) -> str:
        """The `request_hash` of a payload that is canonical JSON already."""
        return sha256(text)


@lru_cache
def _header_of(kid: str) -> str:
    """The first part of every token that this key signs."""
    any_key = bytes(MIN_KEY_BYTES)
    header, _, _ = jwt.encode({}, any_key, ALGORITHM, {"typ": TOKEN_TYPE, "kid": kid}).partition(".")
    return header


def _decode(token: str, keys: KeyRing, issuer: str, audience: str) -> tuple[str, dict[str, Any]]:
    header, _, _ = token.partition(".")
    kid = next((kid for kid in keys.kids if header == _header_of(kid)), None)
    if kid is None:
        raise TokenInvalid("this is not a pause token, or the key that signed it is not in use")
    key = keys.derived(kid, "pause-token")
    if key is None:
        raise TokenInvalid("the pause token is signed with a key that is not in use")
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            audience=audience,
            issuer=issuer,
            options={
                "require": ["iss", "aud", "iat", "exp", "jti"],
                "verify_exp": False,  # decided by `verify`, with the injected clock
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except jwt.InvalidAudienceError:
        raise TokenInvalid("the pause token is for another audience or graph") from None
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError):
        raise TokenInvalid("the pause token is not valid") from None
    return kid, claims
