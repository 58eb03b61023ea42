"""Events are found the same way in every mode; tokens are nowhere but in events of mode "custom"."""

from __future__ import annotations

import logging
import operator
import pickle
import re
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
import sqlalchemy as sa
from langgraph.graph import START, StateGraph

from symfonic_interrupts import InterruptError, ResponseInvalid
from tests.harness import KEY, Bench, Decision, Refund, answers, events, open_bench, pauses, thread

TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.")


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def in_a_subgraph(bench: Bench) -> StateGraph[State]:
    point = bench.refunds()

    @point.node(payload=lambda state: Refund(order="A1", amount=90))
    def ask(state: State, decision: Decision) -> dict[str, Any]:
        return {"log": [decision.note]}

    child = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
    return StateGraph(State).add_node("sub", child).add_edge(START, "sub")


MODES: dict[str, tuple[Any, bool]] = {
    "custom": ("custom", False),
    "custom, subgraphs": ("custom", True),
    "updates and custom": (["updates", "custom"], False),
    "updates and custom, subgraphs": (["updates", "custom"], True),
    "every mode, subgraphs": (["values", "updates", "custom", "messages", "tasks", "checkpoints", "debug"], True),
}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("modes", MODES)
async def test_one_event_per_pause_and_one_per_answer_in_every_mode(bench: Bench, modes: str, durability: str) -> None:
    graph, adapter = bench.compile(in_a_subgraph(bench))
    stream_mode, subgraphs = MODES[modes]
    options = {"stream_mode": stream_mode, "subgraphs": subgraphs, "durability": durability}

    asked = await bench.collect(graph, "stream", {"log": []}, thread(), **options)
    (event,) = events(asked)
    resumed = await bench.collect(adapter, "stream", event.pause_token, {"approved": True, "note": "ok"}, **options)

    assert [e.type for e in events(asked)] == ["interrupt"]
    assert [(e.type, e.interrupt_id) for e in events(resumed)] == [("interrupt_resolved", event.interrupt_id)]
    chunks = [chunk for chunk in asked if event not in (chunk if isinstance(chunk, tuple) else (chunk,))]
    assert not TOKEN.search(repr(chunks))
    assert event.pause_token not in repr(asked)
    if isinstance(stream_mode, list) and "updates" in stream_mode:
        kinds = ["event" if events([c]) else "interrupt" if "__interrupt__" in repr(c) else "" for c in asked]
        assert "interrupt" in kinds[: kinds.index("event")]


async def test_no_event_is_sent_to_a_stream_that_did_not_ask_for_custom(bench: Bench) -> None:
    graph, adapter = bench.compile(in_a_subgraph(bench))
    chunks = await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode="updates")
    assert events(chunks) == []
    (event,) = await bench.call(adapter, "pending")
    resumed = await bench.collect(adapter, "stream", event.pause_token, {"approved": True}, stream_mode="updates")
    assert events(resumed) == []


async def test_a_pending_sibling_is_announced_again_in_the_run_that_asks_it_again_and_once(bench: Bench) -> None:
    builder = StateGraph(State)
    for name in ("left", "right"):
        point = bench.refunds(name)
        node = point.node(payload=lambda state, name=name: Refund(order=name, amount=1))
        builder.add_node(name, node(lambda state, decision: {"log": [decision.note]})).add_edge(START, name)
    graph, adapter = bench.compile(builder)
    asked = sorted(
        pauses(await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode="custom")), key=lambda e: e.name
    )

    chunks = await bench.collect(adapter, "stream", asked[0].pause_token, {"approved": True}, stream_mode="custom")

    assert [(e.name, e.pause_token) for e in pauses(chunks)] == [("right", asked[1].pause_token)]
    assert [e.name for e in answers(chunks)] == ["left"]


async def test_astream_events_carries_the_event(store_url: str, tmp_path: Path) -> None:
    async with open_bench("async", store_url, tmp_path) as bench:
        graph, _ = bench.compile(in_a_subgraph(bench))
        found = [
            part["data"]["chunk"]
            async for part in graph.astream_events({"log": []}, thread(), version="v2", stream_mode="custom")
            if part["event"] == "on_chain_stream" and events([part["data"]["chunk"]])
        ]
        assert {event.type for event in events(found)} == {"interrupt"}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_no_token_and_no_key_in_any_place_that_is_kept_or_shown(
    bench: Bench, durability: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    graph, adapter = bench.compile(in_a_subgraph(bench))
    options = {"stream_mode": ["updates", "custom"], "durability": durability}
    (event,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread(), **options))
    token = event.pause_token
    signature = token.rsplit(".", 1)[1]
    state = await bench.call(graph, "get_state", thread(), subgraphs=True)
    shown = [
        repr(state),
        repr(event),
        repr(adapter),
        repr(bench.interrupts),
        repr(await bench.call(adapter, "inspect", token)),
    ]
    for wrong in (token[:-1], token + "x", "x" + token):
        with pytest.raises(InterruptError) as refused:
            await bench.call(adapter, "answer", wrong, {"approved": True})
        shown += [str(refused.value), repr(refused.value), repr(refused.value.__cause__)]
    with pytest.raises(ResponseInvalid) as refused:
        await bench.call(adapter, "answer", token, {"approved": "hunter2"})
    shown += [str(refused.value), repr(refused.value.errors)]
    delivery_chunks = await bench.collect(adapter, "stream", token, {"approved": True, "note": "n"}, **options)
    with pytest.raises(InterruptError) as refused:
        await bench.call(adapter, "answer", token, {"approved": True})
    shown += [str(refused.value), repr(delivery_chunks)]
    shown += [record.getMessage() + repr(record.__dict__) for record in caplog.records]
    checkpoints = [found async for found in _list(bench)]
    shown += [repr(checkpoints), repr([c.metadata for c in checkpoints])]

    kept = _dump(bench.store_url) + _files(tmp_path) + pickle.dumps(shown)
    for secret in (token, signature, KEY.decode()):
        assert secret.encode() not in kept
    assert not TOKEN.search(kept.decode("latin-1"))
    assert "hunter2" not in "".join(shown)


async def _list(bench: Bench) -> Any:
    if bench.mode == "async":
        async for found in bench.saver.alist(None):
            yield found
    else:
        for found in bench.saver.list(None):
            yield found


def _files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def _dump(url: str) -> bytes:
    """Every value of every table of the database."""
    engine = sa.create_engine(url)
    found = b""
    with engine.connect() as connection:
        for table in sa.inspect(connection).get_table_names():
            for row in connection.exec_driver_sql(f'SELECT * FROM "{table}"'):
                for value in row:
                    found += bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
    engine.dispose()
    return found
