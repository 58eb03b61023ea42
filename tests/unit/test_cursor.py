"""The event cursor: it comes back to its place for whom it was sealed, and tells nobody anything."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from symfonic_interrupts import KeyRing
from symfonic_interrupts.tokens.cursor import open_position, seal_position

KEY, OTHER_KEY = b"a test key of thirty-two bytes..", b"another key of thirty-two bytes."
RING = KeyRing([KEY])
HERE = "default", "a-scope"
CURSOR = "Tlc0T6ry6AWdT8pHLV7mcVUSS9a2ZB3ARwMW5PxqgATfOZNfhrdNgg"
"""Of transaction 7, event 1234; made with hashlib and struct alone."""


def test_this_place_has_this_cursor() -> None:
    assert seal_position((7, 1234), RING, HERE) == CURSOR


def test_this_cursor_has_this_place() -> None:
    assert open_position(CURSOR, RING, HERE) == (7, 1234)


@pytest.mark.parametrize("place", [(0, 0), (1, 1), (2**63 - 1, 2**63 - 1)])
def test_a_place_comes_back(place: tuple[int, int]) -> None:
    assert open_position(seal_position(place, RING, HERE), RING, HERE) == place


@pytest.mark.parametrize(
    "where", [("refunds", "a-scope"), ("default", "another-scope"), ("", ""), ("default,a-scope", "")]
)
def test_for_another_graph_or_scope_it_is_no_cursor(where: tuple[str, str]) -> None:
    assert open_position(CURSOR, RING, where) is None


def test_a_cursor_in_which_one_bit_was_changed_is_none() -> None:
    sealed = base64.urlsafe_b64decode(CURSOR + "==")
    for place in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[place // 8] ^= 1 << place % 8
        assert open_position(base64.urlsafe_b64encode(changed).decode().rstrip("="), RING, HERE) is None


@pytest.mark.parametrize(
    "cursor",
    ["", "7", "7-1234", "0-0", CURSOR[:-2], CURSOR + "AA", CURSOR + "!", "é" * 54, "A" * 54, "A" * 10_000, 7, None],
)
def test_what_was_not_sealed_is_no_cursor(cursor: Any) -> None:
    assert open_position(cursor, RING, HERE) is None


def test_cursors_of_neighbours_have_nothing_in_common() -> None:
    cursors = [base64.urlsafe_b64decode(seal_position((7, number), RING, HERE) + "==") for number in range(100)]

    assert len({cursor[:4] for cursor in cursors}) == 100
    assert len({cursor[16:20] for cursor in cursors}) == 100


def test_of_a_fresh_cursor_it_cannot_be_told_that_nothing_has_happened_since() -> None:
    cursors = {seal_position((7, 1234), RING, HERE, fresh=True) for _ in range(100)}

    assert len(cursors) == 100
    assert {open_position(cursor, RING, HERE) for cursor in cursors} == {(7, 1234)}


def test_a_cursor_outlives_the_key_that_sealed_it_as_long_as_that_is_in_the_ring() -> None:
    assert open_position(CURSOR, KeyRing([OTHER_KEY, KEY]), HERE) == (7, 1234)
    assert open_position(CURSOR, KeyRing([OTHER_KEY], retired=[KEY]), HERE) == (7, 1234)
    assert open_position(CURSOR, KeyRing([OTHER_KEY]), HERE) is None
