"""Whatever a graph returns can be sent as JSON."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk, HumanMessage
from langgraph.types import Interrupt
from pydantic import BaseModel, SecretStr, field_serializer

from symfonic_interrupts.contrib.fastapi.json_output import json_data, json_text


class Order(BaseModel):
    number: int
    total: float = float("nan")
    secret: SecretStr = SecretStr("not shown")


class Stubborn(BaseModel):
    number: int

    @field_serializer("number")
    def refuse(self, number: int) -> int:
        raise RuntimeError("no")


@dataclass
class Box:
    content: Any


class Color(Enum):
    RED = "red"


class Unknown:
    def __repr__(self) -> str:
        return "not shown"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Order(number=1), {"number": 1, "total": None, "secret": "**********"}),
        (Stubborn(number=1), "<Stubborn>"),
        (Box(Box(datetime(2026, 1, 2, tzinfo=UTC))), {"content": {"content": "2026-01-02T00:00:00Z"}}),
        (
            {1: "a", (2, 3): "b", None: "c", Color.RED: "d"},
            {"1": "a", "[2, 3]": "b", "null": "c", "red": "d"},
        ),
        ([timedelta(seconds=90), UUID(int=7)], ["PT1M30S", "00000000-0000-0000-0000-000000000007"]),
        ({"big": 10**5000, "float": float("-inf"), "bytes": b"\xff"}, {"big": "<int>", "float": None, "bytes": "_w=="}),
        ("half \ud800 pair", "half ? pair"),
        ({"half \udfff": 1}, {"half ?": 1}),
        (Interrupt({"order": "A"}, id="a1"), {"id": "a1", "value": {"order": "A"}}),
        (
            (Unknown(), Unknown, len, ValueError("not shown")),
            ["<Unknown>", "<type>", "<builtin_function_or_method>", "<ValueError>"],
        ),
        (itertools.count(), "<count>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_shown_as_json(value: Any, expected: Any) -> None:
    assert json_data(value) == expected
    assert json.loads(json_text(value)) == expected


def test_messages_are_dumped() -> None:
    found = json_data({"messages": [HumanMessage("hi"), AIMessageChunk(content="yo")]})

    assert [(message["type"], message["content"]) for message in found["messages"]] == [
        ("human", "hi"),
        ("AIMessageChunk", "yo"),
    ]


def test_a_structure_that_contains_itself_is_cut() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert json_text(endless) == "[" * 100 + '"<list>"' + "]" * 100


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters())
        | st.binary()
        | st.datetimes(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner) | st.builds(Box, inner)
        ),
    )
)
def test_any_value_becomes_one_line_of_json(value: Any) -> None:
    text = json_text(value)

    assert json.loads(text) == json_data(value)
    assert "\n" not in text
    assert text.encode("utf-8").decode("utf-8") == text
