"""Every text that a release gives away or stores, literally: what an older release signed must verify for ever.

The literals were computed once, with `hashlib`, `hmac` and `json` alone, from the formulas that stand beside them. A test that
fails here says that tokens, rows and answers of running systems would be refused; it is not mended by another literal.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from symfonic_interrupts import (
    AskUserOption,
    AskUserQuestion,
    AskUserRequest,
    FrameworkTenantScope,
    KeyRing,
    PauseToken,
)
from symfonic_interrupts.canonical import canonical_json, sha256
from symfonic_interrupts.core.executions import interrupt_id
from symfonic_interrupts.store.row_mac import row_is_authentic, seal_row
from symfonic_interrupts.tokens.keys import Purpose
from symfonic_interrupts.tokens.receipt import Receipt

KEY = b"a frozen key of thirty-two bytes"
KEY_TEXT = "YSBmcm96ZW4ga2V5IG9mIHRoaXJ0eS10d28gYnl0ZXM"
KID = "51c51684ab516015"  # SHA-256("symfonic-interrupts key id\0" + key), 16 hex digits

PAYLOAD = '{"amount":90,"order":"Größe 4"}'
RESPONSE = '{"approved":true,"note":"ja ✓"}'
SCOPE_HASH = "rqUWLMVaFiAxi-_wutJVyZiPRtIbfHRmDnB_QfywIGQ"  # of ["acme","north","b"]
REQUEST_HASH = "LSX0YcmTM9kOk8hkkmAxU_G9J_1_r33_SCWbHAQE8hY"
RESPONSE_HASH = "pyaId8jRIp5Yrd2MPJJsdUsUpY4M25BAOUKV9xg8yBM"
CHECKPOINT_HASH = "dV49m4EOKNRr41XFFla2qC3j9QALgmpMkaNw8y0T4tc"  # of [thread, "", checkpoint, task]
INTERRUPT_ID = "i-f93bb9bd0fa5"  # of [thread, task, name, request hash, 0]

JTI = "00112233445566778899aabbccddeeff"
TASK = "5f1b0c1e-0000-4000-8000-00000000000a"
CHECKPOINT = "1ef00000-0000-6000-8000-000000000001"

TOKEN = (
    "eyJhbGciOiJIUzI1NiIsImtpZCI6IjUxYzUxNjg0YWI1MTYwMTUiLCJ0eXAiOiJwYXVzZStqd3QifQ"
    ".eyJpc3MiOiJzeW1mb25pYy1pbnRlcnJ1cHRzIiwiYXVkIjoic3ltZm9uaWMtaW50ZXJydXB0cy9yZWZ1bmRzIiwiaWF0IjoxNzM1Nzg3MDQ1LCJleHAi"
    "OjE3MzU4NzM0NDYsImp0aSI6IjAwMTEyMjMzNDQ1NTY2Nzc4ODk5YWFiYmNjZGRlZWZmIiwibmFtZSI6InJlZnVuZF9hcHByb3ZhbCIsImludGVycnVwdF"
    "9pZCI6ImktZjkzYmI5YmQwZmE1Iiwic2NvcGVfaGFzaCI6InJxVVdMTVZhRmlBeGktX3d1dEpWeVppUFJ0SWJmSFJtRG5CX1FmeXdJR1EiLCJyZXF1ZXN0"
    "X2hhc2giOiJMU1gwWWNtVE05a09rOGhra21BeFVfRzlKXzFfcjMzX1NDV2JIQVFFOGhZIiwiY2hlY2twb2ludF9oYXNoIjoiZFY0OW00RU9LTlJyNDFYRk"
    "ZsYTJxQzNqOVFBTGdtcE1rYU53OHkwVDR0YyJ9.6v4Nf2hQ_qd3RShIQxGZmRBM_0iaQfgJlXsjW6C9e4U"
)
CLAIMS = PauseToken(
    issuer="symfonic-interrupts",
    audience="symfonic-interrupts/refunds",
    issued_at=1_735_787_045,
    expires_at=1_735_873_446,
    jti=JTI,
    name="refund_approval",
    interrupt_id=INTERRUPT_ID,
    scope_hash=SCOPE_HASH,
    request_hash=REQUEST_HASH,
    checkpoint_hash=CHECKPOINT_HASH,
)

RECEIPT_TEXT = (
    '{"actor":"zoë","answered_at":"2025-01-02T04:05:06.700000+00:00","asked_at":"2025-01-02T03:04:05.000006+00:00",'
    '"audience":"symfonic-interrupts/refunds","defaulted":false,"interrupt_id":"i-f93bb9bd0fa5",'
    '"jti":"00112233445566778899aabbccddeeff","kid":"51c51684ab516015",'
    '"mac":"896db0c60f03bc737e2e1a23ac683fc0aa1703c6133d282ea70f79bd08c4219a","name":"refund_approval",'
    '"request_hash":"LSX0YcmTM9kOk8hkkmAxU_G9J_1_r33_SCWbHAQE8hY",'
    '"response_hash":"pyaId8jRIp5Yrd2MPJJsdUsUpY4M25BAOUKV9xg8yBM",'
    '"scope_hash":"rqUWLMVaFiAxi-_wutJVyZiPRtIbfHRmDnB_QfywIGQ","task_id":"5f1b0c1e-0000-4000-8000-00000000000a",'
    '"thread_id":"order-17"}'
)
DEFAULTED_MAC = "8886c069f857c36b649bcf0c3411881f5d04e373b6715037395eecc28c1f6a9b"  # actor null, defaulted true

ROW: dict[str, Any] = {
    "interrupt_id": INTERRUPT_ID,
    "jti": JTI,
    "graph": "refunds",
    "audience": "symfonic-interrupts/refunds",
    "name": "refund_approval",
    "thread_id": "order-17",
    "checkpoint_id": CHECKPOINT,
    "task_id": TASK,
    "leaf_ns": "sub:5f1b0c1e",
    "leaf_checkpoint_id": "1ef00000-0000-6000-8000-000000000002",
    "leaf_task_id": "5f1b0c1e-0000-4000-8000-00000000000b",
    "langgraph_id": "0123456789abcdef0123456789abcdef",
    "slot": 0,
    "occurrence": 0,
    "native": False,
    "payload": PAYLOAD,
    "request_hash": REQUEST_HASH,
    "tenant_id": "acme",
    "sub_tenant_id": "north",
    "namespace": "b",
    "scope_hash": SCOPE_HASH,
    "run_id": None,
    "created_at": datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "expires_at": datetime(2025, 1, 3, 3, 4, 6, tzinfo=UTC),
    "requested_by": None,
    "trace_context": None,
    "state": "pending",
}
ROW_MAC = "c65b2a71b7409ec387d6b5594d299d7592a9598ba047b26a1e18811e23dcef0a"


@pytest.fixture
def keys() -> KeyRing:
    """The ring whose one key is the frozen one."""
    return KeyRing.from_text(KEY_TEXT)


def test_a_keys_text_id_and_parts_are_the_frozen_ones(keys: KeyRing) -> None:
    parts: dict[Purpose, str] = {
        "pause-token": "441c4ea5ebf5d8ee087e6844aa93686b0e3bc479dc2fa9ff77ef7dc4b043ee8c",
        "receipt": "3b1d763ab63589c333df96e2ab1ff9ba09195f14351e9fc684b12ca50ed51c15",
        "pause-row": "d84a1b0ab4eb5fca339655722fafd395c65821be23a9fe1e6839e9b225276654",
    }
    assert keys.kids == KeyRing([KEY]).kids == (KID,)
    for purpose, part in parts.items():
        assert (keys.derived(KID, purpose) or b"").hex() == part


def test_canonical_json_and_its_hashes_are_the_frozen_ones() -> None:
    assert canonical_json({"order": "Größe 4", "amount": 90}) == PAYLOAD
    assert canonical_json({"note": "ja ✓", "approved": True}) == RESPONSE
    assert canonical_json([None, 1.5, -0.0, 1e22, {"b": [], "a": '\u2028/\\"'}]) == (
        '[null,1.5,-0.0,1e+22,{"a":"\u2028/\\\\\\"","b":[]}]'
    )
    assert (sha256(PAYLOAD), sha256(RESPONSE)) == (REQUEST_HASH, RESPONSE_HASH)


def test_the_hashes_of_a_scope_and_of_a_place_are_the_frozen_ones() -> None:
    assert FrameworkTenantScope("acme", "north", "b").scope_hash == SCOPE_HASH
    assert PauseToken.hash_checkpoint("order-17", "", CHECKPOINT, TASK) == CHECKPOINT_HASH
    assert PauseToken.hash_payload_text(PAYLOAD) == REQUEST_HASH


def test_the_ids_of_a_question_are_the_frozen_ones() -> None:
    assert interrupt_id("order-17", TASK, "refund_approval", REQUEST_HASH, 0) == INTERRUPT_ID
    assert interrupt_id("order-17", TASK, "refund_approval", REQUEST_HASH, 1) == "i-260f6b2314ae"

    options = (AskUserOption(label="Post", description="slow"), AskUserOption(label="Kurier für Eiliges"))
    asked = AskUserQuestion(question="Which carrier?", header="Carrier", options=options, allow_other=True)
    assert [q.id for q in AskUserRequest(questions=(asked, asked)).questions] == ["q-9054ab39d6db", "q-85ca84cb734a"]


def test_a_token_is_minted_and_verified_as_the_frozen_text(keys: KeyRing) -> None:
    assert CLAIMS.mint(keys) == TOKEN

    issued = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    for now in (issued, issued + timedelta(hours=24)):
        found = PauseToken.verify(
            TOKEN, keys, issuer="symfonic-interrupts", audience="symfonic-interrupts/refunds", now=now
        )
        assert found == CLAIMS


def test_a_receipt_is_sealed_and_unsealed_as_the_frozen_text(keys: KeyRing) -> None:
    receipt = Receipt.unseal(json.loads(RECEIPT_TEXT), keys)

    assert canonical_json(receipt.seal(keys)) == RECEIPT_TEXT
    assert receipt.covers(RESPONSE)
    assert (receipt.jti, receipt.task_id, receipt.actor, receipt.defaulted) == (JTI, TASK, "zoë", False)

    defaulted = {**json.loads(RECEIPT_TEXT), "actor": None, "defaulted": True, "mac": DEFAULTED_MAC}
    assert Receipt.unseal(defaulted, keys).seal(keys) == defaulted


def test_a_row_is_sealed_with_the_frozen_mac(keys: KeyRing) -> None:
    sealed = seal_row(ROW, keys)

    assert (sealed["mac_kid"], sealed["mac"]) == (KID, ROW_MAC)
    assert row_is_authentic({**ROW, "mac_kid": KID, "mac": ROW_MAC}, keys)
