"""The documents for whoever changes this library name what there is: every module of a room, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "symfonic_interrupts"
ROOMS = ("adapter", "upkeep", "delivering", "answering", "saver", "asking", "core")


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def paragraph(room: str) -> str:
    """What the map says of a room: from its name up to the next bold name at the beginning of a line."""
    found = re.search(rf"^\*\*`{room}/`\*\*(.*?)^\*\*", text_of("docs/architecture.md"), re.MULTILINE | re.DOTALL)
    assert found is not None, f"the map has no {room}/"
    return found[1]


@pytest.mark.parametrize("room", ROOMS)
def test_the_map_names_exactly_the_modules_of_a_room(room: str) -> None:
    there = {path.name for path in (PACKAGE / room).glob("*.py")} - {"__init__.py"}

    named = {name for line in paragraph(room).splitlines() for name in re.findall(r"`(\w+\.py)`", line)}
    assert named == there


def test_the_map_names_every_folder_and_every_module_beside_the_rooms() -> None:
    text = text_of("docs/architecture.md")
    folders = {path.name + "/" for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("_")}

    assert [name for name in sorted(folders | modules) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("document", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_test_that_a_document_names_exists(document: str) -> None:
    named = re.findall(r"`(tests/[\w/]+(?:\.py|/))`", text_of(document))

    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
