"""LangGraph's `HumanInterrupt` answered by tokens: what Agent Inbox draws, and `langgraph.prebuilt.interrupt` declares.

A node asks with one request or a list of them, and gets a list of `HumanResponse`. What a request's config does not allow is
refused before the token is spent. Answers of the newer shape (`{"decisions": [...]}`) reach the node in the older one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

from symfonic_interrupts.asking.point import InterruptPoint
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.interrupts import Interrupts
from symfonic_interrupts.presenting import (
    ACTIONS,
    HumanAction,
    HumanResponse,
    Shown,
    check_responses,
    in_older_shape,
    inbox_keys,
)


class HumanInterruptConfig(BaseModel):
    """What a person may do with a request. What is not named is not allowed."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)
    allow_accept: bool = False
    allow_edit: bool = False
    allow_respond: bool = False
    allow_ignore: bool = False


class HumanInterrupt(BaseModel):
    """A request: the action, what may be done with it, and a text for the reviewer."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)
    action_request: HumanAction
    config: HumanInterruptConfig
    description: str | None = None


class HumanInterrupts(RootModel[list[HumanInterrupt] | HumanInterrupt]):
    """What is shown: a list of requests, which is usual, or a single one."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    @property
    def requests(self) -> list[HumanInterrupt]:
        """The requests."""
        return self.root if isinstance(self.root, list) else [self.root]


class HumanResponses(RootModel[list[HumanResponse]]):
    """The answer: one response for each request, in their order; a list also for a single request."""

    root: list[HumanResponse] = Field(min_length=1)
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


def validate_human_responses(responses: HumanResponses, shown: HumanInterrupts) -> None:
    """`validate_response` of a point that asks with `HumanInterrupts`.

    Raises:
        ValueError: another number of responses than of requests, one that the request's config does not allow or whose `args`
            are of another kind, an edit of another action, an `accept` with arguments that were not shown.
    """
    check_responses(responses.root, _as_shown(shown))


def register_human_interrupt(
    interrupts: Interrupts, nodes: Sequence[str] = (), *, name: str = "human_interrupt", **registration: Any
) -> InterruptPoint[Any, Any]:
    """Register the point of nodes that ask with `HumanInterrupt` and read `HumanResponse`.

    Args:
        interrupts: where; also what the graph's checkpointer is wrapped with.
        nodes: nodes that ask with LangGraph's own `interrupt()`; see `InterruptRegistration`. Elsewhere, such as in tools, ask
            with the point that is returned: `point.interrupt([request])[0]`.
        name: the point's name.
        registration: further arguments of `register_interrupt`, such as `ttl`.

    Raises:
        FeatureDisabled: `FrameworkConfig.experimental_interrupt` is off.
        RegistrationError: a default answer, which cannot fit every question; or see `register_interrupt`.
    """
    if registration.get("on_expire") is not None:
        raise RegistrationError(f"{name}: on_expire cannot fit questions that differ in number and in what they allow")
    return interrupts.register_interrupt(
        name,
        payload_schema=HumanInterrupts,
        response_schema=HumanResponses,
        validate_response=validate_human_responses,
        nodes=nodes,
        present=_Inbox(),
        **registration,
    )


class _Inbox:
    """Shows the requests where the point itself asks, and reads the newer shape of an answer."""

    def shown(self, payload: HumanInterrupts, data: Any) -> Mapping[str, Any]:
        requests = _as_shown(payload)
        return inbox_keys(requests) if requests else {}

    def read(self, answer: Any, payload: HumanInterrupts, data: Any) -> Any:
        return in_older_shape([answer] if _is_one_response(answer) else answer, _as_shown(payload))


def _is_one_response(answer: Any) -> bool:
    return isinstance(answer, Mapping) and "type" in answer


def _as_shown(payload: HumanInterrupts) -> list[Shown]:
    return [
        Shown(
            title=request.action_request.action,
            args=request.action_request.args,
            description=request.description or "",
            allowed=frozenset(action for action in ACTIONS if getattr(request.config, f"allow_{action}")),
        )
        for request in payload.requests
    ]
