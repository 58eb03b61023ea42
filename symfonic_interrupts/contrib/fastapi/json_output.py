"""Any Python value as JSON data that can be sent: what a graph returns or streams need not have a JSON form.

It never raises: what cannot be shown is replaced by the name of its type, and never by its repr, which may tell too much.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from langgraph.types import Interrupt
from pydantic_core import to_jsonable_python

MOST_NESTED = 100
"""Deeper than this, a value is cut: a structure that contains itself has no end."""

LARGEST_BITS = 14_000
"""Python refuses to write integers of more than 4,300 digits."""


def json_data(value: Any) -> Any:
    """The value as JSON data: models and LangChain messages dumped, times in ISO 8601, NaN and infinity as null."""
    return _plain(value, 0)


def json_text(value: Any) -> str:
    """The value as JSON text on one line."""
    return json.dumps(json_data(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if type(value) is str:
        return value.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent
    if type(value) is int:
        return value if value.bit_length() <= LARGEST_BITS else _named(value)
    if type(value) is float:
        return value if math.isfinite(value) else None
    if depth >= MOST_NESTED:
        return _named(value)
    if isinstance(value, Interrupt):
        return {"id": value.id, "value": _plain(value.value, depth + 1)}
    if isinstance(value, Mapping):
        return {_key(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, Iterator):  # reading it would take it from its owner, and may never end
        return _named(value)
    try:
        found = to_jsonable_python(value, fallback=_named, inf_nan_mode="null", bytes_mode="base64")
    except Exception:  # a model's own serializer may raise anything
        return _named(value)
    return _plain(found, depth + 1)


def _key(key: Any) -> str:
    found = _plain(key, MOST_NESTED - 1)
    return found if isinstance(found, str) else json.dumps(found)


def _named(value: Any) -> str:
    return f"<{type(value).__name__}>"
