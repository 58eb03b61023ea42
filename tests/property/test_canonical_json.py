"""One text for one value, and one value for one text."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from symfonic_interrupts.canonical import canonical_json, hash_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
sure = settings(derandomize=True, database=None, deadline=None, max_examples=120)


def exact(value: Any) -> Any:
    """The value, with the type beside each number, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {name: exact(member) for name, member in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return type(value).__name__, repr(value)


def shuffled(value: Any, order: random.Random) -> Any:
    """The same value, its members in another order at every depth."""
    if isinstance(value, dict):
        members = [(name, shuffled(member, order)) for name, member in value.items()]
        order.shuffle(members)
        return dict(members)
    if isinstance(value, list):
        return [shuffled(item, order) for item in value]
    return value


@sure
@given(VALUES)
def test_a_value_comes_back_from_its_text(value: Any) -> None:
    assert exact(json.loads(canonical_json(value))) == exact(value)


@sure
@given(VALUES)
def test_the_text_of_what_came_back_is_the_same(value: Any) -> None:
    text = canonical_json(value)

    assert canonical_json(json.loads(text)) == text


@sure
@given(VALUES, st.integers(0, 2**32))
def test_the_order_of_members_does_not_matter(value: Any, seed: int) -> None:
    other = shuffled(value, random.Random(seed))

    assert canonical_json(other) == canonical_json(value)
    assert hash_json(other) == hash_json(value)


@sure
@given(VALUES, VALUES)
def test_two_values_have_one_text_only_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (canonical_json(one) == canonical_json(other)) is (exact(one) == exact(other))


@sure
@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_members_stand_in_the_order_of_code_points(value: dict[str, int]) -> None:
    names = list(json.loads(canonical_json(value)))

    assert names == sorted(names, key=lambda name: [ord(character) for character in name])


@sure
@given(VALUES)
def test_there_is_no_white_space_outside_of_texts(value: Any) -> None:
    bare = canonical_json(value).split('"')[::2] if "\\" not in canonical_json(value) else []

    assert not any(part != "".join(part.split()) for part in bare)
