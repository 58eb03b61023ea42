"""Reads JSON Schemas as pydantic writes them: what a field takes, how a typed entry becomes its value, what is wrong with it.

Pure functions. They help the person who types; they do not replace the adapter's validation, which comes afterwards. What they
do not know they let pass.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

SCALARS = ("string", "integer", "number", "boolean")
YES, NO = ("yes", "y", "true"), ("no", "n", "false")
_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "yes/no", "null": "null"}


def resolve(schema: Any, root: Schema) -> dict[str, Any]:
    """The schema with its `$ref` (or its `allOf` of one schema) replaced by what that stands for."""
    resolved = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(20):
        reference = resolved.pop("$ref", None)
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = root
            for part in reference[2:].split("/"):
                target = target.get(part.replace("~1", "/").replace("~0", "~"), {})
        elif len(resolved.get("allOf", ())) == 1:
            (target,) = resolved.pop("allOf")
        else:
            break
        resolved = {**target, **resolved}
    return resolved


def variants(schema: Schema, root: Schema) -> tuple[list[dict[str, Any]], bool]:
    """The schemas that a value may fit, other than null; and whether it may be null."""
    schema = resolve(schema, root)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options is None and isinstance(schema.get("type"), list):
        options = [{"type": kind} for kind in schema["type"]]
    if options is None:
        return ([], True) if schema.get("type") == "null" else ([schema], False)
    around = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", "type", "discriminator")}
    flat: list[dict[str, Any]] = []
    nullable = False
    for option in options:
        inner, may_be_null = variants(option, root)
        nullable = nullable or may_be_null
        flat += inner
    if len(flat) == 1:  # pydantic puts the description and default of an optional field beside the union
        flat = [{**flat[0], **around}]
    return flat, nullable


def is_scalar(schema: Schema) -> bool:
    """Whether a value is typed in one entry."""
    return schema.get("type") in SCALARS or choices(schema) is not None


def choices(schema: Schema) -> list[Any] | None:
    """The values to choose from, or None if the schema has no such list."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return list(values) if isinstance(values, list) and values else None


def hint(options: list[dict[str, Any]], nullable: bool) -> str:
    """What may be typed, in a few words."""
    words: list[str] = []
    for option in options:
        offered = choices(option)
        if offered is not None:
            words += [text_of(value) for value in offered]
            continue
        kind = option.get("type")
        word = _WORDS.get(kind, "JSON") if isinstance(kind, str) else "JSON"
        if word == "text" and "format" in option:
            word = str(option["format"])
        limits = [f"{sign} {option[key]}" for key, sign in _LIMITS if key in option]
        words.append(" ".join([word, *limits]))
    return " / ".join([*dict.fromkeys(words), *(["null"] if nullable else [])])


def text_of(value: Any) -> str:
    """A value as a person would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def parse(entry: str, options: list[dict[str, Any]], nullable: bool) -> Any:
    """The value that the entry stands for. `\"\"` is the empty text; `null` is null if that is allowed.

    Raises:
        ValueError: it stands for none; the message says what is expected.
    """
    if nullable and entry.strip() == "null":
        return None
    problems: list[str] = []
    for option in sorted(options, key=lambda option: option.get("type") == "string"):  # text last: it takes any entry
        try:
            value = _parse_one(entry, option)
            check_limits(value, option)
        except ValueError as error:
            problems.append(str(error))
        else:
            return value
    raise ValueError(problems[0] if len(problems) == 1 else "expected " + hint(options, nullable))


def _parse_one(entry: str, schema: Schema) -> Any:
    offered = choices(schema)
    typed = entry.strip()
    if offered is not None:
        for value in offered:
            if typed == text_of(value) or (isinstance(value, bool) and typed.lower() in (YES if value else NO)):
                return value
        if typed.isdecimal() and 1 <= int(typed) <= len(offered) and all(isinstance(value, str) for value in offered):
            return offered[int(typed) - 1]
        raise ValueError("one of " + ", ".join(text_of(value) for value in offered))
    kind = schema.get("type")
    if kind == "boolean":
        if typed.lower() in YES + NO:
            return typed.lower() in YES
        raise ValueError("yes or no")
    if kind == "integer":
        if re.fullmatch(r"[+-]?[0-9]{1,4000}", typed):
            return int(typed)
        raise ValueError("a whole number")
    if kind == "number":
        return _number(typed)
    if kind == "string":
        return "" if typed == '""' else entry
    return read_json(entry)


def _number(typed: str) -> int | float:
    if re.fullmatch(r"[+-]?[0-9]{1,4000}", typed):
        return int(typed)
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", typed) and math.isfinite(float(typed)):
        return float(typed)
    raise ValueError("a number, with a point for decimals")


def read_json(text: str) -> Any:
    """Parse JSON (RFC 8259). Raises ValueError, whose message never quotes the text."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: it is nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"not JSON: {name}")


_LIMITS = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))


def check_limits(value: Any, schema: Schema) -> None:
    """Check the limits of the schema. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, schema)
    elif isinstance(value, str):
        _check_text(value, schema)
    elif isinstance(value, list):
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        if not least <= len(value) <= most:
            raise ValueError(f"at least {least} of them" if len(value) < least else f"at most {most} of them")


def _check_number(value: float, schema: Schema) -> None:
    fits = (
        value >= schema.get("minimum", -math.inf)
        and value > schema.get("exclusiveMinimum", -math.inf)
        and value <= schema.get("maximum", math.inf)
        and value < schema.get("exclusiveMaximum", math.inf)
    )
    if not fits:
        raise ValueError("a number " + " and ".join(f"{sign} {schema[key]}" for key, sign in _LIMITS if key in schema))
    step = schema.get("multipleOf")
    if isinstance(value, int) and isinstance(step, int) and step and value % step:
        raise ValueError(f"a multiple of {step}")


def _check_text(value: str, schema: Schema) -> None:
    least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if len(value) < least:
        raise ValueError(f"at least {least} characters")
    if len(value) > most:
        raise ValueError(f"at most {most} characters")
    pattern = schema.get("pattern")
    try:
        fits = pattern is None or re.search(pattern, value) is not None
    except re.error:  # a pattern that Python's `re` does not know; the adapter checks it
        return
    if not fits:
        raise ValueError(f"a text that fits the pattern {pattern}")
