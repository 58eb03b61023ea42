"""`ask_user` as a LangChain tool: a model asks, a person answers, the answers come back under the tool call that asked."""

from __future__ import annotations

import json
from typing import Annotated, Any

from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.v1 import ValidationError as ValidationErrorV1

from symfonic_interrupts.ask_user import AskUserOption, AskUserRequest, AskUserResponse
from symfonic_interrupts.asking.point import InterruptPoint

DESCRIPTION = (
    "Ask the user 1 to 4 multiple-choice questions and wait for the answers. Use it when a decision is the user's to make"
    " and cannot be inferred. Each question needs a text of 3 to 500 characters and 2 to 4 options with different labels."
)


class _Option(AskUserOption):
    """One choice."""


class _Question(BaseModel):
    """A question as a model asks it: without an id."""

    model_config = ConfigDict(extra="ignore")
    question: Annotated[str, Field(min_length=3, max_length=500, description="The question itself.")]
    header: Annotated[str, Field(max_length=12, description="A very short heading.")] = ""
    options: Annotated[list[_Option], Field(min_length=2, max_length=4, description="The choices.")]
    multi_select: Annotated[bool, Field(description="Whether several choices may be selected.")] = False
    allow_other: Annotated[bool, Field(description="Whether the user may answer in their own words.")] = False


class _Call(BaseModel):
    """The arguments of a call."""

    questions: Annotated[list[_Question], Field(min_length=1, max_length=4, description="What to ask.")]
    tool_call_id: Annotated[str, InjectedToolCallId]


def ask_user_tool(point: InterruptPoint[AskUserRequest, AskUserResponse]) -> BaseTool:
    """The tool over the built-in point. A malformed call comes back to the model as a tool error and asks nobody."""

    def ask(questions: list[Any], tool_call_id: str) -> str:
        asked = [q.model_dump() if isinstance(q, BaseModel) else q for q in questions]
        request = AskUserRequest.model_validate({"questions": asked, "tool_call_id": tool_call_id})
        return _answers(request, point.pause(request))

    return StructuredTool.from_function(
        ask,
        name=point.name,
        description=DESCRIPTION,
        args_schema=_Call,
        handle_validation_error=_what_to_mend,
    )


def _answers(request: AskUserRequest, response: AskUserResponse) -> str:
    texts = {question.id: question.question for question in request.questions}
    listed = []
    for answer in response.answers:
        said = {"question": texts[answer.question_id], "selections": list(answer.selections)}
        listed.append(said if answer.other is None else {**said, "other": answer.other})
    return json.dumps({"answers": listed}, ensure_ascii=False)


def _what_to_mend(error: ValidationError | ValidationErrorV1) -> str:
    problems = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
    return "Nobody was asked: the call is malformed. Mend it and call again. " + "; ".join(problems)
