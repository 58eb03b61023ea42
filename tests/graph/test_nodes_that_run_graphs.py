"""A node that runs another graph, or meddles with its own thread, between two questions: a delivery goes by its own thread."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from symfonic_interrupts import CheckpointMissing
from tests.harness import Bench, Refund, thread

YES = {"approved": True, "note": "yes"}


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def asking_twice(bench: Bench, between: Callable[[RunnableConfig], Awaitable[Any]]) -> tuple[Any, Any]:
    """A graph whose node asks, does something, and asks again."""
    point = bench.refunds()

    def asked(order: str) -> str:
        return point.pause(Refund(order=order, amount=1)).note

    async def node(state: State, config: RunnableConfig) -> dict[str, Any]:
        first = asked("first")
        await between(config)
        return {"log": [first, asked("second")]}

    def sync_node(state: State, config: RunnableConfig) -> dict[str, Any]:
        first = asked("first")
        for _ in between(config).__await__():
            raise AssertionError("nothing here waits")
        return {"log": [first, asked("second")]}

    builder = StateGraph(State).add_node("node", node if bench.mode == "async" else sync_node)
    return bench.compile(builder.add_edge(START, "node"))


async def answer(bench: Bench, adapter: Any) -> Any:
    (event,) = await bench.call(adapter, "pending", thread_id="t1")
    await bench.call(adapter, "answer", event.pause_token, YES)
    return await bench.call(adapter, "deliver", "t1")


@pytest.mark.parametrize("graph_name", ["default", "other"])
async def test_a_question_stays_open_where_the_node_ran_a_graph_elsewhere_with_its_own_config(
    bench: Bench, graph_name: str
) -> None:
    saver = bench.interrupts.checkpointer(bench.saver, graph=graph_name)
    child = StateGraph(State).add_node("step", lambda state: {"log": ["step"]}).add_edge(START, "step")
    elsewhere = child.compile(checkpointer=saver)

    async def run_elsewhere(config: RunnableConfig) -> None:
        place = {**config["configurable"], "thread_id": "t2", "checkpoint_ns": ""}
        there: RunnableConfig = {**config, "configurable": place}
        if bench.mode == "async":
            await elsewhere.ainvoke({"log": []}, there)
        else:
            elsewhere.invoke({"log": []}, there)

    graph, adapter = asking_twice(bench, run_elsewhere)
    await bench.call(graph, "invoke", {"log": []}, thread())

    delivery = await answer(bench, adapter)

    assert [event.payload["order"] for event in delivery.open] == ["second"]
    assert bench.states() == ["answered", "pending"]
    assert (await answer(bench, adapter)).output["log"] == ["yes", "yes"]
    assert bench.states() == ["applied", "applied"]


async def test_a_thread_that_its_own_node_deletes_has_no_checkpoint_and_no_open_question(bench: Bench) -> None:
    async def delete(config: RunnableConfig) -> None:
        if bench.mode == "async":
            await graph.checkpointer.adelete_thread("t1")
        else:
            graph.checkpointer.delete_thread("t1")

    graph, adapter = asking_twice(bench, delete)
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    with pytest.raises(CheckpointMissing):
        await bench.call(adapter, "invoke", event.pause_token, YES)
