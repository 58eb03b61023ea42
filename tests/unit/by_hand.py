"""Tokens and receipts made by hand, with nothing but `hmac` and `json`: what the library's own text is compared with.

`TOKEN` and `SEALED` are frozen: they were computed once, outside this library, for `KEY`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from symfonic_interrupts import KeyRing, PauseToken
from symfonic_interrupts.tokens.receipt import Receipt

KEY = b"a test key of thirty-two bytes.."
OLDER_KEY = b"an older key of thirty-two byte."
KID = "ea3f09b6bcf4a216"
OLDER_KID = "3c846e5e02f1b6e6"
TOKEN_KEY = bytes.fromhex("8bf389b5d2cfb4a58b540d8f41564f8c0496baf4687127486398a095243614ed")
OLDER_TOKEN_KEY = bytes.fromhex("148e11e5d1a4fc4700462b4ce4d9c298952db0e2715aed623c68ceccb3cb2ee1")
RECEIPT_KEY = bytes.fromhex("53bce4bb7c44b174d4eea463c70cc1c8f33d6c3b98f85fc823de522ed53d8717")

ISSUER = "symfonic-interrupts"
AUDIENCE = "symfonic-interrupts/default"
ISSUED_AT = 1_700_000_000
EXPIRES_AT = 1_700_003_600
BEFORE_EXPIRY = datetime(2023, 11, 14, 22, 13, 30, tzinfo=UTC)  # ten seconds after ISSUED_AT

HEADER: dict[str, Any] = {"alg": "HS256", "kid": KID, "typ": "pause+jwt"}
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "iat": ISSUED_AT,
    "exp": EXPIRES_AT,
    "jti": "0123456789abcdef0123456789abcdef",
    "name": "approval",
    "interrupt_id": "i-0123456789ab",
    "scope_hash": "Csdxzwbb07YK8wLMbcAE4oa7A8W-OXjnV2CuwTemTE4",
    "request_hash": "0vkH5LLnLe4cXYilC8eXMoc8KFQJriQcCUtBxCJvl9g",
    "checkpoint_hash": "0a5SJ3JcChwGWX-GpA5J6eGlOcGlXF1Bklt9T0uW_AM",
}
CONTENT = PauseToken(
    issuer=ISSUER,
    audience=AUDIENCE,
    issued_at=ISSUED_AT,
    expires_at=EXPIRES_AT,
    jti="0123456789abcdef0123456789abcdef",
    name="approval",
    interrupt_id="i-0123456789ab",
    scope_hash="Csdxzwbb07YK8wLMbcAE4oa7A8W-OXjnV2CuwTemTE4",
    request_hash="0vkH5LLnLe4cXYilC8eXMoc8KFQJriQcCUtBxCJvl9g",
    checkpoint_hash="0a5SJ3JcChwGWX-GpA5J6eGlOcGlXF1Bklt9T0uW_AM",
)
TOKEN = (
    "eyJhbGciOiJIUzI1NiIsImtpZCI6ImVhM2YwOWI2YmNmNGEyMTYiLCJ0eXAiOiJwYXVzZStqd3QifQ.eyJpc3MiOiJzeW1mb25pY"
    "y1pbnRlcnJ1cHRzIiwiYXVkIjoic3ltZm9uaWMtaW50ZXJydXB0cy9kZWZhdWx0IiwiaWF0IjoxNzAwMDAwMDAwLCJleHAiOjE3M"
    "DAwMDM2MDAsImp0aSI6IjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmIiwibmFtZSI6ImFwcHJvdmFsIiwiaW50ZXJyd"
    "XB0X2lkIjoiaS0wMTIzNDU2Nzg5YWIiLCJzY29wZV9oYXNoIjoiQ3NkeHp3YmIwN1lLOHdMTWJjQUU0b2E3QThXLU9Yam5WMkN1d"
    "1RlbVRFNCIsInJlcXVlc3RfaGFzaCI6IjB2a0g1TExuTGU0Y1hZaWxDOGVYTW9jOEtGUUpyaVFjQ1V0QnhDSnZsOWciLCJjaGVja"
    "3BvaW50X2hhc2giOiIwYTVTSjNKY0Nod0dXWC1HcEE1SjZlR2xPY0dsWEYxQmtsdDlUMHVXX0FNIn0.xOGacDBM3Ao9qbP9bpUYE"
    "gYQSlBis1JvjMC04ghQrh0"
)

RECEIPT = Receipt(
    jti="0123456789abcdef0123456789abcdef",
    name="approval",
    audience=AUDIENCE,
    thread_id="t1",
    task_id="task-1",
    interrupt_id="i-0123456789ab",
    scope_hash="Csdxzwbb07YK8wLMbcAE4oa7A8W-OXjnV2CuwTemTE4",
    request_hash="0vkH5LLnLe4cXYilC8eXMoc8KFQJriQcCUtBxCJvl9g",
    response_hash="IOwvOPyWvH1Bapr1N0k64LribFrUxaDy2U9W-cPgSVg",
    asked_at="2026-01-02T03:04:05+00:00",
    answered_at="2026-01-02T03:05:05+00:00",
    actor="zoë",
    defaulted=False,
)
SEALED: dict[str, Any] = {
    "jti": "0123456789abcdef0123456789abcdef",
    "name": "approval",
    "audience": "symfonic-interrupts/default",
    "thread_id": "t1",
    "task_id": "task-1",
    "interrupt_id": "i-0123456789ab",
    "scope_hash": "Csdxzwbb07YK8wLMbcAE4oa7A8W-OXjnV2CuwTemTE4",
    "request_hash": "0vkH5LLnLe4cXYilC8eXMoc8KFQJriQcCUtBxCJvl9g",
    "response_hash": "IOwvOPyWvH1Bapr1N0k64LribFrUxaDy2U9W-cPgSVg",
    "asked_at": "2026-01-02T03:04:05+00:00",
    "answered_at": "2026-01-02T03:05:05+00:00",
    "actor": "zoë",
    "defaulted": False,
    "kid": "ea3f09b6bcf4a216",
    "mac": "3f0391f20e91102382e7319d38a3f08286f5cf324e883f588a043ae7b93979af",
}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def forge(
    claims: dict[str, Any] | bytes = CLAIMS,
    header: dict[str, Any] | bytes = HEADER,
    *,
    key: bytes = TOKEN_KEY,
    digest: str = "sha256",
) -> str:
    """A JWT with a right signature under `key`, whatever it says. Bytes are taken as the JSON text itself."""
    head = header if isinstance(header, bytes) else compact(header)
    body = claims if isinstance(claims, bytes) else compact(claims)
    signed = f"{base64url(head)}.{base64url(body)}"
    return f"{signed}.{base64url(hmac.new(key, signed.encode('ascii'), digest).digest())}"


def verify(token: object, keys: KeyRing | None = None, **changed: Any) -> PauseToken:
    """`PauseToken.verify` with the issuer, audience and time of `CLAIMS`."""
    settings: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "now": BEFORE_EXPIRY, **changed}
    return PauseToken.verify(token, keys or KeyRing([KEY]), **settings)


def at(second: float) -> datetime:
    """The time so many seconds after 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def key_text(key: bytes) -> str:
    """A key as it stands in a file or a variable."""
    return base64url(key)


def sha256_of(text: str) -> str:
    """SHA-256 of a text, base64url."""
    return base64url(hashlib.sha256(text.encode("utf-8")).digest())
