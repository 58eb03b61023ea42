"""Nodes that fail after their answer: the answer stays, a delivery tries again, and nobody is asked twice.

Tried under a retry policy, an error handler and a timeout, in subgraphs and beside siblings. A node fails by what its test
says, never by chance, and after it has taken its answer unless its test says otherwise. At the end: pauses that somebody's
`except Exception` caught, which ask nobody and must be reported.
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.errors import GraphInterrupt, NodeError, NodeTimeoutError
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, Send

from tests.harness import CONFIG, Bench, Refund, answers, open_bench, pauses, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Ledger:
    """Fails so many times, by name; notes who came, and with which answer."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.entries: list[str] = []

    def enter(self, name: str, note: str = "") -> dict[str, Any]:
        self.entries.append(f"{name}={note}")
        if self.failures.get(name, 0):
            self.failures[name] -= 1
            raise ConnectionError("the ledger is away")
        return {"log": [f"{name}={note}"]}


def asking(point: Any, ledger: Ledger, name: str = "node") -> Any:
    """A node that asks with its name, and then enters its answer in the ledger."""

    def node(state: State) -> dict[str, Any]:
        return ledger.enter(name, point.pause(Refund(order=name, amount=1)).note)

    return node


def alone(node: Any, **options: Any) -> StateGraph[State]:
    return StateGraph(State).add_node("node", node, **options).add_edge(START, "node")


async def ask(bench: Bench, graph: Any, adapter: Any, **kwargs: Any) -> list[Any]:
    """Run the thread from its start; the pauses that are open then, by what they show."""
    await bench.call(graph, "invoke", {"log": []}, thread(), **kwargs)
    return sorted(await bench.call(adapter, "pending"), key=lambda event: str(event.payload["order"]))


async def answer(bench: Bench, adapter: Any, *events: Any) -> None:
    for event in events:
        note = f"for {event.payload['order']}"
        await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": note})


def told_once(bench: Bench, count: int) -> bool:
    """Whether so many questions were announced, and so many answers, each once."""
    told = "SELECT type, count(*) FROM interrupt_events WHERE type <> 'delivery_failed' GROUP BY type"
    rows = dict(bench.rows(told))
    return rows == {"interrupt": count, "interrupt_resolved": count}


def quickly(attempts: int) -> RetryPolicy:
    return RetryPolicy(max_attempts=attempts, initial_interval=0.001, jitter=False)


LEASES = "SELECT * FROM interrupt_thread_leases WHERE failed_at IS NULL"


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_delivery_tries_again_with_the_same_answer_until_the_node_does_not_fail(
    bench: Bench, durability: str
) -> None:
    ledger = Ledger(node=2)
    graph, adapter = bench.compile(alone(asking(bench.refunds(), ledger)))
    (event,) = await ask(bench, graph, adapter, durability=durability)
    await answer(bench, adapter, event)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await bench.call(adapter, "deliver", "t1", durability=durability)
        assert bench.states() == ["answered"]
        assert await bench.call(adapter, "pending") == []
        assert bench.rows(LEASES) == []

    delivery = await bench.call(adapter, "deliver", "t1", durability=durability)

    assert delivery.output["log"] == ["node=for node"]
    assert ledger.entries == ["node=for node"] * 3
    assert delivery.applied == (event.interrupt_id,)
    assert bench.states() == ["applied"]
    assert told_once(bench, 1)


async def test_a_retry_policy_tries_again_within_one_delivery_and_nobody_is_asked_again(bench: Bench) -> None:
    ledger = Ledger(node=2)
    graph, adapter = bench.compile(alone(asking(bench.refunds(), ledger), retry_policy=quickly(3)))
    (event,) = await ask(bench, graph, adapter)

    chunks = await bench.collect(
        adapter, "stream", event.pause_token, {"approved": True, "note": "yes"}, stream_mode=["updates", "custom"]
    )

    assert ledger.entries == ["node=yes"] * 3
    assert pauses(chunks) == []
    assert [told.interrupt_id for told in answers(chunks)] == [event.interrupt_id]
    assert bench.states() == ["applied"]
    assert told_once(bench, 1)


async def test_a_retry_policy_that_gives_up_leaves_the_answer_for_the_next_delivery(bench: Bench) -> None:
    ledger = Ledger(node=3)
    graph, adapter = bench.compile(alone(asking(bench.refunds(), ledger), retry_policy=quickly(2)))
    (event,) = await ask(bench, graph, adapter)
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})
    assert len(ledger.entries) == 2
    assert await bench.call(adapter, "recover") == []
    assert await bench.call(adapter, "pending") == []

    delivery = await bench.call(adapter, "deliver", "t1")

    assert ledger.entries == ["node=yes"] * 4
    assert delivery.output["log"] == ["node=yes"]
    assert bench.states() == ["applied"]
    assert told_once(bench, 1)


@pytest.mark.parametrize("tried", [False, True], ids=["at once", "after a retry"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["update", "goto"])
async def test_where_an_error_handler_takes_over_the_answer_is_applied_and_nothing_is_left_to_deliver(
    bench: Bench, tried: bool, goes_on: bool
) -> None:
    ledger = Ledger(node=9)

    def handler(state: State, error: NodeError) -> Any:
        update = {"log": [f"{error.node}: {error.error}"]}
        return Command(goto="after", update=update) if goes_on else update

    policy = quickly(2) if tried else None
    builder = alone(asking(bench.refunds(), ledger), error_handler=handler, retry_policy=policy)
    graph, adapter = bench.compile(builder.add_node("after", lambda state: {"log": ["after"]}))
    (event,) = await ask(bench, graph, adapter)

    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})

    assert result["log"] == ["node: the ledger is away"] + ["after"] * goes_on
    assert ledger.entries == ["node=yes"] * (1 + tried)
    assert bench.states() == ["applied"]
    delivery = await bench.call(adapter, "deliver", "t1")
    assert (delivery.ran, delivery.open) == (False, ())
    assert told_once(bench, 1)


async def test_an_error_handler_that_fails_too_is_tried_again_and_not_the_node(bench: Bench) -> None:
    ledger = Ledger(node=9, handler=2)

    def handler(state: State, error: NodeError) -> dict[str, Any]:
        return ledger.enter("handler")

    graph, adapter = bench.compile(alone(asking(bench.refunds(), ledger), error_handler=handler))
    (event,) = await ask(bench, graph, adapter)
    await answer(bench, adapter, event)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await bench.call(adapter, "deliver", "t1")
        assert await bench.call(adapter, "pending") == []
        assert bench.states() == ["answered"]

    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output["log"] == ["handler="]
    assert ledger.entries == ["node=for node", "handler=", "handler=", "handler="]
    assert delivery.applied == (event.interrupt_id,)
    assert bench.states() == ["applied"]
    assert told_once(bench, 1)


@pytest.mark.parametrize("asked", [True, False], ids=["the node asked too", "only the handler asks"])
@pytest.mark.parametrize("nested", [False, True], ids=["in the graph", "in a subgraph"])
async def test_an_error_handler_may_ask_what_to_do_and_gets_its_own_answer(
    bench: Bench, asked: bool, nested: bool
) -> None:
    ledger = Ledger(node=9)
    point, rescue = bench.refunds(), bench.refunds("rescue")

    def node(state: State) -> dict[str, Any]:
        return ledger.enter("node", point.pause(Refund(order="node", amount=1)).note if asked else "")

    def handler(state: State, error: NodeError) -> dict[str, Any]:
        return ledger.enter("handler", rescue.pause(Refund(order="handler", amount=1)).note)

    builder = alone(node, error_handler=handler)
    graph, adapter = bench.compile(alone(builder.compile()) if nested else builder)
    open_ = await ask(bench, graph, adapter)
    if asked:
        (event,) = open_
        assert event.name == "approval"
        await answer(bench, adapter, event)
        await bench.call(adapter, "deliver", "t1")
    (question,) = await bench.call(adapter, "pending")
    assert question.name == "rescue"

    result = await bench.call(adapter, "invoke", question.pause_token, {"approved": True, "note": "give up"})

    assert result["log"] == ["handler=give up"]
    assert ledger.entries == ["node=for node" if asked else "node=", "handler=give up"]
    assert bench.states() == ["applied"] * (1 + asked)
    assert told_once(bench, 1 + asked)


async def test_a_node_that_takes_too_long_after_its_answer_is_tried_again_with_it(
    store_url: str, tmp_path: Path
) -> None:
    async with open_bench("async", store_url, tmp_path) as bench:
        ledger = Ledger()
        point = bench.refunds()

        async def node(state: State) -> dict[str, Any]:
            note = point.pause(Refund(order="node", amount=1)).note
            entry = ledger.enter("node", note)
            if len(ledger.entries) == 1:
                await asyncio.Event().wait()
            return entry

        graph, adapter = bench.compile(alone(node, timeout=0.2))
        (event,) = await ask(bench, graph, adapter)
        with pytest.raises(NodeTimeoutError):
            await adapter.ainvoke(event.pause_token, {"approved": True, "note": "yes"})
        assert await adapter.apending() == []

        delivery = await adapter.adeliver("t1")

        assert delivery.output["log"] == ["node=yes"]
        assert ledger.entries == ["node=yes"] * 2
        assert bench.states() == ["applied"]
        assert told_once(bench, 1)


async def test_a_node_that_fails_before_it_takes_its_answer_gets_it_at_the_next_delivery(bench: Bench) -> None:
    ledger = Ledger()
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        ledger.enter("top")
        return ledger.enter("node", point.pause(Refund(order="node", amount=1)).note)

    graph, adapter = bench.compile(alone(node))
    (event,) = await ask(bench, graph, adapter)
    ledger.failures["top"] = 1
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})
    assert (bench.states(), await bench.call(adapter, "pending")) == (["answered"], [])

    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output["log"] == ["node=yes"]
    assert bench.states() == ["applied"]
    assert told_once(bench, 1)


async def test_between_two_questions_a_failure_loses_neither_the_first_answer_nor_the_second_question(
    bench: Bench,
) -> None:
    ledger = Ledger(between=1, end=1)
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        first = point.pause(Refund(order="first", amount=1)).note
        ledger.enter("between", first)
        second = point.pause(Refund(order="second", amount=1)).note
        ledger.enter("end", second)
        return {"log": [first, second]}

    graph, adapter = bench.compile(alone(node))
    for order in ("first", "second"):
        (event,) = await ask(bench, graph, adapter) if order == "first" else await bench.call(adapter, "pending")
        assert event.payload["order"] == order
        with pytest.raises(ConnectionError):
            await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": order})
        assert await bench.call(adapter, "pending") == []
        delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output["log"] == ["first", "second"]
    assert bench.states() == ["applied", "applied"]
    assert told_once(bench, 2)


@pytest.mark.parametrize("nesting", ["compiled in", "nested twice", "called in a node", "checkpointer=True"])
async def test_in_a_subgraph_only_the_failed_node_is_tried_again(bench: Bench, nesting: str) -> None:
    ledger = Ledger(node=2)

    def plain(name: str) -> Any:
        return lambda state: ledger.enter(name)

    child = StateGraph(State).add_node("before", plain("before")).add_node("node", asking(bench.refunds(), ledger))
    child.add_node("after", plain("after"))
    child.add_edge(START, "before").add_edge("before", "node").add_edge("node", "after")
    inner: Any = child.compile(checkpointer=True if nesting == "checkpointer=True" else None)
    if nesting == "nested twice":
        inner = alone(inner).compile()
    if nesting == "called in a node":
        called = inner

        def outer(state: State) -> dict[str, Any]:
            return {"log": called.invoke({"log": []})["log"]}

        async def aouter(state: State) -> dict[str, Any]:
            return {"log": (await called.ainvoke({"log": []}))["log"]}

        inner = aouter if bench.mode == "async" else outer
    parent = StateGraph(State).add_node("first", plain("first")).add_node("sub", inner)
    graph, adapter = bench.compile(parent.add_edge(START, "first").add_edge("first", "sub"))
    (event,) = await ask(bench, graph, adapter)
    await answer(bench, adapter, event)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await bench.call(adapter, "deliver", "t1")
        assert await bench.call(adapter, "pending") == []
        assert bench.states() == ["answered"]

    delivery = await bench.call(adapter, "deliver", "t1")

    assert ledger.entries == ["first=", "before=", *["node=for node"] * 3, "after="]
    assert delivery.output["log"].count("node=for node") == 1
    assert delivery.applied == (event.interrupt_id,)
    assert bench.states() == ["applied"]
    assert told_once(bench, 1)


async def test_a_subgraph_whose_node_failed_is_handed_to_its_parents_error_handler(bench: Bench) -> None:
    ledger = Ledger(node=9)
    child = alone(asking(bench.refunds(), ledger)).compile()

    def handler(state: State, error: NodeError) -> dict[str, Any]:
        return {"log": [f"{error.node} failed"]}

    graph, adapter = bench.compile(
        StateGraph(State).add_node("sub", child, error_handler=handler).add_edge(START, "sub")
    )
    (event,) = await ask(bench, graph, adapter)

    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})

    assert result["log"] == ["sub failed"]
    assert ledger.entries == ["node=yes"]
    assert bench.states() == ["applied"]
    assert (await bench.call(adapter, "deliver", "t1")).ran is False
    assert told_once(bench, 1)


def siblings(bench: Bench, ledger: Ledger) -> StateGraph[State]:
    """Three nodes that ask side by side, and one that joins them."""
    builder = StateGraph(State).add_node("join", lambda state: ledger.enter("join"))
    for name in ("a", "b", "c"):
        builder.add_node(name, asking(bench.refunds(name), ledger, name)).add_edge(START, name)
    return builder.add_edge(["a", "b", "c"], "join")


async def test_one_sibling_that_fails_costs_the_others_neither_their_answers_nor_their_questions(bench: Bench) -> None:
    ledger = Ledger(b=2)
    graph, adapter = bench.compile(siblings(bench, ledger))
    a, b, c = await ask(bench, graph, adapter)
    await answer(bench, adapter, a, b)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await bench.call(adapter, "deliver", "t1")
        still = await bench.call(adapter, "pending")
        assert [event.pause_token for event in still] == [c.pause_token]

    delivery = await bench.call(adapter, "deliver", "t1")
    assert [event.pause_token for event in delivery.open] == [c.pause_token]
    result = await bench.call(adapter, "invoke", c.pause_token, {"approved": True, "note": "for c"})

    assert sorted(result["log"]) == ["a=for a", "b=for b", "c=for c", "join="]
    assert [entry for entry in ledger.entries if entry[0] in "cj"] == ["c=for c", "join="]
    assert ledger.entries.count("b=for b") == 3
    assert bench.states() == ["applied"] * 3
    assert told_once(bench, 3)


async def test_a_sibling_answered_while_another_has_failed_is_delivered_and_the_failed_one_tried_again(
    bench: Bench,
) -> None:
    ledger = Ledger(b=1)
    graph, adapter = bench.compile(siblings(bench, ledger))
    a, b, c = await ask(bench, graph, adapter)
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", b.pause_token, {"approved": True, "note": "for b"})

    await answer(bench, adapter, a, c)
    delivery = await bench.call(adapter, "deliver", "t1")

    assert sorted(delivery.output["log"]) == ["a=for a", "b=for b", "c=for c", "join="]
    assert ledger.entries.count("join=") == 1
    assert bench.states() == ["applied"] * 3
    assert told_once(bench, 3)


async def test_in_a_fan_out_the_failed_tasks_are_tried_again_and_the_others_are_not(bench: Bench) -> None:
    ledger = Ledger(**{"3": 1})
    point = bench.refunds()

    def review(item: Any) -> dict[str, Any]:
        return ledger.enter(str(item["n"]), point.pause(Refund(order=str(item["n"]), amount=1)).note)

    asking_node: Any = review
    builder = StateGraph(State).add_node("review", asking_node)
    builder.add_conditional_edges(START, lambda state: [Send("review", {"n": n}) for n in range(5)], ["review"])
    graph, adapter = bench.compile(builder)
    asked = await ask(bench, graph, adapter)
    others = [event for event in asked if event.payload["order"] != "3"]
    await answer(bench, adapter, *others)
    await bench.call(adapter, "deliver", "t1")
    await answer(bench, adapter, *await bench.call(adapter, "pending"))
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "deliver", "t1")
    assert await bench.call(adapter, "pending") == []

    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output["log"] == [f"{n}=for {n}" for n in range(5)]
    assert sorted(ledger.entries) == sorted([*(f"{n}=for {n}" for n in range(5)), "3=for 3"])
    assert bench.states() == ["applied"] * 5


async def test_an_application_that_runs_the_thread_itself_after_a_failure_uses_the_same_answer(bench: Bench) -> None:
    ledger = Ledger(node=1)
    graph, adapter = bench.compile(alone(asking(bench.refunds(), ledger)))
    (event,) = await ask(bench, graph, adapter)
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})

    result = await bench.call(graph, "invoke", None, thread())

    assert result["log"] == ["node=yes"]
    assert bench.states() == ["applied"]
    assert (await bench.call(adapter, "deliver", "t1")).ran is False
    assert told_once(bench, 1)


async def test_new_input_after_a_failure_ends_the_answer_once_and_asks_anew(bench: Bench) -> None:
    ledger = Ledger(node=1)
    graph, adapter = bench.compile(alone(asking(bench.refunds(), ledger)))
    (event,) = await ask(bench, graph, adapter)
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "old"})

    (again,) = await ask(bench, graph, adapter)
    result = await bench.call(adapter, "invoke", again.pause_token, {"approved": True, "note": "new"})

    assert again.interrupt_id != event.interrupt_id
    assert result["log"] == ["node=new"]
    assert ledger.entries == ["node=old", "node=new"]
    assert bench.states() == ["unused", "applied"]


# -- a pause that something between the node and `pause` caught


SWALLOWED = "SELECT name, interrupt_id, body FROM interrupt_events WHERE type = 'interrupt_swallowed' ORDER BY id"


def swallowing(point: Any, order: str) -> str:
    try:
        return str(point.pause(Refund(order=order, amount=1)).note)
    except Exception:
        return f"{order} swallowed"


async def noticed(bench: Bench, caplog: pytest.LogCaptureFixture, run: Any, *names: str) -> Any:
    """What a run gives that must report these swallowed pauses, each once: a warning, a row and a line of the audit log."""
    caplog.clear()
    before = len(bench.rows(SWALLOWED))
    with pytest.warns(UserWarning, match="swallowed") as told:
        result = await run
    assert sorted(str(warning.message).split(":")[0] for warning in told) == sorted(names)
    rows = bench.rows(SWALLOWED)[before:]
    assert sorted(name for name, _, _ in rows) == sorted(names)
    for name, interrupt_id, body in rows:
        assert json.loads(body) == {"name": name, "interrupt_id": interrupt_id}
    lines = [record.getMessage() for record in caplog.records if record.name == "symfonic_interrupts.audit"]
    assert sorted(lines) == sorted(f"interrupt_swallowed {body}" for _, _, body in rows)
    return result


@pytest.fixture
async def warning_bench(mode: str, store_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench on which a swallowed pause is only told of."""
    async with open_bench(mode, store_url, tmp_path, replace(CONFIG, on_swallowed="warn")) as found:
        yield found


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("nested", [False, True], ids=["in the graph", "in a subgraph"])
async def test_where_it_is_only_warned_of_a_swallowed_pause_is_reported_once_and_asks_nobody(
    warning_bench: Bench, caplog: pytest.LogCaptureFixture, nested: bool, durability: str
) -> None:
    bench = warning_bench
    point = bench.refunds()
    builder = alone(lambda state: {"log": [swallowing(point, "SECRET")]})
    graph, adapter = bench.compile(alone(builder.compile()) if nested else builder)
    run = bench.call(graph, "invoke", {"log": []}, thread(), durability=durability)

    result = await noticed(bench, caplog, run, "approval")

    assert result["log"] == ["SECRET swallowed"]
    assert await bench.call(adapter, "pending") == []
    assert bench.states() == []
    assert "SECRET" not in caplog.text + str(bench.rows(SWALLOWED))
    assert (await bench.call(adapter, "deliver", "t1")).ran is False
    assert len(bench.rows(SWALLOWED)) == 1


async def test_where_it_is_only_warned_of_a_second_swallowed_question_leaves_the_first_answer_applied(
    warning_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = warning_bench
    point, other = bench.refunds(), bench.refunds("other")

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="first", amount=1)).note, swallowing(other, "second")]}

    graph, adapter = bench.compile(alone(node))
    (event,) = await ask(bench, graph, adapter)
    assert bench.rows(SWALLOWED) == []

    run = bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})
    result = await noticed(bench, caplog, run, "other")

    assert result["log"] == ["yes", "second swallowed"]
    assert bench.states() == ["applied"]
    assert bench.rows(LEASES) == []


async def test_where_it_is_only_warned_of_every_swallowed_pause_is_reported_and_an_answered_neighbour_is_not(
    warning_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = warning_bench
    first, second, good = bench.refunds("first"), bench.refunds("second"), bench.refunds("good")
    builder = StateGraph(State).add_node("a", lambda state: {"log": [swallowing(first, "a") + swallowing(second, "b")]})
    builder.add_node("b", lambda state: {"log": [good.pause(Refund(order="good", amount=1)).note]})
    graph, adapter = bench.compile(builder.add_edge(START, "a").add_edge(START, "b"))

    await noticed(bench, caplog, bench.call(graph, "invoke", {"log": []}, thread()), "first", "second")

    (event,) = await bench.call(adapter, "pending")
    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})
    assert sorted(result["log"]) == ["a swallowedb swallowed", "yes"]
    assert len(bench.rows(SWALLOWED)) == 2


async def test_a_pause_caught_once_is_asked_with_the_one_that_was_not_and_is_no_swallowed_one(bench: Bench) -> None:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        caught = swallowing(point, "caught")
        return {"log": [caught, point.pause(Refund(order="let pass", amount=1)).note]}

    graph, adapter = bench.compile(alone(node))
    asked = await ask(bench, graph, adapter)
    assert [event.payload["order"] for event in asked] == ["caught", "let pass"]
    await answer(bench, adapter, *asked)

    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output["log"] == ["for caught", "for let pass"]
    assert bench.rows(SWALLOWED) == []
    assert bench.states() == ["applied", "applied"]


async def test_a_pause_that_became_another_error_is_that_error_and_the_next_run_asks(bench: Bench) -> None:
    point = bench.refunds()
    wraps = [True]

    def node(state: State) -> dict[str, Any]:
        try:
            return {"log": [point.pause(Refund(order="node", amount=1)).note]}
        except Exception as error:
            if wraps[0]:
                raise LookupError("wrapped") from error
            raise

    graph, adapter = bench.compile(alone(node))
    with pytest.raises(LookupError, match="wrapped"):
        await ask(bench, graph, adapter)
    assert await bench.call(adapter, "pending") == []
    wraps[0] = False

    await bench.call(graph, "invoke", None, thread())
    (event,) = await bench.call(adapter, "pending")
    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})

    assert result["log"] == ["yes"]
    assert bench.rows(SWALLOWED) == []


async def test_a_call_that_outlived_its_pass_and_asked_for_something_else_is_no_swallowed_pause(
    store_url: str, tmp_path: Path
) -> None:
    async with open_bench("async", store_url, tmp_path) as bench:
        point = bench.refunds()
        passes: list[str] = []
        go_on, asked_late = asyncio.Event(), asyncio.Event()

        async def late() -> None:
            await asyncio.wait_for(go_on.wait(), 30)
            try:
                point.pause(Refund(order="late", amount=1))
            finally:
                asked_late.set()

        async def node(state: State) -> dict[str, Any]:
            passes.append("pass")
            if len(passes) == 1:
                background.append(asyncio.create_task(late()))
            note = point.pause(Refund(order="node", amount=1)).note
            go_on.set()
            await asyncio.wait_for(asked_late.wait(), 30)
            return {"log": [note]}

        background: list[asyncio.Task[None]] = []
        graph, adapter = bench.compile(alone(node))
        (event,) = await ask(bench, graph, adapter)

        try:
            result = await adapter.ainvoke(event.pause_token, {"approved": True, "note": "yes"})
        finally:
            (late_end,) = await asyncio.gather(*background, return_exceptions=True)

        assert isinstance(late_end, GraphInterrupt)
        assert result["log"] == ["yes"]
        assert bench.rows(SWALLOWED) == []
        assert bench.states() == ["applied"]


async def test_a_thread_whose_node_failed_after_its_answer_is_listed_until_a_delivery_finishes_it(bench: Bench) -> None:
    ledger = Ledger(node=1)
    graph, adapter = bench.compile(alone(asking(bench.refunds(), ledger)))
    (event,) = await ask(bench, graph, adapter)
    assert await bench.call(adapter, "failed") == []
    await answer(bench, adapter, event)
    assert await bench.call(adapter, "failed") == []  # not tried yet: recover() delivers it

    with pytest.raises(ConnectionError):
        await bench.call(adapter, "deliver", "t1")
    assert [f.thread_id for f in await bench.call(adapter, "failed")] == ["t1"]
    assert await bench.call(adapter, "recover") == []
    assert [f.thread_id for f in await bench.call(adapter, "failed")] == ["t1"]

    await bench.call(adapter, "deliver", "t1")
    assert await bench.call(adapter, "failed") == []
    assert ledger.entries == ["node=for node"] * 2
