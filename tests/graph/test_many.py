"""Many answers in one call: all are stored or none is, each thread is driven once, and the error says which answer it was.

`SYMFONIC_LONG=1 pytest tests/graph/test_many.py` has the large fan-out on every bench, not only on the quickest.
"""

from __future__ import annotations

import asyncio
import operator
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from symfonic_interrupts import (
    FrameworkTenantScope,
    InterruptError,
    PauseSuperseded,
    ResponseInvalid,
    ScopeMismatch,
    TokenConsumed,
    TokenExpired,
    TokenInvalid,
    UsageError,
)
from tests.harness import ACME, Bench, Decision, Refund, open_bench, thread

LEASES = "SELECT * FROM interrupt_thread_leases"
SPENT = "SELECT jti FROM interrupt_consumed_tokens"


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Desk:
    """A graph with one question, run in several threads; counts the bodies of each.

    Attributes:
        bodies: how often each thread's body ran, after its answer.
        failing: threads whose body raises, once.
    """

    def __init__(self, bench: Bench, **options: Any) -> None:
        self.bench = bench
        self.bodies: Counter[str] = Counter()
        self.failing: set[str] = set()
        point = bench.refunds(**options)

        def body(state: State, decision: Decision) -> dict[str, Any]:
            order = state["log"][0]
            self.bodies[order] += 1
            if order in self.failing:
                self.failing.remove(order)
                raise ConnectionError("the ledger is away")
            return {"log": [decision.note]}

        gate = point.node(payload=lambda state: Refund(order=state["log"][0], amount=1))(body)
        self.graph, self.adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))

    async def ask(self, thread_id: str, **configurable: Any) -> str:
        """Pause a thread; its token."""
        place = thread(thread_id, **configurable)
        await self.bench.call(self.graph, "invoke", {"log": [thread_id]}, place)
        scope = FrameworkTenantScope(place["configurable"]["tenant_id"])
        (event,) = await self.bench.call(self.adapter, "pending", thread_id=thread_id, scope=scope)
        return str(event.pause_token)

    async def invoke_many(self, *answers: Any, **kwargs: Any) -> Any:
        return await self.bench.call(self.adapter, "invoke_many", list(answers), **kwargs)

    def state(self, thread_id: str) -> str:
        ((state,),) = self.bench.rows(f"SELECT state FROM interrupt_pauses WHERE thread_id = '{thread_id}'")
        return str(state)


def yes(note: str) -> dict[str, Any]:
    return {"approved": True, "note": note}


def check(decision: Decision, refund: Refund) -> None:
    if decision.note == "no reason":
        raise ValueError("a reason is needed")


Spoil = Callable[[Desk, str], Awaitable[Any]]


async def _wrong_shape(desk: Desk, token: str) -> Any:
    return token, {"approved": "perhaps"}


async def _refused_by_the_validator(desk: Desk, token: str) -> Any:
    return token, yes("no reason")


async def _spent(desk: Desk, token: str) -> Any:
    await desk.bench.call(desk.adapter, "answer", token, yes("earlier"))
    return token, yes("later")


async def _revoked(desk: Desk, token: str) -> Any:
    (event,) = await desk.bench.call(desk.adapter, "pending", thread_id="bad")
    await desk.bench.call(desk.adapter, "revoke", event.interrupt_id, reason="by mistake")
    return token, yes("bad")


async def _superseded(desk: Desk, token: str) -> Any:
    await desk.bench.call(desk.graph, "update_state", thread("bad"), {"log": ["by hand"]})
    return token, yes("bad")


async def _of_another_scope(desk: Desk, token: str) -> Any:
    return await desk.ask("elsewhere", tenant_id="globex"), yes("bad")


async def _forged(desk: Desk, token: str) -> Any:
    return token[:-4] + "AAAA", yes("bad")


async def _no_pair(desk: Desk, token: str) -> Any:
    return token


BAD: list[tuple[Spoil, type[InterruptError], str]] = [
    (_wrong_shape, ResponseInvalid, "pending"),
    (_refused_by_the_validator, ResponseInvalid, "pending"),
    (_spent, TokenConsumed, "answered"),
    (_revoked, TokenConsumed, "revoked"),
    (_superseded, PauseSuperseded, "superseded"),
    (_of_another_scope, ScopeMismatch, "pending"),
    (_forged, TokenInvalid, "pending"),
    (_no_pair, UsageError, "pending"),
]


@pytest.mark.parametrize(("spoil", "refusal", "left"), BAD, ids=[spoil.__name__.strip("_") for spoil, _, _ in BAD])
async def test_one_bad_answer_among_many_is_named_and_none_is_spent_and_nothing_runs(
    bench: Bench, spoil: Spoil, refusal: type[InterruptError], left: str
) -> None:
    desk = Desk(bench, validate_response=check)
    good = {name: (await desk.ask(name), yes(name)) for name in ("one", "two", "three")}
    bad = await spoil(desk, await desk.ask("bad"))
    spent = bench.rows(SPENT)

    with pytest.raises(refusal, match=r"^answers\[2\]: ") as refused:
        await desk.invoke_many(good["one"], good["two"], bad, good["three"])

    assert refused.value.index == 2
    assert [desk.state(name) for name in good] == ["pending"] * 3
    assert desk.state("bad") == left
    assert bench.rows(SPENT) == spent
    assert bench.rows(LEASES) == []
    assert (
        bench.rows("SELECT type FROM interrupt_events WHERE type = 'interrupt_resolved' AND thread_id <> 'bad'") == []
    )
    assert desk.bodies == {}
    deliveries = await desk.invoke_many(*good.values())
    assert [(delivery.thread_id, delivery.output["log"]) for delivery in deliveries] == [
        ("one", ["one", "one"]),
        ("two", ["two", "two"]),
        ("three", ["three", "three"]),
    ]


async def test_a_token_that_stands_twice_in_the_list_is_refused_at_its_second_place(bench: Bench) -> None:
    desk = Desk(bench)
    one, two = await desk.ask("one"), await desk.ask("two")

    with pytest.raises(UsageError, match=r"^answers\[2\]: .*twice") as refused:
        await desk.invoke_many((one, yes("a")), (two, yes("b")), (one, yes("a")))

    assert refused.value.index == 2
    assert bench.states() == ["pending", "pending"]
    assert desk.bodies == {}


async def test_a_token_whose_time_is_over_spoils_the_list_and_the_others_stay_good(
    mode: str, sqlite_url: str, tmp_path: Path
) -> None:
    async with open_bench(mode, sqlite_url, tmp_path) as bench:  # the clock of PostgreSQL cannot be set
        desk = Desk(bench)
        early = await desk.ask("early")
        bench.clock.move(timedelta(hours=23))
        late = await desk.ask("late")
        bench.clock.move(timedelta(hours=2))

        with pytest.raises(TokenExpired, match=r"^answers\[1\]: ") as refused:
            await desk.invoke_many((late, yes("late")), (early, yes("early")))

        assert refused.value.index == 1
        assert [desk.state("early"), desk.state("late")] == ["pending", "pending"]
        (delivery,) = await desk.invoke_many((late, yes("late")))
        assert delivery.output["log"] == ["late", "late"]


async def test_a_wrong_argument_for_the_graph_is_refused_before_any_token_is_spent(bench: Bench) -> None:
    desk = Desk(bench)
    answers = [(await desk.ask(name), yes(name)) for name in ("one", "two")]

    for wrong in ({"configurable": {"thread_id": "one"}}, {"configurable": {"tenant_id": "globex"}}):
        with pytest.raises(UsageError):
            await desk.invoke_many(*answers, config=wrong)

    assert bench.states() == ["pending", "pending"]
    assert desk.bodies == {}


async def test_each_thread_gets_its_own_answers_and_is_driven_once_in_the_order_of_the_list(bench: Bench) -> None:
    desk = Desk(bench)
    names = [f"thread {n}" for n in (3, 1, 4, 2, 5)]
    answers = [(await desk.ask(name), yes(f"for {name}")) for name in names]

    deliveries = await bench.call(
        desk.adapter, "invoke_many", (pair for pair in answers), scope=ACME, actor="a clerk", config={"tags": ["many"]}
    )

    assert [delivery.thread_id for delivery in deliveries] == names
    assert [delivery.output["log"] for delivery in deliveries] == [[name, f"for {name}"] for name in names]
    assert [(len(d.applied), d.unused, d.open, d.error) for d in deliveries] == [(1, (), (), None)] * 5
    assert desk.bodies == dict.fromkeys(names, 1)
    assert bench.rows("SELECT actor FROM interrupt_consumed_tokens") == [("a clerk",)] * 5
    assert bench.states() == ["applied"] * 5
    assert bench.rows(LEASES) == []


async def test_no_answers_are_no_deliveries(bench: Bench) -> None:
    desk = Desk(bench)
    await desk.ask("one")

    assert await desk.invoke_many() == []
    assert bench.states() == ["pending"]


async def test_a_thread_whose_node_fails_keeps_its_answer_and_does_not_keep_the_others(bench: Bench) -> None:
    desk = Desk(bench)
    desk.failing.add("two")
    answers = [(await desk.ask(name), yes(name)) for name in ("one", "two", "three")]

    deliveries = await desk.invoke_many(*answers)

    assert [repr(delivery.error) for delivery in deliveries] == [
        "None",
        "ConnectionError('the ledger is away')",
        "None",
    ]
    assert [desk.state(name) for name in ("one", "two", "three")] == ["applied", "answered", "applied"]
    assert (await bench.call(desk.adapter, "deliver", "two")).output["log"] == ["two", "two"]
    assert desk.bodies == {"one": 1, "two": 2, "three": 1}


def fan_out(bench: Bench, bodies: Counter[int], joins: list[int]) -> tuple[Any, Any]:
    """As many tasks as the input has entries; each asks. Counts the bodies, and what the join saw."""
    point = bench.refunds()

    def review(item: dict[str, Any]) -> dict[str, Any]:
        bodies[item["n"]] += 1
        return {"log": [f"{item['n']}:{point.pause(Refund(order='item', amount=item['n'])).note}"]}

    def join(state: State) -> dict[str, Any]:
        joins.append(sum(":" in entry for entry in state["log"]))
        return {"log": []}

    def spread(state: State) -> list[Send]:
        return [Send("review", {"n": n}) for n in range(len(state["log"]))]

    asking: Any = review
    builder = StateGraph(State).add_node("join", join).add_node("review", asking)
    builder.add_conditional_edges(START, spread, ["review"]).add_edge("review", "join")
    return bench.compile(builder)


async def asked_in(bench: Bench, adapter: Any, thread_id: str) -> list[tuple[str, dict[str, Any]]]:
    """The answers to a thread's open questions, each naming what it is for."""
    events = await bench.call(adapter, "pending", thread_id=thread_id, limit=1000)
    return [(event.pause_token, yes(f"for {event.payload['amount']}")) for event in events]


async def test_siblings_of_two_threads_mixed_in_one_list_run_their_bodies_exactly_twice(bench: Bench) -> None:
    bodies: Counter[int] = Counter()
    joins: list[int] = []
    graph, adapter = fan_out(bench, bodies, joins)
    for thread_id in ("left", "right"):
        await bench.call(graph, "invoke", {"log": ["-"] * 6}, thread(thread_id))
    left, right = await asked_in(bench, adapter, "left"), await asked_in(bench, adapter, "right")
    mixed = [pair for both in zip(left, right, strict=True) for pair in both]

    deliveries = await bench.call(adapter, "invoke_many", mixed)

    assert [delivery.thread_id for delivery in deliveries] == ["left", "right"]
    for delivery in deliveries:
        assert delivery.output["log"][6:] == [f"{n}:for {n}" for n in range(6)]
        assert len(delivery.applied) == 6
    assert bodies == dict.fromkeys(range(6), 4)  # twice in each thread
    assert joins == [6, 6]
    assert bench.states() == ["applied"] * 12


async def test_some_of_a_threads_questions_leave_the_others_open_with_their_tokens(bench: Bench) -> None:
    bodies: Counter[int] = Counter()
    joins: list[int] = []
    graph, adapter = fan_out(bench, bodies, joins)
    await bench.call(graph, "invoke", {"log": ["-"] * 5}, thread())
    answers = await asked_in(bench, adapter, "t1")

    (delivery,) = await bench.call(adapter, "invoke_many", answers[:3])
    assert {event.pause_token for event in delivery.open} == {token for token, _ in answers[3:]}
    assert joins == []
    (delivery,) = await bench.call(adapter, "invoke_many", answers[3:])

    assert delivery.output["log"][5:] == [f"{n}:for {n}" for n in range(5)]
    assert joins == [5]
    assert bench.states() == ["applied"] * 5


ROUNDS = 8


async def test_of_two_lists_that_overlap_one_is_taken_whole_and_the_other_not_at_all(bench: Bench) -> None:
    desk = Desk(bench)
    for number in range(ROUNDS):
        names = [f"{number}-{n}" for n in range(6)]
        answers = [(await desk.ask(name), yes(name)) for name in names]
        lists = [(names[:4], answers[:4]), (names[:1:-1], answers[:1:-1])]  # they share two, in another order

        outcomes = await asyncio.gather(*(desk.invoke_many(*given) for _, given in lists), return_exceptions=True)

        refusals = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert [type(refusal) for refusal in refusals] == [TokenConsumed]
        won = next(index for index, outcome in enumerate(outcomes) if isinstance(outcome, list))
        taken, given = lists[won][0], lists[1 - won][0]
        (refusal,) = refusals
        assert isinstance(refusal, TokenConsumed)
        assert refusal.index is not None
        assert given[refusal.index] in taken
        assert [desk.state(name) for name in taken] == ["applied"] * 4
        assert [desk.state(name) for name in names if name not in taken] == ["pending"] * 2
        assert {name: desk.bodies[name] for name in names} == {name: int(name in taken) for name in names}
    assert len(bench.rows(SPENT)) == 4 * ROUNDS
    assert bench.rows(LEASES) == []


async def test_lists_of_siblings_in_one_thread_that_come_at_once_are_each_stored_whole_and_run_once(
    bench: Bench,
) -> None:
    bodies: Counter[int] = Counter()
    joins: list[int] = []
    graph, adapter = fan_out(bench, bodies, joins)
    await bench.call(graph, "invoke", {"log": ["-"] * 9}, thread())
    answers = await asked_in(bench, adapter, "t1")

    outcomes = await asyncio.gather(*(bench.call(adapter, "invoke_many", answers[n::3]) for n in range(3)))

    assert [delivery.error for outcome in outcomes for delivery in outcome] == [None] * 3
    state = await bench.call(graph, "get_state", thread())
    assert state.values["log"][9:] == [f"{n}:for {n}" for n in range(9)]
    assert joins == [9]
    assert bench.states() == ["applied"] * 9
    assert bench.rows(LEASES) == []


async def test_all_pauses_of_a_large_fan_out_are_answered_in_one_call_and_their_bodies_run_exactly_twice(
    bench: Bench, record_property: Any
) -> None:
    quick = bench.mode == "sync" and bench.store_url.startswith("sqlite")
    many = 1000 if quick or os.environ.get("SYMFONIC_LONG") else 100
    bodies: Counter[int] = Counter()
    joins: list[int] = []
    graph, adapter = fan_out(bench, bodies, joins)
    began = time.monotonic()
    await bench.call(graph, "invoke", {"log": ["-"] * many}, thread())
    paused = time.monotonic()
    answers = await asked_in(bench, adapter, "t1")
    listed = time.monotonic()

    (delivery,) = await bench.call(adapter, "invoke_many", answers)

    took = [round(t, 2) for t in (paused - began, listed - paused, time.monotonic() - listed)]
    record_property("seconds", {"pauses": many, "pause": took[0], "list": took[1], "answer and deliver": took[2]})
    print(f"{many} pauses: seconds to pause, list, answer and deliver: {took}")
    assert delivery.error is None
    assert delivery.output["log"][many:] == [f"{n}:for {n}" for n in range(many)]
    assert bodies == dict.fromkeys(range(many), 2)
    assert joins == [many]
    assert bench.rows("SELECT state, count(*) FROM interrupt_pauses GROUP BY state") == [("applied", many)]
    assert len(delivery.applied) == many
