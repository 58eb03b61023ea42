"""One text for one JSON value."""

from __future__ import annotations

import decimal
from datetime import date
from typing import Any

import pytest

from symfonic_interrupts.canonical import base64url, canonical_json, hash_json, sha256


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-1, "-1"),
        (2.5, "2.5"),
        (1e22, "1e+22"),
        (10**30, "1000000000000000000000000000000"),
        ("", '""'),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ({"b": {"z": [1, 2], "y": None}, "a": []}, '{"a":[],"b":{"y":null,"z":[1,2]}}'),
        ((1, (2, 3)), "[1,[2,3]]"),
        ({"Z": 1, "a": 2, "É": 3, "_": 4}, '{"Z":1,"_":4,"a":2,"É":3}'),
        ("zoë, 東京, 🦊", '"zoë, 東京, 🦊"'),
        ('a "quote" and \\ and \n and \x00', '"a \\"quote\\" and \\\\ and \\n and \\u0000"'),
        ("a / and \x7f and \u2028", '"a / and \x7f and \u2028"'),
        ({"": 1}, '{"":1}'),
    ],
)
def test_a_value_has_this_text(value: Any, text: str) -> None:
    assert canonical_json(value) == text


def test_the_order_of_members_does_not_matter_and_that_of_items_does() -> None:
    assert canonical_json({"a": 1, "b": {"c": 2, "d": 3}}) == canonical_json({"b": {"d": 3, "c": 2}, "a": 1})
    assert canonical_json([1, 2]) != canonical_json([2, 1])


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="NaN"),
        pytest.param([float("inf")], id="infinity"),
        pytest.param({"a": float("-inf")}, id="minus infinity"),
        pytest.param("\ud800", id="lone surrogate"),
        pytest.param({"\udfff": 1}, id="lone surrogate in a name"),
        pytest.param({1: "a"}, id="number as a name"),
        pytest.param({None: "a"}, id="None as a name"),
        pytest.param({True: "a"}, id="bool as a name"),
        pytest.param([{"a": {2: 3}}], id="number as a name, deep"),
        pytest.param(({1.5: 3},), id="number as a name, in a tuple"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param({1, 2}, id="set"),
        pytest.param(object(), id="object"),
        pytest.param(date(2026, 1, 2), id="date"),
        pytest.param(decimal.Decimal("1.5"), id="Decimal"),
        pytest.param({"a": [1j]}, id="complex"),
    ],
)
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical_json(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)

    with pytest.raises(ValueError, match="not JSON data"):
        canonical_json(ring)


def test_a_value_nested_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(ValueError, match="not JSON data"):
        canonical_json(deep)


def test_a_refusal_does_not_repeat_the_value() -> None:
    for value in ({"a": {b"top-secret"}}, {("top-secret",): 1}, "top-secret\ud800"):
        with pytest.raises(ValueError, match=r".") as refused:
            canonical_json(value)
        assert "top-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({}, "RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o"),
        (None, "dCNOmK_nSY-12vHzasLXiswzlGT5UHA7jAGYkvmCuQs"),
        ({"z": "é", "a": [1, 2.5, True, None]}, "4T1lmkj2-BoJ8o0bM94s2PxNkMfDDr6wr9RRWf_y-TM"),
        ({"order": "A1", "amount": 90}, "0vkH5LLnLe4cXYilC8eXMoc8KFQJriQcCUtBxCJvl9g"),
    ],
)
def test_a_value_has_this_hash(value: Any, found: str) -> None:
    assert hash_json(value) == found


def test_the_hash_of_a_text_is_that_of_fips_180() -> None:
    # "abc" is the standard's own example: ba7816bf 8f01cfea 414140de 5dae2223 b00361a3 96177a9c b410ff61 f20015ad
    assert sha256("abc") == "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"


def test_base64url_has_no_padding_and_the_url_alphabet() -> None:
    # RFC 4648, section 10, and the two characters in which the alphabets differ
    assert [base64url(text) for text in (b"", b"f", b"fo", b"foo", b"\xfb\xff")] == ["", "Zg", "Zm8", "Zm9v", "-_8"]
