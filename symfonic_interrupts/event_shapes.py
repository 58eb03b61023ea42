"""How a point's events and its marker look: one shape for all points, and one for `ask_user`.

A registration says which shape its point has, so nothing else needs to know that `ask_user` is special.
"""

from __future__ import annotations

import json
from typing import Any

from symfonic_interrupts.ask_user import AskUserRequest, AskUserResponse
from symfonic_interrupts.events import (
    AnswerEvent,
    AskUserAnsweredEvent,
    AskUserExpiredEvent,
    AskUserQuestionEvent,
    ExpiryEvent,
    InterruptEvent,
    InterruptExpiredEvent,
    InterruptResolvedEvent,
    PauseEvent,
)


class EventShapes:
    """The events of a point that an author registers. All texts are canonical JSON, as they are stored.

    Attributes:
        marker_type: `type` in the value of the interrupt that LangGraph shows.
    """

    marker_type = "interrupt"

    def asked(self, name: str, payload: str, token: str, **common: Any) -> PauseEvent:
        """A thread waits."""
        return InterruptEvent(name=name, pause_token=token, payload=json.loads(payload), **common)

    def answered(self, name: str, payload: str | None, response: str, seconds: float, **common: Any) -> AnswerEvent:
        """An answer was accepted, `seconds` after the question.

        Args:
            payload: what was asked; None where it is not known any more.
        """
        return InterruptResolvedEvent(
            name=name, response=json.loads(response), time_to_resolve_seconds=seconds, **common
        )

    def expired(self, name: str, **common: Any) -> ExpiryEvent:
        """The time was over when the janitor came."""
        return InterruptExpiredEvent(name=name, **common)


class AskUserShapes(EventShapes):
    """The events of `ask_user`: they carry the model's tool call, and never the user's free text."""

    marker_type = "ask_user_question"

    def asked(self, name: str, payload: str, token: str, **common: Any) -> PauseEvent:
        request = AskUserRequest.model_validate_json(payload)
        return AskUserQuestionEvent(pause_token=token, request=request, tool_call_id=request.tool_call_id, **common)

    def answered(self, name: str, payload: str | None, response: str, seconds: float, **common: Any) -> AnswerEvent:
        given = AskUserResponse.model_validate_json(response)
        return AskUserAnsweredEvent(
            tool_call_id=AskUserRequest.model_validate_json(payload).tool_call_id if payload is not None else None,
            selected_labels=given.selected_labels,
            has_other=given.has_other,
            time_to_answer_seconds=seconds,
            **common,
        )

    def expired(self, name: str, **common: Any) -> ExpiryEvent:
        return AskUserExpiredEvent(**common)


EVENT_SHAPES = EventShapes()
