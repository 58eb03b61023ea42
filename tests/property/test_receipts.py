"""A receipt says one thing, and nothing that was changed in it goes unnoticed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symfonic_interrupts import KeyRing, ReceiptInvalid
from symfonic_interrupts.tokens.receipt import Receipt
from tests.unit.by_hand import KEY, OLDER_KEY, RECEIPT, SEALED, sha256_of

RING = KeyRing([KEY, OLDER_KEY])
sure = settings(derandomize=True, database=None, deadline=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.characters(categories=["Cs"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
RECEIPTS = st.builds(
    Receipt,
    **{
        name: st.text()
        for name, value in SEALED.items()
        if isinstance(value, str) and name not in ("kid", "mac", "actor")
    },
    actor=st.none() | st.text(),
    defaulted=st.booleans(),
)


@sure
@given(RECEIPTS)
def test_every_receipt_comes_back_from_its_seal(receipt: Receipt) -> None:
    assert Receipt.unseal(receipt.seal(RING), RING) == receipt


@settings(sure, max_examples=300)
@given(st.sampled_from(sorted(SEALED)), JSON)
def test_any_one_field_changed_is_refused(field: str, value: Any) -> None:
    if type(value) is type(SEALED[field]) and value == SEALED[field]:
        return
    with pytest.raises(ReceiptInvalid):
        Receipt.unseal({**SEALED, field: value}, RING)


@pytest.mark.parametrize("field", sorted(name for name in SEALED if name != "defaulted"))
def test_any_one_character_changed_is_refused(field: str) -> None:
    text = SEALED[field]
    for place in range(len(text)):
        for new in ("", "0", "f", "A", "-", " ", text[place].swapcase(), text[place] * 2):
            changed = text[:place] + new + text[place + 1 :]
            if changed != text:
                with pytest.raises(ReceiptInvalid):
                    Receipt.unseal({**SEALED, field: changed}, RING)


@sure
@given(RECEIPTS, RECEIPTS)
def test_the_mac_of_one_receipt_does_not_fit_another(one: Receipt, other: Receipt) -> None:
    if one == other:
        return
    with pytest.raises(ReceiptInvalid):
        Receipt.unseal({**one.seal(RING), "mac": other.seal(RING)["mac"]}, RING)


@sure
@given(JSON)
def test_whatever_is_no_receipt_is_refused(value: Any) -> None:
    with pytest.raises(ReceiptInvalid):
        Receipt.unseal(value, RING)


@sure
@given(st.text(), st.text())
def test_a_receipt_covers_its_own_response_only(response: str, other: str) -> None:
    receipt = Receipt(**{**{n: getattr(RECEIPT, n) for n in RECEIPT.__slots__}, "response_hash": sha256_of(response)})

    assert receipt.covers(response)
    assert receipt.covers(other) is (other == response)
