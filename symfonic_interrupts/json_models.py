"""Converts pydantic models to canonical JSON and back. Payloads and responses are stored and hashed in this form only.

The text must hold everything that the model holds, and every process must compute the same text for the same value. A model
for which that is not so is refused here. No message contains a value of the model; some of pydantic's do, so its errors are
not kept as the context of ours.

The text of a payload includes its computed fields, because whoever answers must see them. They are not input, so they are left
out when the text is read back.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from symfonic_interrupts.canonical import canonical_json

M = TypeVar("M", bound=BaseModel)

SMALLEST_INT, LARGEST_INT = -(2**63), 2**64 - 1
"""The range of integers that LangGraph's checkpoint format (msgpack) can hold."""

_PLAIN_FACTORIES = (list, dict, set, tuple, frozenset)


def model_text(model: BaseModel) -> str:
    """The canonical JSON of a model's fields. Raises ValueError if a value has no JSON form."""
    return canonical_json(_data(model, round_trip=True))


def payload_text(model: BaseModel, schema: type[BaseModel]) -> str:
    """The canonical JSON of a payload with its computed fields: the same in every process, and fit for a checkpoint.

    Raises:
        ValueError: it would come back changed, holds a set of several items (which has no order), or an integer beyond 64 bit.
        ValidationError: its JSON does not fit `schema`.
    """
    text = _text_with_computed(model)
    if type(model) is not schema:
        payload_from_text(schema, text)
    read = payload_from_text(type(model), text)
    if not same(read, model):
        raise ValueError(changed(model))
    if computed_names(type(model)) and _text_with_computed(read) != text:
        raise ValueError("a computed field says something else each time; compute it from the model's fields alone")
    for value in _values(model, computed=True):
        if isinstance(value, set | frozenset) and len(value) > 1:
            raise ValueError("a set has no order, so two processes would show two payloads; use a sorted list or tuple")
        if isinstance(value, int) and not SMALLEST_INT <= value <= LARGEST_INT:
            raise ValueError("an integer beyond 64 bit does not fit into a checkpoint; use a string")
    return text


def payload_from_text(schema: type[M], text: str) -> M:
    """The payload from its text; computed fields in it are ignored. Raises ValidationError if the rest does not fit."""
    if not computed_names(schema):
        return schema.model_validate_json(text)
    return _read(schema, json.loads(text), lambda data: schema.model_validate_json(canonical_json(data)))


def payload_from_value(schema: type[M], value: Any) -> M:
    """The payload from plain data, such as `model_dump()` gives. Raises ValidationError as `payload_from_text` does."""
    return _read(schema, value, schema.model_validate) if computed_names(schema) else schema.model_validate(value)


def answer_text(model: BaseModel, sent: str, schema: type[BaseModel]) -> str:
    """The text to keep of an answer given as JSON: as it was sent, if it means the same each time it is read.

    Raises:
        ValueError: neither the text that was sent nor the model's own text does.
    """
    if not _is_volatile(model) and same(schema.model_validate_json(sent), model):
        return sent
    text = model_text(model)
    if not same(schema.model_validate_json(text), model):
        raise ValueError(changed(model))
    return text


def changed(model: BaseModel) -> str:
    """The message for a model that JSON changes."""
    return (
        f"this {type(model).__name__} would come back changed from JSON (a secret, an excluded field, a custom serializer?);"
        " make the model round-trip"
    )


def same(one: BaseModel, other: BaseModel) -> bool:
    """Whether two models have equal fields. Private attributes and cached properties do not count: JSON does not hold them."""
    names = type(one).model_fields.keys() | type(other).model_fields.keys()
    alike = all(one.__dict__.get(name) == other.__dict__.get(name) for name in names)
    return alike and one.__pydantic_extra__ == other.__pydantic_extra__


def errors_of(error: ValidationError) -> list[dict[str, Any]]:
    """pydantic's errors, without any input."""
    errors = [dict(item) for item in error.errors(include_url=False, include_context=False, include_input=False)]
    for item in errors:
        if item["type"] == "union_tag_invalid":  # pydantic's only message that quotes the input
            item["msg"] = "Input tag is not one of the expected tags"
    return errors


def summary_of(error: ValidationError) -> str:
    """The first three errors, each with its field."""
    errors = errors_of(error)
    texts = [f"{'.'.join(str(part) for part in item['loc']) or '(root)'}: {item['msg']}" for item in errors[:3]]
    return "; ".join(texts) + (f" (and {len(errors) - 3} more)" if len(errors) > 3 else "")


@functools.lru_cache(maxsize=512)
def computed_names(schema: type[BaseModel]) -> frozenset[str]:
    """The JSON names of all computed fields of a model and of the models in it."""
    schema.model_rebuild()
    return frozenset(_names_in(schema.__pydantic_core_schema__))


def _names_in(node: Any) -> Iterator[str]:
    parts: Any = node if isinstance(node, list | tuple) else ()
    if isinstance(node, dict):
        if node.get("type") == "computed-field":
            yield from {node["property_name"], node.get("alias") or node["property_name"]}
        parts = [part for key, part in node.items() if key not in ("default", "metadata", "serialization")]
    for part in parts:
        yield from _names_in(part)


def _data(model: BaseModel, *, round_trip: bool) -> Any:
    try:
        return model.model_dump(mode="json", by_alias=True, round_trip=round_trip, warnings="none")
    except PydanticSerializationError:
        pass
    # Raised outside of the handler, because the context would be pydantic's error, which quotes the value.
    raise ValueError("a value that has no JSON form")


def _text_with_computed(model: BaseModel) -> str:
    data = _data(model, round_trip=True)
    if names := computed_names(type(model)):
        data = _with_computed(data, _data(model, round_trip=False), names)
    return canonical_json(data)


def _with_computed(data: Any, complete: Any, names: frozenset[str]) -> Any:
    """`data`, the fields of a model, with those computed fields added that `complete` has and `data` lacks."""
    if isinstance(data, dict) and isinstance(complete, dict):
        added = {name: complete[name] for name in complete.keys() - data.keys() if name in names}
        return {name: _with_computed(value, complete.get(name), names) for name, value in data.items()} | added
    if isinstance(data, list) and isinstance(complete, list) and len(data) == len(complete):
        return [_with_computed(one, other, names) for one, other in zip(data, complete, strict=True)]
    return data


def _read(schema: type[M], data: Any, validate: Callable[[Any], M]) -> M:
    """Validate `data` without its computed fields.

    Where they are, only validation shows: a model that forbids extra fields names them in its errors, and one that allows extra
    fields has taken them in as such.
    """
    names, data = computed_names(schema), _copy(data)
    while True:
        try:
            model = validate(data)
            break
        except ValidationError as error:
            refused = [item["loc"] for item in errors_of(error) if item["type"] == "extra_forbidden"]
            removed = [_remove(data, loc) for loc in refused if loc[-1] in names]
            if not any(removed):
                raise
    for value in _values(model):
        if isinstance(value, BaseModel) and value.__pydantic_extra__:
            own = {computed.alias or name for name, computed in type(value).model_computed_fields.items()}
            for name in own & value.__pydantic_extra__.keys():
                del value.__pydantic_extra__[name]
    return model


def _copy(data: Any) -> Any:
    """A copy of JSON data: new dicts and lists."""
    if isinstance(data, dict):
        return {name: _copy(value) for name, value in data.items()}
    return [_copy(value) for value in data] if isinstance(data, list) else data


def _remove(data: Any, loc: tuple[int | str, ...]) -> bool:
    """Remove the value at a location of pydantic's. Returns whether it was there.

    A location also has the names of union members; they lead nowhere in the data and are skipped.
    """
    *path, name = loc
    for part in path:
        if (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            data = data[part]  # type: ignore[index]
    return isinstance(data, dict) and data.pop(name, data) is not data


def _values(value: Any, *, computed: bool = False) -> Iterator[Any]:
    """The value and, recursively, its parts; with `computed` also the computed fields."""
    yield value
    parts: Any = ()
    if isinstance(value, BaseModel):
        parts = [value.__dict__.get(name) for name in type(value).model_fields]
        if computed:
            parts += [getattr(value, name) for name in type(value).model_computed_fields]
        parts += list((value.__pydantic_extra__ or {}).values())
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name, None) for field in fields(value)]
    for part in parts:
        yield from _values(part, computed=computed)


def _is_volatile(model: BaseModel) -> bool:
    """Whether a field that was not sent has a default that is computed each time (a new id, today's date)."""
    for value in _values(model):
        if isinstance(value, BaseModel):
            for name, field in type(value).model_fields.items():
                factory = field.default_factory
                if factory is not None and name not in value.model_fields_set and factory not in _PLAIN_FACTORIES:
                    return True
    return False
