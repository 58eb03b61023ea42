"""The built-in point `ask_user`: the limits of its questions, and what makes an answer valid."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from symfonic_interrupts import (
    AskUserAnswer,
    AskUserOption,
    AskUserQuestion,
    AskUserRequest,
    AskUserResponse,
)
from symfonic_interrupts.ask_user import validate_ask_user

ID = "q-0123456789ab"


def options(*labels: str) -> list[dict[str, Any]]:
    return [{"label": label} for label in labels]


def question(**changed: Any) -> dict[str, Any]:
    return {"question": "Which colour?", "header": "Colour", "options": options("red", "blue"), **changed}


def request(*questions: dict[str, Any]) -> AskUserRequest:
    return AskUserRequest.model_validate({"questions": list(questions)})


# -- limits


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_one_to_four_questions_are_taken(count: int) -> None:
    assert len(request(*[question()] * count).questions) == count


@pytest.mark.parametrize("count", [0, 5])
def test_no_question_and_five_questions_are_refused(count: int) -> None:
    with pytest.raises(ValidationError, match=r"questions\n.*at (least 1|most 4) item"):
        request(*[question()] * count)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"question": "abc"}, id="question of 3"),
        pytest.param({"question": "é" * 500}, id="question of 500"),
        pytest.param({"header": ""}, id="no header"),
        pytest.param({"header": "é" * 12}, id="header of 12"),
        pytest.param({"options": options("a", "b")}, id="2 options"),
        pytest.param({"options": options("a", "b", "c", "d")}, id="4 options"),
        pytest.param({"question": "Is this\r\n\tright?"}, id="question in lines"),
        pytest.param({"options": options("a", "\u0430")}, id="labels that differ in script"),
        pytest.param({"options": options("\u26a0\ufe0f stop", "\U0001f469\u200d\U0001f4bb go")}, id="emoji"),
        pytest.param(
            {"options": options("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "b")}, id="Persian with its joiner"
        ),
        pytest.param({"options": options("a", "é" * 80)}, id="label of 80"),
        pytest.param({"options": [{"label": "a", "description": "d" * 400}, {"label": "b"}]}, id="description of 400"),
        pytest.param({"options": [{"label": "a", "preview": "p" * 4000}, {"label": "b"}]}, id="preview of 4000"),
        pytest.param({"multi_select": True, "allow_other": True}, id="both flags"),
    ],
)
def test_a_question_within_the_limits_is_taken(changed: dict[str, Any]) -> None:
    request(question(**changed))


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        pytest.param({"question": "ab"}, "question", id="question of 2"),
        pytest.param({"question": ""}, "question", id="no question"),
        pytest.param({"question": "q" * 501}, "question", id="question of 501"),
        pytest.param({"question": None}, "question", id="question is None"),
        pytest.param({"header": "h" * 13}, "header", id="header of 13"),
        pytest.param({"options": options()}, "options", id="no options"),
        pytest.param({"options": options("a")}, "options", id="1 option"),
        pytest.param({"options": options("a", "b", "c", "d", "e")}, "options", id="5 options"),
        pytest.param({"options": options("a", "a")}, "options", id="a label twice"),
        pytest.param({"options": options("a", "b", " a ")}, "options", id="a label twice but for blanks"),
        pytest.param({"options": options("Yes", "yes")}, "options", id="a label twice but for case"),
        pytest.param({"options": options("Pay  now", "pay\u00a0now")}, "options", id="a label twice but for the blank"),
        pytest.param({"options": options("Pay", "\uff30\uff41\uff59")}, "options", id="a label twice in wide letters"),
        pytest.param({"options": options("Stra\u00dfe", "STRASSE")}, "options", id="a label twice in capitals"),
        pytest.param({"options": options("caf\u00e9", "cafe\u0301")}, "options", id="a label twice, once composed"),
        pytest.param({"options": options("\u26a0", "\u26a0\ufe0f")}, "options", id="a symbol twice, in two styles"),
        pytest.param({"options": options("a", "")}, "options.1.label", id="empty label"),
        pytest.param({"options": options("a", "  ")}, "options.1.label", id="blank label"),
        pytest.param({"options": options("a", "b" * 81)}, "options.1.label", id="label of 81"),
        pytest.param(
            {"options": [{"label": "a", "description": "d" * 401}, {"label": "b"}]},
            "options.0.description",
            id="description of 401",
        ),
        pytest.param(
            {"options": [{"label": "a", "preview": "p" * 4001}, {"label": "b"}]},
            "options.0.preview",
            id="preview of 4001",
        ),
        pytest.param({"colour": "red"}, "colour", id="unknown field"),
        pytest.param(
            {"options": [{"label": "a", "value": 1}, {"label": "b"}]}, "options.0.value", id="unknown field of option"
        ),
    ],
)
def test_a_question_beyond_the_limits_is_refused_where_it_is_wrong(changed: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        request(question(**changed))

    assert ".".join(map(str, refused.value.errors()[0]["loc"])) == f"questions.0.{place}"


HIDDEN = {
    "escape": "\x1b",
    "null": "\x00",
    "C1 control": "\x9b",
    "right-to-left override": "\u202e",
    "isolate": "\u2066",
    "right-to-left mark": "\u200f",
    "zero width space": "\u200b",
    "joiner between Latin letters": "\u200d",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "line separator": "\u2028",
    "Hangul filler": "\u3164",
    "empty Braille cell": "\u2800",
    "tag": "\U000e0041",
    "style selector after a letter": "\ufe0f",
}


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize(
    "place", ["question", "header", "options.0.label", "options.0.description", "options.0.preview"]
)
def test_a_text_with_what_cannot_be_seen_is_refused_and_its_field_named(place: str, hidden: str) -> None:
    text = f"ab{hidden}cd"
    of_option, _, field = place.rpartition(".")
    changed = {field: text} if not of_option else {"options": [{"label": "a", field: text}, {"label": "b"}]}

    with pytest.raises(ValidationError, match=rf"holds U\+{ord(hidden):04X} .*which cannot be seen") as refused:
        request(question(**changed))

    assert ".".join(map(str, refused.value.errors()[0]["loc"])) == f"questions.0.{place}"
    assert hidden not in str(refused.value)


@pytest.mark.parametrize("place", ["header", "options.0.label"])
def test_a_heading_and_a_label_are_one_line(place: str) -> None:
    changed = {"header": "a\nb"} if place == "header" else {"options": options("a\nb", "c")}

    with pytest.raises(ValidationError, match=r"U\+000A control character") as refused:
        request(question(**changed))

    assert ".".join(map(str, refused.value.errors()[0]["loc"])) == f"questions.0.{place}"


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_a_free_text_with_what_cannot_be_seen_is_refused_and_named(hidden: str) -> None:
    asked = request(question(allow_other=True))
    answer = {"question_id": asked.questions[0].id, "other": f"ab{hidden}cd"}

    with pytest.raises(ValueError, match=rf"question q-\w{{12}}: `other` holds U\+{ord(hidden):04X} "):
        validate_ask_user(AskUserResponse.model_validate({"answers": [answer]}), asked)


def test_a_free_text_may_have_lines() -> None:
    asked = request(question(allow_other=True))
    answer = {"question_id": asked.questions[0].id, "other": "one\r\n\ttwo\n"}

    validate_ask_user(AskUserResponse.model_validate({"answers": [answer]}), asked)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"selections": ["a"]}, id="one"),
        pytest.param({"selections": ["a", "b", "c", "d"]}, id="four"),
        pytest.param({"selections": ["é" * 80]}, id="label of 80"),
        pytest.param({"other": "a"}, id="text of 1"),
        pytest.param({"other": "é" * 1000}, id="text of 1000"),
        pytest.param({"selections": ["a"], "other": "b"}, id="both"),
    ],
)
def test_an_answer_within_the_limits_is_taken(answer: dict[str, Any]) -> None:
    AskUserAnswer.model_validate({"question_id": ID, **answer})


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"selections": []}, id="no selection"),
        pytest.param({"selections": [], "other": None}, id="no selection and no text"),
        pytest.param({"other": ""}, id="empty text"),
        pytest.param({"other": " \n"}, id="blank text"),
        pytest.param({"other": "a" * 1001}, id="text of 1001"),
        pytest.param({"selections": ["a", "b", "c", "d", "e"]}, id="five"),
        pytest.param({"selections": ["a", "a"]}, id="the same twice"),
        pytest.param({"selections": ["a", " a"]}, id="the same twice but for blanks"),
        pytest.param({"selections": [""]}, id="empty label"),
        pytest.param({"selections": ["a" * 81]}, id="label of 81"),
        pytest.param({"selections": "a"}, id="text for a list"),
        pytest.param({"selections": ["a"], "note": "b"}, id="unknown field"),
        pytest.param({"selections": ["a"], "question_id": "q-0123456789AB"}, id="id in capitals"),
        pytest.param({"selections": ["a"], "question_id": "q-0123456789ab\n"}, id="id and a newline"),
        pytest.param({"selections": ["a"], "question_id": "q-0123456789abc"}, id="long id"),
        pytest.param({"selections": ["a"], "question_id": "0123456789ab"}, id="id without q"),
        pytest.param({"selections": ["a"], "question_id": None}, id="no id"),
    ],
)
def test_an_answer_beyond_the_limits_or_without_content_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AskUserAnswer.model_validate({"question_id": ID, **answer})


@pytest.mark.parametrize("count", [0, 5])
def test_a_response_has_one_to_four_answers(count: int) -> None:
    answers = [{"question_id": f"q-{number:012x}", "selections": ["a"]} for number in range(count)]

    with pytest.raises(ValidationError):
        AskUserResponse.model_validate({"answers": answers})


@pytest.mark.parametrize(
    "model",
    [
        AskUserOption(label="a"),
        AskUserQuestion.model_validate(question()),
        request(question()),
        AskUserAnswer(question_id=ID, other="a"),
        AskUserResponse(answers=(AskUserAnswer(question_id=ID, other="a"),)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_cannot_be_changed(model: Any) -> None:
    field = next(iter(type(model).model_fields))

    with pytest.raises(ValidationError, match="frozen"):
        setattr(model, field, None)


def test_an_error_does_not_contain_what_was_given() -> None:
    with pytest.raises(ValidationError) as refused:
        request(question(header="top-secret-input", options=[{"label": ["top-secret-input"]}]))

    assert "top-secret-input" not in str(refused.value)


# -- ids


def test_the_ids_follow_from_content_and_position() -> None:
    assert [found.id for found in request(question(), question()).questions] == ["q-cfbb8fb21d1f", "q-705a4e8b81cb"]
    assert [found.id for found in request(question()).questions] == ["q-cfbb8fb21d1f"]


@pytest.mark.parametrize(
    "changed",
    [
        {"question": "Which color?"},
        {"header": ""},
        {"options": options("blue", "red")},
        {"options": [{"label": "red", "description": "warm"}, {"label": "blue"}]},
        {"options": [{"label": "red", "preview": ""}, {"label": "blue"}]},
        {"multi_select": True},
        {"allow_other": True},
    ],
)
def test_another_question_has_another_id(changed: dict[str, Any]) -> None:
    (found,) = request(question(**changed)).questions

    assert found.id != "q-cfbb8fb21d1f"
    assert found.id is not None
    assert re.fullmatch(r"q-[0-9a-f]{12}", found.id)


def test_an_id_given_by_the_caller_is_replaced() -> None:
    (found,) = request(question(id=ID)).questions
    (as_model,) = AskUserRequest(questions=(AskUserQuestion.model_validate(question(id=ID)),)).questions

    assert found.id == as_model.id == "q-cfbb8fb21d1f"


def test_two_questions_with_the_same_given_id_get_ids_of_their_own() -> None:
    ids = [found.id for found in request(question(id=ID), question(id=ID)).questions]

    assert ids == ["q-cfbb8fb21d1f", "q-705a4e8b81cb"]


def test_an_id_in_another_form_given_by_a_model_is_replaced_as_well() -> None:
    # language models number their questions as they like
    (found,) = request(question(id="q1")).questions

    assert found.id == "q-cfbb8fb21d1f"


def test_a_request_that_comes_back_from_its_json_has_the_same_ids() -> None:
    given = request(question(), question(multi_select=True))

    assert AskUserRequest.model_validate_json(given.model_dump_json()) == given


# -- answers to questions

ASKED = request(
    question(),
    question(question="Which sizes?", options=options("s", "m", "l"), multi_select=True),
    question(question="Anything else?", options=options("no", "yes"), allow_other=True),
)
ONE, MANY, OTHER = (str(found.id) for found in ASKED.questions)


def response(*answers: tuple[str, dict[str, Any]]) -> AskUserResponse:
    return AskUserResponse.model_validate({"answers": [{"question_id": id_, **answer} for id_, answer in answers]})


GOOD: list[tuple[str, dict[str, Any]]] = [
    (ONE, {"selections": ["red"]}),
    (MANY, {"selections": ["s", "l"]}),
    (OTHER, {"other": "soon"}),
]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(GOOD, id="in order"),
        pytest.param(GOOD[::-1], id="in another order"),
        pytest.param([GOOD[0], (MANY, {"selections": ["l", "m", "s"]}), GOOD[2]], id="all of many"),
        pytest.param([*GOOD[:2], (OTHER, {"selections": ["yes"], "other": "soon"})], id="option and text"),
        pytest.param([*GOOD[:2], (OTHER, {"selections": ["yes"]})], id="option where a text is allowed"),
        pytest.param([(ONE, {"selections": [" red "]}), *GOOD[1:]], id="label with blanks"),
    ],
)
def test_an_answer_to_every_question_is_valid(answers: list[tuple[str, dict[str, Any]]]) -> None:
    validate_ask_user(response(*answers), ASKED)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        pytest.param(GOOD[:2], f"^question {OTHER} is not answered$", id="one is missing"),
        pytest.param([GOOD[2]], f"^question {ONE} is not answered$", id="two are missing"),
        pytest.param([*GOOD, GOOD[0]], "^a question is answered twice$", id="one twice"),
        pytest.param([GOOD[0], GOOD[0], GOOD[2]], "^a question is answered twice$", id="one twice, one missing"),
        pytest.param([*GOOD[:2], (ID, {"other": "soon"})], f"^no such question: {ID}$", id="unknown question"),
        pytest.param([*GOOD, (ID, {"other": "soon"})], f"^no such question: {ID}$", id="all and an unknown one"),
        pytest.param(
            [(ONE, {"selections": ["green"]}), *GOOD[1:]],
            f"^question {ONE}: a selection is not one of the offered labels$",
            id="not offered",
        ),
        pytest.param(
            [(ONE, {"selections": ["Red"]}), *GOOD[1:]],
            f"^question {ONE}: a selection is not one of the offered labels$",
            id="other case",
        ),
        pytest.param(
            [(ONE, {"selections": ["s"]}), *GOOD[1:]],
            f"^question {ONE}: a selection is not one of the offered labels$",
            id="offered by another question",
        ),
        pytest.param(
            [GOOD[0], (MANY, {"selections": ["s", "xl"]}), GOOD[2]],
            f"^question {MANY}: a selection is not one of the offered labels$",
            id="one of two not offered",
        ),
        pytest.param(
            [(ONE, {"selections": ["red", "blue"]}), *GOOD[1:]],
            f"^question {ONE}: only one option may be selected$",
            id="two where one is allowed",
        ),
        pytest.param(
            [(ONE, {"other": "green"}), *GOOD[1:]],
            f"^question {ONE}: a text in `other` is not allowed$",
            id="text where none is allowed",
        ),
        pytest.param(
            [GOOD[0], (MANY, {"selections": ["s"], "other": "xl"}), GOOD[2]],
            f"^question {MANY}: a text in `other` is not allowed$",
            id="option and text where no text is allowed",
        ),
    ],
)
def test_an_answer_that_breaks_a_rule_is_refused(answers: list[tuple[str, dict[str, Any]]], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        validate_ask_user(response(*answers), ASKED)


def test_a_refusal_does_not_repeat_the_answer() -> None:
    with pytest.raises(ValueError, match="not one of the offered labels") as refused:
        validate_ask_user(response((ONE, {"selections": ["top-secret-input"]}), *GOOD[1:]), ASKED)

    assert "top-secret-input" not in str(refused.value)


def test_a_response_says_what_was_selected_and_whether_a_text_was_given() -> None:
    assert response(*GOOD).selected_labels == ["red", "s", "l"]
    assert response(*GOOD).has_other is True
    assert response(*GOOD[:2]).has_other is False
