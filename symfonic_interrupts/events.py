"""What is told to the outside: six events, frozen, told apart by `type`.

An event travels in a LangGraph stream of mode "custom", is returned by `pending` and `sweep`, and stands in the table
`interrupt_events` (there always without its token). A token is an attribute and in `model_dump`, never in a repr; nor
are payloads and responses.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from symfonic_interrupts.ask_user import ASK_USER, AskUserRequest
from symfonic_interrupts.scope import FrameworkTenantScope


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class InterruptEvent(_Event):
    """A thread waits for a person.

    Attributes:
        name: the point's name.
        pause_token: the signed token with which this pause can be answered once.
        payload: what is asked, as JSON data.
        expires_at: when the token ends (UTC).
        interrupt_id: `i-` and 12 hex digits: this pause, for clients.
        thread_id: LangGraph's thread.
        run_id: LangGraph's run, or None where the caller set none.
    """

    type: Literal["interrupt"] = "interrupt"
    name: str
    pause_token: Annotated[str, Field(repr=False)]
    payload: Annotated[Any, Field(repr=False)]
    expires_at: datetime
    interrupt_id: str
    thread_id: str
    run_id: str | None = None


class InterruptResolvedEvent(_Event):
    """A pause was answered.

    Attributes:
        response: the answer, as JSON data.
        time_to_resolve_seconds: from the pause to its answer.
        defaulted: nobody answered in time; the answer is the point's `on_expire`.
    """

    type: Literal["interrupt_resolved"] = "interrupt_resolved"
    name: str
    interrupt_id: str
    response: Annotated[Any, Field(repr=False)]
    time_to_resolve_seconds: float
    defaulted: bool
    thread_id: str
    run_id: str | None = None


class InterruptExpiredEvent(_Event):
    """A pause was not answered in time. Also sent where a default answer follows.

    Attributes:
        scope_hash: SHA-256 of the scope, base64url.
        expired_at: when its time ended (UTC).
        swept_at: when the janitor closed it (UTC).
    """

    type: Literal["interrupt_expired"] = "interrupt_expired"
    name: str
    interrupt_id: str
    scope_hash: str
    expired_at: datetime
    swept_at: datetime
    thread_id: str


class AskUserQuestionEvent(_Event):
    """The built-in point `ask_user` waits for a person: `InterruptEvent` with a typed request.

    Attributes:
        tool_call_id: the id of the model's tool call that asks, or None.
    """

    type: Literal["ask_user_question"] = "ask_user_question"
    pause_token: Annotated[str, Field(repr=False)]
    request: Annotated[AskUserRequest, Field(repr=False)]
    tool_call_id: str | None = None
    expires_at: datetime
    interrupt_id: str
    thread_id: str
    run_id: str | None = None

    @property
    def name(self) -> str:
        """The point's name, as of an `InterruptEvent`."""
        return ASK_USER

    @property
    def payload(self) -> Any:
        """The request as JSON data, as of an `InterruptEvent`."""
        return self.request.model_dump(mode="json")


class AskUserAnsweredEvent(_Event):
    """An `ask_user` pause was answered.

    Attributes:
        selected_labels: all selected labels.
        has_other: a free text was given; the text itself is not in the event.
        time_to_answer_seconds: from the question to its answer.
        defaulted: nobody answered in time.
    """

    type: Literal["ask_user_answered"] = "ask_user_answered"
    tool_call_id: str | None = None
    selected_labels: Annotated[list[str], Field(repr=False)]
    has_other: bool
    time_to_answer_seconds: float
    defaulted: bool
    interrupt_id: str
    thread_id: str
    run_id: str | None = None

    @property
    def name(self) -> str:
        """The point's name, as of an `InterruptResolvedEvent`."""
        return ASK_USER


class AskUserExpiredEvent(_Event):
    """An `ask_user` pause was not answered in time."""

    type: Literal["ask_user_expired"] = "ask_user_expired"
    interrupt_id: str
    scope_hash: str
    expired_at: datetime
    swept_at: datetime
    thread_id: str

    @property
    def name(self) -> str:
        """The point's name, as of an `InterruptExpiredEvent`."""
        return ASK_USER


class RecordedEvent(BaseModel):
    """A row of `interrupt_events`: what happened to a pause, for an auditor or a dashboard.

    Attributes:
        cursor: its place; a reader that goes on from the last one it saw misses none.
        at: when (UTC), by the database's clock (SQLite: the process's).
        type: `interrupt`, `interrupt_resolved`, `interrupt_expired`, their `ask_user_...` kin, `interrupt_` with
            `superseded`, `unused`, `revoked`, `reissued`, `refused`, `cross_scope`, `swallowed`, `drifted`, or
            `delivery_failed`, of the pause whose answer the failed run had.
        scope: whose pause it is.
        body: what is recorded of it, as JSON data: for the six events their fields without the token, for an answer also its
            `actor`. An answer is recorded when it is stored, before a node has used it.
    """

    model_config = ConfigDict(frozen=True)
    cursor: str
    at: datetime
    type: str
    name: str
    interrupt_id: str
    thread_id: str
    scope: FrameworkTenantScope
    body: Annotated[Any, Field(repr=False)]


PauseEvent = InterruptEvent | AskUserQuestionEvent
"""A thread waits: it carries a token."""

AnswerEvent = InterruptResolvedEvent | AskUserAnsweredEvent
ExpiryEvent = InterruptExpiredEvent | AskUserExpiredEvent

AnyEvent = PauseEvent | AnswerEvent | ExpiryEvent
ANY_EVENT: TypeAdapter[AnyEvent] = TypeAdapter(
    Annotated[AnyEvent, Field(discriminator="type")], config=ConfigDict(hide_input_in_errors=True)
)
"""Validates any of the six from its JSON data, by `type`."""
