"""Whoever races whom over a pause: one of them wins, the loser is told what the state calls for, and the record says it once.

Contenders start together at a barrier and have hubs, connections and savers of their own, as two processes would. Where one
has more to do than the other, its rival starts a few milliseconds later, another few each time, so that both come first now
and then. `SYMFONIC_LONG=1 pytest -s tests/contract/test_races.py` runs ten thousand races and prints who won how often.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import operator
import os
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from symfonic_interrupts import InterruptError, Interrupts, KeyRing
from tests.contract.graphs import open_saver
from tests.harness import CONFIG, KEY, Bench, Decision, Refund, open_bench, thread

LONG = bool(os.environ.get("SYMFONIC_LONG"))
ROUNDS = 180 if LONG else 7
"""Races of each kind on each bench."""
PROCESS_ROUNDS = 100 if LONG else 5
SECONDS = 600 if LONG else 60
BATCH = 10
HOUR = timedelta(hours=1)
HEAD_START = 0.012
DEFAULT = Decision(approved=False, note="default")
POINTS: dict[str, dict[str, Any]] = {"plain": {"ttl": HOUR}, "defaulted": {"ttl": HOUR, "on_expire": DEFAULT}}

Call = tuple[Any, ...]
"""(target, method, *arguments)."""


class State(TypedDict):
    ask: str
    log: Annotated[list[str], operator.add]


def racing_graph(interrupts: Interrupts, ran: list[str]) -> StateGraph[State]:
    """Asks at the point that its input names; the body notes the answer."""
    builder = StateGraph(State)
    for name, options in POINTS.items():
        point = interrupts.register_interrupt(name, payload_schema=Refund, response_schema=Decision, **options)

        def body(state: State, decision: Decision) -> dict[str, Any]:
            ran.append(decision.note)
            return {"log": [decision.note]}

        builder.add_node(name, point.node(payload=lambda state: Refund(order="A1", amount=90))(body))
    return builder.add_conditional_edges(START, lambda state: state["ask"], list(POINTS))


class Side:
    """One contender's world: hub, graph, adapter and janitor of its own."""

    def __init__(self, bench: Bench, ran: list[str]) -> None:
        self.bench = bench
        self.graph, self.adapter = bench.compile(racing_graph(bench.interrupts, ran))
        self.janitor = bench.interrupts.janitor(self.adapter)

    async def call(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return await self.bench.call(target, method, *args, **kwargs)


@dataclass
class Seen:
    """What the store says of one thread: its pauses' states, how their tokens were spent, and what is written of them."""

    states: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)


class Arena:
    """Two contenders over one store and one saver.

    Attributes:
        ran: the notes with which node bodies ran.
        won: who won how often; printed in the long form.
    """

    def __init__(self, one: Bench, two: Bench) -> None:
        self.ran: list[str] = []
        two.clock.now = one.clock.now
        self.one, self.two = Side(one, self.ran), Side(two, self.ran)
        self.is_async, self.on_sqlite = one.mode == "async", one.store_url.startswith("sqlite")
        self.won: Counter[str] = Counter()
        self._dice = random.Random(5)

    async def pause(self, count: int, ask: str = "plain", first: int = 0) -> list[Any]:
        """The events of `count` new paused threads."""
        found = []
        for number in range(first, first + count):
            config = thread(f"{ask}-{number}")
            await self.one.call(self.one.graph, "invoke", {"ask": ask, "log": []}, config)
            found += await self.one.call(self.one.adapter, "pending", thread_id=f"{ask}-{number}")
        assert len(found) == count
        return found

    def late(self) -> float:
        """Seconds by which the quicker contender starts later; another number each time."""
        return self._dice.uniform(0, HEAD_START)

    async def together(self, *contenders: Sequence[Call], late: Sequence[float] = (0, 0)) -> list[list[Any]]:
        """What each contender's calls, one after another, return or raise as `InterruptError`. They start together."""
        if self.is_async:
            return await self._as_tasks(contenders, late)
        return await asyncio.to_thread(self._as_threads, contenders, late)

    async def race(self, first: Call, second: Call, late: float = 0.0) -> list[Any]:
        """One call against another."""
        (one,), (two,) = await self.together([first], [second], late=(0, late))
        return [one, two]

    async def _as_tasks(self, contenders: Sequence[Sequence[Call]], late: Sequence[float]) -> list[list[Any]]:
        start = asyncio.Barrier(len(contenders))

        async def contend(calls: Sequence[Call], seconds: float) -> list[Any]:
            async with start:
                pass
            await asyncio.sleep(max(0.0, seconds))
            found: list[Any] = []
            for target, method, *args in calls:
                try:
                    found.append(await getattr(target, "a" + method)(*args))
                except InterruptError as error:
                    found.append(error)
            return found

        return await asyncio.gather(*map(contend, contenders, late))

    def _as_threads(self, contenders: Sequence[Sequence[Call]], late: Sequence[float]) -> list[list[Any]]:
        start = threading.Barrier(len(contenders))

        def contend(calls: Sequence[Call], seconds: float) -> list[Any]:
            start.wait(timeout=20)
            time.sleep(max(0.0, seconds))
            return [attempt(*call) for call in calls]

        with ThreadPoolExecutor(len(contenders)) as pool:
            return list(pool.map(contend, contenders, late, timeout=120))

    def seen(self) -> dict[str, Seen]:
        """The store's record, by thread; and that no lease is left, no token spent on what never was."""
        bench = self.one.bench
        found: dict[str, Seen] = {}
        joined = "SELECT p.thread_id, p.state, c.outcome FROM interrupt_pauses p LEFT JOIN interrupt_consumed_tokens c"
        for thread_id, state, outcome in bench.rows(f"{joined} ON c.jti = p.jti ORDER BY p.id"):
            there = found.setdefault(thread_id, Seen())
            there.states.append(state)
            there.outcomes += [outcome] if outcome else []
        for thread_id, kind in bench.rows("SELECT thread_id, type FROM interrupt_events ORDER BY id"):
            found[thread_id].events.append(kind)
        assert bench.rows("SELECT * FROM interrupt_thread_leases") == []
        spent = dict(bench.rows("SELECT outcome, count(*) FROM interrupt_consumed_tokens GROUP BY 1"))
        reissued = sum(there.events.count("interrupt_reissued") for there in found.values())
        assert Counter(spent) == Counter(o for s in found.values() for o in s.outcomes) + Counter(reissued=reissued)
        return found


def attempt(target: Any, method: str, *args: Any) -> Any:
    """What a call returns, or the `InterruptError` that it raises."""
    try:
        return getattr(target, method)(*args)
    except InterruptError as error:
        return error


def told(result: Any) -> str:
    """The type of a result, with the state that an error names."""
    state = getattr(result, "state", None)
    return type(result).__name__ + (f":{state}" if isinstance(result, InterruptError) and state else "")


def yes(note: str) -> dict[str, Any]:
    return {"approved": True, "note": note}


@pytest.fixture
async def arena(mode: str, store_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Arena]:
    async with open_bench(mode, store_url, tmp_path) as one, open_bench(mode, store_url, tmp_path) as two:
        found = Arena(one, two)
        yield found
        if LONG:
            print(f"\n{request.node.name}: {dict(found.won)}", end=" ")


ANSWERED = Seen(["answered"], ["answered"], ["interrupt", "interrupt_resolved"])
APPLIED = Seen(["applied"], ["answered"], ["interrupt", "interrupt_resolved"])
REVOKED = Seen(["revoked"], ["revoked"], ["interrupt", "interrupt_revoked"])
EXPIRED = Seen(["expired"], ["expired"], ["interrupt", "interrupt_expired"])
DEFAULTED = Seen(["applied"], ["answered"], ["interrupt", "interrupt_expired", "interrupt_resolved"])


# -- redeem against ...


async def test_of_two_redeemers_one_gets_a_receipt_and_its_answer_runs_once(arena: Arena) -> None:
    winners = []
    for number, event in enumerate(await arena.pause(ROUNDS)):
        notes = [f"{number}-one", f"{number}-two"]
        results = await arena.race(
            (arena.one.adapter, "answer", event.pause_token, yes(notes[0])),
            (arena.two.adapter, "answer", event.pause_token, yes(notes[1])),
        )
        assert sorted(map(told, results)) == ["AnswerReceipt", "TokenConsumed:answered"]
        winners.append(next(note for note, found in zip(notes, results, strict=True) if told(found) == "AnswerReceipt"))
        arena.won[winners[-1].split("-")[1]] += 1
    assert set(map(repr, arena.seen().values())) == {repr(ANSWERED)}

    await arena.one.call(arena.one.adapter, "recover")

    assert sorted(arena.ran) == sorted(winners)
    assert set(map(repr, arena.seen().values())) == {repr(APPLIED)}


async def test_of_a_redeemer_and_who_revokes_one_decides(arena: Arena) -> None:
    for number, event in enumerate(await arena.pause(ROUNDS)):
        results = await arena.race(
            (arena.one.adapter, "answer", event.pause_token, yes(str(number))),
            (Revoking(arena.two.adapter), "revoke", event.interrupt_id),
            arena.late(),
        )
        first = arena.seen()[event.thread_id]
        if told(results[0]) == "AnswerReceipt":
            arena.won["answer"] += 1
            assert (told(results[1]), first) == ("TokenConsumed:answered", ANSWERED)
        else:
            arena.won["revoke"] += 1
            assert ([told(results[0]), results[1]], first) == (["TokenConsumed:revoked", None], REVOKED)

    await arena.one.call(arena.one.adapter, "recover")

    assert len(arena.ran) == len(set(arena.ran)) == arena.won["answer"]


async def test_of_a_redeemer_and_who_reissues_one_decides_and_the_new_token_works(arena: Arena) -> None:
    for number, event in enumerate(await arena.pause(ROUNDS)):
        results = await arena.race(
            (arena.one.adapter, "answer", event.pause_token, yes(f"{number}-old")),
            (arena.two.adapter, "reissue", event.interrupt_id),
            arena.late(),
        )
        if told(results[0]) == "AnswerReceipt":
            arena.won["answer"] += 1
            assert told(results[1]) == "TokenConsumed:answered"
            assert arena.seen()[event.thread_id] == ANSWERED
        else:
            arena.won["reissue"] += 1
            assert [told(found) for found in results] == ["TokenConsumed:reissued", "InterruptEvent"]
            assert arena.seen()[event.thread_id] == Seen(["pending"], [], ["interrupt", "interrupt_reissued"])
            await arena.one.call(arena.one.adapter, "answer", results[1].pause_token, yes(f"{number}-new"))

    await arena.one.call(arena.one.adapter, "recover")

    assert len(arena.ran) == ROUNDS
    assert {seen.states[0] for seen in arena.seen().values()} == {"applied"}


async def test_of_a_redeemer_and_new_input_one_decides_and_the_old_answer_never_reaches_the_new_question(
    arena: Arena,
) -> None:
    for number, event in enumerate(await arena.pause(ROUNDS)):
        (found,), (output,) = await arena.together(
            [(arena.one.adapter, "answer", event.pause_token, yes(str(number)))],
            [(arena.two.graph, "invoke", {"ask": "plain", "log": []}, thread(event.thread_id))],
            late=(2 * arena.late(), 0),
        )
        assert output["__interrupt__"]
        before = arena.seen()[event.thread_id]
        if told(found) == "AnswerReceipt":
            arena.won["answer"] += 1
            assert (before.states, before.outcomes) == (["answered", "pending"], ["answered"])
        else:
            arena.won["input"] += 1
            assert told(found) == "PauseSuperseded"
            assert (before.states, before.outcomes) == (["superseded", "pending"], ["superseded"])

    await arena.one.call(arena.one.adapter, "recover")

    assert arena.ran == []
    for seen in arena.seen().values():
        outcome = (
            ["interrupt_superseded"] if seen.states[0] == "superseded" else ["interrupt_resolved", "interrupt_unused"]
        )
        assert seen.states in (["superseded", "pending"], ["unused", "pending"])
        assert sorted(seen.events) == sorted(["interrupt", "interrupt", *outcome])
    assert len(await arena.one.call(arena.one.adapter, "pending", limit=1000)) == ROUNDS


async def overdue(arena: Arena, events: list[Any]) -> tuple[list[Any], float]:
    """The events of pauses that are about to expire for both contenders, or have for the second; and in how many seconds."""
    if arena.on_sqlite:
        arena.two.bench.clock.now = arena.one.bench.clock.now + 2 * HOUR
        return events, 0.0
    end = math.floor(time.time()) + 3  # the server's clock is this machine's; a token's time ends at a whole second
    renewed = []
    for event in events:
        ttl = datetime.fromtimestamp(end - 0.3, UTC) - arena.one.bench.clock.now
        renewed.append(await arena.one.call(arena.one.adapter, "reissue", event.interrupt_id, ttl=ttl))
    assert {event.expires_at for event in renewed} == {datetime.fromtimestamp(end, UTC)}
    return renewed, end - time.time()


@pytest.mark.parametrize("ask", list(POINTS))
async def test_of_redeemers_and_a_sweep_at_the_moment_of_expiry_one_decides(arena: Arena, ask: str) -> None:
    swept: list[str] = []
    accepted: list[str] = []
    for first in range(0, ROUNDS, BATCH):
        count = min(BATCH, ROUNDS - first)
        events, seconds = await overdue(arena, await arena.pause(count, ask, first))
        # the sweep closes the oldest first, the redeemer comes from the other end: they meet
        answers = [(arena.one.adapter, "answer", event.pause_token, yes(event.thread_id)) for event in reversed(events)]
        spread = 0.02 * count * arena.late() / HEAD_START
        late = (max(0.0, seconds - spread), seconds + 0.001) if seconds else (0.0, spread)
        results, (report,) = await arena.together(answers, [(arena.two.janitor, "sweep")], late=late)
        for event, found in zip(reversed(events), results, strict=True):
            assert told(found) in ("AnswerReceipt", "TokenExpired")
            (accepted if told(found) == "AnswerReceipt" else swept).append(event.interrupt_id)
        assert [event.interrupt_id for event in report.events] == [
            e.interrupt_id for e in events if e.interrupt_id in swept
        ]
        assert [delivery.error for delivery in report.deliveries] == [None] * len(report.defaulted)
        assert report.defaulted == (() if ask == "plain" else tuple(event.interrupt_id for event in report.events))
    arena.won.update(answer=len(accepted), sweep=len(swept))

    await arena.one.call(arena.one.adapter, "recover")

    assert len(accepted) + len(swept) == ROUNDS
    assert sorted(arena.ran) == sorted(ran_of(arena, ask, accepted, swept))
    closed = EXPIRED if ask == "plain" else DEFAULTED
    for thread_id, seen in arena.seen().items():
        seen.events = [kind for kind in seen.events if kind != "interrupt_reissued"]
        assert seen == (APPLIED if thread_id in arena.ran else closed)


def ran_of(arena: Arena, ask: str, accepted: list[str], swept: list[str]) -> list[str]:
    """The notes with which bodies should have run: of accepted answers their threads' names, and one default per sweep."""
    by_id = dict(arena.one.bench.rows("SELECT interrupt_id, thread_id FROM interrupt_pauses"))
    return [by_id[id_] for id_ in accepted] + ([DEFAULT.note] * len(swept) if ask == "defaulted" else [])


# -- operators against each other, and against new input


async def test_of_who_revokes_and_who_reissues_each_has_its_way_and_the_pause_ends_revoked(arena: Arena) -> None:
    for event in await arena.pause(ROUNDS):
        revoked, renewed = await arena.race(
            (Revoking(arena.one.adapter), "revoke", event.interrupt_id),
            (arena.two.adapter, "reissue", event.interrupt_id),
            arena.late() / 4 - HEAD_START / 8,
        )
        arena.won["revoke" if told(renewed) == "TokenConsumed:revoked" else "reissue"] += 1
        assert (revoked, told(renewed)) in ((None, "TokenConsumed:revoked"), (None, "InterruptEvent"))
        between = ["interrupt_reissued"] if told(renewed) == "InterruptEvent" else []
        seen = arena.seen()[event.thread_id]
        assert seen == Seen(["revoked"], ["revoked"], ["interrupt", *between, "interrupt_revoked"])


async def test_of_two_who_reissue_both_get_a_token_and_one_of_them_works(arena: Arena) -> None:
    for number, event in enumerate(await arena.pause(ROUNDS)):
        both = await arena.race(
            (arena.one.adapter, "reissue", event.interrupt_id), (arena.two.adapter, "reissue", event.interrupt_id)
        )
        assert list(map(told, both)) == ["InterruptEvent"] * 2
        (listed,) = await arena.one.call(arena.one.adapter, "pending", thread_id=event.thread_id)
        assert [new.pause_token for new in both].count(listed.pause_token) == 1
        arena.won["one" if listed.pause_token == both[0].pause_token else "two"] += 1
        answers = [(arena.one.adapter, "answer", new.pause_token, yes(str(number))) for new in both]
        (results,) = await arena.together(answers, late=(0,))
        assert sorted(map(told, results)) in (["AnswerReceipt", f"TokenConsumed:{s}"] for s in ("reissued", "answered"))


async def test_new_input_leaves_nothing_listed_that_was_reissued_meanwhile(arena: Arena) -> None:
    for event in await arena.pause(ROUNDS):
        (renewed,), (output,) = await arena.together(
            [(arena.one.adapter, "reissue", event.interrupt_id)],
            [(arena.two.graph, "invoke", {"ask": "plain", "log": []}, thread(event.thread_id))],
            late=(2 * arena.late(), 0),
        )
        arena.won[told(renewed)] += 1
        assert told(renewed) in ("InterruptEvent", "PauseSuperseded")
        (listed,) = await arena.one.call(arena.one.adapter, "pending", thread_id=event.thread_id)
        assert listed.interrupt_id == output["__interrupt__"][0].value["interrupt_id"] != event.interrupt_id
        assert arena.seen()[event.thread_id].states == ["superseded", "pending"]


# -- those that drive a thread


@pytest.mark.parametrize("ask", list(POINTS))
async def test_two_janitors_close_each_pause_once_and_take_one_default(arena: Arena, ask: str) -> None:
    events = await arena.pause(ROUNDS, ask)
    if arena.on_sqlite:
        arena.one.bench.clock.move(2 * HOUR)
        arena.two.bench.clock.move(2 * HOUR)
        seconds = 0.0
    else:
        events, seconds = await overdue(arena, events)

    (one,), (two,) = await arena.together(
        [(arena.one.janitor, "sweep")], [(arena.two.janitor, "sweep")], late=(seconds, seconds)
    )

    closed = [event.interrupt_id for report in (one, two) for event in report.events]
    arena.won.update(one=len(one.events), two=len(two.events))
    assert sorted(closed) == sorted(event.interrupt_id for event in events)
    assert [delivery.error for report in (one, two) for delivery in report.deliveries if delivery.error] == []
    assert arena.ran == ([] if ask == "plain" else [DEFAULT.note] * ROUNDS)
    for seen in arena.seen().values():
        seen.events = [kind for kind in seen.events if kind != "interrupt_reissued"]
        assert seen == (EXPIRED if ask == "plain" else DEFAULTED)


@pytest.mark.parametrize("rival", ["deliver", "recover"])
async def test_two_workers_drive_a_thread_once(arena: Arena, rival: str) -> None:
    events = await arena.pause(ROUNDS)
    for event in events:
        await arena.one.call(arena.one.adapter, "answer", event.pause_token, yes(event.thread_id))
    deliver = [(arena.one.adapter, "deliver", event.thread_id) for event in events]
    others: list[Call] = [(arena.two.adapter, "deliver", event.thread_id) for event in events]

    mine, theirs = await arena.together(deliver, others if rival == "deliver" else [(arena.two.adapter, "recover")] * 3)

    if rival == "recover":
        theirs = [delivery for found in theirs for delivery in found]
    assert [found for found in (*mine, *theirs) if isinstance(found, InterruptError) or found.error] == []
    arena.won.update(one=sum(d.ran for d in mine), two=sum(d.ran for d in theirs))
    drove = [delivery for delivery in (*mine, *theirs) if delivery.ran]
    assert sorted(delivery.thread_id for delivery in drove) == sorted(event.thread_id for event in events)
    assert [len(delivery.applied) for delivery in drove] == [1] * ROUNDS
    assert [delivery.output["log"] for delivery in mine] == [[event.thread_id] for event in events]
    assert sorted(arena.ran) == sorted(event.thread_id for event in events)
    assert set(map(repr, arena.seen().values())) == {repr(APPLIED)}


# -- processes


class Revoking:
    """`revoke` with its reason."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def revoke(self, interrupt_id: str) -> None:
        self._adapter.revoke(interrupt_id, reason="a mistake")

    async def arevoke(self, interrupt_id: str) -> None:
        await self._adapter.arevoke(interrupt_id, reason="a mistake")


Round = tuple[tuple[str, str], tuple[str, str]]
"""What each of two processes does in one round: (method, argument)."""


def contend(number: int, place: tuple[str, str], barrier: Any, rounds: list[Round], results: Any) -> None:
    """One of the two processes: wait for the other, do its part of the round; in the end send what came of it."""
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(place[0], keys=KeyRing([KEY]), config=CONFIG))
        saver = interrupts.checkpointer(open_saver(stack, place[1]))
        adapter = interrupts.resume_adapter(racing_graph(interrupts, []).compile(checkpointer=saver))
        found: list[Any] = []
        for parts in rounds:
            method, argument = parts[number]
            more = (yes("go"),) if method == "answer" else ()
            barrier.wait(60)
            result = attempt(Revoking(adapter) if method == "revoke" else adapter, method, argument, *more)
            found.append(result.ran if method == "deliver" else told(result))
        results.send(found)


def fork_both(place: tuple[str, str], rounds: list[Round], results: Any) -> None:
    """A process that has imported everything, and holds no connection yet: it splits into the two."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    both = [
        context.Process(target=contend, args=(number, place, barrier, rounds, pipes[number][1]), daemon=True)
        for number in range(2)
    ]
    for process in both:
        process.start()
    results.send([receiving.recv() if receiving.poll(SECONDS) else None for receiving, _ in pipes])


def in_two_processes(place: tuple[str, str], rounds: list[Round]) -> list[tuple[Any, Any]]:
    """What the two processes got, round by round."""
    context = multiprocessing.get_context("spawn")  # a fork would copy this process's connections
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=fork_both, args=(place, rounds, sending))
    process.start()
    try:
        assert receiving.poll(2 * SECONDS), "the processes did not finish"
        return list(zip(*receiving.recv(), strict=True))
    finally:
        process.join(10)  # ends the two with it: they are daemons
        process.kill()
        process.join(10)
        receiving.close()
        sending.close()


LOSES = "TokenConsumed:answered"
REISSUED = Seen(["pending"], [], ["interrupt", "interrupt_reissued"])
RIVALS: dict[str, list[tuple[Seen, tuple[Any, Any]]]] = {
    "answer": [(ANSWERED, ("AnswerReceipt", LOSES)), (ANSWERED, (LOSES, "AnswerReceipt"))],
    "revoke": [(ANSWERED, ("AnswerReceipt", LOSES)), (REVOKED, ("TokenConsumed:revoked", "NoneType"))],
    "reissue": [(ANSWERED, ("AnswerReceipt", LOSES)), (REISSUED, ("TokenConsumed:reissued", "InterruptEvent"))],
    "deliver": [(APPLIED, (True, False)), (APPLIED, (False, True))],
}
"""By what the second of two processes does: what may come of it, in the store and for both."""


async def test_of_two_processes_one_decides(store_url: str, tmp_path: Path) -> None:
    checkpoints = str(tmp_path / "checkpoints.db") if store_url.startswith("sqlite") else store_url
    async with open_bench("sync", store_url, tmp_path) as bench, open_bench("sync", store_url, tmp_path) as two:
        arena = Arena(bench, two)
        rounds: list[Round] = []
        kinds: dict[str, str] = {}
        for event in await arena.pause(PROCESS_ROUNDS * len(RIVALS)):
            kinds[event.thread_id] = rival = list(RIVALS)[len(rounds) % len(RIVALS)]
            mine, theirs = ("answer", event.pause_token), (rival, event.interrupt_id)
            if rival == "answer":
                theirs = mine
            elif rival == "deliver":
                mine = theirs = ("deliver", event.thread_id)
                await arena.one.call(arena.one.adapter, "answer", event.pause_token, yes("go"))
            rounds.append((mine, theirs))

        results = await asyncio.to_thread(in_two_processes, (store_url, checkpoints), rounds)

        seen = arena.seen()
        for (thread_id, rival), found in zip(kinds.items(), results, strict=True):
            arena.won[f"{rival}: {found}"] += 1
            assert (seen[thread_id], found) in RIVALS[rival]
        await arena.one.call(arena.one.adapter, "recover")
        assert len(arena.ran) == sum("AnswerReceipt" in found for found in results)
        if LONG:
            print(f"\nin processes: {dict(arena.won)}", end=" ")
