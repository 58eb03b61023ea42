"""A run that starts from an older checkpoint is another branch: it asks anew, and no earlier answer or token counts in it."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from symfonic_interrupts import PauseSuperseded, ResumeRefused, TokenConsumed, UsageError
from tests.graph.changes.test_payload_and_input import State, one_pause
from tests.graph.changes.test_state_and_thread import OTHER, YES, asked, history, kinds, log_of, nested
from tests.harness import Bench, Refund, answers, pauses, thread


@pytest.mark.parametrize("back", [0, 1, 2], ids=["to the question", "to the node before it", "to the start"])
async def test_travelling_back_while_paused_asks_anew_and_only_the_new_token_answers(bench: Bench, back: int) -> None:
    graph, adapter, old = await one_pause(bench)

    await bench.call(graph, "invoke", None, (await history(bench, graph))[back].config)

    ((order, new),) = (await asked(bench, adapter)).items()
    assert order == "one-before"
    assert new != old
    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "invoke", old, YES)
    assert (await bench.call(adapter, "invoke", new, OTHER))["log"] == ["one", "before", "other", "after"]
    assert bench.states() == ["superseded", "applied"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_travelling_back_to_an_answered_question_asks_it_again_and_its_token_stays_spent(
    bench: Bench, durability: str
) -> None:
    graph, adapter, old = await one_pause(bench)
    place = (await history(bench, graph))[0].config
    await bench.call(adapter, "invoke", old, YES, durability=durability)

    result = await bench.call(graph, "invoke", None, place, durability=durability)

    assert result["log"] == ["one", "before"]  # the answer of the other branch was not taken
    ((_, new),) = (await asked(bench, adapter)).items()
    with pytest.raises(TokenConsumed) as refused:
        await bench.call(adapter, "invoke", old, YES)
    assert refused.value.state == "applied"
    result = await bench.call(adapter, "invoke", new, OTHER, durability=durability)
    assert result["log"] == ["one", "before", "other", "after"]
    assert bench.states() == ["applied", "applied"]


@pytest.mark.parametrize("back", [0, 1], ids=["to the question", "to the node before it"])
async def test_an_answer_stored_before_the_thread_travelled_is_reported_unused(bench: Bench, back: int) -> None:
    graph, adapter, token = await one_pause(bench)
    receipt = await bench.call(adapter, "answer", token, YES)
    await bench.call(graph, "invoke", None, (await history(bench, graph))[back].config)

    (delivery,) = await bench.call(adapter, "recover")

    assert (delivery.applied, delivery.unused) == ((), (receipt.interrupt_id,))
    assert kinds(bench)[-1] == "interrupt_unused"
    ((_, new),) = (await asked(bench, adapter)).items()
    assert (await bench.call(adapter, "invoke", new, OTHER))["log"] == ["one", "before", "other", "after"]


async def test_of_several_branches_only_the_newest_can_be_answered(bench: Bench) -> None:
    graph, adapter, first = await one_pause(bench)
    start = (await history(bench, graph))[1].config
    fork = await bench.call(graph, "update_state", start, {"log": ["left"]}, as_node="before")
    await bench.call(graph, "invoke", None, fork)
    left = (await asked(bench, adapter))["one-left"]
    fork = await bench.call(graph, "update_state", start, {"log": ["right"]}, as_node="before")
    await bench.call(graph, "invoke", None, fork)
    right = (await asked(bench, adapter))["one-right"]

    for token in (first, left):
        with pytest.raises(PauseSuperseded):
            await bench.call(adapter, "invoke", token, YES)

    assert (await bench.call(adapter, "invoke", right, OTHER))["log"] == ["one", "right", "other", "after"]
    assert bench.states() == ["superseded", "superseded", "applied"]


@pytest.mark.parametrize("shape", ["bare", "id-keyed"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_an_answered_checkpoint_resumed_again_with_another_value_runs_the_action_once(
    bench: Bench, shape: str, durability: str
) -> None:
    point = bench.refunds()
    paid: list[str] = []

    def gate(state: State) -> dict[str, Any]:
        note = point.pause(Refund(order="A", amount=1)).note
        paid.append(note)
        return {"log": [note]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread(), durability=durability)
    paused = await bench.call(graph, "get_state", thread())
    ((_, token),) = (await asked(bench, adapter)).items()
    await bench.call(adapter, "invoke", token, YES, durability=durability)
    raw: Any = {"approved": True, "note": "raw"}
    if shape == "id-keyed":
        raw = {paused.interrupts[0].id: raw}

    for _ in range(2):
        with pytest.raises(ResumeRefused, match="answered with its token"):
            await bench.call(graph, "invoke", Command(resume=raw), paused.config, durability=durability)

    assert paid == ["yes"]
    assert await log_of(bench, graph) == ["yes"]
    assert bench.states() == ["applied"]


async def test_a_resume_that_names_another_interrupt_at_an_answered_checkpoint_runs_nothing(bench: Bench) -> None:
    graph, adapter, token = await one_pause(bench)
    place = (await history(bench, graph))[0].config
    await bench.call(adapter, "invoke", token, YES)

    result = await bench.call(graph, "invoke", Command(resume={"0" * 32: "x"}), place)

    assert result["log"] == ["one", "before"]
    assert await log_of(bench, graph) == ["one", "before", "yes", "after"]
    assert await asked(bench, adapter) == {}
    assert bench.states() == ["applied"]


async def test_a_raw_resume_addressed_at_the_open_question_is_refused_and_at_an_older_checkpoint_asks_anew(
    bench: Bench,
) -> None:
    graph, adapter, old = await one_pause(bench)
    states = await history(bench, graph)
    raw = {"approved": True, "note": "raw"}

    with pytest.raises(ResumeRefused, match="answered with its token"):
        await bench.call(graph, "invoke", Command(resume=raw), states[0].config)
    assert await asked(bench, adapter) == {"one-before": old}
    await bench.call(graph, "invoke", Command(resume=raw), states[1].config)

    ((_, new),) = (await asked(bench, adapter)).items()
    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "invoke", old, YES)
    assert (await bench.call(adapter, "invoke", new, OTHER))["log"] == ["one", "before", "other", "after"]


async def test_an_earlier_answer_of_the_open_questions_node_survives_an_addressed_read(bench: Bench) -> None:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order=order, amount=1)).note for order in ("first", "second")]}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    await bench.call(adapter, "invoke", (await asked(bench, adapter))["first"], YES)
    head = (await bench.call(graph, "get_state", thread())).config

    with pytest.raises(ResumeRefused, match="answered with its token"):  # the second is refused, the first is kept
        await bench.call(graph, "invoke", Command(resume={"approved": True, "note": "raw"}), head)

    assert set(await asked(bench, adapter)) == {"second"}
    second = (await asked(bench, adapter))["second"]
    assert (await bench.call(adapter, "invoke", second, OTHER))["log"] == ["yes", "other"]


@pytest.mark.parametrize("address", ["of the root", "of the subgraph"])
@pytest.mark.parametrize("answered", [False, True], ids=["while paused", "after the answer"])
async def test_travelling_back_to_a_question_in_a_subgraph_asks_it_again(
    bench: Bench, address: str, answered: bool
) -> None:
    graph, adapter, old, inside = await nested(bench)
    place = (await bench.call(graph, "get_state", thread())).config if address == "of the root" else inside
    if answered:
        await bench.call(adapter, "invoke", old, YES)

    chunks = await bench.collect(graph, "stream", None, place, stream_mode=["custom"])

    (event,) = pauses(chunks)
    assert answers(chunks) == []
    assert await asked(bench, adapter) == {"one-pre": event.pause_token}
    with pytest.raises(TokenConsumed if answered else PauseSuperseded):
        await bench.call(adapter, "invoke", old, YES)
    result = await bench.call(adapter, "invoke", event.pause_token, OTHER)
    assert result["log"] == ["one", "one", "pre", "other", "after"]
    assert bench.states() == ["applied" if answered else "superseded", "applied"]


async def test_a_raw_resume_at_the_answered_checkpoint_of_a_subgraph_does_not_run_its_gate_again(bench: Bench) -> None:
    graph, adapter, token, inside = await nested(bench)
    await bench.call(adapter, "invoke", token, YES)

    with pytest.raises(ResumeRefused, match="answered with its token"):
        await bench.call(graph, "invoke", Command(resume={"approved": True, "note": "raw"}), inside)

    assert await log_of(bench, graph) == ["one", "one", "pre", "yes", "after"]
    assert bench.states() == ["applied"]


async def test_a_delivery_cannot_be_sent_to_an_older_checkpoint(bench: Bench) -> None:
    graph, adapter, token = await one_pause(bench)
    place = (await history(bench, graph))[1].config

    with pytest.raises(UsageError, match="newest checkpoint"):
        await bench.call(adapter, "invoke", token, YES, config=place)

    assert bench.states() == ["pending"]
    assert (await bench.call(adapter, "invoke", token, YES))["log"] == ["one", "before", "yes", "after"]
