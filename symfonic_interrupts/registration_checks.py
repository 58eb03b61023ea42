"""What a registration may look like. Each check raises RegistrationError, naming the point and the field."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.errors import RegistrationError

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
_NODE_PATTERN = re.compile(r"(?:[^/:|]+/)?[^/:|]+(?::[^/:|]+)*\Z")


def check_name(name: object) -> None:
    if not isinstance(name, str) or not NAME_PATTERN.match(name):
        raise RegistrationError("name must look like an identifier (letters, digits, _ . -) of at most 64 characters")


def check_schema(name: str, field: str, schema: object) -> None:
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)) or schema is BaseModel:
        raise RegistrationError(f"{name}: {field} must be a subclass of pydantic.BaseModel")


def check_validator(name: str, validate_response: object) -> None:
    if validate_response is None:
        return
    if not callable(validate_response) or _is_async(validate_response) or not _takes_two(validate_response):
        raise RegistrationError(
            f"{name}: validate_response must be callable as (response, payload) and not async, or None"
        )


def check_ttl(name: str, ttl: object) -> None:
    if ttl is not None and (not isinstance(ttl, timedelta) or ttl <= timedelta(0)):
        raise RegistrationError(f"{name}: ttl must be a timedelta above zero, or None")


def check_nodes(name: str, nodes: object) -> None:
    if not isinstance(nodes, list | tuple) or not all(isinstance(n, str) and _NODE_PATTERN.match(n) for n in nodes):
        raise RegistrationError(f'{name}: nodes must be a tuple of "node", "sub:node" or "graph/node"')


def check_metadata(name: str, metadata: object) -> None:
    try:
        if not isinstance(metadata, Mapping):
            raise ValueError
        canonical_json(dict(metadata))
    except ValueError:
        raise RegistrationError(f"{name}: metadata must be a mapping of JSON data") from None


def check_present(name: str, present: object) -> None:
    """`present` is a Presentation, or something else that shows payloads and reads answers."""
    if present is not None and not all(callable(getattr(present, method, None)) for method in ("shown", "read")):
        raise RegistrationError(f"{name}: present must be a Presentation, not {type(present).__name__}")


def _is_async(function: Any) -> bool:
    return any(inspect.iscoroutinefunction(part) for part in (function, type(function).__call__))


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # some built-ins have no signature
        return True
    return True
