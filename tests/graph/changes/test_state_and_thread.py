"""What an application can do to a thread while a question stands in it, beyond new input: every way ends in one that is told.

No answer reaches a question that was not shown, and none is lost without an error, a `Delivery.unused` or an event row.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from symfonic_interrupts import (
    AnswerUnused,
    CheckpointMissing,
    PauseNotReady,
    PauseSuperseded,
    RegistrationError,
    ResumeRefused,
    TokenConsumed,
)
from symfonic_interrupts.store.schema import leases
from tests.graph.changes.test_payload_and_input import State, one_pause
from tests.harness import Bench, Refund, thread

YES = {"approved": True, "note": "yes"}
OTHER = {"approved": True, "note": "other"}


async def log_of(bench: Bench, graph: Any, thread_id: str = "t1") -> list[str]:
    found: list[str] = (await bench.call(graph, "get_state", thread(thread_id))).values["log"]
    return found


async def next_of(bench: Bench, graph: Any, thread_id: str = "t1") -> tuple[str, ...]:
    found: tuple[str, ...] = (await bench.call(graph, "get_state", thread(thread_id))).next
    return found


async def asked(bench: Bench, adapter: Any, **where: Any) -> dict[str, str]:
    """The tokens of open questions, by the order that is shown."""
    events = await bench.call(adapter, "pending", **where)
    return {event.payload["order"]: event.pause_token for event in events}


def kinds(bench: Bench) -> list[str]:
    return [kind for (kind,) in bench.rows("SELECT type FROM interrupt_events ORDER BY id")]


async def history(bench: Bench, graph: Any) -> list[Any]:
    return await bench.collect(graph, "get_state_history", thread())


# -- the thread's state is changed


async def nothing_but_a_checkpoint(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "update_state", thread(), None)


async def as_the_input(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "update_state", thread(), {"log": ["fresh"]}, as_node="__input__")


async def as_the_end(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "update_state", thread(), None, as_node=END)


async def as_a_copy(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "update_state", (await history(bench, graph))[0].config, None, as_node="__copy__")


async def as_the_gate(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "update_state", thread(), {"log": ["walked around"]}, as_node="gate")


async def as_a_fork(bench: Bench, graph: Any) -> None:
    await bench.call(graph, "update_state", (await history(bench, graph))[1].config, {"log": ["forked"]})


Change = Callable[[Bench, Any], Awaitable[None]]
CHANGES: list[Change] = [nothing_but_a_checkpoint, as_the_input, as_the_end, as_a_copy, as_the_gate, as_a_fork]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_every_kind_of_update_supersedes_the_question(bench: Bench, change: Change) -> None:
    graph, adapter, token = await one_pause(bench)

    await change(bench, graph)

    assert await asked(bench, adapter) == {}
    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "invoke", token, YES)
    assert bench.states() == ["superseded"]
    assert kinds(bench) == ["interrupt", "interrupt_superseded"]
    assert "yes" not in await log_of(bench, graph)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_an_answer_stored_before_any_kind_of_update_is_reported_unused(bench: Bench, change: Change) -> None:
    graph, adapter, token = await one_pause(bench)
    receipt = await bench.call(adapter, "answer", token, YES)

    await change(bench, graph)
    (delivery,) = await bench.call(adapter, "recover")

    assert (delivery.applied, delivery.unused, delivery.error) == ((), (receipt.interrupt_id,), None)
    assert bench.states()[0] == "unused"
    assert [kind for kind in kinds(bench) if kind == "interrupt_unused"] == ["interrupt_unused"]
    assert "yes" not in await log_of(bench, graph)
    assert await bench.call(adapter, "recover") == []


async def test_after_an_update_the_thread_asks_anew_and_only_the_new_token_answers(bench: Bench) -> None:
    graph, adapter, old = await one_pause(bench)
    await bench.call(graph, "update_state", thread(), {"log": ["edited"]}, as_node="before")

    await bench.call(graph, "invoke", None, thread())

    (order, new), *others = (await asked(bench, adapter)).items()
    assert (order, others) == ("one-before-edited", [])
    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "invoke", old, YES)
    result = await bench.call(adapter, "invoke", new, OTHER)
    assert result["log"] == ["one", "before", "edited", "other", "after"]


async def nested(bench: Bench) -> tuple[Any, Any, str, Any]:
    """A subgraph that asks what its state holds. Also returns the config of the subgraph's own checkpoint."""
    point = bench.refunds()

    def ask(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="-".join(state["log"]), amount=1)).note]}

    child = StateGraph(State).add_node("pre", lambda state: {"log": ["pre"]}).add_node("ask", ask)
    child.add_edge(START, "pre").add_edge("pre", "ask")
    builder = StateGraph(State).add_node("sub", child.compile()).add_node("after", lambda state: {"log": ["after"]})
    graph, adapter = bench.compile(builder.add_edge(START, "sub").add_edge("sub", "after"))
    await bench.call(graph, "invoke", {"log": ["one"]}, thread())
    (token,) = (await asked(bench, adapter)).values()
    state = await bench.call(graph, "get_state", thread(), subgraphs=True)
    return graph, adapter, token, state.tasks[0].state.config


@pytest.mark.parametrize("stored", [False, True], ids=["answered after", "answered before"])
async def test_an_update_inside_a_subgraph_leaves_the_answer_to_the_old_question_unused(
    bench: Bench, stored: bool
) -> None:
    graph, adapter, token, place = await nested(bench)
    if stored:
        await bench.call(adapter, "answer", token, YES)
    await bench.call(graph, "update_state", place, {"log": ["edited"]})

    if stored:
        (delivery,) = await bench.call(adapter, "recover")
        assert (delivery.applied, len(delivery.unused)) == ((), 1)
    else:
        with pytest.raises(AnswerUnused):
            await bench.call(adapter, "invoke", token, YES)

    assert bench.states() == ["unused", "pending"]
    assert await bench.call(adapter, "recover") == []  # nothing is left to try
    (order, new), *others = (await asked(bench, adapter)).items()
    assert (order, others) == ("one-pre-edited", [])
    result = await bench.call(adapter, "invoke", new, OTHER)
    assert result["log"] == ["one", "one", "pre", "edited", "other", "after"]
    assert bench.states() == ["unused", "applied"]
    assert "interrupt_unused" in kinds(bench)


async def test_an_update_in_the_name_of_a_subgraphs_gate_leaves_its_answer_unused(bench: Bench) -> None:
    graph, adapter, token, place = await nested(bench)
    await bench.call(graph, "update_state", place, {"log": ["walked around"]}, as_node="ask")

    with pytest.raises(AnswerUnused):
        await bench.call(adapter, "invoke", token, YES)

    assert await log_of(bench, graph) == ["one", "one", "pre", "walked around", "after"]
    assert bench.states() == ["unused"]


# -- commands


@pytest.mark.parametrize("target", ["after", "gate"])
async def test_a_goto_leaves_the_question_open_for_its_token(bench: Bench, target: str) -> None:
    graph, adapter, token = await one_pause(bench)

    await bench.call(graph, "invoke", Command(goto=target), thread())

    assert await asked(bench, adapter) == {"one-before": token}
    result = await bench.call(adapter, "invoke", token, YES)
    walked = ["after"] if target == "after" else []
    assert result["log"] == ["one", "before", *walked, "yes", "after"]
    assert bench.states() == ["applied"]


async def test_a_resume_that_comes_with_a_goto_is_refused_and_the_question_stays(bench: Bench) -> None:
    graph, adapter, token = await one_pause(bench)

    with pytest.raises(ResumeRefused, match="answered with its token"):
        await bench.call(graph, "invoke", Command(goto="after", resume={"approved": True, "note": "raw"}), thread())

    assert await asked(bench, adapter) == {"one-before": token}
    result = await bench.call(adapter, "invoke", token, YES)
    assert "raw" not in result["log"]
    assert result["log"].count("yes") == 1


async def test_an_update_that_comes_with_a_raw_resume_makes_another_question_and_not_an_answer(bench: Bench) -> None:
    graph, adapter, token = await one_pause(bench)
    command: Command[Any] = Command(update={"log": ["slipped in"]}, resume={"approved": True, "note": "raw"})

    with pytest.raises(ResumeRefused, match="answered with its token"):
        await bench.call(graph, "invoke", command, thread())
    with pytest.warns(UserWarning, match="did not fit what was asked next, which differs in: order;"):
        await bench.call(adapter, "invoke", token, YES)  # given to what was shown before the update

    assert await log_of(bench, graph) == ["one", "before", "slipped in"]  # LangGraph keeps the update, not the resume
    (order, new), *others = (await asked(bench, adapter)).items()
    assert (order, others) == ("one-before-slipped in", [])
    result = await bench.call(adapter, "invoke", new, OTHER)
    assert result["log"] == ["one", "before", "slipped in", "other", "after"]
    assert bench.states() == ["unused", "applied"]
    assert kinds(bench).count("interrupt_unused") == 1


async def test_an_update_sent_as_a_command_asks_with_the_new_state_and_the_old_answer_ends_unused(
    bench: Bench,
) -> None:
    graph, adapter, old = await one_pause(bench)

    await bench.call(graph, "invoke", Command(update={"log": ["more"]}), thread())

    assert set(await asked(bench, adapter)) == {"one-before", "one-before-more"}
    await bench.call(adapter, "invoke", old, YES)
    assert set(await asked(bench, adapter)) == {"one-before-more"}
    new = (await asked(bench, adapter))["one-before-more"]
    result = await bench.call(adapter, "invoke", new, OTHER)
    assert result["log"] == ["one", "before", "more", "other", "after"]
    assert bench.states() == ["unused", "applied"]


# -- static breakpoints

STOPS: dict[str, tuple[dict[str, Any], tuple[str, ...] | None, tuple[str, ...]]] = {
    "before the point": ({"interrupt_before": ["gate"]}, ("gate",), ()),
    "after what comes first": ({"interrupt_after": ["before"]}, ("gate",), ()),
    "after the point": ({"interrupt_after": ["gate"]}, None, ("after",)),
    "before what comes next": ({"interrupt_before": ["after"]}, None, ("after",)),
}


@pytest.mark.parametrize("when", ["at compile", "at run"])
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.filterwarnings("ignore:.*has plain breakpoints")
async def test_a_static_breakpoint_stops_the_run_and_neither_asks_nor_answers(
    bench: Bench, stop: str, when: str
) -> None:
    option, stops_first, stops_later = STOPS[stop]
    point = bench.refunds()

    def gate(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="A", amount=1)).note]}

    builder = StateGraph(State).add_node("before", lambda state: {"log": ["before"]}).add_node("gate", gate)
    builder.add_node("after", lambda state: {"log": ["after"]})
    builder.add_edge(START, "before").add_edge("before", "gate").add_edge("gate", "after")
    graph, adapter = bench.compile(builder, **(option if when == "at compile" else {}))
    for durability in ("sync", "async", "exit"):
        run: dict[str, Any] = {"durability": durability, **(option if when == "at run" else {})}
        config = thread(durability)
        await bench.call(graph, "invoke", {"log": []}, config, **run)
        if stops_first is not None:
            assert await asked(bench, adapter, thread_id=durability) == {}
            assert await next_of(bench, graph, durability) == stops_first
            await bench.call(graph, "invoke", None, config, **run)
        (token,) = (await asked(bench, adapter, thread_id=durability)).values()

        await bench.call(adapter, "invoke", token, YES, **run)

        assert await next_of(bench, graph, durability) == stops_later
        assert await bench.call(adapter, "recover") == []
        delivery = await bench.call(adapter, "deliver", durability, **run)
        assert (delivery.applied, delivery.unused, delivery.open) == ((), (), ())
        assert await next_of(bench, graph, durability) == stops_later  # only the application goes on from a breakpoint
        if stops_later:
            await bench.call(graph, "invoke", None, config, **run)
        assert await log_of(bench, graph, durability) == ["before", "yes", "after"]
    assert bench.states() == ["applied"] * 3
    assert bench.rows("SELECT * FROM interrupt_thread_leases") == []


@pytest.mark.parametrize("when", ["at compile", "at run"])
@pytest.mark.parametrize(
    "option", [{"interrupt_before": ["after"]}, {"interrupt_after": ["gate"]}], ids=lambda o: min(o)
)
@pytest.mark.filterwarnings("ignore:.*has plain breakpoints")
async def test_recovery_does_not_run_past_a_static_breakpoint(bench: Bench, option: dict[str, Any], when: str) -> None:
    point = bench.refunds()
    builder = StateGraph(State).add_node("gate", lambda s: {"log": [point.pause(Refund(order="A", amount=1)).note]})
    builder.add_node("after", lambda state: {"log": ["after"]}).add_edge(START, "gate").add_edge("gate", "after")
    at_run = option if when == "at run" else {}
    graph, _ = bench.compile(builder, **({} if at_run else option))
    adapter = bench.interrupts.resume_adapter(graph, run_kwargs=lambda thread_id, scope: at_run)
    await bench.call(graph, "invoke", {"log": []}, thread(), **at_run)
    (token,) = (await asked(bench, adapter)).values()
    await bench.call(adapter, "invoke", token, YES, **at_run)
    engine = sa.create_engine(bench.store_url)
    long_ago = bench.clock.now - timedelta(days=1)
    dead = {"graph": "default", "thread_id": "t1", "owner": "a worker that died", "fence": 1, "expires_at": long_ago}
    with engine.begin() as connection:
        connection.execute(sa.insert(leases).values(dead))
    engine.dispose()

    (delivery,) = await bench.call(adapter, "recover")

    assert (delivery.output, delivery.error) == ({"log": ["yes"]}, None)
    assert await next_of(bench, graph) == ("after",)
    assert bench.rows("SELECT * FROM interrupt_thread_leases") == []


# -- the thread is deleted, copied, pruned


async def test_deleting_a_thread_writes_how_its_question_and_its_answer_ended(bench: Bench) -> None:
    point = bench.refunds()

    def gate(order: str) -> Any:
        return lambda state: {"log": [point.pause(Refund(order=order, amount=1)).note]}

    builder = StateGraph(State).add_node("a", gate("A")).add_node("b", gate("B"))
    graph, adapter = bench.compile(builder.add_edge(START, "a").add_edge(START, "b"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    tokens = await asked(bench, adapter)
    await bench.call(adapter, "answer", tokens["A"], YES)

    await bench.call(graph.checkpointer, "delete_thread", "t1")

    written = bench.rows("SELECT type, body FROM interrupt_events ORDER BY id")[-2:]
    assert {kind: json.loads(body) for kind, body in written} == {
        "interrupt_revoked": {"name": "approval", "reason": "the thread was deleted"},
        "interrupt_unused": {"name": "approval"},
    }
    for token, state in ((tokens["A"], "unused"), (tokens["B"], "revoked")):
        with pytest.raises(TokenConsumed) as refused:
            await bench.call(adapter, "invoke", token, YES)
        assert refused.value.state == state
    assert await bench.call(adapter, "recover") == []


async def test_a_thread_begun_again_under_a_deleted_ones_id_takes_none_of_its_answers(bench: Bench) -> None:
    graph, adapter, old = await one_pause(bench)
    await bench.call(adapter, "answer", old, YES)
    await bench.call(graph.checkpointer, "delete_thread", "t1")

    await bench.call(graph, "invoke", {"log": ["one"]}, thread())

    (new,) = (await asked(bench, adapter)).values()
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "invoke", old, YES)
    assert (await bench.call(adapter, "invoke", new, OTHER))["log"] == ["one", "before", "other", "after"]


async def test_a_thread_deleted_behind_the_wrappers_back_keeps_its_answer_until_a_new_one_has_its_id(
    bench: Bench,
) -> None:
    graph, adapter, token = await one_pause(bench)
    receipt = await bench.call(adapter, "answer", token, YES)
    await bench.call(bench.saver, "delete_thread", "t1")
    with pytest.raises(CheckpointMissing):
        await bench.call(adapter, "deliver", "t1")
    assert bench.states() == ["answered"]

    await bench.call(graph, "invoke", {"log": ["one"]}, thread())
    (delivery,) = await bench.call(adapter, "recover")

    assert delivery.unused == (receipt.interrupt_id,)
    assert bench.states() == ["unused", "pending"]
    assert await log_of(bench, graph) == ["one", "before"]


async def copy_thread(bench: Bench, source: str, target: str) -> None:
    """What a saver's `copy_thread` does, through the saver's own methods: none of the four brings it."""
    found = await bench.collect(bench.saver, "list", {"configurable": {"thread_id": source}})
    for kept in reversed(found):
        parent = (kept.parent_config or {"configurable": {}})["configurable"].get("checkpoint_id")
        ns = kept.config["configurable"]["checkpoint_ns"]
        place = {"configurable": {"thread_id": target, "checkpoint_ns": ns, "checkpoint_id": parent}}
        versions = kept.checkpoint["channel_versions"]
        stored = await bench.call(bench.saver, "put", place, kept.checkpoint, kept.metadata, versions)
        writes: dict[str, list[tuple[str, Any]]] = {}
        for task_id, channel, value in kept.pending_writes or ():
            writes.setdefault(task_id, []).append((channel, value))
        for task_id, together in writes.items():
            await bench.call(bench.saver, "put_writes", stored, together, task_id)


async def test_a_copied_threads_question_gets_a_token_of_its_own_and_not_the_originals_answer(bench: Bench) -> None:
    graph, adapter, original = await one_pause(bench)
    await bench.call(adapter, "answer", original, YES)
    await copy_thread(bench, "t1", "t2")
    ids = [(await bench.call(graph, "get_state", thread(t))).interrupts[0].id for t in ("t1", "t2")]
    assert ids[0] == ids[1]  # the same interrupt, as LangGraph sees it
    assert await asked(bench, adapter, thread_id="t2") == {}
    await bench.call(adapter, "deliver", "t2")
    assert await log_of(bench, graph, "t2") == ["one", "before"]

    await bench.call(graph, "invoke", None, thread("t2"))

    (copied,) = (await asked(bench, adapter, thread_id="t2")).values()
    assert (await bench.call(adapter, "deliver", "t1")).output["log"] == ["one", "before", "yes", "after"]
    assert await log_of(bench, graph, "t2") == ["one", "before"]
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "invoke", original, YES)
    assert (await bench.call(adapter, "invoke", copied, OTHER))["log"] == ["one", "before", "other", "after"]
    assert bench.states() == ["applied", "applied"]


async def test_a_copy_made_between_two_questions_of_a_node_does_not_get_the_first_answer_and_asks_anew(
    bench: Bench,
) -> None:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order=order, amount=1)).note for order in ("first", "second")]}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    await bench.call(adapter, "invoke", (await asked(bench, adapter))["first"], YES)
    await copy_thread(bench, "t1", "t2")

    await bench.call(graph, "invoke", None, thread("t2"))

    assert set(await asked(bench, adapter, thread_id="t2")) == {"first"}
    second = (await asked(bench, adapter, thread_id="t1"))["second"]
    assert (await bench.call(adapter, "invoke", second, OTHER))["log"] == ["yes", "other"]


def can(bench: Bench, method: str) -> bool:
    return getattr(type(bench.saver), method) is not getattr(BaseCheckpointSaver, method)


async def test_pruning_a_thread_to_its_newest_checkpoint_leaves_its_questions_answerable(bench: Bench) -> None:
    graph, adapter, token, _ = await nested(bench)
    if can(bench, "prune"):
        await bench.call(graph.checkpointer, "prune", ["t1"], strategy="keep_latest")
    else:  # as the bare saver
        with pytest.raises(NotImplementedError):
            await bench.call(graph.checkpointer, "prune", ["t1"], strategy="keep_latest")

    result = await bench.call(adapter, "invoke", token, YES)

    assert result["log"] == ["one", "one", "pre", "yes", "after"]


async def test_pruning_a_thread_away_ends_its_tokens_and_answers_as_deleting_it_does(bench: Bench) -> None:
    graph, adapter, token = await one_pause(bench)
    await bench.call(graph, "invoke", {"log": ["one"]}, thread("t2"))
    (answered,) = (await asked(bench, adapter, thread_id="t2")).values()
    await bench.call(adapter, "answer", answered, YES)
    if not can(bench, "prune"):
        with pytest.raises(NotImplementedError):
            await bench.call(graph.checkpointer, "prune", ["t1", "t2"], strategy="delete")
        assert bench.states() == ["pending", "answered"]
        return

    await bench.call(graph.checkpointer, "prune", ["t1", "t2"], strategy="delete")

    assert bench.states() == ["revoked", "unused"]
    assert kinds(bench)[-2:] == ["interrupt_revoked", "interrupt_unused"]
    assert await bench.call(adapter, "pending") == []
    assert await bench.call(adapter, "recover") == []
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", token, YES)


@pytest.mark.parametrize(("method", "arguments"), [("copy_thread", ("t1", "t2")), ("delete_for_runs", (["r1"],))])
async def test_what_the_wrapped_saver_cannot_do_the_wrapper_refuses_alike_and_the_question_stays(
    bench: Bench, method: str, arguments: tuple[Any, ...]
) -> None:
    graph, adapter, token = await one_pause(bench)
    assert not can(bench, method)  # a saver that learns it needs a test of its own here

    with pytest.raises(NotImplementedError):
        await bench.call(graph.checkpointer, method, *arguments)

    assert (await bench.call(adapter, "invoke", token, YES))["log"] == ["one", "before", "yes", "after"]


# -- a bare saver is used on the thread


@pytest.mark.parametrize("shape", ["bare", "id-keyed"])
async def test_the_same_code_over_a_bare_saver_cannot_resume_and_the_token_still_works(
    bench: Bench, shape: str
) -> None:
    graph, adapter, token = await one_pause(bench)
    bare = graph.builder.compile(checkpointer=bench.saver)
    raw: Any = {"approved": True, "note": "raw"}
    if shape == "id-keyed":
        raw = {(await bench.call(graph, "get_state", thread())).interrupts[0].id: raw}

    with pytest.raises(RegistrationError, match="wrap it"):
        await bench.call(bare, "invoke", Command(resume=raw), thread())

    assert await asked(bench, adapter) == {"one-before": token}
    assert (await bench.call(adapter, "invoke", token, YES))["log"] == ["one", "before", "yes", "after"]


async def test_new_input_through_a_bare_saver_ends_question_and_stored_answer_when_they_are_looked_at(
    bench: Bench,
) -> None:
    graph, adapter, token = await one_pause(bench)
    await bench.call(graph, "invoke", {"log": ["one"]}, thread("t2"))
    (stored,) = (await asked(bench, adapter, thread_id="t2")).values()
    receipt = await bench.call(adapter, "answer", stored, YES)
    bare = graph.builder.compile(checkpointer=bench.saver)
    for thread_id in ("t1", "t2"):
        with pytest.raises(RegistrationError, match="wrap it"):
            await bench.call(bare, "invoke", {"log": ["two"]}, thread(thread_id))

    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "invoke", token, YES)
    (delivery,) = await bench.call(adapter, "recover")

    assert delivery.unused == (receipt.interrupt_id,)
    assert bench.states()[:2] == ["superseded", "unused"]
    assert {"interrupt_superseded", "interrupt_unused"} <= set(kinds(bench))
    await bench.call(graph, "invoke", None, thread("t1"))
    new = (await asked(bench, adapter, thread_id="t1"))["one-before-two-before"]
    result = await bench.call(adapter, "invoke", new, OTHER)
    assert result["log"] == ["one", "before", "two", "before", "other", "after"]


def other_code() -> StateGraph[State]:
    """The same nodes, with LangGraph's own `interrupt()` in the gate."""

    def gate(state: State) -> dict[str, Any]:
        return {"log": [f"raw {interrupt('anything')}"]}

    builder = StateGraph(State).add_node("before", lambda state: {"log": ["before"]}).add_node("gate", gate)
    builder.add_node("after", lambda state: {"log": ["after"]})
    return builder.add_edge(START, "before").add_edge("before", "gate").add_edge("gate", "after")


async def test_a_gate_that_other_code_resumed_over_a_bare_saver_leaves_the_token_superseded(bench: Bench) -> None:
    _, adapter, token = await one_pause(bench)

    await bench.call(other_code().compile(checkpointer=bench.saver), "invoke", Command(resume="x"), thread())

    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "invoke", token, YES)
    assert bench.states() == ["superseded"]
    assert kinds(bench) == ["interrupt", "interrupt_superseded"]


async def test_an_answer_stored_before_other_code_resumed_the_gate_is_reported_unused(bench: Bench) -> None:
    graph, adapter, token = await one_pause(bench)
    receipt = await bench.call(adapter, "answer", token, YES)

    await bench.call(other_code().compile(checkpointer=bench.saver), "invoke", Command(resume="x"), thread())
    (delivery,) = await bench.call(adapter, "recover")

    assert (delivery.applied, delivery.unused) == ((), (receipt.interrupt_id,))
    assert await log_of(bench, graph) == ["one", "before", "raw x", "after"]
    assert kinds(bench)[-1] == "interrupt_unused"


async def test_a_question_that_other_code_replaced_by_its_own_waits_until_the_right_code_asks_again(
    bench: Bench,
) -> None:
    graph, adapter, token = await one_pause(bench)
    await bench.call(other_code().compile(checkpointer=bench.saver), "invoke", None, thread())

    with pytest.raises(PauseNotReady):
        await bench.call(adapter, "invoke", token, YES)
    assert bench.states() == ["pending"]

    await bench.call(graph, "invoke", None, thread())
    assert (await bench.call(adapter, "invoke", token, YES))["log"] == ["one", "before", "yes", "after"]
