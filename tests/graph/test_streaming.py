"""`interrupt_events` finds the events in any stream; answering streams what the graph itself would; callbacks see the same."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableGenerator, RunnableLambda
from langgraph.callbacks import GraphCallbackHandler
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, interrupt

from symfonic_interrupts import (
    AskUserOption,
    AskUserQuestion,
    AskUserQuestionEvent,
    AskUserRequest,
    InterruptEvent,
    InterruptResolvedEvent,
)
from symfonic_interrupts.streaming import InterruptTransformer, interrupt_events
from tests.harness import Bench, Decision, Refund, open_bench, thread

V3_IS_BETA = pytest.mark.filterwarnings("ignore:The v3 streaming protocol:langchain_core._api.LangChainBetaWarning")
EVERY = ["values", "updates", "custom", "messages", "tasks", "checkpoints", "debug"]
YES = {"approved": True, "note": "ok"}


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def after(state: State) -> dict[str, Any]:
    FakeListChatModel(responses=["hello"]).invoke("hi")
    return {"log": ["after"]}


def in_a_subgraph(ask: Any) -> StateGraph[State]:
    """A node `ask` in the subgraph `sub`, then a node that calls a model."""
    child = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
    builder = StateGraph(State).add_node("sub", child).add_node("after", after)
    return builder.add_edge(START, "sub").add_edge("sub", "after")


def asking(bench: Bench) -> StateGraph[State]:
    point = bench.refunds()

    def ask(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="A1", amount=90)).note]}

    return in_a_subgraph(ask)


def asking_natively() -> StateGraph[State]:
    """The same graph without this library."""

    def ask(state: State) -> dict[str, Any]:
        return {"log": [interrupt({"order": "A1", "amount": 90}, response_schema=Decision).note]}

    return in_a_subgraph(ask)


async def standing(bench: Bench, builder: StateGraph[State], thread_id: str = "t1") -> tuple[Any, Any, InterruptEvent]:
    """A graph whose thread has asked, its adapter, and the event."""
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": []}, thread(thread_id))
    (event,) = await bench.call(adapter, "pending", thread_id=thread_id)
    assert isinstance(event, InterruptEvent)
    return graph, adapter, event


# -- chunks of every shape

SHAPES: dict[str, dict[str, Any]] = {
    f"{mode if isinstance(mode, str) else '+'.join(mode)}{', subgraphs' if subgraphs else ''}, {version}": (
        {"stream_mode": mode, "subgraphs": subgraphs, "version": version}
    )
    for mode in ("custom", ["custom"], ["updates", "custom"], EVERY)
    for subgraphs in (False, True)
    for version in ("v1", "v2")
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_each_event_is_found_once_in_the_chunks_of_every_mode_and_version(bench: Bench, shape: str) -> None:
    graph, adapter = bench.compile(asking(bench))
    asked = await bench.collect(graph, "stream", {"log": []}, thread(), **SHAPES[shape])
    (event,) = [event for chunk in asked for event in interrupt_events(chunk)]
    assert isinstance(event, InterruptEvent)
    assert event.payload == {"order": "A1", "amount": 90}

    resumed = await bench.collect(adapter, "stream", event.pause_token, YES, **SHAPES[shape])

    (answered,) = [event for chunk in resumed for event in interrupt_events(chunk)]
    assert isinstance(answered, InterruptResolvedEvent)
    assert (answered.interrupt_id, answered.response) == (event.interrupt_id, YES)
    assert interrupt_events(asked) == [event]  # a list of chunks too


@pytest.mark.parametrize("mode", ["values", "updates", "messages", "tasks", "checkpoints", "debug"])
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_other_modes_have_no_events_and_nothing_is_taken_for_one(bench: Bench, mode: str, version: str) -> None:
    graph, adapter = bench.compile(asking(bench))
    options = {"stream_mode": mode, "version": version, "subgraphs": True}
    asked = await bench.collect(graph, "stream", {"log": []}, thread(), **options)
    (event,) = await bench.call(adapter, "pending")
    resumed = await bench.collect(adapter, "stream", event.pause_token, YES, **options)

    assert len(asked) + len(resumed) > 0
    assert interrupt_events(asked + resumed) == []


LOOKALIKES: dict[str, Any] = {
    "nothing": None,
    "a text": "interrupt",
    "an empty tuple": (),
    "an empty object": {},
    "the marker that LangGraph shows": {
        "__interrupt__": (Interrupt(value={"type": "interrupt", "name": "a"}, id="i"),)
    },
    "an event as JSON data": ("custom", {"type": "interrupt", "name": "a", "interrupt_id": "i-1", "pause_token": "t"}),
    "a v2 part of another mode": {"type": "updates", "ns": (), "data": {"node": {"log": []}}},
    "an object with the keys of one": {"type": "event", "method": "values", "params": {}},
    "an event of another kind": {"event": "on_chain_end", "data": {"output": 1}, "parent_ids": []},
}


@pytest.mark.parametrize("what", LOOKALIKES)
def test_what_only_looks_like_an_event_is_none(what: str) -> None:
    assert interrupt_events(LOOKALIKES[what]) == []


# -- whole streams


async def test_a_whole_stream_gives_its_events_one_after_the_other(bench: Bench) -> None:
    graph, adapter = bench.compile(asking(bench))
    options: dict[str, Any] = {"stream_mode": ["updates", "custom"], "subgraphs": True}
    found: list[Any] = []
    if bench.mode == "async":
        found += [event async for event in interrupt_events(graph.astream({"log": []}, thread(), **options))]
        token = found[0].pause_token
        found += [event async for event in interrupt_events(adapter.astream(token, YES, **options))]
    else:

        def run() -> None:
            found.extend(interrupt_events(graph.stream({"log": []}, thread(), **options)))
            found.extend(interrupt_events(adapter.stream(found[0].pause_token, YES, **options)))

        await asyncio.to_thread(run)

    assert [event.type for event in found] == ["interrupt", "interrupt_resolved"]
    assert bench.states() == ["applied"]


async def test_closing_the_events_closes_the_stream_they_come_from(bench: Bench) -> None:
    graph, _ = bench.compile(asking(bench))
    if bench.mode == "async":
        source = graph.astream({"log": []}, thread(), stream_mode="custom")
        events = interrupt_events(source)
        assert (await anext(events)).type == "interrupt"
        await events.aclose()
        assert source.ag_frame is None
    else:
        chunks = graph.stream({"log": []}, thread(), stream_mode="custom")
        found = interrupt_events(chunks)
        assert next(found).type == "interrupt"
        found.close()
        assert chunks.gi_frame is None


async def test_astream_events_v2_gives_each_event_once_also_at_the_end_of_chains(
    store_url: str, tmp_path: Path
) -> None:
    async def pass_on(chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for chunk in chunks:
            yield chunk

    async with open_bench("async", store_url, tmp_path) as bench:
        graph, _ = bench.compile(asking(bench))
        streaming = graph.bind(stream_mode=["updates", "custom"])
        runnables = {
            "alone": streaming,
            "last": RunnableLambda(lambda given: given) | streaming,
            "passed on": streaming | RunnableGenerator(pass_on) | RunnableGenerator(pass_on),
        }
        for name, runnable in runnables.items():
            parts = [part async for part in runnable.astream_events({"log": []}, thread(name), version="v2")]
            assert [event.thread_id for part in parts for event in interrupt_events(part)] == [name]


# -- the resuming side streams what the graph's own stream would


def outline(chunk: Any, *, stream_mode: Any, subgraphs: bool, version: str) -> tuple[Any, ...]:
    """A chunk's mode, its namespace without the ids, and its data where that holds no ids."""
    several = isinstance(stream_mode, list)
    if version == "v2":
        mode, ns, data = chunk["type"], chunk["ns"], chunk["data"]
    else:
        parts = chunk if isinstance(chunk, tuple) and (several or subgraphs) else (chunk,)
        ns = parts[0] if subgraphs else ()
        mode, data = parts[-2] if several else "", parts[-1]
    path = tuple(part.split(":")[0] for part in ns)
    if mode in ("values", "updates"):
        return mode, path, data
    if mode in ("checkpoints", "debug", "tasks"):
        return mode, path, sorted(data)
    return mode, path, ""


@pytest.mark.parametrize("shape", SHAPES)
async def test_answering_streams_what_the_graphs_own_resume_does_and_the_event(bench: Bench, shape: str) -> None:
    options = SHAPES[shape]
    _, adapter, event = await standing(bench, asking(bench))
    resumed = await bench.collect(adapter, "stream", event.pause_token, YES, **options)

    bare = asking_natively().compile(checkpointer=bench.saver)
    await bench.call(bare, "invoke", {"log": []}, thread("bare"))
    (asked,) = (await bench.call(bare, "get_state", thread("bare"))).interrupts
    wanted = await bench.collect(bare, "stream", Command(resume={asked.id: YES}), thread("bare"), **options)

    ours = [outline(chunk, **options) for chunk in resumed if not interrupt_events(chunk)]
    assert ours == [outline(chunk, **options) for chunk in wanted]
    assert len(resumed) == len(wanted) + 1


async def test_invoke_in_version_2_returns_what_the_graphs_own_does(bench: Bench) -> None:
    _, adapter, event = await standing(bench, asking(bench))

    output = await bench.call(adapter, "invoke", event.pause_token, YES, version="v2")

    assert (output.value, output.interrupts) == ({"log": ["ok", "after"]}, ())


# -- the channel of a v3 run


@V3_IS_BETA
@pytest.mark.parametrize("where", ["at the call", "at compile"])
async def test_a_v3_run_has_a_channel_of_its_interrupt_events(bench: Bench, where: str) -> None:
    at_compile: Any = {"transformers": [InterruptTransformer]} if where == "at compile" else {}
    at_call: Any = {"transformers": [InterruptTransformer]} if where == "at the call" else {}
    graph, adapter = bench.compile(asking(bench), **at_compile)
    if bench.mode == "async":
        run = await graph.astream_events({"log": []}, thread(), version="v3", **at_call)
        found = [event async for event in run.interrupt_events]
        assert await run.interrupted()
    else:
        run = graph.stream_events({"log": []}, thread(), version="v3", **at_call)
        found = await asyncio.to_thread(list, run.interrupt_events)
        assert run.interrupted

    assert found == await bench.call(adapter, "pending")
    assert isinstance(found[0], InterruptEvent)
    assert run.extensions["interrupt_events"] is run.interrupt_events


@V3_IS_BETA
async def test_the_events_stay_in_the_log_of_a_v3_run_once_each(bench: Bench) -> None:
    graph, _ = bench.compile(asking(bench), transformers=[InterruptTransformer])
    if bench.mode == "async":
        run = await graph.astream_events({"log": []}, thread(), version="v3")
        found = [event async for event in interrupt_events(run)]
    else:
        run = graph.stream_events({"log": []}, thread(), version="v3")
        found = await asyncio.to_thread(list, interrupt_events(run))

    assert [event.type for event in found] == ["interrupt"]


@V3_IS_BETA
async def test_the_channel_leaves_out_what_nodes_write_themselves(bench: Bench) -> None:
    options = (AskUserOption(label="a"), AskUserOption(label="b"))
    request = AskUserRequest(questions=(AskUserQuestion(question="Which?", options=options),))

    def ask(state: State) -> dict[str, Any]:
        get_stream_writer()({"progress": 1})
        return {"log": list(bench.interrupts.ask_user.pause(request).selected_labels)}

    builder = StateGraph(State).add_node("ask", ask).add_edge(START, "ask")
    graph, _ = bench.compile(builder, transformers=[InterruptTransformer])
    if bench.mode == "async":
        run = await graph.astream_events({"log": []}, thread(), version="v3")
        found = [event async for event in run.interrupt_events]
    else:
        run = graph.stream_events({"log": []}, thread(), version="v3")
        found = list(run.interrupt_events)

    assert [type(event) for event in found] == [AskUserQuestionEvent]


# -- callback handlers


class Recorder(GraphCallbackHandler):
    """Keeps what a handler is told, without ids."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self.told.append(("start", kwargs.get("name"), kwargs.get("parent_run_id") is None))

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        self.told.append(("end", outputs))

    def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:
        self.told.append(("error", type(error).__name__))

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.told.append(("model", kwargs.get("name")))

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.told.append(("model end", response.generations[0][0].text))

    def on_interrupt(self, event: Any) -> None:
        self.told.append(("interrupt", event.status, tuple(ns.split(":")[0] for ns in event.checkpoint_ns)))

    def on_resume(self, event: Any) -> None:
        self.told.append(("resume", event.status, tuple(ns.split(":")[0] for ns in event.checkpoint_ns)))


@pytest.mark.parametrize("how", ["invoke", "stream"])
async def test_callback_handlers_are_told_what_they_were_told_without_this_library(bench: Bench, how: str) -> None:
    bare = asking_natively().compile(checkpointer=bench.saver)
    before, after_it = Recorder(), Recorder()
    await bench.call(bare, "invoke", {"log": []}, {**thread("bare"), "callbacks": [before]})
    (asked,) = (await bench.call(bare, "get_state", thread("bare"))).interrupts
    resume = bench.call if how == "invoke" else bench.collect
    await resume(bare, how, Command(resume={asked.id: YES}), {**thread("bare"), "callbacks": [after_it]})

    graph, adapter = bench.compile(asking(bench))
    ours, resumed = Recorder(), Recorder()
    await bench.call(graph, "invoke", {"log": []}, {**thread(), "callbacks": [ours]})
    (event,) = await bench.call(adapter, "pending")
    await resume(adapter, how, event.pause_token, YES, config={"callbacks": [resumed]})

    assert ours.told == before.told
    assert resumed.told == after_it.told
    assert [told for told in ours.told if told[0] == "interrupt"] == [("interrupt", "pending", ())]
    assert [told for told in resumed.told if told[0] == "resume"] == [
        ("resume", "pending", ()),
        ("resume", "pending", ("sub",)),
    ]
    assert ("model end", "hello") in resumed.told
    assert resumed.told[-1] == ("end", {"log": ["ok", "after"]})
