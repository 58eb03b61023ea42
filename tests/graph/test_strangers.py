"""What another tenant can find out about a pause, a point or the traffic of the service: nothing. And a key is its actor's."""

from __future__ import annotations

import asyncio
import operator
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
import sqlalchemy as sa
from langgraph.graph import START, StateGraph

from symfonic_interrupts import (
    FrameworkTenantScope,
    InterruptError,
    ScopeMismatch,
    ScopeRequired,
    TokenConsumed,
    UnknownInterrupt,
)
from symfonic_interrupts.registry import Registry
from tests.harness import ACME, Bench, Decision, Refund, thread

GLOBEX = FrameworkTenantScope("globex")


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def desk(bench: Bench, **options: Any) -> tuple[Any, Any]:
    """A graph that asks once, and its adapter."""
    point = bench.refunds(**options)
    builder = StateGraph(State).add_node("gate", lambda state: {"log": [point.pause(Refund(order="A", amount=1)).note]})
    return bench.compile(builder.add_edge(START, "gate"))


async def ask(bench: Bench, graph: Any, adapter: Any, thread_id: str = "t1", scope: Any = ACME) -> Any:
    """The event of a new pause."""
    await bench.call(graph, "invoke", {"log": []}, thread(thread_id, tenant_id=scope.tenant_id))
    (event,) = await bench.call(adapter, "pending", scope=scope, thread_id=thread_id)
    return event


async def refusal(bench: Bench, adapter: Any, method: str, *args: Any, **kwargs: Any) -> tuple[type[Exception], str]:
    """What a call says to a stranger."""
    with pytest.raises(InterruptError) as refused:
        await bench.call(adapter, method, *args, scope=GLOBEX, **kwargs)
    return type(refused.value), str(refused.value)


def change(bench: Bench, statement: str) -> None:
    engine = sa.create_engine(bench.store_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


async def test_of_anothers_pause_nothing_is_told_by_its_id_whatever_became_of_it(bench: Bench) -> None:
    graph, adapter = desk(bench)
    event = await ask(bench, graph, adapter)
    unknown = await refusal(bench, adapter, "view", "i-000000000000")

    seen = [await refusal(bench, adapter, "view", event.interrupt_id)]
    change(bench, "UPDATE interrupt_pauses SET payload = '{}'")
    seen.append(await refusal(bench, adapter, "view", event.interrupt_id))
    bench.interrupts._hub.registry = Registry(bench.interrupts.config)
    seen.append(await refusal(bench, adapter, "view", event.interrupt_id))

    assert unknown == (UnknownInterrupt, "no pause of this graph and scope has that interrupt_id")
    assert seen == [unknown] * 3


async def test_a_strangers_token_is_refused_alike_whatever_became_of_its_pause_and_its_point(bench: Bench) -> None:
    graph, adapter = desk(bench)
    event = await ask(bench, graph, adapter)

    seen = [await refusal(bench, adapter, "answer", event.pause_token, {"approved": True})]
    await bench.call(adapter, "invoke", event.pause_token, {"approved": True})
    seen.append(await refusal(bench, adapter, "answer", event.pause_token, {"approved": True}))
    change(bench, "DELETE FROM interrupt_pauses")
    seen.append(await refusal(bench, adapter, "answer", event.pause_token, {"approved": True}))
    bench.interrupts._hub.registry = Registry(bench.interrupts.config)
    seen.append(await refusal(bench, adapter, "answer", event.pause_token, {"approved": True}))

    assert seen[0][0] is ScopeMismatch
    assert seen == [seen[0]] * 4


async def test_a_page_after_anothers_pause_is_the_page_after_one_that_there_is_not(bench: Bench) -> None:
    graph, adapter = desk(bench)
    await ask(bench, graph, adapter, "g1", GLOBEX)
    theirs = await ask(bench, graph, adapter)

    for after in ("i-000000000000", theirs.interrupt_id):
        assert await bench.call(adapter, "pending", scope=GLOBEX, after=after) == []


async def test_cursors_are_good_for_their_own_scope_only_and_count_nothing(bench: Bench) -> None:
    graph, adapter = desk(bench)
    await ask(bench, graph, adapter)
    (mine,) = await bench.call(adapter, "events", scope=ACME)
    now = await bench.call(adapter, "event_cursor", scope=ACME)
    xid, number = bench.rows("SELECT xid, id FROM interrupt_events")[0]

    for cursor in (mine.cursor, now, f"{xid}-{number}"):
        with pytest.raises(ValueError, match="for this graph and scope"):
            await bench.call(adapter, "events", scope=GLOBEX, after=cursor)
    with pytest.raises(ValueError, match="for this graph and scope"):
        await bench.call(adapter, "events", scope=ACME, after=f"{xid}-{number}")
    assert await bench.call(adapter, "events", scope=ACME, after=mine.cursor) == []
    assert now != await bench.call(adapter, "event_cursor", scope=ACME)
    assert {len(mine.cursor), len(now)} == {54}


async def test_the_cursor_of_now_needs_a_scope_where_there_is_no_default(bench: Bench) -> None:
    bench.interrupts._hub.config = replace(bench.interrupts.config, default_scope=None)
    _, adapter = desk(bench)

    with pytest.raises(ScopeRequired):
        await bench.call(adapter, "event_cursor")


async def test_refusals_of_one_stranger_fill_nobodys_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    graph, adapter = desk(bench)
    event = await ask(bench, graph, adapter)

    for _ in range(20):
        await refusal(bench, adapter, "answer", event.pause_token, {"approved": True}, actor="eve")

    (body,) = [found.body for found in await bench.call(adapter, "events") if found.type == "interrupt_refused"]
    assert (body["code"], body["count"], body["actor"]) == ("scope_mismatch", 1, "eve")
    assert [record.name for record in caplog.records] == ["symfonic_interrupts.audit"]
    assert bench.rows("SELECT count FROM interrupt_refusals") == [(20,)]


@pytest.mark.parametrize("first", ["kim", None])
async def test_an_idempotency_key_is_its_actors(bench: Bench, first: str | None) -> None:
    graph, adapter = desk(bench, cross_scope_allowed=True)
    event = await ask(bench, graph, adapter)
    same: dict[str, Any] = {"idempotency_key": "k"}
    given = await bench.call(adapter, "answer", event.pause_token, {"approved": True}, actor=first, **same)

    for other in ({"actor": "eve"}, {"actor": None if first else "kim"}, {"actor": first, "scope": GLOBEX}):
        with pytest.raises(TokenConsumed):
            await bench.call(adapter, "answer", event.pause_token, {"approved": True}, **other, **same)

    assert await bench.call(adapter, "answer", event.pause_token, {"approved": True}, actor=first, **same) == given


async def test_a_key_is_its_actors_also_where_two_come_at_once(bench: Bench) -> None:
    graph, adapter = desk(bench)
    event = await ask(bench, graph, adapter)
    actors = [f"actor-{number % 2}" for number in range(8)]

    results = await asyncio.gather(
        *(
            bench.call(adapter, "answer", event.pause_token, {"approved": True}, actor=actor, idempotency_key="k")
            for actor in actors
        ),
        return_exceptions=True,
    )

    (winner,) = {result.actor for result in results if not isinstance(result, BaseException)}
    for actor, result in zip(actors, results, strict=True):
        assert isinstance(result, TokenConsumed) == (actor != winner)


async def test_an_answer_is_checked_off_the_event_loop_and_a_sync_call_checks_where_it_is(bench: Bench) -> None:
    where: list[threading.Thread] = []

    def check(decision: Decision, refund: Refund) -> None:
        where.append(threading.current_thread())
        if not decision.approved:
            raise ValueError("say yes")

    graph, adapter = desk(bench, validate_response=check)
    event = await ask(bench, graph, adapter)
    here: list[threading.Thread] = []

    def sync_call() -> None:
        here.append(threading.current_thread())
        with pytest.raises(InterruptError, match="say yes"):
            adapter.answer(event.pause_token, {"approved": False})

    if bench.mode == "async":
        with pytest.raises(InterruptError, match="say yes"):
            await adapter.aanswer(event.pause_token, {"approved": False})
        assert where[0].name.startswith("symfonic-checks")
    else:
        await asyncio.to_thread(sync_call)
        assert where == here


async def test_failed_threads_are_told_to_their_own_scope(bench: Bench) -> None:
    point = bench.refunds()

    def gate(state: State) -> dict[str, Any]:
        point.pause(Refund(order="A", amount=1))
        raise ValueError("broken")

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    for thread_id, scope in (("a1", ACME), ("g1", GLOBEX)):
        event = await ask(bench, graph, adapter, thread_id, scope)
        with pytest.raises(ValueError, match="broken"):
            await bench.call(adapter, "invoke", event.pause_token, {"approved": True}, scope=scope)
    bench.clock.move(timedelta(minutes=1))

    assert [f.thread_id for f in await bench.call(adapter, "failed", scope=ACME)] == ["a1"]
    assert [f.thread_id for f in await bench.call(adapter, "failed", scope=GLOBEX)] == ["g1"]
    assert [f.thread_id for f in await bench.call(adapter, "failed")] == ["a1", "g1"]
