"""A copied thread's questions are its own or none: it asks anew when it runs, and no answer crosses over.

LangGraph's server copies a thread through the saver's own methods where it has no `copy_thread`, and so do migrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from symfonic_interrupts import FrameworkConfig, Interrupts, KeyRing, TokenConsumed
from tests.graph.changes.test_payload_and_input import State
from tests.harness import ACME, KEY, Bench, Refund, thread

YES = {"approved": True, "note": "yes"}
OTHER = {"approved": True, "note": "other"}


async def replay(bench: Bench, source_saver: Any, target_saver: Any, source: str, target: str) -> None:
    """What a server without `copy_thread` does: oldest first, each checkpoint and then its writes."""
    found = await bench.collect(source_saver, "list", {"configurable": {"thread_id": source}})
    for kept in sorted(found, key=lambda kept: kept.config["configurable"]["checkpoint_id"]):
        place = {"thread_id": target, "checkpoint_ns": kept.config["configurable"]["checkpoint_ns"]}
        if kept.parent_config:
            place["checkpoint_id"] = kept.parent_config["configurable"]["checkpoint_id"]
        versions = kept.checkpoint["channel_versions"]
        metadata = {**kept.metadata, "thread_id": target}
        stored = await bench.call(target_saver, "put", {"configurable": place}, kept.checkpoint, metadata, versions)
        writes: dict[str, list[tuple[str, Any]]] = {}
        for task_id, channel, value in kept.pending_writes or ():
            writes.setdefault(task_id, []).append((channel, value))
        for task_id, together in writes.items():
            await bench.call(target_saver, "put_writes", stored, together, task_id)


def built(bench: Bench, shape: str) -> Any:
    """A graph with one question, asked by a point or a native node, at the root or in a subgraph."""
    where, how = shape.split()
    path = "gate" if where == "root" else "sub:gate"
    point = bench.refunds(nodes=(path,) if how == "native" else ())

    def gate(state: State) -> dict[str, Any]:
        if how == "native":
            return {"log": [interrupt({"order": "A", "amount": 1})["note"]]}
        return {"log": [point.pause(Refund(order="A", amount=1)).note]}

    builder = StateGraph(State).add_node("gate", gate).add_edge(START, "gate")
    if where == "root":
        return builder
    return StateGraph(State).add_node("sub", builder.compile()).add_edge(START, "sub")


SHAPES = ["root point", "root native", "subgraph point", "subgraph native"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_copying_through_the_wrapper_opens_nothing_and_the_copy_asks_anew(bench: Bench, shape: str) -> None:
    graph, adapter = bench.compile(built(bench, shape))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (original,) = await bench.call(adapter, "pending")

    await replay(bench, graph.checkpointer, graph.checkpointer, "t1", "t2")

    assert await bench.call(adapter, "pending", thread_id="t2") == []
    assert bench.states() == ["pending"]
    assert bench.rows("SELECT type FROM interrupt_events") == [("interrupt",)]
    await bench.call(graph, "invoke", None, thread("t2"))
    (copied,) = await bench.call(adapter, "pending", thread_id="t2")
    assert copied.interrupt_id != original.interrupt_id
    assert (await bench.call(adapter, "invoke", copied.pause_token, OTHER))["log"] == ["other"]
    assert [e.interrupt_id for e in await bench.call(adapter, "pending")] == [original.interrupt_id]
    assert (await bench.call(adapter, "invoke", original.pause_token, YES))["log"] == ["yes"]
    assert (await bench.call(graph, "get_state", thread("t2"))).values["log"] == ["other"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_originals_answer_is_not_given_to_the_copy(bench: Bench, shape: str) -> None:
    graph, adapter = bench.compile(built(bench, shape))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (original,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "answer", original.pause_token, YES)
    await replay(bench, graph.checkpointer, graph.checkpointer, "t1", "t2")

    await bench.call(adapter, "deliver", "t2")
    await bench.call(graph, "invoke", None, thread("t2"))
    assert [d.thread_id for d in await bench.call(adapter, "recover")] == ["t1"]

    assert (await bench.call(graph, "get_state", thread("t1"))).values["log"] == ["yes"]
    assert (await bench.call(graph, "get_state", thread("t2"))).values["log"] == []
    (copied,) = await bench.call(adapter, "pending")
    assert copied.thread_id == "t2"
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", original.pause_token, OTHER)


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_thread_copied_by_a_process_that_never_ran_it_and_has_no_tenant_is_copied(
    bench: Bench, shape: str
) -> None:
    graph, adapter = bench.compile(built(bench, shape))
    await bench.call(graph, "invoke", {"log": []}, thread())
    config = FrameworkConfig(experimental_interrupt=True)  # no default scope: who copies is nobody's tenant
    with Interrupts(bench.store_url, keys=KeyRing([KEY]), config=config, clock=bench.clock) as elsewhere:
        elsewhere.register_interrupt(
            "approval",
            payload_schema=Refund,
            response_schema=bench.interrupts.registrations["approval"].response_schema,
            nodes=bench.interrupts.registrations["approval"].nodes,
        )
        saver = elsewhere.checkpointer(bench.saver)
        await replay(bench, saver, saver, "t1", "t2")

    await bench.call(graph, "invoke", None, thread("t2"))
    assert {e.thread_id for e in await bench.call(adapter, "pending")} == {"t1", "t2"}


class Copying(InMemorySaver):
    """A saver that copies by itself, as a database does."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        for ns, kept in list(self.storage[source_thread_id].items()):
            self.storage[target_thread_id][ns] = dict(kept)
        for (thread_id, ns, checkpoint_id), writes in list(self.writes.items()):
            if thread_id == source_thread_id:
                self.writes[target_thread_id, ns, checkpoint_id] = dict(writes)
        for (thread_id, *rest), blob in list(self.blobs.items()):
            if thread_id == source_thread_id:
                self.blobs[target_thread_id, *rest] = blob  # type: ignore[index]

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_saver_that_copies_by_itself_gives_the_copy_no_pause_and_no_answer(bench: Bench, shape: str) -> None:
    bench.saver = Copying()
    graph, adapter = bench.compile(built(bench, shape))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (original,) = await bench.call(adapter, "pending")

    await bench.call(graph.checkpointer, "copy_thread", "t1", "t2")

    assert await bench.call(adapter, "pending", thread_id="t2") == []
    assert (await bench.call(adapter, "invoke", original.pause_token, YES))["log"] == ["yes"]
    await bench.call(graph, "invoke", None, thread("t2"))
    (copied,) = await bench.call(adapter, "pending")
    assert (await bench.call(adapter, "invoke", copied.pause_token, OTHER))["log"] == ["other"]


def test_deleting_and_pruning_away_revoke_what_a_thread_asked(tmp_path: Any) -> None:
    class Pruning(InMemorySaver):
        def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
            for thread_id in thread_ids if strategy != "keep_latest" else ():
                self.delete_thread(thread_id)

    with Interrupts.local(tmp_path / "i.db") as interrupts:
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Refund)
        builder = StateGraph(State).add_node("gate", lambda state: {"log": [point.pause(Refund(order="A", amount=1))]})
        graph = builder.add_edge(START, "gate").compile(checkpointer=interrupts.checkpointer(Pruning()))
        adapter = interrupts.resume_adapter(graph)
        for name in ("kept", "deleted", "pruned", "pruned by a server"):
            graph.invoke({"log": []}, thread(name))
        saver: Any = graph.checkpointer

        saver.prune(["kept"])
        saver.delete_thread("deleted")
        saver.prune(["pruned"], strategy="delete")
        saver.prune(["pruned by a server"], strategy="delete_all")

        assert [event.thread_id for event in adapter.pending(scope=ACME)] == ["kept"]
