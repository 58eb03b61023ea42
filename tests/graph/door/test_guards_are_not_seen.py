"""Callbacks and streams tell of a guarded graph what they tell of the same graph without guards, in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableSequence
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from symfonic_interrupts.asking.guards import guard_node
from tests.graph.door.gates import State
from tests.harness import Bench, open_bench, thread


class Runs(BaseCallbackHandler):
    """Notes each run as (what, its name, the name of the run around it)."""

    raise_error = True

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.seen: Counter[tuple[str, str, str]] = Counter()
        self.ids: list[Any] = []

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: Any, parent_run_id: Any = None, **kw: Any
    ) -> None:
        self.ids.append(run_id)
        self.names[run_id] = kw.get("name") or "?"
        self._note("start", run_id, parent_run_id)

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Any, parent_run_id: Any = None, **kw: Any
    ) -> None:
        self.ids.append(run_id)
        self.names[run_id] = "model"
        self._note("start", run_id, parent_run_id)

    def on_chain_end(self, outputs: Any, *, run_id: Any, parent_run_id: Any = None, **kw: Any) -> None:
        self._note("end", run_id, parent_run_id)

    def on_chain_error(self, error: BaseException, *, run_id: Any, parent_run_id: Any = None, **kw: Any) -> None:
        self._note(type(error).__name__, run_id, parent_run_id)

    def on_llm_new_token(self, token: Any, *, run_id: Any, parent_run_id: Any = None, **kw: Any) -> None:
        self._note(f"token {token}", run_id, parent_run_id)

    def _note(self, what: str, run_id: Any, parent: Any) -> None:
        self.seen[what, self.names[run_id], self.names.get(parent, "")] += 1


def of_all_kinds() -> StateGraph[State]:
    """Nodes of all kinds: a function, a runnable, a sequence with a model, a graph, a branch; the last one asks."""
    model = GenericFakeChatModel(messages=iter([AIMessage("one two")] * 9))
    child = StateGraph(State).add_node("below", lambda state: {"log": ["below"]}).add_edge(START, "below").compile()
    sequence = RunnableSequence(
        RunnableLambda(lambda state: "hello", name="prompt"),
        model,
        RunnableLambda(lambda message: {"log": [message.content]}, name="read"),
    )
    builder = StateGraph(State).add_node("function", lambda state: {"log": ["function"]})
    builder.add_node("runnable", RunnableLambda(lambda state: {"log": ["runnable"]}, name="lambda"))
    builder.add_node("sequence", sequence).add_node("graph", child)
    builder.add_node("ask", lambda state: {"log": [interrupt("ok?")]})
    builder.add_edge(START, "function").add_conditional_edges("function", lambda state: "runnable", ["runnable"])
    return builder.add_edge("runnable", "sequence").add_edge("sequence", "graph").add_edge("graph", "ask")


def plain(value: Any) -> Any:
    """What two runs of the same graph have in common: without ids and times."""
    if isinstance(value, dict):
        changes = (
            "id",
            "parents",
            "checkpoint_id",
            "checkpoint_ns",
            "config",
            "parent_config",
            "checkpoint",
            "ls_integration",
        )
        return {
            k: plain(v) for k, v in value.items() if k not in changes and "checkpoint" not in k and k != "timestamp"
        }
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "content"):
        return value.content
    return value.value if hasattr(value, "value") else value


async def test_callbacks_see_the_same_runs_as_without_guards(bench: Bench) -> None:
    seen = []
    guarded, _ = bench.compile(of_all_kinds())
    for graph in (of_all_kinds().compile(checkpointer=InMemorySaver()), guarded):
        runs = Runs()
        await bench.call(graph, "invoke", {"log": []}, {**thread(), "callbacks": [runs]})
        assert len(set(runs.ids)) == len(runs.ids)
        seen.append(runs.seen)
    assert seen[0]["start", "ask", "LangGraph"] == seen[0]["start", "model", "sequence"] == 1
    assert seen[1] == seen[0]


@pytest.mark.parametrize("mode_", ["values", "updates", "messages", "tasks", "custom", "debug"])
async def test_a_stream_yields_the_same_as_without_guards(bench: Bench, mode_: Any) -> None:
    guarded, _ = bench.compile(of_all_kinds())
    native = of_all_kinds().compile(checkpointer=InMemorySaver())
    found = [
        await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode=mode_, subgraphs=True)
        for graph in (native, guarded)
    ]
    native_chunks, guarded_chunks = [[plain(chunk) for _, chunk in chunks] for chunks in found]
    assert guarded_chunks == native_chunks
    assert bool(native_chunks) is (mode_ != "custom")


async def test_an_event_stream_tells_the_same_in_the_same_order_as_without_guards(
    store_url: str, tmp_path: Path
) -> None:
    told = []
    async with open_bench("async", store_url, tmp_path) as bench:
        guarded, _ = bench.compile(of_all_kinds())
        for graph in (of_all_kinds().compile(checkpointer=InMemorySaver()), guarded):
            events = graph.astream_events({"log": []}, thread(), version="v2")
            told.append([(event["event"], event["name"], len(event["parent_ids"])) async for event in events])
    assert told[0].count(("on_chat_model_stream", "GenericFakeChatModel", 2)) == 3
    assert told[1] == told[0]


def test_a_part_of_a_node_passes_chunks_on_as_they_come() -> None:
    def words(texts: Iterator[str]) -> Iterator[str]:
        for text in texts:
            came.append(text)
            yield text.upper()

    def said(_: Any) -> Iterator[str]:
        for text in ("one", "two"):
            came.append(f"{text} said")
            yield text

    came: list[str] = []
    builder: Any = StateGraph(State).add_node("gate", RunnableGenerator(said) | RunnableGenerator(words))
    graph = builder.add_edge(START, "gate").compile()
    guard_node(graph.nodes["gate"])

    assert list(graph.nodes["gate"].bound.stream({})) == ["ONE", "TWO"]
    assert came == ["one said", "one", "two said", "two"]
