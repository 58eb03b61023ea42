"""The judge of the crash tests sees what is wrong: each kind of harm, in a thread that has nothing else to complain about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.crash.judging import Counts, judge_thread

LOG = ["before", "first=1", "second=2", "third=3", "after"]


def row(number: int, order: str, note: str | None, state: str = "applied") -> dict[str, Any]:
    response = None if note is None else json.dumps({"approved": True, "note": note})
    return {"id": number, "payload": json.dumps({"order": order, "amount": 1}), "state": state, "response": response}


ROWS = [row(1, "first", "1"), row(2, "second", "2"), row(3, "third", "3")]
TOLD = ["first=1", "second=2"]


def judged(
    log: list[str] = LOG,
    told: list[str] = TOLD,
    rows: list[dict[str, Any]] = ROWS,
    unfinished: tuple[str, ...] = (),
    problems: tuple[str, ...] = (),
) -> dict[str, int]:
    """What is counted, but for what is always counted."""
    counts = Counts()
    report = {"log": log, "unfinished": list(unfinished), "problems": list(problems)}
    judge_thread("t1", "twice", report, told, rows, counts)
    return {name: number for name, number in counts.numbers().items() if number and name != "answers"}


def test_nothing_is_wrong_with_a_thread_that_has_every_answer_once() -> None:
    assert judged() == {}


@pytest.mark.parametrize(
    ("harm", "counted"),
    [
        ({"log": ["before", "first=1", "second=2", "third=9", "after"]}, {"lost": 1}),
        ({"told": [*TOLD, "third=8"]}, {"lost": 1}),
        ({"log": [*LOG, "second=2"]}, {"doubled": 1}),
        ({"log": [*LOG, "after"]}, {"doubled": 1}),
        ({"log": LOG[:-1]}, {"other": 1}),
        ({"rows": [*ROWS, row(4, "second", None, "superseded")]}, {"asked_again": 1}),
        ({"rows": [row(0, "second", None, "superseded"), *ROWS]}, {}),
        ({"problems": ("asked again: first",)}, {"asked_again": 1}),
        ({"unfinished": ("ask",)}, {"stuck": 1}),
        ({"problems": ("it does not end",)}, {"stuck": 1}),
        ({"rows": [*ROWS[:2], row(3, "third", "3", "unused")]}, {"other": 1}),
        ({"rows": [*ROWS[:2], row(3, "third", "3", "answered")]}, {"other": 2}),
    ],
)
def test_each_kind_of_harm_is_counted_as_what_it_is(harm: dict[str, Any], counted: dict[str, int]) -> None:
    assert judged(**harm) == counted
