"""JSON of a request, parsed strictly and within limits: a few bytes of it can become much memory and many calls."""

from __future__ import annotations

import json
import re
from typing import Any

from symfonic_interrupts.contrib.fastapi.problems import BodyMalformed, BodyTooLarge

MOST_VALUES = 10_000
"""How many values a body may hold."""

MOST_NESTED = 100
"""How deep they may be nested."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def parse_json(body: bytes) -> Any:
    """The value of a JSON text in UTF-8. NaN, infinities and a key twice in one object are refused.

    Raises:
        BodyMalformed, BodyTooLarge
    """
    _check_shape(body)
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BodyMalformed("the body must be JSON (RFC 8259) in UTF-8, with no key twice in an object") from None


def _check_shape(body: bytes) -> None:
    """Count values and nesting before parsing makes an object of each."""
    if (
        body.count(b",") + body.count(b"[") + body.count(b"{") <= MOST_NESTED
    ):  # so it can be neither too deep nor too large
        return
    marks = _STRING.sub(b"", body)
    if marks.count(b",") + marks.count(b"[") + marks.count(b"{") > MOST_VALUES:
        raise BodyTooLarge(f"the body must have at most {MOST_VALUES} values")
    depth = 0
    for found in _BRACKET.finditer(marks):
        depth += 1 if found[0] in b"[{" else -1
        if depth > MOST_NESTED:
            raise BodyMalformed(f"the body must not be nested deeper than {MOST_NESTED}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
