"""What people reported of other systems, where no other test shows it: each name says what ours does instead.

`tests/README.md` maps every report to the tests that show it. The last tests here keep that map true.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import RootModel

from symfonic_interrupts import Interrupts, KeyRing, ResumeRefused, TokenConsumed
from tests.graph.changes.test_payload_and_input import State
from tests.graph.changes.test_state_and_thread import YES, asked
from tests.harness import CONFIG, KEY, Bench, Refund, open_bench, pauses, thread


def two_questions(bench: Bench) -> tuple[Any, Any]:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order=order, amount=1)).note for order in ("first", "second")]}

    return bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))


class Anything(RootModel[Any]):
    """Any JSON value, as it is."""


WHOLE_ANSWERS: list[Any] = [None, {}, [], "", 0, False, {"0123456789abcdef0123456789abcdef": "looks like an id"}]


@pytest.mark.parametrize("native", [False, True], ids=["at a point", "at a plain interrupt"])
@pytest.mark.parametrize("answer", WHOLE_ANSWERS, ids=repr)
async def test_an_answer_that_is_nothing_or_empty_or_looks_like_a_map_of_ids_arrives_as_it_was_sent(
    bench: Bench, answer: Any, native: bool
) -> None:
    arrived: list[Any] = []
    point = bench.interrupts.register_interrupt(
        "anything", payload_schema=Anything, response_schema=Anything, nodes=("node",) if native else ()
    )

    def node(state: State) -> dict[str, Any]:
        arrived.append(interrupt("?") if native else point.pause(Anything("?")).root)
        return {"log": ["done"]}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    result = await bench.call(adapter, "invoke", event.pause_token, answer)

    assert arrived == [answer]
    assert result["log"] == ["done"]
    assert bench.states() == ["applied"]


async def test_running_on_after_an_answer_does_not_give_it_to_the_next_question(bench: Bench) -> None:
    graph, adapter = two_questions(bench)
    await bench.call(graph, "invoke", {"log": []}, thread())
    await bench.call(adapter, "invoke", (await asked(bench, adapter))["first"], YES)

    for _ in range(2):
        result = await bench.call(graph, "invoke", None, thread())
        assert result["log"] == []
        assert set(await asked(bench, adapter)) == {"second"}

    second = (await asked(bench, adapter))["second"]
    result = await bench.call(adapter, "invoke", second, {"approved": True, "note": "to the second"})
    assert result["log"] == ["yes", "to the second"]


async def test_running_on_after_a_refused_resume_gives_it_to_no_question(bench: Bench) -> None:
    graph, adapter = two_questions(bench)
    await bench.call(graph, "invoke", {"log": []}, thread())
    with pytest.raises(ResumeRefused):
        await bench.call(graph, "invoke", Command(resume={"approved": True, "note": "raw"}), thread())

    await bench.call(graph, "invoke", None, thread())

    for order in ("first", "second"):
        tokens = await asked(bench, adapter)
        assert set(tokens) == {order}
        result = await bench.call(adapter, "invoke", tokens[order], {"approved": True, "note": f"to {order}"})
        await bench.call(graph, "invoke", None, thread())
    assert result["log"] == ["to first", "to second"]


async def test_a_double_click_is_refused_also_where_the_next_question_waits_already(bench: Bench) -> None:
    graph, adapter = two_questions(bench)
    await bench.call(graph, "invoke", {"log": []}, thread())
    first = (await asked(bench, adapter))["first"]
    await bench.call(adapter, "invoke", first, YES)

    for call in ("invoke", "answer"):
        with pytest.raises(TokenConsumed):
            await bench.call(adapter, call, first, {"approved": True, "note": "again"})

    second = (await asked(bench, adapter))["second"]
    assert (await bench.call(adapter, "invoke", second, {"approved": True, "note": "2"}))["log"] == ["yes", "2"]


async def test_a_page_that_is_loaded_again_finds_every_open_question_without_any_checkpoint(bench: Bench) -> None:
    graph, adapter = two_questions(bench)
    for thread_id in ("t1", "t2", "t3"):
        await bench.call(graph, "invoke", {"log": []}, thread(thread_id))
    before = {(e.thread_id, e.pause_token) for e in await bench.call(adapter, "pending")}

    with Interrupts(bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=bench.clock) as front_end:
        builder = StateGraph(State).add_node("node", lambda state: {"log": []}).add_edge(START, "node")
        elsewhere = front_end.resume_adapter(builder.compile(checkpointer=front_end.checkpointer(InMemorySaver())))
        after = {(e.thread_id, e.pause_token) for e in await bench.call(elsewhere, "pending")}

    assert {thread_id for thread_id, _ in after} == {"t1", "t2", "t3"}
    assert after == before


async def test_an_answered_question_is_listed_no_more_whether_it_was_delivered_or_not(bench: Bench) -> None:
    graph, adapter = two_questions(bench)
    for thread_id in ("delivered", "stored", "open"):
        await bench.call(graph, "invoke", {"log": []}, thread(thread_id))
    tokens = {e.thread_id: e.pause_token for e in await bench.call(adapter, "pending")}

    await bench.call(adapter, "answer", tokens["stored"], YES)
    await bench.call(adapter, "invoke", tokens["delivered"], YES)

    listed = {(e.thread_id, e.payload["order"]) for e in await bench.call(adapter, "pending")}
    assert listed == {("open", "first"), ("delivered", "second")}


async def test_a_question_without_a_time_of_its_own_ends_after_a_day(bench: Bench) -> None:
    graph, adapter = two_questions(bench)
    bench.clock.now = bench.clock.now.replace(microsecond=0)
    await bench.call(graph, "invoke", {"log": []}, thread())

    (event,) = await bench.call(adapter, "pending")

    assert event.expires_at == bench.clock.now + timedelta(hours=24)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_question_can_be_answered_the_moment_it_is_announced(bench: Bench, durability: str) -> None:
    graph, adapter = two_questions(bench)
    options: dict[str, Any] = {"stream_mode": ["custom"], "durability": durability}
    answered = []
    if bench.mode == "async":
        async for chunk in graph.astream({"log": []}, thread(), **options):
            answered += [await adapter.aanswer(event.pause_token, YES) for event in pauses([chunk])]
    else:
        for chunk in graph.stream({"log": []}, thread(), **options):
            answered += [adapter.answer(event.pause_token, YES) for event in pauses([chunk])]

    assert [receipt.thread_id for receipt in answered] == ["t1"]
    delivery = await bench.call(adapter, "deliver", "t1")
    assert [event.payload["order"] for event in delivery.open] == ["second"]


class SlowSaver(InMemorySaver):
    """Gives everybody else their turn before it stores a question."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = asyncio.Event()

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        asks = any(channel == INTERRUPT for channel, _ in writes)
        for _ in range(200 if asks else 0):
            await asyncio.sleep(0)
        await super().aput_writes(config, writes, task_id, task_path)
        if asks:
            self.stored.set()


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_question_is_not_announced_before_a_slow_checkpointer_has_stored_it(
    durability: str, tmp_path: Path, sqlite_url: str
) -> None:
    async with open_bench("async", sqlite_url, tmp_path) as bench:
        saver = bench.saver = SlowSaver()
        point = bench.refunds()

        async def beside(state: State) -> dict[str, Any]:
            await asyncio.wait_for(saver.stored.wait(), 30)  # the stream is read while the question is being stored
            return {"log": []}

        builder = StateGraph(State).add_node("beside", beside)
        builder.add_node("node", lambda state: {"log": [point.pause(Refund(order="A", amount=1)).note]})
        graph, _ = bench.compile(builder.add_edge(START, "node").add_edge(START, "beside"))
        options: dict[str, Any] = {"stream_mode": ["custom"], "durability": durability}
        seen = [
            saver.stored.is_set() async for chunk in graph.astream({"log": []}, thread(), **options) if pauses([chunk])
        ]

    assert seen == [True]


# -- the map of reports

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"^\| (\d+) \|(.*)\|$", re.MULTILINE)
NAMED = re.compile(r"`([a-z_/]+\.py)(?:::(test_\w+))?`")


def map_of_reports() -> dict[int, list[tuple[str, str]]]:
    """By row number of the table in README.md: the (file, test) that it names; the test is empty for a whole file."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    return {int(number): NAMED.findall(rest) for number, rest in ROW.findall(text)}


def test_every_report_in_the_map_has_a_test() -> None:
    found = map_of_reports()
    assert list(found) == list(range(1, 29))
    assert [number for number, tests in found.items() if not tests] == []


def test_every_test_that_the_map_names_exists() -> None:
    missing = []
    for number, tests in map_of_reports().items():
        for file, name in tests:
            path = TESTS / file
            defined = {
                node.name
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8") if path.exists() else ""))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            if not path.exists() or (name and name not in defined):
                missing.append((number, file, name))
    assert missing == []
