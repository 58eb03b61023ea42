"""What is in a text and cannot be seen: controls, direction marks, fillers. Pure functions of the text.

Such characters make two texts look alike that are not, or one look like what it is not (a reversed file name, a line that a
terminal hides). Where they are met they are refused or escaped; nothing here takes one out of what is stored.
"""

from __future__ import annotations

import re
import unicodedata

CONTROLS = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Unicode categories (UAX 44) that move a cursor or end a line, and halves of characters."""

_FILLERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u2065\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Letters, marks and symbols without a shape: Default_Ignorable_Code_Point (UAX 44) but for Cf, and the empty Braille cell."""

_JOINERS = "\u200c\u200d"
STYLES = "\ufe0e\ufe0f"
"""The two style selectors: as text, as emoji."""


def is_hidden(character: str) -> bool:
    """Whether it is not there to be seen: a control, a format character (direction marks, joiners, tags), a filler."""
    category = unicodedata.category(character)
    return category in CONTROLS or category == "Cf" or _FILLERS.match(character) is not None


def first_hidden(text: str, *, lines: bool = False) -> str | None:
    """The first character of a text that cannot be seen and does nothing for one that can; or None.

    A single joiner between two characters beyond ASCII (emoji, Persian, Indic scripts) and a single style selector after a
    symbol are part of how those are written.

    Args:
        lines: line ends and tabs may stand in it.
    """
    for place, character in enumerate(text):
        if not is_hidden(character) or (lines and character in "\n\r\t"):
            continue
        before, after = text[place - 1 : place], text[place + 1 : place + 2]
        if character in STYLES and is_symbol(before):
            continue
        if character in _JOINERS and _joins(before) and _joins(after):
            continue
        return character
    return None


def is_symbol(before: str) -> bool:
    """Whether a style selector (U+FE0E, U+FE0F) after this character changes how it is drawn. For an emoji it does."""
    return before in ("#", "*") or (before != "" and unicodedata.category(before) in ("So", "Sm", "Po", "Nd", "Sk"))


def _joins(character: str) -> bool:
    return character > "\x7f" and (character in STYLES or not is_hidden(character))


def name_of(character: str) -> str:
    """A character that must not be shown, in words: `U+202E RIGHT-TO-LEFT OVERRIDE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"


def look(text: str) -> str:
    """What two texts that look the same have in common: compatible forms, case, blanks and what cannot be seen are put aside.

    Letters of other scripts that are drawn alike (Latin and Cyrillic a) stay different.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    seen = "".join(" " if character.isspace() else character for character in folded if _shows(character))
    return " ".join(seen.split())


def _shows(character: str) -> bool:
    return character.isspace() or not is_hidden(character)
