"""The built-in point `ask_user`: one to four multiple-choice questions, and the rules for an answer to them.

The id of a question follows from its content and position and is never taken from a language model, so a node that runs again
asks with the same ids. People decide by text that a language model wrote; invisible characters in it are therefore refused, and
labels that look the same count as the same.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.invisible import appearance, first_hidden, name_of

ASK_USER = "ask_user"
"""The reserved name of the built-in point."""

_FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _problem(character: str) -> str:
    return f"holds {name_of(character)}, which cannot be seen; leave it out"


def _without_hidden(text: str, *, lines: bool = False) -> str:
    if hidden := first_hidden(text, lines=lines):
        raise ValueError(_problem(hidden))
    return text


OneLine = AfterValidator(_without_hidden)
Lines = AfterValidator(partial(_without_hidden, lines=True))

QuestionId = Annotated[str, StringConstraints(pattern=r"^q-[0-9a-f]{12}$")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=80, strip_whitespace=True)]


class AskUserOption(BaseModel):
    """One choice: a label of 1 to 80 characters, a description up to 400, a preview up to 4,000.

    Characters that cannot be seen (controls, direction marks, fillers) are refused; line ends and tabs may stand in the
    description and the preview.
    """

    model_config = _FROZEN
    label: Annotated[Label, OneLine]
    description: Annotated[str, StringConstraints(max_length=400), Lines] = ""
    preview: Annotated[str, StringConstraints(max_length=4000), Lines] | None = None


class AskUserQuestion(BaseModel):
    """A question with 2 to 4 options.

    Attributes:
        id: `q-` and 12 hex digits, stamped by `AskUserRequest`; a value given by the caller is replaced.
        question: 3 to 500 characters, which can be seen; line ends and tabs may stand in it.
        header: a short heading, at most 12 characters, in one line.
        options: 2 to 4, whose labels do not look the same: case, blanks and compatible forms (NFKC) do not count.
        multi_select: more than one option may be selected.
        allow_other: a free text may be given instead of, or beside, an option.
    """

    model_config = _FROZEN
    id: QuestionId | None = None
    question: Annotated[str, StringConstraints(min_length=3, max_length=500), Lines]
    header: Annotated[str, StringConstraints(max_length=12), OneLine] = ""
    options: Annotated[tuple[AskUserOption, ...], Field(min_length=2, max_length=4)]
    multi_select: bool = False
    allow_other: bool = False

    @model_validator(mode="before")
    @classmethod
    def _drop_a_given_id(cls, value: Any) -> Any:
        return {name: part for name, part in value.items() if name != "id"} if isinstance(value, dict) else value

    @field_validator("options")
    @classmethod
    def _labels_are_unique(cls, options: tuple[AskUserOption, ...]) -> tuple[AskUserOption, ...]:
        if len({appearance(option.label) for option in options}) != len(options):
            raise ValueError("the labels of a question's options must be unique, and must not look the same")
        return options

    def stamped(self, position: int) -> AskUserQuestion:
        """This question with the id that follows from its content and position."""
        content = canonical_json([position, self.model_dump(mode="json", exclude={"id"})])
        return self.model_copy(update={"id": "q-" + hashlib.sha256(content.encode()).hexdigest()[:12]})


class AskUserRequest(BaseModel):
    """The payload of `ask_user`: 1 to 4 questions, and the tool call they came from."""

    model_config = _FROZEN
    questions: Annotated[tuple[AskUserQuestion, ...], Field(min_length=1, max_length=4)]
    tool_call_id: str | None = None

    @field_validator("questions")
    @classmethod
    def _stamp(cls, questions: tuple[AskUserQuestion, ...]) -> tuple[AskUserQuestion, ...]:
        return tuple(question.stamped(position) for position, question in enumerate(questions))


class AskUserAnswer(BaseModel):
    """The answer to one question: up to 4 unique labels, a free text of up to 1,000 characters, or both."""

    model_config = _FROZEN
    question_id: QuestionId
    selections: Annotated[tuple[Label, ...], Field(max_length=4)] = ()
    other: Annotated[str, StringConstraints(pattern=r"\S", max_length=1000)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if len(set(self.selections)) != len(self.selections):
            raise ValueError("selections must be unique")
        if not self.selections and self.other is None:
            raise ValueError("an answer must select an option or give a text in `other`")
        return self


class AskUserResponse(BaseModel):
    """The response of `ask_user`: one answer per question."""

    model_config = _FROZEN
    answers: Annotated[tuple[AskUserAnswer, ...], Field(min_length=1, max_length=4)]

    @property
    def selected_labels(self) -> list[str]:
        """All selected labels, in the order of the answers."""
        return [label for answer in self.answers for label in answer.selections]

    @property
    def has_other(self) -> bool:
        """Whether any answer has a free text."""
        return any(answer.other is not None for answer in self.answers)


def validate_ask_user(response: Any, request: Any) -> None:
    """Check an `AskUserResponse` against the `AskUserRequest` it answers.

    Raises:
        ValueError: a question is answered not at all or twice, an answer names no question, selects a label that was
            not offered or more than one where only one is allowed, or has a text where `allow_other` is false, or one with
            characters that cannot be seen. (The model itself accepts them, so that stored answers stay readable.)
    """
    questions = {question.id: question for question in request.questions}
    answered = [answer.question_id for answer in response.answers]
    if len(set(answered)) != len(answered):
        raise ValueError("a question is answered twice")
    if unknown := set(answered) - set(questions):
        raise ValueError(f"no such question: {sorted(unknown)[0]}")
    if missing := [id_ for id_ in questions if id_ not in answered]:
        raise ValueError(f"question {missing[0]} is not answered")
    for answer in response.answers:
        question = questions[answer.question_id]
        offered = {option.label for option in question.options}
        if not set(answer.selections) <= offered:
            raise ValueError(f"question {question.id}: a selection is not one of the offered labels")
        if len(answer.selections) > 1 and not question.multi_select:
            raise ValueError(f"question {question.id}: only one option may be selected")
        if answer.other is not None and not question.allow_other:
            raise ValueError(f"question {question.id}: a text in `other` is not allowed")
        if answer.other is not None and (hidden := first_hidden(answer.other, lines=True)):
            raise ValueError(f"question {question.id}: `other` {_problem(hidden)}")
