"""What the README says one pause and its answer cost in the pause store, counted: statements, and transactions that write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import Interrupts, KeyRing
from tests.costs import Statements
from tests.examples.scripts import ROOT
from tests.harness import CONFIG, KEY, Decision, Refund, thread

README = (ROOT / "README.md").read_text(encoding="utf-8")


class State(TypedDict, total=False):
    result: str


def of(count: Statements, work: Callable[[], Any]) -> tuple[int, int, int]:
    """Statements, writing and reading transactions of this work."""
    before = count.statements, count.writing, count.reading
    work()
    return count.statements - before[0], count.writing - before[1], count.reading - before[2]


@pytest.fixture
def costs(tmp_path: Path) -> Iterator[dict[str, tuple[int, int, int]]]:
    """What each step costs, by its name in the README's table."""
    count = Statements()
    url = f"sqlite:///{tmp_path / 'interrupts.db'}"
    with Interrupts(url, keys=KeyRing([KEY]), config=CONFIG) as interrupts, count.counting():
        interrupts.create_schema()
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        node = point.node(payload=lambda state: Refund(order="A", amount=1))(lambda state, decision: {"result": "paid"})
        builder = StateGraph(State).add_node("before", lambda state: {"result": ""}).add_node("gate", node)
        builder.add_edge(START, "before").add_edge("before", "gate")
        graph = builder.compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
        adapter = interrupts.resume_adapter(graph)
        steps = StateGraph(State).add_node("step", lambda state: {"result": "done"}).add_edge(START, "step")
        plain = steps.compile(checkpointer=interrupts.checkpointer(InMemorySaver(), graph="plain"))
        tokens: list[str] = []

        def listed() -> None:
            tokens[:] = [event.pause_token for event in adapter.pending()]

        def finished() -> None:
            assert adapter.invoke(tokens[0], {"approved": True})["result"] == "paid"

        def divided() -> None:
            adapter.answer(tokens[0], {"approved": True})

        def delivered() -> None:
            assert adapter.deliver("t2").output["result"] == "paid"

        found = {
            "a run that never pauses": of(count, lambda: plain.invoke({}, thread("t0"))),
            "the run that pauses": of(count, lambda: graph.invoke({}, thread("t1"))),
            "`pending`": of(count, listed),
            "`invoke`": of(count, finished),
        }
        graph.invoke({}, thread("t2"))
        listed()
        found["`answer` alone"] = of(count, divided)
        found["`deliver` alone"] = of(count, delivered)
        yield found


def test_the_readme_says_what_a_cycle_costs(costs: dict[str, tuple[int, int, int]]) -> None:
    table = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \|$", README, re.MULTILINE)

    assert {name: tuple(map(int, numbers)) for name, *numbers in table} == costs
    cycle = [a + b for a, b in zip(costs["the run that pauses"], costs["`invoke`"], strict=True)]
    said = re.search(r"takes (\d+) statements in\s+(\d+) write transactions and (\d+) that only reads", README)
    assert said is not None
    assert [int(number) for number in said.groups()] == cycle
