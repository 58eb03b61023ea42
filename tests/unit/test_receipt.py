"""The receipt: what it states cannot be changed, and nothing else passes for one."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from symfonic_interrupts import KeyRing, ReceiptInvalid
from symfonic_interrupts.tokens.receipt import Receipt
from tests.unit.by_hand import (
    CONTENT,
    KEY,
    KID,
    OLDER_KEY,
    OLDER_KID,
    RECEIPT,
    SEALED,
    TOKEN,
)

RING = KeyRing([KEY])


def assert_refused(sealed: object, ring: KeyRing = RING) -> None:
    with pytest.raises(ReceiptInvalid) as refused:
        Receipt.unseal(sealed, ring)
    assert "0123456789abcdef" not in str(refused.value)


def test_this_receipt_has_this_seal() -> None:
    assert RECEIPT.seal(RING) == SEALED


def test_this_seal_has_this_receipt() -> None:
    assert Receipt.unseal(SEALED, RING) == RECEIPT


def test_a_receipt_survives_json() -> None:
    assert Receipt.unseal(json.loads(json.dumps(SEALED)), RING) == RECEIPT


def test_a_receipt_without_an_actor_comes_back() -> None:
    nobody = dataclasses.replace(RECEIPT, actor=None, defaulted=True)

    assert Receipt.unseal(nobody.seal(RING), RING) == nobody


def test_a_receipt_states_all_that_an_answer_is_bound_to() -> None:
    assert set(SEALED) == {field.name for field in dataclasses.fields(Receipt)} | {"kid", "mac"}


@pytest.mark.parametrize("field", SEALED)
def test_a_receipt_of_which_one_field_was_changed_is_refused(field: str) -> None:
    old = SEALED[field]

    assert_refused({**SEALED, field: not old if isinstance(old, bool) else old + "x"})
    if isinstance(old, str):
        assert_refused({**SEALED, field: old[:-1]})
        assert_refused({**SEALED, field: ""})


@pytest.mark.parametrize("field", SEALED)
@pytest.mark.parametrize("value", [None, 5, 1.5, [], {}, b"bytes", ["t1"]], ids=repr)
def test_a_receipt_with_a_field_of_another_type_is_refused(field: str, value: Any) -> None:
    assert_refused({**SEALED, field: value})


@pytest.mark.parametrize("value", [0, "", "false", None])
def test_false_is_nothing_but_false(value: Any) -> None:
    assert_refused({**SEALED, "defaulted": value})


@pytest.mark.parametrize("field", [name for name in SEALED if name != "defaulted"])
def test_true_is_no_text(field: str) -> None:
    assert_refused({**SEALED, field: True})


@pytest.mark.parametrize("field", SEALED)
def test_a_receipt_that_lacks_a_field_is_refused(field: str) -> None:
    assert_refused({name: value for name, value in SEALED.items() if name != field})


@pytest.mark.parametrize("extra", [{"note": "x"}, {"": 1}, {5: 1}, {None: 1}, {"_message": "x"}])
def test_a_receipt_with_a_further_field_is_refused(extra: dict[Any, Any]) -> None:
    assert_refused({**SEALED, **extra})


@pytest.mark.parametrize(
    "sealed", [None, "", TOKEN, json.dumps(SEALED), 5, [], {}, [SEALED], list(SEALED.items()), RECEIPT, True]
)
def test_what_is_no_dict_of_a_receipt_is_refused(sealed: object) -> None:
    assert_refused(sealed)


def test_two_fields_exchanged_are_refused() -> None:
    assert_refused({**SEALED, "thread_id": SEALED["task_id"], "task_id": SEALED["thread_id"]})
    assert_refused({**SEALED, "request_hash": SEALED["response_hash"], "response_hash": SEALED["request_hash"]})
    assert_refused({**SEALED, "asked_at": SEALED["answered_at"], "answered_at": SEALED["asked_at"]})


def test_text_that_moves_from_one_field_to_the_next_is_refused() -> None:
    assert_refused({**SEALED, "thread_id": "t", "task_id": "1task-1"})
    assert_refused({**SEALED, "thread_id": 't1","task-1', "task_id": ""})


def test_a_lone_surrogate_is_refused() -> None:
    assert_refused({**SEALED, "actor": "\ud800"})
    assert_refused({**SEALED, "mac": "\ud800"})
    assert_refused({**SEALED, "kid": "\ud800"})


@pytest.mark.parametrize("kid", [OLDER_KID, "0" * 16, "", KID.upper()])
def test_the_id_of_another_key_is_refused(kid: str) -> None:
    assert_refused({**SEALED, "kid": kid})
    assert_refused({**SEALED, "kid": kid}, KeyRing([KEY, OLDER_KEY]))


def test_a_receipt_of_a_key_that_is_gone_is_refused() -> None:
    assert_refused(SEALED, KeyRing([OLDER_KEY]))


def test_a_receipt_of_a_retired_key_is_accepted() -> None:
    assert Receipt.unseal(SEALED, KeyRing([OLDER_KEY], retired=[KEY])) == RECEIPT


def test_the_signature_of_a_token_does_not_pass_for_that_of_a_receipt() -> None:
    message = json.dumps(
        ["symfonic-interrupts receipt v1", *dataclasses.astuple(RECEIPT)], separators=(",", ":"), ensure_ascii=False
    )

    # the message is the one that is signed, so that the key is all that makes the difference
    assert RING.mac("receipt", message) == SEALED["mac"]
    assert_refused({**SEALED, "mac": RING.mac("pause-token", message)})
    assert_refused({**SEALED, "mac": RING.mac("pause-row", message)})
    assert_refused({**SEALED, "mac": CONTENT.mint(RING).rpartition(".")[2]})


def test_the_mac_of_the_message_without_its_kind_is_refused() -> None:
    message = json.dumps(list(dataclasses.astuple(RECEIPT)), separators=(",", ":"), ensure_ascii=False)

    assert_refused({**SEALED, "mac": RING.mac("receipt", message)})


def test_a_receipt_covers_the_response_it_was_given_for_and_no_other() -> None:
    assert RECEIPT.covers('{"approved":true}') is True
    for other in ('{"approved":false}', '{"approved": true}', "", "{}", '{"approved":true}\n', "\ud800"):
        assert RECEIPT.covers(other) is False


@pytest.mark.parametrize("response", [None, {"approved": True}, b'{"approved":true}', 5, True])
def test_a_receipt_covers_nothing_but_text(response: object) -> None:
    assert RECEIPT.covers(response) is False
