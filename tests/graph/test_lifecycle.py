"""What operators do: new tokens, no tokens, loops in the background, cleaning up, changing keys."""

from __future__ import annotations

import asyncio
import itertools
import operator
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import (
    FrameworkTenantScope,
    Interrupts,
    KeyRing,
    PauseSuperseded,
    ScopeMismatch,
    StoreError,
    TokenConsumed,
    TokenInvalid,
    UnknownInterrupt,
    UsageError,
)
from tests.harness import CONFIG, KEY, Bench, Decision, Refund, pauses, thread

HOUR = timedelta(hours=1)


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def paused(bench: Bench, **options: Any) -> tuple[Any, Any, Any]:
    point = bench.refunds(**options)

    def gate(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="A1", amount=90)).note]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    (event,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode="custom"))
    return graph, adapter, event


async def test_a_reissued_token_works_and_the_old_one_is_dead(bench: Bench) -> None:
    _, adapter, old = await paused(bench)

    new = await bench.call(adapter, "reissue", old.interrupt_id, ttl=2 * HOUR)

    assert (new.interrupt_id, new.payload) == (old.interrupt_id, old.payload)
    assert new.pause_token != old.pause_token
    with pytest.raises(TokenConsumed) as refused:
        await bench.call(adapter, "answer", old.pause_token, {"approved": True})
    assert refused.value.state == "reissued"
    assert [e.pause_token for e in await bench.call(adapter, "pending")] == [new.pause_token]
    result = await bench.call(adapter, "invoke", new.pause_token, {"approved": True, "note": "new"})
    assert result["log"] == ["new"]
    assert ("interrupt_reissued",) in bench.rows("SELECT type FROM interrupt_events")


async def test_an_expired_pause_is_opened_again_by_a_new_token(bench: Bench) -> None:
    bench.clock.move(-3 * HOUR)
    _, adapter, old = await paused(bench, ttl=HOUR)
    bench.clock.move(3 * HOUR)
    await bench.call(bench.interrupts.janitor(adapter), "sweep")
    assert bench.states() == ["expired"]

    new = await bench.call(adapter, "reissue", old.interrupt_id)

    assert bench.states() == ["pending"]
    assert (await bench.call(adapter, "invoke", new.pause_token, {"approved": True, "note": "late"}))["log"] == ["late"]


async def test_a_run_that_asks_again_announces_the_reissued_token(bench: Bench) -> None:
    graph, adapter, old = await paused(bench)
    new = await bench.call(adapter, "reissue", old.interrupt_id)

    (event,) = pauses(await bench.collect(graph, "stream", None, thread(), stream_mode="custom"))

    assert event.pause_token == new.pause_token


async def test_a_revoked_token_is_dead_and_the_thread_stays(bench: Bench) -> None:
    graph, adapter, event = await paused(bench)

    await bench.call(adapter, "revoke", event.interrupt_id, reason="asked by mistake")

    with pytest.raises(TokenConsumed) as refused:
        await bench.call(adapter, "answer", event.pause_token, {"approved": True})
    assert refused.value.state == "revoked"
    assert (await bench.call(graph, "get_state", thread())).next == ("gate",)
    ((body,),) = bench.rows("SELECT body FROM interrupt_events WHERE type='interrupt_revoked'")
    assert body == '{"name":"approval","reason":"asked by mistake"}'


async def test_what_cannot_be_reissued_or_revoked_says_why(bench: Bench) -> None:
    graph, adapter, event = await paused(bench)
    with pytest.raises(UnknownInterrupt):
        await bench.call(adapter, "reissue", "i-000000000000")
    with pytest.raises(UsageError, match="max_ttl"):
        await bench.call(adapter, "reissue", event.interrupt_id, ttl=timedelta(days=31))
    for ttl in (timedelta(0), 3600):
        with pytest.raises(UsageError, match="ttl must be a timedelta above zero"):
            await bench.call(adapter, "reissue", event.interrupt_id, ttl=ttl)
    with pytest.raises(UsageError, match="reason"):
        await bench.call(adapter, "revoke", event.interrupt_id, reason=" ")
    for call, options in (("reissue", {}), ("revoke", {"reason": "x"})):
        with pytest.raises(ScopeMismatch):
            await bench.call(adapter, call, event.interrupt_id, scope=FrameworkTenantScope("globex"), **options)

    await bench.call(adapter, "answer", event.pause_token, {"approved": True})
    for call, options in (("reissue", {}), ("revoke", {"reason": "x"})):
        with pytest.raises(TokenConsumed, match="answered"):
            await bench.call(adapter, call, event.interrupt_id, **options)

    (other,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread("t2"), stream_mode="custom"))
    await bench.call(graph, "update_state", thread("t2"), {"log": ["moved on"]})
    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "reissue", other.interrupt_id)


async def test_a_purge_deletes_what_has_ended_and_never_revives_a_token(bench: Bench) -> None:
    bench.clock.move(-30 * HOUR)
    graph, adapter, done = await paused(bench, ttl=HOUR)
    await bench.call(graph, "invoke", {"log": []}, thread("open"))
    bench.clock.move(30 * HOUR)
    open_ = await bench.collect(graph, "stream", {"log": []}, thread("fresh"), stream_mode="custom")
    await bench.call(bench.interrupts.janitor(adapter), "sweep")
    janitor = bench.interrupts.janitor(adapter)
    assert bench.states() == ["expired", "expired", "pending"]
    before = bench.rows("SELECT count(*) FROM interrupt_events")

    assert await bench.call(janitor, "purge", 48 * HOUR) == {"pauses": 0, "tokens": 0, "events": 0}
    assert await bench.call(janitor, "purge", HOUR) == {"pauses": 2, "tokens": 0, "events": 0}

    assert bench.states() == ["pending"]
    bench.clock.move(-30 * HOUR)  # even where a clock would let it pass
    with pytest.raises((TokenConsumed, TokenInvalid)):
        await bench.call(adapter, "answer", done.pause_token, {"approved": True})
    bench.clock.move(30 * HOUR)
    assert bench.rows("SELECT count(*) FROM interrupt_events") == before
    assert [e.pause_token for e in await bench.call(adapter, "pending")] == [pauses(open_)[0].pause_token]
    with pytest.raises(UsageError, match="older_than"):
        await bench.call(janitor, "purge", -HOUR)


async def test_a_worker_delivers_what_is_stored_sweeps_what_is_overdue_and_stops(bench: Bench) -> None:
    bench.clock.move(-3 * HOUR)
    graph, adapter, overdue = await paused(bench, ttl=HOUR, on_expire=Decision(approved=False, note="default"))
    bench.clock.move(3 * HOUR)
    (stored,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread("t2"), stream_mode="custom"))
    await bench.call(adapter, "answer", stored.pause_token, {"approved": True, "note": "stored"})
    worker = bench.interrupts.worker(adapter)
    swept = threading.Event()

    def stop(event: Any) -> None:
        worker.stop()
        swept.set()

    bench.interrupts.subscribe(stop)

    async with asyncio.timeout(30):
        await bench.call(worker, "run", timedelta(milliseconds=20))

    assert swept.is_set()
    assert (await bench.call(graph, "get_state", thread())).values["log"] == ["default"]
    assert (await bench.call(graph, "get_state", thread("t2"))).values["log"] == ["stored"]
    assert bench.states() == ["applied", "applied"]
    assert overdue.interrupt_id != stored.interrupt_id


async def test_a_worker_that_waits_is_stopped_at_once_from_another_thread(bench: Bench) -> None:
    _, adapter, _ = await paused(bench)
    janitor = bench.interrupts.janitor(adapter)
    threading.Timer(0.05, janitor.stop).start()

    async with asyncio.timeout(30):
        await bench.call(janitor, "run", HOUR)

    with pytest.raises(UsageError, match="interval"):
        await bench.call(bench.interrupts.worker(adapter), "run", timedelta(0))


async def test_a_worker_ends_with_an_error_that_will_not_pass(bench: Bench) -> None:
    _, adapter, _ = await paused(bench)
    worker = bench.interrupts.worker(adapter)
    bench.interrupts.close()

    with pytest.raises(StoreError, match="closed"):
        await bench.call(worker, "run", HOUR)


OLD, NEW = KEY, b"a newer test key of 32 bytes ...."


def hub(bench: Bench, keys: KeyRing) -> tuple[Interrupts, Any, Any]:
    """Another process's view: the same database and saver, other keys."""
    interrupts = Interrupts(bench.store_url, keys=keys, config=CONFIG, clock=bench.clock)
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

    def gate(state: State) -> dict[str, Any]:
        first = point.pause(Refund(order="first", amount=1))
        second = point.pause(Refund(order="second", amount=2))
        return {"log": [first.note, second.note]}

    builder = StateGraph(State).add_node("gate", gate).add_edge(START, "gate")
    graph = builder.compile(checkpointer=interrupts.checkpointer(bench.saver))
    return interrupts, graph, interrupts.resume_adapter(graph)


async def test_keys_are_rotated_without_a_failed_answer_and_an_earlier_answer_is_read_again_with_a_retired_key(
    bench: Bench,
) -> None:
    rings = [KeyRing([OLD]), KeyRing([OLD, NEW]), KeyRing([NEW, OLD]), KeyRing([NEW], retired=[OLD])]
    old, both, turned, retired = (hub(bench, ring) for ring in rings)
    (asked,) = pauses(await bench.collect(old[1], "stream", {"log": []}, thread(), stream_mode="custom"))
    (other,) = pauses(await bench.collect(both[1], "stream", {"log": []}, thread("t2"), stream_mode="custom"))
    (newest,) = pauses(await bench.collect(turned[1], "stream", {"log": []}, thread("t3"), stream_mode="custom"))

    await bench.call(
        both[2], "invoke", newest.pause_token, {"approved": True, "note": "t3"}
    )  # signed by what is second here
    await bench.call(turned[2], "invoke", asked.pause_token, {"approved": True, "note": "one"})
    await bench.call(turned[2], "invoke", other.pause_token, {"approved": True, "note": "t2"})
    (second,) = await bench.call(retired[2], "pending", thread_id="t1")
    result = await bench.call(retired[2], "invoke", second.pause_token, {"approved": True, "note": "two"})

    assert result["log"] == ["one", "two"]
    with pytest.raises(TokenInvalid, match="not in use"):
        await bench.call(retired[2], "answer", asked.pause_token, {"approved": True})
    for interrupts, _, _ in (old, both, turned, retired):
        interrupts.close()


async def test_a_ring_says_what_dropping_a_key_would_strand(bench: Bench) -> None:
    ring = KeyRing([NEW, OLD])
    old, turned = hub(bench, KeyRing([OLD])), hub(bench, ring)
    await bench.call(old[1], "invoke", {"log": []}, thread())
    await bench.call(turned[1], "invoke", {"log": []}, thread("t2"))
    await bench.call(turned[1], "invoke", {"log": []}, thread("t3"))
    new_kid, old_kid = ring.kids

    assert ring.check(turned[0]) == {new_kid: 2, old_kid: 1}
    assert KeyRing([NEW]).check(turned[0]) == {new_kid: 2, old_kid: 1}

    (event,) = await bench.call(turned[2], "pending", thread_id="t1")
    await bench.call(turned[2], "invoke", event.pause_token, {"approved": True, "note": "one"})
    found = ring.check(turned[0])
    assert found[old_kid] == 1  # the first answer's row waits for the second question
    (event,) = await bench.call(turned[2], "pending", thread_id="t1")
    await bench.call(turned[2], "invoke", event.pause_token, {"approved": True, "note": "two"})
    assert ring.check(turned[0]) == {new_kid: 2, old_kid: 0}
    for interrupts, _, _ in (old, turned):
        interrupts.close()


def test_keys_are_rotated_worker_by_worker_under_load_without_a_failed_answer(store_url: str) -> None:
    rings = [KeyRing([OLD]), KeyRing([OLD, NEW]), KeyRing([NEW, OLD]), KeyRing([NEW], retired=[OLD])]
    saver = InMemorySaver()
    made: list[Interrupts] = []

    def worker(ring: KeyRing) -> tuple[Any, Any]:
        interrupts = Interrupts(store_url, keys=ring, config=CONFIG)
        made.append(interrupts)
        interrupts.create_schema()
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        node = point.node(payload=lambda state: Refund(order="A", amount=1))(lambda state, d: {"log": [d.note]})
        builder = StateGraph(State).add_node("gate", node).add_edge(START, "gate")
        graph = builder.compile(checkpointer=interrupts.checkpointer(saver))
        return graph, interrupts.resume_adapter(graph)

    def ask(asker: tuple[Any, Any], thread_id: str) -> str:
        chunks = list(asker[0].stream({"log": []}, thread(thread_id), stream_mode="custom"))
        return pauses(chunks)[0].pause_token

    def answer(answerer: tuple[Any, Any], token: str) -> list[str]:
        log: list[str] = answerer[1].invoke(token, {"approved": True, "note": "ok"})["log"]
        return log

    workers = [worker(rings[0])] * 3
    waiting: list[str] = []
    done: list[list[str]] = []
    with ThreadPoolExecutor(4) as pool:
        for stage, ring in enumerate(rings):
            for restarted in range(3):
                if stage == 3 and restarted == 0:  # the longest time to live has passed
                    done += pool.map(answer, itertools.cycle(workers), waiting)
                    waiting = []
                workers[restarted] = worker(ring)
                names = [f"t{stage}-{restarted}-{n}" for n in range(8)]
                tokens = list(pool.map(ask, itertools.cycle(workers), names))
                now, later = (tokens, []) if stage == 3 else (tokens[:6], tokens[6:])
                waiting += later
                done += pool.map(answer, itertools.cycle(workers[1:] + workers[:1]), now)

    assert done == [["ok"]] * (4 * 3 * 8)
    assert waiting == []
    for interrupts in made:
        interrupts.close()
