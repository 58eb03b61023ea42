"""Answers that come in the middle: between another's look at row and checkpoint, or while a run goes on without them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import Interrupts, KeyRing, PauseSuperseded, TokenConsumed
from tests.harness import CONFIG, KEY, Bench, Decision, Refund, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Interfered(InMemorySaver):
    """A saver beside which something happens before the next checkpoint is read."""

    meanwhile: Callable[[], Any] | None = None

    def get_tuple(self, config: Any) -> Any:
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()
        return super().get_tuple(config)


@pytest.fixture
def paused(tmp_path: Path) -> Any:
    """(graph, adapter, saver, token) of a paused thread."""
    saver = Interfered()
    with Interrupts(f"sqlite:///{tmp_path / 'i.db'}", keys=KeyRing([KEY]), config=CONFIG) as interrupts:
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

        def gate(state: State) -> dict[str, Any]:
            return {"log": [point.pause(Refund(order="A", amount=1)).note]}

        builder = StateGraph(State).add_node("gate", gate).add_edge(START, "gate")
        graph = builder.compile(checkpointer=interrupts.checkpointer(saver))
        adapter = interrupts.resume_adapter(graph)
        graph.invoke({"log": []}, thread())
        yield graph, adapter, saver, adapter.pending()[0].pause_token


def test_the_second_is_told_that_the_token_is_spent_though_the_thread_has_gone_on_with_the_first(paused: Any) -> None:
    graph, adapter, saver, token = paused
    saver.meanwhile = lambda: adapter.invoke(token, {"approved": True, "note": "first"})

    with pytest.raises(TokenConsumed) as refused:
        adapter.answer(token, {"approved": False, "note": "second"})

    assert refused.value.state == "applied"
    assert graph.get_state(thread()).values == {"log": ["first"]}


def test_an_answer_to_a_question_that_new_input_has_replaced_meanwhile_is_still_told_so(paused: Any) -> None:
    graph, adapter, saver, token = paused
    saver.meanwhile = lambda: graph.invoke({"log": []}, thread())

    with pytest.raises(PauseSuperseded):
        adapter.answer(token, {"approved": True})


@pytest.mark.parametrize("asks_on", [False, True])
async def test_an_answer_that_comes_while_the_run_goes_on_without_its_question_is_told_as_unused(
    bench: Bench, asks_on: bool
) -> None:
    point, asks, answered = bench.refunds(), [True], []

    def drifts(state: State) -> dict[str, Any]:
        if asks[0]:
            point.pause(Refund(order="drifts", amount=1))
        else:
            answered.append(adapter.answer(tokens["drifts"], {"approved": True}))  # a webhook, at this moment
        return {"log": ["drifts"]}

    async def adrifts(state: State) -> dict[str, Any]:
        if asks[0]:
            point.pause(Refund(order="drifts", amount=1))
        else:
            answered.append(await adapter.aanswer(tokens["drifts"], {"approved": True}))
        return {"log": ["drifts"]}

    def beside(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="beside", amount=1)).note]}

    def after(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="after", amount=1)).note] if asks_on else []}

    builder = StateGraph(State).add_node("drifts", adrifts if bench.mode == "async" else drifts)
    builder.add_node("beside", beside).add_node("after", after).add_edge(["drifts", "beside"], "after")
    graph, adapter = bench.compile(builder.add_edge(START, "drifts").add_edge(START, "beside"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    tokens = {event.payload["order"]: event.pause_token for event in await bench.call(adapter, "pending")}
    asks[0] = False

    await bench.call(adapter, "answer", tokens["beside"], {"approved": True, "note": "yes"})
    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.unused == (answered[0].interrupt_id,)
    assert len(delivery.applied) == 1
    assert [event.payload["order"] for event in delivery.open] == (["after"] if asks_on else [])
