"""The tree of errors: what clients and logs rely on."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime

import pytest

import symfonic_interrupts
from symfonic_interrupts import errors, errors_in_nodes
from symfonic_interrupts.errors import (
    InterruptError,
    PayloadInvalid,
    ResponseInvalid,
    StoreError,
    TokenConsumed,
    TokenExpired,
)

TABLE = {
    "AnswerUnused": ("answer_unused", 409),
    "CheckpointMissing": ("checkpoint_missing", 404),
    "FeatureDisabled": ("feature_disabled", 403),
    "InterruptError": ("interrupt_error", 500),
    "KeyRingError": ("key_ring_error", 500),
    "PauseNotReady": ("pause_not_ready", 425),
    "PauseSuperseded": ("pause_superseded", 409),
    "PauseSwallowed": ("pause_swallowed", 500),
    "PayloadInvalid": ("payload_invalid", 500),
    "ReceiptInvalid": ("receipt_invalid", 403),
    "RegistrationError": ("registration_error", 500),
    "ResponseInvalid": ("response_invalid", 422),
    "ResumeRefused": ("resume_refused", 409),
    "ScopeMismatch": ("scope_mismatch", 403),
    "ScopeRequired": ("scope_required", 400),
    "StoreError": ("store_error", 503),
    "ThreadBusy": ("thread_busy", 429),
    "TokenConsumed": ("token_consumed", 409),
    "TokenExpired": ("token_expired", 410),
    "TokenInvalid": ("token_invalid", 401),
    "UnknownInterrupt": ("unknown_interrupt", 404),
    "UsageError": ("usage_error", 422),
}

PUBLIC = {
    name: error
    for module in (errors, errors_in_nodes)
    for name, error in vars(module).items()
    if isinstance(error, type) and error.__module__ == module.__name__ and not name.startswith("_")
}


def an_error(error: type[InterruptError]) -> InterruptError:
    return error("what is wrong", state="answered") if error is TokenConsumed else error("what is wrong")


def test_every_error_has_its_code_and_http_status() -> None:
    assert {name: (error.code, error.http_status) for name, error in PUBLIC.items()} == TABLE


def test_no_two_errors_share_a_code() -> None:
    codes = [error.code for error in PUBLIC.values()]

    assert len(set(codes)) == len(codes)


def test_every_error_is_an_interrupt_error_and_can_be_imported_from_errors_and_from_the_top() -> None:
    assert all(issubclass(error, InterruptError) for error in PUBLIC.values())
    assert all(getattr(errors, name) is error for name, error in PUBLIC.items())
    assert all(getattr(symfonic_interrupts, name) is error for name, error in PUBLIC.items())


def test_a_server_that_passes_on_known_kinds_of_errors_knows_ours() -> None:
    assert all(issubclass(error, RuntimeError) for error in PUBLIC.values())


def test_only_wrong_use_of_a_call_is_a_value_error() -> None:
    assert [name for name, error in PUBLIC.items() if issubclass(error, ValueError)] == ["UsageError"]


@pytest.mark.parametrize("name", sorted(TABLE))
def test_an_error_shows_the_message_it_was_given(name: str) -> None:
    assert str(an_error(PUBLIC[name])) == "what is wrong"


@pytest.mark.parametrize("name", sorted(TABLE))
def test_an_error_comes_back_from_another_process(name: str) -> None:
    sent = an_error(PUBLIC[name])

    came = pickle.loads(pickle.dumps(sent))

    assert type(came) is type(sent)
    assert str(came) == "what is wrong"
    assert vars(came) == vars(sent)
    assert vars(copy.copy(sent)) == vars(sent)


def test_an_expired_token_says_when_it_ended() -> None:
    ended = datetime(2026, 1, 2, tzinfo=UTC)

    assert TokenExpired("over", expired_at=ended).expired_at == ended
    assert TokenExpired("over").expired_at is None


def test_a_consumed_token_says_how_it_was_spent() -> None:
    assert TokenConsumed("spent", state="revoked").state == "revoked"


def test_a_store_error_is_not_retryable_unless_it_says_so() -> None:
    assert StoreError("closed").retryable is False
    assert StoreError("locked", retryable=True).retryable is True


@pytest.mark.parametrize("error", [PayloadInvalid, ResponseInvalid])
def test_a_validation_error_carries_what_pydantic_found(error: type[PayloadInvalid] | type[ResponseInvalid]) -> None:
    found = [{"type": "missing", "loc": ("amount",), "msg": "Field required"}]

    assert error("bad", errors=found).errors == found
    assert error("bad").errors == []


def test_validation_errors_do_not_share_a_list() -> None:
    first, second = ResponseInvalid("bad"), ResponseInvalid("bad")
    first.errors.append({"type": "missing"})

    assert second.errors == []
