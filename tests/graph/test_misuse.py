"""Mistakes that a user makes once: each is told what is wrong and what to do, and nothing accepted is lost by it."""

from __future__ import annotations

import operator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import (
    CheckpointMissing,
    Interrupts,
    KeyRing,
    RegistrationError,
    ResponseInvalid,
    StoreError,
    TokenExpired,
    UsageError,
)
from tests.harness import CONFIG, KEY, Bench, Decision, Refund, open_bench, pauses, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def paused(bench: Bench, thread_id: Any = "t1", **options: Any) -> tuple[Any, Any, Any]:
    point = bench.refunds(**options)
    node = point.node(payload=lambda state: Refund(order="A", amount=1))(
        lambda state, decision: {"log": [decision.note]}
    )
    graph, adapter = bench.compile(StateGraph(State).add_node("gate", node).add_edge(START, "gate"))
    (event,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread(thread_id), stream_mode="custom"))
    return graph, adapter, event


async def test_a_worker_with_the_wrong_saver_loses_no_answer(bench: Bench) -> None:
    _, adapter, event = await paused(bench)
    await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": "kept"})
    wrong = Interrupts(bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=bench.clock)
    wrong.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
    builder = StateGraph(State).add_node("gate", lambda state: {"log": []}).add_edge(START, "gate")
    elsewhere = wrong.resume_adapter(builder.compile(checkpointer=wrong.checkpointer(InMemorySaver())))

    (told,) = await bench.call(elsewhere, "recover")
    with pytest.raises(CheckpointMissing, match="not the saver"):
        await bench.call(elsewhere, "deliver", "t1")

    assert isinstance(told.error, CheckpointMissing)
    assert bench.states() == ["answered"]
    (delivery,) = await bench.call(adapter, "recover")
    assert delivery.output["log"] == ["kept"]
    wrong.close()


@pytest.mark.parametrize("argument", ["scope", "actor", "token", "response", "input"])
async def test_a_delivery_takes_no_argument_that_would_seem_to_check_something(bench: Bench, argument: str) -> None:
    _, adapter, _ = await paused(bench)
    with pytest.raises(UsageError, match=argument):
        await bench.call(adapter, "deliver", "t1", **{argument: "x"})


@pytest.mark.parametrize("limit", [0, -1, True, "1"])
async def test_a_recovery_takes_no_limit_that_would_leave_out_others_than_it_says(bench: Bench, limit: Any) -> None:
    _, adapter, event = await paused(bench)
    await bench.call(adapter, "answer", event.pause_token, {"approved": True})

    with pytest.raises(UsageError, match="limit must be a whole number, at least 1, or None"):
        await bench.call(adapter, "recover", limit)

    assert bench.states() == ["answered"]
    assert len(await bench.call(adapter, "recover", 1)) == 1


async def test_a_delivery_of_no_thread_is_refused(bench: Bench) -> None:
    _, adapter, _ = await paused(bench)
    with pytest.raises(UsageError, match="thread_id must be a non-empty string"):
        await bench.call(adapter, "deliver", "")


async def test_a_thread_id_that_is_a_number_is_the_text_that_langgraph_makes_of_it(bench: Bench) -> None:
    _, adapter, event = await paused(bench, 5)
    assert event.thread_id == "5"
    await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": "five"})

    assert await bench.call(adapter, "pending", thread_id=5) == []
    assert (await bench.call(adapter, "deliver", 5)).output["log"] == ["five"]


async def test_an_answer_of_another_model_is_named(bench: Bench) -> None:
    _, adapter, event = await paused(bench)
    with pytest.raises(ResponseInvalid, match="must be a Decision or plain JSON data, not a Refund"):
        await bench.call(adapter, "answer", event.pause_token, Refund(order="A", amount=1))


async def test_an_answer_after_the_default_was_taken_is_late_and_not_a_second_one(bench: Bench) -> None:
    bench.clock.move(-timedelta(minutes=30))
    _, adapter, event = await paused(bench, ttl=timedelta(minutes=29, seconds=30), on_expire=Decision(approved=False))
    bench.clock.move(timedelta(minutes=30))
    await bench.call(bench.interrupts.janitor(adapter), "sweep")

    with pytest.raises(TokenExpired, match="default"):  # within the verifier's skew: the row names the error
        await bench.call(adapter, "answer", event.pause_token, {"approved": True})
    view = await bench.call(adapter, "inspect", event.pause_token)
    assert (view.state, view.defaulted) == ("applied", True)


async def test_a_subscriber_that_fails_does_not_take_the_report_down(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.clock.move(-timedelta(hours=2))
    _, adapter, event = await paused(bench, ttl=timedelta(hours=1))
    bench.clock.move(timedelta(hours=2))
    told: list[Any] = []
    bench.interrupts.subscribe(lambda event: 1 / 0)
    bench.interrupts.subscribe(told.append)

    report = await bench.call(bench.interrupts.janitor(adapter), "sweep")

    assert [e.interrupt_id for e in report.events] == [event.interrupt_id]
    assert told == list(report.events)
    assert "ZeroDivisionError" in caplog.text


async def test_a_sync_call_on_an_async_saver_is_told_the_method_to_await(store_url: str, tmp_path: Path) -> None:
    async with open_bench("async", store_url, tmp_path) as bench:
        _, adapter, event = await paused(bench)
        for call in (lambda: adapter.answer(event.pause_token, {"approved": True}), lambda: adapter.deliver("t1")):
            with pytest.raises(RegistrationError, match="aanswer"):
                call()  # on the loop's own thread, where these savers cannot wait
        assert bench.states() == ["pending"]


def test_local_takes_a_path_and_no_url(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="path of a file"):
        Interrupts.local(f"sqlite:///{tmp_path / 'x.db'}")


async def test_janitor_and_worker_take_an_adapter_of_their_own_hub(bench: Bench, tmp_path: Path) -> None:
    graph, adapter, _ = await paused(bench)
    with Interrupts.local(tmp_path / "other.db") as other:
        for make in (
            lambda: bench.interrupts.janitor(graph),
            lambda: other.janitor(adapter),
            lambda: other.worker(adapter),
        ):
            with pytest.raises(RegistrationError, match="resume_adapter"):
                make()


def test_a_validator_that_cannot_take_answer_and_payload_is_refused(tmp_path: Path) -> None:
    with (
        Interrupts.local(tmp_path / "x.db") as interrupts,
        pytest.raises(RegistrationError, match=r"callable as \(response, payload\)"),
    ):
        interrupts.register_interrupt(
            "approval",
            payload_schema=Refund,
            response_schema=Decision,
            validate_response=lambda response: None,  # type: ignore[misc,arg-type]
        )
