"""Recognises characters that cannot be seen: controls, direction marks, fillers. Pure functions.

With such characters two different texts look the same, or a text looks like another (a reversed file name, a line that the
terminal hides). Callers refuse or escape them; nothing here removes one from what is stored.
"""

from __future__ import annotations

import re
import unicodedata

CONTROLS = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Unicode categories (UAX 44) of characters that move the cursor or end a line, and of surrogates."""

_FILLERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u2065\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Letters, marks and symbols that are blank: Default_Ignorable_Code_Point (UAX 44) except Cf, and the empty Braille cell."""

_JOINERS = "\u200c\u200d"
STYLES = "\ufe0e\ufe0f"
"""The two style selectors: draw as text, draw as emoji."""


def is_hidden(character: str) -> bool:
    """Whether the character is invisible: a control, a format character (direction marks, joiners, tags) or a filler."""
    category = unicodedata.category(character)
    return category in CONTROLS or category == "Cf" or _FILLERS.match(character) is not None


def first_hidden(text: str, *, lines: bool = False) -> str | None:
    """The first invisible character that has no use for a visible one; or None.

    A single joiner between two characters beyond ASCII (emoji, Persian, Indic scripts) and a single style selector after a
    symbol are allowed, because they are needed to write those.

    Args:
        lines: allow line ends and tabs.
    """
    for index, character in enumerate(text):
        if not is_hidden(character) or (lines and character in "\n\r\t"):
            continue
        before, after = text[index - 1 : index], text[index + 1 : index + 2]
        if character in STYLES and is_symbol(before):
            continue
        if character in _JOINERS and _joins(before) and _joins(after):
            continue
        return character
    return None


def is_symbol(character: str) -> bool:
    """Whether a style selector (U+FE0E, U+FE0F) after this character changes how it is drawn, as for an emoji."""
    return character in ("#", "*") or (
        character != "" and unicodedata.category(character) in ("So", "Sm", "Po", "Nd", "Sk")
    )


def _joins(character: str) -> bool:
    return character > "\x7f" and (character in STYLES or not is_hidden(character))


def name_of(character: str) -> str:
    """An invisible character in words, such as `U+202E RIGHT-TO-LEFT OVERRIDE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"


def appearance(text: str) -> str:
    """A form that is equal for texts that look the same: without compatible forms, case, extra blanks and invisible characters.

    Letters of different scripts that are drawn alike (Latin and Cyrillic a) stay different.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    visible = "".join(
        " " if character.isspace() else character
        for character in folded
        if character.isspace() or not is_hidden(character)
    )
    return " ".join(visible.split())
