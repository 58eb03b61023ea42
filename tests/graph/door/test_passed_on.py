"""A question that a `@task` asked and the node around it passes on later, when the task is recorded and over already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.errors import GraphInterrupt
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph

from tests.graph.door.gates import YES, Gate, State
from tests.harness import Bench, thread

WAIT_SECONDS = 30


def caller(bench: Bench, gate: Gate, depth: int, is_over: Callable[[], bool]) -> Any:
    """A function that calls a `@task` so deep, which asks; it passes the question on once the task is over."""
    if bench.mode == "async":

        async def awork(level: int) -> Any:
            return gate.node({"log": []})["log"] if level == 1 else await awork_task(level - 1)

        awork_task = task(awork)

        async def acall(state: Any) -> dict[str, Any]:
            try:
                return {"log": await awork_task(depth)}
            except GraphInterrupt:
                async with asyncio.timeout(WAIT_SECONDS):
                    while not is_over():  # noqa: ASYNC110 - a database is watched
                        await asyncio.sleep(0.01)
                raise

        return acall

    def work(level: int) -> Any:
        return gate.node({"log": []})["log"] if level == 1 else work_task(level - 1).result()

    work_task = task(work)

    def call(state: Any) -> dict[str, Any]:
        try:
            return {"log": work_task(depth).result()}
        except GraphInterrupt:
            end = time.monotonic() + WAIT_SECONDS
            while not is_over():
                assert time.monotonic() < end, "the task was not recorded"
                time.sleep(0.01)
            raise

    return call


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", ["node", "entrypoint"])
async def test_a_question_of_a_task_that_is_over_when_it_is_passed_on_is_opened_once_and_its_token_works(
    bench: Bench, kind: str, depth: int
) -> None:
    gate = Gate(bench, "point")
    saver: Any = bench.interrupts.checkpointer(bench.saver)
    waited: list[bool] = []

    def is_over() -> bool:
        if bench.rows() and not len(saver.hub.executions):
            waited.append(True)
        return bool(waited)

    function = caller(bench, gate, depth, is_over)
    graph: Any
    if kind == "node":
        graph = StateGraph(State).add_node("flow", function).add_edge(START, "flow").compile(checkpointer=saver)
    else:
        graph = entrypoint(checkpointer=saver)(function)
    adapter = bench.interrupts.resume_adapter(graph)

    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    assert (waited, bench.states()) == ([True], ["pending"])

    result = await bench.call(adapter, "invoke", event.pause_token, YES)

    assert result["log"] == ["by token"]
    assert (gate.told, bench.states()) == ([YES], ["applied"])
    told = "SELECT type, count(*) FROM interrupt_events GROUP BY type ORDER BY type"
    assert bench.rows(told) == [("interrupt", 1), ("interrupt_resolved", 1)]
