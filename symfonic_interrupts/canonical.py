"""Canonical JSON: one text for each JSON value, so that every process computes the same hash for it.

Object members are sorted by code point, there is no white space, non-ASCII characters are not escaped, and numbers are
written as Python's `json` writes them. NaN, infinities and lone surrogates are refused, as in RFC 8785, section 3.2, whose
number format is another.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """The canonical JSON text of plain JSON data.

    Raises:
        ValueError: the value is not JSON data (a non-string member name, NaN, a lone surrogate, another Python object).
    """
    try:
        _check_member_names(value)
        text = _ENCODER.encode(value)
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("text with a lone surrogate has no UTF-8 form") from None
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON data: {type(error).__name__}") from None
    return text


def _check_member_names(value: Any) -> None:
    # `json` would silently write {1: ...} and {None: ...} as {"1": ...} and {"null": ...}.
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("not JSON data: a member name that is not a string")
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        if isinstance(item, dict | list | tuple):
            _check_member_names(item)


def sha256(text: str) -> str:
    """SHA-256 of the text's UTF-8 bytes in unpadded base64url: 43 characters, the form JOSE uses (RFC 7515, RFC 7638)."""
    return base64url(hashlib.sha256(text.encode("utf-8")).digest())


def hash_json(value: Any) -> str:
    """SHA-256 of the canonical JSON of plain JSON data, in unpadded base64url."""
    return sha256(canonical_json(value))


def base64url(data: bytes) -> str:
    """Unpadded base64url (RFC 7515, section 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
