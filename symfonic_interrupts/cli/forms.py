"""Asking for an answer field by field, as its JSON Schema says. What is wrong is said, and asked again.

Enter takes the default, or what was typed the time before. What the form cannot ask for piece by piece (free-form maps, tuples,
deep nesting) it asks for as JSON. It must not decide what is valid: the adapter does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symfonic_interrupts.cli.schemas import (
    NO,
    YES,
    Schema,
    choices,
    complain,
    hint,
    is_scalar,
    parse,
    read_json,
    resolve,
    text_of,
    variants,
)

Ask = Callable[[str], str]
"""Shows a prompt, returns what was typed."""

Tell = Callable[[str], None]

LEFT_OUT = object()
"""The field is not in the answer: its default stands."""

DEEPEST = 6


class Form:
    """The questions of one JSON Schema.

    Args:
        schema: of the whole answer.
        ask, tell: how a person is reached.
    """

    def __init__(self, schema: Schema, ask: Ask, tell: Tell) -> None:
        self._root = schema
        self._ask = ask
        self._tell = tell

    def fill(self, former: Any = None) -> Any:
        """Ask for the whole answer.

        Args:
            former: what was answered the time before; Enter keeps it.
        """
        found = self._value(self._root, "", required=True, former=LEFT_OUT if former is None else former, depth=0)
        return resolve(self._root, self._root).get("default") if found is LEFT_OUT else found

    def confirm(self, question: str, *, default: bool | None = None) -> bool:
        """Yes or no."""
        shown = {None: "yes/no", True: "yes/no [yes]", False: "yes/no [no]"}[default]
        while True:
            typed = self._ask(f"{question} ({shown}) ").strip().lower()
            if typed in YES + NO:
                return typed in YES
            if not typed and default is not None:
                return default
            self._tell("  yes or no")

    def _value(self, schema: Schema, path: str, *, required: bool, former: Any, depth: int) -> Any:
        options, nullable = variants(schema, self._root)
        around = resolve(schema, self._root)
        standing = former if former is not LEFT_OUT else around.get("default", LEFT_OUT)
        if path and around.get("description"):
            self._tell(f"{path}: {around['description']}")
        if len(options) == 1 and "const" in options[0] and not nullable:
            return options[0]["const"]
        if options and all(is_scalar(option) for option in options):
            return self._scalar(options, path, nullable, required, former, standing)
        if not self._wanted(options, path, nullable, required, former, standing):
            return former if former is not LEFT_OUT else (None if required and nullable else LEFT_OUT)
        option = self._chosen(options, path, former)
        if depth < DEEPEST and _is_form(option):
            return self._object(option, path, former if isinstance(former, dict) else {}, depth)
        if depth < DEEPEST and _is_series(option):
            return self._series(option, path, depth)
        return self._json(option, path)

    # -- one entry

    def _scalar(
        self, options: list[dict[str, Any]], path: str, nullable: bool, required: bool, former: Any, standing: Any
    ) -> Any:
        offered = [value for option in options for value in choices(option) or []]
        numbered = len(options) == 1 and len(offered) > 1 and all(isinstance(value, str) for value in offered)
        if numbered:
            for place, value in enumerate(offered, 1):
                self._tell(f"  {place} {value}")
        while True:
            entry = self._ask(self._prompt(path, hint(options, nullable), required, standing))
            if not entry.strip():
                if former is not LEFT_OUT:
                    return former
                if standing is not LEFT_OUT or not required:
                    return LEFT_OUT
                if nullable:
                    return None
                texts = any(option.get("type") == "string" for option in options)
                self._tell("  a value is needed" + ('; "" is the empty text' if texts else ""))
                continue
            try:
                return parse(entry, options, nullable)
            except ValueError as error:
                self._tell(f"  {error}")

    def _prompt(self, path: str, expected: str, required: bool, standing: Any) -> str:
        shown = f" [{text_of(standing)}]" if standing is not LEFT_OUT else "" if required else " [none]"
        return f"{path or 'answer'} ({expected}){shown}: "

    def _json(self, option: Schema, path: str) -> Any:
        while True:
            entry = self._ask(f"{path or 'answer'} (JSON): ")
            try:
                value = read_json(entry)
                complain(value, option)
            except ValueError as error:
                self._tell(f"  {error}")
            else:
                return value

    # -- made of parts

    def _wanted(
        self, options: list[dict[str, Any]], path: str, nullable: bool, required: bool, former: Any, standing: Any
    ) -> bool:
        """Whether a person wants to fill in a part that can be left as it stands."""
        if not options:
            return False
        label = path or "the answer"
        if former is not LEFT_OUT and not _is_form(options[0]):
            return self.confirm(f"{label} is {text_of(former)}; change it?", default=False)
        if former is not LEFT_OUT and former is not None:
            return True
        if standing is not LEFT_OUT and standing is not None:
            return self.confirm(f"{label} is {text_of(standing)}; change it?", default=False)
        if nullable or not required:
            return self.confirm(f"{label}: fill it in?", default=False)
        return True

    def _chosen(self, options: list[dict[str, Any]], path: str, former: Any) -> dict[str, Any]:
        if len(options) == 1:
            return options[0]
        self._tell(f"{path or 'the answer'} is one of")
        for place, option in enumerate(options, 1):
            self._tell(f"  {place} {option.get('title') or hint([option], False)}")
        while True:
            typed = self._ask(f"which (1 to {len(options)}): ").strip()
            if typed.isascii() and typed.isdecimal() and 1 <= int(typed) <= len(options):
                return options[int(typed) - 1]
            self._tell(f"  a number from 1 to {len(options)}")

    def _object(self, schema: Schema, path: str, former: dict[str, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, field in schema.get("properties", {}).items():
            value = self._value(
                field,
                f"{path}.{name}" if path else name,
                required=name in schema.get("required", ()),
                former=former.get(name, LEFT_OUT),
                depth=depth + 1,
            )
            if value is not LEFT_OUT:
                found[name] = value
        return found

    def _series(self, schema: Schema, path: str, depth: int) -> list[Any]:
        items = schema["items"]
        options, nullable = variants(items, self._root)
        plain = bool(options) and all(is_scalar(option) for option in options)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        found: list[Any] = []
        while most is None or len(found) < most:
            label = f"{path or 'answer'}[{len(found) + 1}]"
            if plain:
                entry = self._ask(f"{label} ({hint(options, nullable)}; Enter ends): ")
                more = bool(entry.strip())
            else:
                more = len(found) < least or self.confirm(f"{label}: add it?", default=False)
            if not more:
                if len(found) >= least:
                    break
                self._tell(f"  at least {least} of them")
                continue
            try:
                value = (
                    parse(entry, options, nullable)
                    if plain
                    else self._value(items, label, required=True, former=LEFT_OUT, depth=depth + 1)
                )
                if schema.get("uniqueItems") and value in found:
                    raise ValueError("it is there already")
            except ValueError as error:
                self._tell(f"  {error}")
            else:
                found.append(value)
        return found


def _is_form(schema: Schema) -> bool:
    return schema.get("type") == "object" and ("properties" in schema or schema.get("additionalProperties") is False)


def _is_series(schema: Schema) -> bool:
    return schema.get("type") == "array" and bool(schema.get("items")) and "prefixItems" not in schema
