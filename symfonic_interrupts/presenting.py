"""How a point is shown in inboxes that know LangChain's questions, and what their answers mean. Pure functions and models.

There are two shapes. The older one is LangGraph's `HumanInterrupt`, with the actions accept, edit, response and ignore; it is
answered by a list of `HumanResponse`. The newer one is the request of LangChain's middleware, with the decisions approve, edit,
reject and respond; it is answered by `{"decisions": [...]}`. A marker can carry both beside its own keys, and an answer in
either is read. Nothing here may let an answer through that changes what was shown without being an edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from symfonic_interrupts.errors import RegistrationError

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)

Action = Literal["accept", "edit", "respond", "ignore"]
"""What a person may do with what is shown; `response` in the older shape of an answer is `respond`."""

ACTIONS: tuple[Action, ...] = ("accept", "edit", "respond", "ignore")


class Presents(Protocol):
    """What a registration asks of its `present=`."""

    def shown(self, payload: Any, data: Any) -> Mapping[str, Any]:
        """What is added to the marker. The same for the same payload.

        Args:
            payload: the payload model.
            data: the payload as JSON data.
        """
        ...

    def read(self, answer: Any, payload: Any, data: Any) -> Any:
        """The answer as the response schema has it; an answer in no shape of an inbox as it is. Raises ValueError."""
        ...


class HumanAction(BaseModel):
    """What shall be done, in the older shape: the action's name and its arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    action: str
    args: dict[str, Any]


class HumanResponse(BaseModel):
    """One answer of the older shape.

    Attributes:
        type: what the person did.
        args: the text of a `response`, the changed action of an `edit`; else null, or for `accept` the action as it was shown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    type: Literal["accept", "edit", "response", "ignore"]
    args: HumanAction | str | None = None

    @property
    def action(self) -> Action:
        """What the person did."""
        return "respond" if self.type == "response" else self.type


@dataclass(frozen=True, slots=True)
class Shown:
    """One request as an inbox shows it.

    Attributes:
        allowed: what a person may do with it.
    """

    title: str
    args: Mapping[str, Any]
    description: str
    allowed: frozenset[Action]


def inbox_keys(requests: Sequence[Shown]) -> dict[str, Any]:
    """The keys by which inboxes of both shapes know a question. The older shape has one request, so it has the first."""
    first = requests[0]
    return {
        "action_request": {"action": first.title, "args": first.args},
        "config": {f"allow_{action}": action in first.allowed for action in ACTIONS},
        "description": first.description,
        "action_requests": [{"name": r.title, "args": r.args, "description": r.description} for r in requests],
        "review_configs": [{"action_name": r.title, "allowed_decisions": _decisions(r.allowed)} for r in requests],
    }


def _decisions(allowed: frozenset[Action]) -> list[str]:
    offered = {
        "approve": "accept" in allowed,
        "edit": "edit" in allowed,
        "reject": bool(allowed & {"respond", "ignore"}),
        "respond": "respond" in allowed,
    }
    return [decision for decision, offers in offered.items() if offers]


def in_older_shape(answer: Any, requests: Sequence[Shown]) -> Any:
    """An answer of the newer shape in the older one; any other as it is.

    A rejection is a response with its reason as the text. Where that is not allowed, or no reason is given, it is `ignore`.
    """
    if not isinstance(answer, Mapping) or set(answer) != {"decisions"} or not isinstance(answer["decisions"], list):
        return answer
    allowed = [request.allowed for request in requests]
    allowed += [frozenset()] * len(answer["decisions"])  # too many: to be refused for that
    return [_older(decision, may) for decision, may in zip(answer["decisions"], allowed, strict=False)]


def _older(decision: Any, allowed: frozenset[Action]) -> Any:
    match decision:
        case {"type": "approve"} if len(decision) == 1:
            return {"type": "accept", "args": None}
        case {"type": "edit", "edited_action": {"name": name, "args": args}} if len(decision) == 2:
            return {"type": "edit", "args": {"action": name, "args": args}}
        case {"type": "respond", "message": message} if len(decision) == 2:
            return {"type": "response", "args": message}
        case {"type": "reject"} if set(decision) <= {"type", "message"}:
            reason = decision.get("message") or ""
            if "respond" in allowed and (reason or "ignore" not in allowed):
                return {"type": "response", "args": reason}
            return {"type": "ignore", "args": None}
    raise ValueError("decisions: each is approve, edit with edited_action, reject, or respond with message")


def check_responses(responses: Sequence[HumanResponse], requests: Sequence[Shown]) -> None:
    """Raise ValueError unless these are one allowed answer for each request, in their order."""
    if len(responses) != len(requests):
        raise ValueError(
            f"{len(requests)} requests need {len(requests)} responses in their order, not {len(responses)}"
        )
    for index, (response, request) in enumerate(zip(responses, requests, strict=True)):
        _check(response, request, f"response {index}")


def _check(response: HumanResponse, request: Shown, where: str) -> None:
    args, action = response.args, response.action
    if action not in request.allowed:
        may = ", ".join(a for a in ACTIONS if a in request.allowed) or "nothing"
        raise ValueError(f"{where}: {action} is not allowed here, but {may}")
    if action == "respond" and not isinstance(args, str):
        raise ValueError(f"{where}: args of a response must be its text")
    if action == "ignore" and args is not None:
        raise ValueError(f"{where}: args of ignore must be null")
    if action == "edit":
        if not isinstance(args, HumanAction):
            raise ValueError(f"{where}: args of an edit must be the changed action: action and args")
        if args.action != request.title:
            raise ValueError(f"{where}: an edit changes the arguments; it cannot name another action")
    if action == "accept" and args is not None and args != HumanAction(action=request.title, args=dict(request.args)):
        raise ValueError(f"{where}: args of accept must be null or the action as it was shown; send an edit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation(Generic[P, R]):
    """How a point is shown in Agent Inbox, agent-chat-ui and the like, and what their answers mean: `present=` of a point.

    What a person may do is what has a function here. Each function makes the response; what it refuses (ValueError) is refused
    as an answer. An answer that an inbox would not send is taken as JSON data of the response schema, as without this.

    Attributes:
        title: the action's name as it is shown, or a function of the payload. Pure: it runs on every pass.
        description: a text below it (inboxes draw Markdown), or a function of the payload.
        accept: from the payload, the response to "accept" or "approve".
        edit: from the payload and the payload's JSON data as the person changed it, the response to "edit".
        respond: from the payload and a text, the response to a text, or to "reject" with a reason.
        ignore: from the payload, the response to "ignore", or to "reject" without a reason.
    """

    title: str | Callable[[P], str]
    description: str | Callable[[P], str] = ""
    accept: Callable[[P], R] | None = None
    edit: Callable[[P, dict[str, Any]], R] | None = None
    respond: Callable[[P, str], R] | None = None
    ignore: Callable[[P], R] | None = None

    def __post_init__(self) -> None:
        for word, text in (("title", self.title), ("description", self.description)):
            if not (callable(text) or isinstance(text, str)) or (word == "title" and not text):
                raise RegistrationError(f"present: {word} must be a text or a function of the payload")
        if not self._allowed:
            raise RegistrationError(
                f"present: give at least one of {', '.join(ACTIONS)}, a function that makes the response"
            )
        for action in self._allowed:
            if not callable(getattr(self, action)):
                raise RegistrationError(f"present: {action} must be a function that makes the response")

    @property
    def _allowed(self) -> frozenset[Action]:
        return frozenset(action for action in ACTIONS if getattr(self, action) is not None)

    def shown(self, payload: P, data: Any) -> Mapping[str, Any]:
        """What is added to the marker."""
        return inbox_keys([self._request(payload, data)])

    def read(self, answer: Any, payload: P, data: Any) -> Any:
        """The response that an inbox's answer means; any other answer as it is. Raises ValueError where it is not allowed."""
        request = self._request(payload, data)
        answer = in_older_shape(answer, [request])
        if not _is_list_of_responses(answer):
            return answer
        responses = [HumanResponse.model_validate(response) for response in answer]
        check_responses(responses, [request])
        (given,) = responses
        function: Callable[..., R] = getattr(self, given.action)
        match given:
            case HumanResponse(type="edit", args=HumanAction(args=args)):
                return function(payload, dict(args))
            case HumanResponse(type="response", args=text):
                return function(payload, text)
        return function(payload)

    def _request(self, payload: P, data: Any) -> Shown:
        args = data if isinstance(data, dict) else {"payload": data}
        return Shown(_text(self.title, payload), args, _text(self.description, payload), self._allowed)


def _is_list_of_responses(answer: Any) -> bool:
    kinds = ("accept", "edit", "response", "ignore")
    return (
        isinstance(answer, list)
        and bool(answer)
        and all(isinstance(a, dict) and set(a) <= {"type", "args"} and a.get("type") in kinds for a in answer)
    )


def _text(given: str | Callable[[P], str], payload: P) -> str:
    text = given(payload) if callable(given) else given
    if not isinstance(text, str):
        raise RegistrationError(f"present: title and description must be texts, not {type(text).__name__}")
    return text
