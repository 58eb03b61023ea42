"""Between a pydantic model and its canonical JSON: the one form in which payloads and responses are kept and hashed.

A text must say all that the model says, and every process must compute the same text from the same value. What cannot be
said so is refused here. No message contains a value: pydantic's own do in places, and its errors are not kept as context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from symfonic_interrupts.canonical import canonical_json

SMALLEST_INT, LARGEST_INT = -(2**63), 2**64 - 1
"""What LangGraph's checkpoint format (msgpack) can hold."""

_PLAIN_FACTORIES = (list, dict, set, tuple, frozenset)


def model_text(model: BaseModel) -> str:
    """The canonical JSON of a model. Raises ValueError for a value that has none."""
    try:
        data = model.model_dump(mode="json", by_alias=True, round_trip=True, warnings="none")
    except PydanticSerializationError:
        pass
    else:
        return canonical_json(data)
    raise ValueError("a value that has no JSON form")  # outside: pydantic's error shows the value


def payload_text(model: BaseModel, schema: type[BaseModel]) -> str:
    """The canonical JSON of a payload: the same in every process, and fit for a checkpoint.

    Raises:
        ValueError: it would come back changed, has no order of its own (a set), or holds an integer beyond 64 bit.
        ValidationError: it does not fit `schema` once it is JSON.
    """
    text = model_text(model)
    if type(model) is not schema:
        schema.model_validate_json(text)
    if not same(type(model).model_validate_json(text), model):
        raise ValueError(changed(model))
    for value in _values(model):
        if isinstance(value, set | frozenset) and len(value) > 1:
            raise ValueError("a set has no order, so two processes would show two payloads; use a sorted list or tuple")
        if isinstance(value, int) and not SMALLEST_INT <= value <= LARGEST_INT:
            raise ValueError("an integer beyond 64 bit does not fit into a checkpoint; use a string")
    return text


def answer_text(model: BaseModel, sent: str, schema: type[BaseModel]) -> str:
    """The text to keep of an answer given as JSON: as it was sent, if it means the same each time it is read.

    Raises:
        ValueError: neither what was sent nor the model's own text does.
    """
    if not _is_volatile(model) and same(schema.model_validate_json(sent), model):
        return sent
    text = model_text(model)
    if not same(schema.model_validate_json(text), model):
        raise ValueError(changed(model))
    return text


def changed(model: BaseModel) -> str:
    """What to say of a model that does not survive JSON."""
    return (
        f"this {type(model).__name__} would come back changed from JSON (a secret, an excluded field, a custom serializer?);"
        " make the model round-trip"
    )


def same(one: BaseModel, other: BaseModel) -> bool:
    """Whether two models say the same. Private attributes and cached properties are nobody's to see, and do not travel."""
    names = type(one).model_fields.keys() | type(other).model_fields.keys()
    alike = all(one.__dict__.get(name) == other.__dict__.get(name) for name in names)
    return alike and one.__pydantic_extra__ == other.__pydantic_extra__


def errors_of(error: ValidationError) -> list[dict[str, Any]]:
    """pydantic's errors, without any input."""
    found = [dict(item) for item in error.errors(include_url=False, include_context=False, include_input=False)]
    for item in found:
        if item["type"] == "union_tag_invalid":  # the only message of pydantic's that quotes the input
            item["msg"] = "Input tag is not one of the expected tags"
    return found


def summary_of(error: ValidationError) -> str:
    """The first three errors, each with its field."""
    found = errors_of(error)
    told = [f"{'.'.join(str(part) for part in item['loc']) or '(root)'}: {item['msg']}" for item in found[:3]]
    return "; ".join(told) + (f" (and {len(found) - 3} more)" if len(found) > 3 else "")


def _values(value: Any) -> Iterator[Any]:
    """The value and all that it is made of."""
    yield value
    parts: Any = ()
    if isinstance(value, BaseModel):
        parts = [value.__dict__.get(name) for name in type(value).model_fields]
        parts += list((value.__pydantic_extra__ or {}).values())
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name, None) for field in fields(value)]
    for part in parts:
        yield from _values(part)


def _is_volatile(model: BaseModel) -> bool:
    """Whether a field that was not sent has a default made anew at each reading (an id, today's date)."""
    for value in _values(model):
        if isinstance(value, BaseModel):
            for name, field in type(value).model_fields.items():
                factory = field.default_factory
                if factory is not None and name not in value.model_fields_set and factory not in _PLAIN_FACTORIES:
                    return True
    return False
