"""Answering by `stream_events`: run and channels are those of the graph's own, and the token is spent once they are read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from symfonic_interrupts import InterruptEvent, InterruptResolvedEvent, TokenConsumed, UsageError
from symfonic_interrupts.streaming import InterruptTransformer, interrupt_events
from tests.graph.test_streaming import V3_IS_BETA, YES, State, asking, asking_natively, in_a_subgraph, standing
from tests.harness import Bench, Refund, open_bench, thread

CHANNEL: dict[str, Any] = {"transformers": [InterruptTransformer]}


async def run_of(bench: Bench, target: Any, *args: Any, **kwargs: Any) -> Any:
    """`target.stream_events(...)`, or what `target.astream_events(...)` gives when it is awaited."""
    if bench.mode == "async":
        return await target.astream_events(*args, version="v3", **kwargs)
    return target.stream_events(*args, version="v3", **kwargs)


async def read(bench: Bench, channel: Any) -> list[Any]:
    """All that a channel of a run, or the run itself, yields."""
    if bench.mode == "async":
        return [item async for item in channel]
    return await asyncio.to_thread(list, channel)


async def output(bench: Bench, run: Any) -> Any:
    """The run's final state."""
    if bench.mode == "async":
        return await run.output()
    return await asyncio.to_thread(lambda: run.output)


def outline(event: Any) -> tuple[Any, ...]:
    """An event's method, its namespace without the ids, and its data where that holds no ids."""
    path = tuple(part.split(":")[0] for part in event["params"]["namespace"])
    data = event["params"]["data"]
    shown = data if event["method"] == "values" else data.get("event") if event["method"] == "lifecycle" else ""
    return event["method"], path, shown


@V3_IS_BETA
async def test_a_run_that_answers_has_the_events_of_the_graphs_own_and_the_answers_event(bench: Bench) -> None:
    graph, adapter, event = await standing(bench, asking(bench))
    bare: Any = asking_natively().compile(checkpointer=bench.saver)
    await bench.call(bare, "invoke", {"log": []}, thread("bare"))
    (asked,) = (await bench.call(bare, "get_state", thread("bare"))).interrupts
    resume: Any = Command(resume={asked.id: YES})
    wanted = await read(bench, await run_of(bench, bare, resume, thread("bare"), **CHANNEL))

    run = await run_of(bench, adapter, event.pause_token, YES, **CHANNEL)
    ours = await read(bench, run)

    assert [outline(e) for e in ours if not interrupt_events(e)] == [outline(e) for e in wanted]
    (answered,) = [found for e in ours for found in interrupt_events(e)]
    assert isinstance(answered, InterruptResolvedEvent)
    assert answered.interrupt_id == event.interrupt_id
    assert await output(bench, run) == {"log": ["ok", "after"]}
    assert bench.states() == ["applied"]
    assert not {"stream", "astream"} & vars(graph).keys()


@V3_IS_BETA
async def test_the_channels_of_a_run_that_answers_are_filled(bench: Bench) -> None:
    _, adapter, event = await standing(bench, asking(bench))
    run = await run_of(bench, adapter, event.pause_token, YES, **CHANNEL)

    (answered,) = await read(bench, run.interrupt_events)

    assert isinstance(answered, InterruptResolvedEvent)
    assert answered.response == YES


@V3_IS_BETA
async def test_subgraphs_and_model_calls_have_their_handles(bench: Bench) -> None:
    _, adapter, event = await standing(bench, asking(bench))
    run = await run_of(bench, adapter, event.pause_token, YES)
    seen: list[Any] = []
    if bench.mode == "async":
        async for child in run.subgraphs:
            seen.append((child.graph_name, await child.output()))
    else:
        await asyncio.to_thread(lambda: seen.extend((child.graph_name, child.output) for child in run.subgraphs))
    assert seen == [("sub", {"log": ["ok"]})]


@V3_IS_BETA
async def test_nothing_happens_before_the_run_is_read_and_the_second_run_is_refused(bench: Bench) -> None:
    _, adapter, event = await standing(bench, asking(bench))
    first = await run_of(bench, adapter, event.pause_token, YES)
    second = await run_of(bench, adapter, event.pause_token, YES, **CHANNEL)
    assert bench.states() == ["pending"]

    assert await output(bench, first) == {"log": ["ok", "after"]}

    with pytest.raises(TokenConsumed):
        await read(bench, second.interrupt_events)
    with pytest.raises(TokenConsumed):
        await output(bench, second)


@V3_IS_BETA
async def test_the_next_question_comes_with_its_token_in_the_same_run(bench: Bench) -> None:
    point = bench.refunds()

    def ask(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order=order, amount=1)).note for order in ("A1", "A2")]}

    _, adapter, event = await standing(bench, in_a_subgraph(ask))
    run = await run_of(bench, adapter, event.pause_token, YES, **CHANNEL)

    found = await read(bench, run.interrupt_events)
    asked = next(e for e in found if isinstance(e, InterruptEvent))
    assert asked.payload == {"order": "A2", "amount": 1}
    assert await bench.call(adapter, "invoke", asked.pause_token, YES) == {"log": ["ok", "ok", "after"]}


@V3_IS_BETA
async def test_a_run_that_is_aborted_leaves_a_thread_that_the_next_delivery_finishes(bench: Bench) -> None:
    graph, adapter, event = await standing(bench, asking(bench))
    run = await run_of(bench, adapter, event.pause_token, YES)
    if bench.mode == "async":
        async for _ in run:
            break
        await run.abort()
    else:
        next(iter(run))
        run.abort()
    assert bench.states() == ["answered"]

    delivery = await bench.call(adapter, "deliver", "t1")

    assert (delivery.output, delivery.applied) == ({"log": ["ok", "after"]}, (event.interrupt_id,))
    assert (await bench.call(graph, "get_state", thread())).values == {"log": ["ok", "after"]}


@V3_IS_BETA
async def test_what_a_delivery_refuses_is_refused_and_the_token_is_kept(bench: Bench) -> None:
    _, adapter, event = await standing(bench, asking(bench))

    with pytest.raises(TypeError, match="stream_mode"):
        await run_of(bench, adapter, event.pause_token, YES, stream_mode="custom")
    elsewhere = await run_of(bench, adapter, event.pause_token, YES, config=thread("t1", tenant_id="globex"))
    with pytest.raises(UsageError, match="tenant_id"):
        await output(bench, elsewhere)

    assert bench.states() == ["pending"]


async def test_astream_events_v2_answers_with_the_events_of_the_graphs_own(store_url: str, tmp_path: Path) -> None:
    async with open_bench("async", store_url, tmp_path) as bench:
        _, adapter, event = await standing(bench, asking(bench))
        bare: Any = asking_natively().compile(checkpointer=bench.saver)
        await bare.ainvoke({"log": []}, thread("bare"))
        (asked,) = (await bare.aget_state(thread("bare"))).interrupts
        options: Any = {"version": "v2", "stream_mode": ["updates", "custom"]}
        resume: Any = Command(resume={asked.id: YES})
        wanted = [part async for part in bare.astream_events(resume, thread("bare"), **options)]

        ours = [part async for part in adapter.astream_events(event.pause_token, YES, **options)]

        (answered,) = [found for part in ours for found in interrupt_events(part)]
        assert answered.interrupt_id == event.interrupt_id
        told = [(part["event"], part["name"], len(part["parent_ids"])) for part in ours if not interrupt_events(part)]
        assert told == [(part["event"], part["name"], len(part["parent_ids"])) for part in wanted]
        assert ours[-1]["data"]["output"] == wanted[-1]["data"]["output"]
        assert bench.states() == ["applied"]
