"""The six events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from symfonic_interrupts import (
    AskUserAnsweredEvent,
    AskUserExpiredEvent,
    AskUserOption,
    AskUserQuestion,
    AskUserQuestionEvent,
    AskUserRequest,
    InterruptEvent,
    InterruptExpiredEvent,
    InterruptResolvedEvent,
)
from symfonic_interrupts.events import ANY_EVENT

TOKEN = "head.body.signature-of-a-pause-token"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 3, 5, 5, 250_000, tzinfo=UTC)
REQUEST = AskUserRequest(
    questions=(AskUserQuestion(question="Which?", options=(AskUserOption(label="a"), AskUserOption(label="b"))),)
)

EVENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "interrupt": (
        InterruptEvent(
            name="approval",
            pause_token=TOKEN,
            payload={"order": "A1", "amount": 90},
            expires_at=AT,
            interrupt_id="i-0123456789ab",
            thread_id="t1",
            run_id="r1",
        ),
        {
            "type": "interrupt",
            "name": "approval",
            "pause_token": TOKEN,
            "payload": {"order": "A1", "amount": 90},
            "expires_at": "2026-01-02T03:04:05Z",
            "interrupt_id": "i-0123456789ab",
            "thread_id": "t1",
            "run_id": "r1",
        },
    ),
    "interrupt_resolved": (
        InterruptResolvedEvent(
            name="approval",
            interrupt_id="i-0123456789ab",
            response={"approved": True},
            time_to_resolve_seconds=1.5,
            defaulted=False,
            thread_id="t1",
        ),
        {
            "type": "interrupt_resolved",
            "name": "approval",
            "interrupt_id": "i-0123456789ab",
            "response": {"approved": True},
            "time_to_resolve_seconds": 1.5,
            "defaulted": False,
            "thread_id": "t1",
            "run_id": None,
        },
    ),
    "interrupt_expired": (
        InterruptExpiredEvent(
            name="approval",
            interrupt_id="i-0123456789ab",
            scope_hash="hash",
            expired_at=AT,
            swept_at=LATER,
            thread_id="t1",
        ),
        {
            "type": "interrupt_expired",
            "name": "approval",
            "interrupt_id": "i-0123456789ab",
            "scope_hash": "hash",
            "expired_at": "2026-01-02T03:04:05Z",
            "swept_at": "2026-01-02T03:05:05.250000Z",
            "thread_id": "t1",
        },
    ),
    "ask_user_question": (
        AskUserQuestionEvent(
            pause_token=TOKEN,
            request=REQUEST,
            tool_call_id="call-1",
            expires_at=AT,
            interrupt_id="i-0123456789ab",
            thread_id="t1",
        ),
        {
            "type": "ask_user_question",
            "pause_token": TOKEN,
            "request": {
                "questions": [
                    {
                        "id": "q-cb2c14203cd7",
                        "question": "Which?",
                        "header": "",
                        "options": [
                            {"label": "a", "description": "", "preview": None},
                            {"label": "b", "description": "", "preview": None},
                        ],
                        "multi_select": False,
                        "allow_other": False,
                    }
                ],
                "tool_call_id": None,
            },
            "tool_call_id": "call-1",
            "expires_at": "2026-01-02T03:04:05Z",
            "interrupt_id": "i-0123456789ab",
            "thread_id": "t1",
            "run_id": None,
        },
    ),
    "ask_user_answered": (
        AskUserAnsweredEvent(
            tool_call_id="call-1",
            selected_labels=["a"],
            has_other=True,
            time_to_answer_seconds=2.0,
            defaulted=True,
            interrupt_id="i-0123456789ab",
            thread_id="t1",
            run_id="r1",
        ),
        {
            "type": "ask_user_answered",
            "tool_call_id": "call-1",
            "selected_labels": ["a"],
            "has_other": True,
            "time_to_answer_seconds": 2.0,
            "defaulted": True,
            "interrupt_id": "i-0123456789ab",
            "thread_id": "t1",
            "run_id": "r1",
        },
    ),
    "ask_user_expired": (
        AskUserExpiredEvent(
            interrupt_id="i-0123456789ab", scope_hash="hash", expired_at=AT, swept_at=LATER, thread_id="t1"
        ),
        {
            "type": "ask_user_expired",
            "interrupt_id": "i-0123456789ab",
            "scope_hash": "hash",
            "expired_at": "2026-01-02T03:04:05Z",
            "swept_at": "2026-01-02T03:05:05.250000Z",
            "thread_id": "t1",
        },
    ),
}


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_has_this_json_form(kind: str) -> None:
    event, data = EVENTS[kind]

    assert event.model_dump(mode="json") == data


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_comes_back_from_its_json_by_its_type(kind: str) -> None:
    event, data = EVENTS[kind]

    assert ANY_EVENT.validate_python(data) == event
    came = ANY_EVENT.validate_json(ANY_EVENT.dump_json(event))
    assert type(came) is type(event)
    assert came == event


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_cannot_be_changed_or_given_more(kind: str) -> None:
    event, data = EVENTS[kind]

    with pytest.raises(ValidationError, match="frozen"):
        event.thread_id = "t2"
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        ANY_EVENT.validate_python({**data, "tenant_id": "acme"})


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_does_not_take_another_type(kind: str) -> None:
    event, data = EVENTS[kind]
    other = "interrupt_expired" if kind != "interrupt_expired" else "interrupt"

    with pytest.raises(ValidationError):
        type(event).model_validate({**data, "type": other})
    with pytest.raises(ValidationError):
        ANY_EVENT.validate_python({**data, "type": "something_else"})


@pytest.mark.parametrize("kind", ["interrupt", "ask_user_question"])
def test_a_token_is_an_attribute_and_dumped_but_never_shown(kind: str) -> None:
    event, _ = EVENTS[kind]

    assert event.pause_token == TOKEN
    assert event.model_dump()["pause_token"] == TOKEN
    assert TOKEN in event.model_dump_json()
    for shown in (repr(event), str(event), f"{event}", f"{event!r}", repr([event]), "%s" % event):  # noqa: UP031
        assert TOKEN not in shown
        assert "pause_token" not in shown


@pytest.mark.parametrize("kind", ["interrupt_resolved", "interrupt_expired", "ask_user_answered", "ask_user_expired"])
def test_only_events_of_open_pauses_have_a_token(kind: str) -> None:
    assert "pause_token" not in EVENTS[kind][1]
    with pytest.raises(ValidationError):
        ANY_EVENT.validate_python({**EVENTS[kind][1], "pause_token": TOKEN})


@pytest.mark.parametrize("kind", ["interrupt", "ask_user_question"])
def test_an_event_that_does_not_validate_does_not_show_its_token(kind: str) -> None:
    _, data = EVENTS[kind]

    with pytest.raises(ValidationError) as refused:
        ANY_EVENT.validate_python({**data, "expires_at": TOKEN, "pause_token": [TOKEN], "thread_id": 5})

    assert TOKEN not in str(refused.value)


def test_an_event_of_an_answer_to_ask_user_does_not_have_its_free_text() -> None:
    assert set(AskUserAnsweredEvent.model_fields) == {
        "type",
        "tool_call_id",
        "selected_labels",
        "has_other",
        "time_to_answer_seconds",
        "defaulted",
        "interrupt_id",
        "thread_id",
        "run_id",
    }
