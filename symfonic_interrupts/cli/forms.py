"""Asks a person for an answer, field by field, as its JSON Schema says. An entry that is wrong is asked for again.

Enter takes the default, or the value of the previous answer. What has no fixed fields (free-form maps, tuples, deep nesting) is
asked for as JSON. The form does not validate the answer; the adapter does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symfonic_interrupts.cli.json_schema import (
    NO,
    YES,
    Schema,
    check_limits,
    choices,
    hint,
    is_scalar,
    parse,
    read_json,
    resolve,
    text_of,
    variants,
)

Ask = Callable[[str], str]
"""Shows a prompt, and returns what was typed."""

Say = Callable[[str], None]
"""Shows a line."""

LEFT_OUT = object()
"""In place of a value: the field is not in the answer, so its default applies."""

DEEPEST = 6
"""What is nested deeper than this is asked for as JSON."""


class Form:
    """The questions of one JSON Schema.

    Args:
        schema: the schema of the whole answer.
        ask, say: how to talk to the person.
    """

    def __init__(self, schema: Schema, ask: Ask, say: Say) -> None:
        self._root = schema
        self._ask = ask
        self._say = say

    def fill(self, previous: Any = None) -> Any:
        """Ask for the whole answer.

        Args:
            previous: the previous answer, which Enter keeps.
        """
        answer = self._value(
            self._root, "", required=True, previous=LEFT_OUT if previous is None else previous, depth=0
        )
        return resolve(self._root, self._root).get("default") if answer is LEFT_OUT else answer

    def confirm(self, question: str, *, default: bool | None = None) -> bool:
        """Ask a yes/no question. Enter takes the default, if there is one."""
        shown = {None: "yes/no", True: "yes/no [yes]", False: "yes/no [no]"}[default]
        while True:
            typed = self._ask(f"{question} ({shown}) ").strip().lower()
            if typed in YES + NO:
                return typed in YES
            if not typed and default is not None:
                return default
            self._say("  yes or no")

    def _value(self, schema: Schema, path: str, *, required: bool, previous: Any, depth: int) -> Any:
        options, nullable = variants(schema, self._root)
        whole = resolve(schema, self._root)
        preset = previous if previous is not LEFT_OUT else whole.get("default", LEFT_OUT)
        if path and whole.get("description"):
            self._say(f"{path}: {whole['description']}")
        if len(options) == 1 and "const" in options[0] and not nullable:
            return options[0]["const"]
        if options and all(is_scalar(option) for option in options):
            return self._scalar(options, path, nullable, required, previous, preset)
        if not self._wanted(options, path, nullable, required, previous, preset):
            return previous if previous is not LEFT_OUT else (None if required and nullable else LEFT_OUT)
        option = self._chosen(options, path, previous)
        if depth < DEEPEST and _has_fields(option):
            return self._object(option, path, previous if isinstance(previous, dict) else {}, depth)
        if depth < DEEPEST and _is_list(option):
            return self._list(option, path, depth)
        return self._json(option, path)

    # -- a value that is typed in one entry

    def _scalar(
        self, options: list[dict[str, Any]], path: str, nullable: bool, required: bool, previous: Any, preset: Any
    ) -> Any:
        offered = [value for option in options for value in choices(option) or []]
        numbered = len(options) == 1 and len(offered) > 1 and all(isinstance(value, str) for value in offered)
        if numbered:
            for number, value in enumerate(offered, 1):
                self._say(f"  {number} {value}")
        while True:
            entry = self._ask(self._prompt(path, hint(options, nullable), required, preset))
            if not entry.strip():
                if previous is not LEFT_OUT:
                    return previous
                if preset is not LEFT_OUT or not required:
                    return LEFT_OUT
                if nullable:
                    return None
                texts = any(option.get("type") == "string" for option in options)
                self._say("  a value is needed" + ('; "" is the empty text' if texts else ""))
                continue
            try:
                return parse(entry, options, nullable)
            except ValueError as error:
                self._say(f"  {error}")

    def _prompt(self, path: str, expected: str, required: bool, preset: Any) -> str:
        shown = f" [{text_of(preset)}]" if preset is not LEFT_OUT else "" if required else " [none]"
        return f"{path or 'answer'} ({expected}){shown}: "

    def _json(self, option: Schema, path: str) -> Any:
        while True:
            entry = self._ask(f"{path or 'answer'} (JSON): ")
            try:
                value = read_json(entry)
                check_limits(value, option)
            except ValueError as error:
                self._say(f"  {error}")
            else:
                return value

    # -- a value with parts

    def _wanted(
        self, options: list[dict[str, Any]], path: str, nullable: bool, required: bool, previous: Any, preset: Any
    ) -> bool:
        """Whether the person wants to fill in this part. Asks, unless the part has to be filled in."""
        if not options:
            return False
        label = path or "the answer"
        if previous is not LEFT_OUT and not _has_fields(options[0]):
            return self.confirm(f"{label} is {text_of(previous)}; change it?", default=False)
        if previous is not LEFT_OUT and previous is not None:
            return True
        if preset is not LEFT_OUT and preset is not None:
            return self.confirm(f"{label} is {text_of(preset)}; change it?", default=False)
        if nullable or not required:
            return self.confirm(f"{label}: fill it in?", default=False)
        return True

    def _chosen(self, options: list[dict[str, Any]], path: str, previous: Any) -> dict[str, Any]:
        if len(options) == 1:
            return options[0]
        self._say(f"{path or 'the answer'} is one of")
        for number, option in enumerate(options, 1):
            self._say(f"  {number} {option.get('title') or hint([option], False)}")
        while True:
            typed = self._ask(f"which (1 to {len(options)}): ").strip()
            if typed.isascii() and typed.isdecimal() and 1 <= int(typed) <= len(options):
                return options[int(typed) - 1]
            self._say(f"  a number from 1 to {len(options)}")

    def _object(self, schema: Schema, path: str, previous: dict[str, Any], depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, field in schema.get("properties", {}).items():
            value = self._value(
                field,
                f"{path}.{name}" if path else name,
                required=name in schema.get("required", ()),
                previous=previous.get(name, LEFT_OUT),
                depth=depth + 1,
            )
            if value is not LEFT_OUT:
                values[name] = value
        return values

    def _list(self, schema: Schema, path: str, depth: int) -> list[Any]:
        items = schema["items"]
        options, nullable = variants(items, self._root)
        plain = bool(options) and all(is_scalar(option) for option in options)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        values: list[Any] = []
        while most is None or len(values) < most:
            label = f"{path or 'answer'}[{len(values) + 1}]"
            if plain:
                entry = self._ask(f"{label} ({hint(options, nullable)}; Enter ends): ")
                more = bool(entry.strip())
            else:
                more = len(values) < least or self.confirm(f"{label}: add it?", default=False)
            if not more:
                if len(values) >= least:
                    break
                self._say(f"  at least {least} of them")
                continue
            try:
                value = (
                    parse(entry, options, nullable)
                    if plain
                    else self._value(items, label, required=True, previous=LEFT_OUT, depth=depth + 1)
                )
                if schema.get("uniqueItems") and value in values:
                    raise ValueError("it is there already")
            except ValueError as error:
                self._say(f"  {error}")
            else:
                values.append(value)
        return values


def _has_fields(schema: Schema) -> bool:
    return schema.get("type") == "object" and ("properties" in schema or schema.get("additionalProperties") is False)


def _is_list(schema: Schema) -> bool:
    return schema.get("type") == "array" and bool(schema.get("items")) and "prefixItems" not in schema
