"""An answer asked for field by field, as the JSON Schema says: what is asked, what is taken, what is asked again."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from symfonic_interrupts.cli.ask_user_form import ask_user_answer
from symfonic_interrupts.cli.forms import Form
from symfonic_interrupts.cli.json_schema import parse, read_json, resolve
from tests.cli.applications import Interview


class Typist:
    """Types prepared entries, and keeps what was asked and told."""

    def __init__(self, *entries: str) -> None:
        self.entries = list(entries)
        self.asked: list[str] = []
        self.told: list[str] = []

    def ask(self, prompt: str) -> str:
        self.asked.append(prompt)
        return self.entries.pop(0)


def fill(model: type[BaseModel], *entries: str, former: Any = None) -> tuple[Any, Typist]:
    typist = Typist(*entries)
    found = Form(model.model_json_schema(), typist.ask, typist.told.append).fill(former)
    assert typist.entries == []
    return found, typist


class Decision(BaseModel):
    approved: bool
    note: str = ""


class Level(BaseModel):
    level: Literal["low", "high"]


class Numbers(BaseModel):
    whole: Annotated[int, Field(gt=0, lt=10, multiple_of=3)]
    part: float
    money: Decimal = Decimal(0)


class Texts(BaseModel):
    plain: str
    short: Annotated[str, Field(min_length=2, max_length=3)]
    code: Annotated[str, Field(pattern=r"^[A-Z]+$")]
    maybe: str | None
    day: date | None = None


class Inner(BaseModel):
    x: int
    y: int = 0


class Outer(BaseModel):
    inner: Inner
    spare: Inner | None = None
    standing: Inner = Inner(x=1)


class Series(BaseModel):
    words: Annotated[list[str], Field(min_length=1, max_length=2)]
    unique: set[int] = set()
    parts: list[Inner] = []


class Tree(BaseModel):
    name: str
    left: Tree | None = None


class Pair(BaseModel):
    pair: tuple[int, str]
    free: dict[str, int] = {}


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: int


class Pet(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Mixed(BaseModel):
    code: int | str
    also: bool | None


class Renamed(BaseModel):
    model_config = ConfigDict(populate_by_name=False)
    value: Annotated[int, Field(alias="theValue", description="a value")]


def test_a_boolean_is_yes_or_no_and_enter_leaves_a_default_out() -> None:
    found, typist = fill(Decision, "maybe", "y", "")

    assert found == {"approved": True}
    assert typist.asked == ["approved (yes/no): ", "approved (yes/no): ", 'note (text) [""]: ']
    assert typist.told == ["  yes or no"]


def test_a_required_value_is_asked_for_until_it_is_there() -> None:
    found, typist = fill(Decision, "", "no", "x")

    assert found == {"approved": False, "note": "x"}
    assert typist.told == ["  a value is needed"]


@pytest.mark.parametrize(("entry", "value"), [("high", "high"), ("1", "low"), ("2", "high")])
def test_a_choice_is_taken_by_name_or_number(entry: str, value: str) -> None:
    found, typist = fill(Level, "3", entry)

    assert found == {"level": value}
    assert typist.told == ["  1 low", "  2 high", "  one of low, high"]


def test_numbers_keep_their_kind_and_their_limits() -> None:
    found, typist = fill(Numbers, "1.5", "12", "4", "6", "nan", "1,5", "1.5", "2.50")

    assert found == {"whole": 6, "part": 1.5, "money": 2.5}
    assert typist.told == [
        "  a whole number",
        "  a number > 0 and < 10",
        "  a multiple of 3",
        "  a number, with a point for decimals",
        "  a number, with a point for decimals",
    ]
    assert typist.asked[0] == "whole (whole number > 0 < 10): "


def test_texts_are_taken_as_they_are_within_their_limits() -> None:
    found, typist = fill(Texts, "", '""', "a", "abcd", "abc", "a", "A", "null", "2026-02-03")

    assert found == {"plain": "", "short": "abc", "code": "A", "maybe": None, "day": "2026-02-03"}
    assert typist.told == [
        '  a value is needed; "" is the empty text',
        "  at least 2 characters",
        "  at most 3 characters",
        "  a text that fits the pattern ^[A-Z]+$",
    ]
    assert typist.asked[-1] == "day (date / null) [null]: "


def test_enter_is_null_for_a_required_value_that_may_be_null() -> None:
    found, _ = fill(Mixed, "12", "")

    assert found == {"code": 12, "also": None}


def test_a_union_of_plain_kinds_takes_the_narrowest_that_fits() -> None:
    assert fill(Mixed, "12a", "no")[0] == {"code": "12a", "also": False}


def test_nested_objects_are_asked_with_their_path_and_optional_ones_first_whether_at_all() -> None:
    found, typist = fill(Outer, "7", "", "no", "yes", "3", "4")

    assert found == {"inner": {"x": 7}, "standing": {"x": 3, "y": 4}}
    assert typist.asked == [
        "inner.x (whole number): ",
        "inner.y (whole number) [0]: ",
        "spare: fill it in? (yes/no [no]) ",
        'standing is {"x": 1, "y": 0}; change it? (yes/no [no]) ',
        "standing.x (whole number): ",
        "standing.y (whole number) [0]: ",
    ]


def test_lists_are_asked_item_by_item_until_enter_or_full() -> None:
    found, typist = fill(Series, "", "a", "b", "yes", "1", "1", "2", "", "yes", "y", "5", "6", "n")

    assert found == {"words": ["a", "b"], "unique": [1, 2], "parts": [{"x": 5, "y": 6}]}
    assert typist.told == ["  at least 1 of them", "  it is there already"]
    assert typist.asked[:3] == ["words[1] (text; Enter ends): "] * 2 + ["words[2] (text; Enter ends): "]


def test_what_has_no_fields_is_asked_for_as_json() -> None:
    found, typist = fill(Pair, "[1, ", "NaN", "[1]", '[1, "a"]', "y", '{"k": 2}')

    assert found == {"pair": [1, "a"], "free": {"k": 2}}
    assert [line.split(",")[0] for line in typist.told] == [
        "  not JSON: Expecting value",
        "  not JSON: NaN",
        "  at least 2 of them",
    ]


def test_the_variant_of_a_union_is_chosen_and_its_tag_filled_in() -> None:
    found, typist = fill(Pet, "3", "2", "5")

    assert found == {"pet": {"kind": "dog", "tricks": 5}}
    assert typist.told == ["pet is one of", "  1 Cat", "  2 Dog", "  a number from 1 to 2"]


def test_a_schema_that_contains_itself_ends() -> None:
    entries = [part for depth in range(6) for part in (f"n{depth}", "yes")]
    found, typist = fill(Tree, *entries, '{"name": "deep"}')

    assert typist.asked[-1] == "left.left.left.left.left.left (JSON): "
    assert Tree.model_validate(found).name == "n0"


def test_an_alias_is_the_name_and_a_description_is_told() -> None:
    found, typist = fill(Renamed, "4")

    assert found == {"theValue": 4}
    assert typist.told == ["theValue: a value"]


@pytest.mark.parametrize(
    ("model", "entries", "value"),
    [
        (RootModel[str], ["hello"], "hello"),
        (RootModel[list[int]], ["1", "2", ""], [1, 2]),
        (RootModel[bool | None], [""], None),
        (RootModel[Any], ["{}"], {}),
    ],
)
def test_an_answer_that_is_no_object_is_asked_for_too(model: type[BaseModel], entries: list[str], value: Any) -> None:
    assert fill(model, *entries)[0] == value


def test_what_was_typed_before_is_kept_by_enter() -> None:
    former = {"approved": False, "note": "why"}
    found, typist = fill(Decision, "", "because", former=former)

    assert found == {"approved": False, "note": "because"}
    assert typist.asked == ["approved (yes/no) [no]: ", "note (text) [why]: "]


def test_what_was_typed_before_is_kept_in_nested_parts_too() -> None:
    former = {"inner": {"x": 1}, "standing": {"x": 3, "y": 4}}
    found, _ = fill(Outer, "", "9", "", "", "", former=former)

    assert found == {"inner": {"x": 1, "y": 9}, "standing": {"x": 3, "y": 4}}


def test_a_long_form_gives_what_its_model_takes() -> None:
    entries = [
        "K",
        "Kim",
        "17",
        "44",
        "1.8",
        "fast",
        "2026-02-03",
        "yes",
        "a",
        "b",
        "",
        "Main St",
        "12",
        "no",
        "1",
        "12",
        "1234",
    ]
    found, typist = fill(Interview, *entries, "no")

    Interview.model_validate(found)
    assert found == {
        "name": "Kim",
        "age": 44,
        "height": 1.8,
        "speed": "fast",
        "since": "2026-02-03",
        "tags": ["a", "b"],
        "address": {"street": "Main St", "number": 12},
        "pay": {"kind": "card", "digits": "1234"},
    }
    assert "age: in years" in typist.told


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{", "", "[" * 100_000])
def test_what_is_not_json_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not JSON"):
        read_json(text)


def test_a_reference_that_leads_nowhere_is_an_open_schema() -> None:
    assert resolve({"$ref": "#/$defs/Nobody", "title": "T"}, {}) == {"title": "T"}
    assert parse("[1]", [{}], False) == [1]


QUESTION = {
    "id": "q-000000000001",
    "question": "Which?",
    "header": "",
    "options": [
        {"label": "Post", "description": "", "preview": None},
        {"label": "Bike", "description": "fast", "preview": "p"},
    ],
    "multi_select": False,
    "allow_other": False,
}


@pytest.mark.parametrize(
    ("changes", "entries", "selections", "other"),
    [
        ({}, ["", "3", "1,2", "else", "2"], ["Bike"], None),
        ({}, ["Post"], ["Post"], None),
        ({"multi_select": True}, ["2, 1, 2"], ["Bike", "Post"], None),
        ({"multi_select": True}, ["2 1", "Post, Bike"], ["Post", "Bike"], None),
        ({"allow_other": True}, ["by hand"], [], "by hand"),
        ({"allow_other": True}, ["2"], ["Bike"], None),
    ],
)
def test_questions_to_the_user_are_answered_by_number_name_or_text(
    changes: dict[str, Any], entries: list[str], selections: list[str], other: str | None
) -> None:
    typist = Typist(*entries)

    found = ask_user_answer({"questions": [{**QUESTION, **changes}]}, typist.ask, typist.told.append)

    assert found == {"answers": [{"question_id": "q-000000000001", "selections": selections, "other": other}]}
    assert typist.told[:4] == ["Which?", "  1 Post", "  2 Bike (fast)", "    p"]
    assert typist.entries == []
