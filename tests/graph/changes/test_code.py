"""The graph's code is changed and deployed while a question stands: what an answer then reaches, and who is told.

Each test asks with one version of the code and goes on with another, in an `Interrupts` of its own, as after a deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

from symfonic_interrupts import (
    AnswerUnused,
    Interrupts,
    KeyRing,
    PayloadInvalid,
    RegistrationError,
    ResponseInvalid,
    ResumeRefused,
    UnknownInterrupt,
)
from tests.graph.changes.test_payload_and_input import State
from tests.graph.changes.test_state_and_thread import OTHER, YES, asked, kinds, log_of
from tests.harness import CONFIG, KEY, Bench, Decision, Refund, thread

Build = Callable[[Interrupts], "StateGraph[State]"]


def graph_of(gate: Any, after: Any = lambda state: {"log": ["after"]}, *, name: str = "gate") -> StateGraph[State]:
    builder = StateGraph(State).add_node(name, gate).add_node("after", after)
    return builder.add_edge(START, name).add_edge(name, "after")


def asking(point: Any, shown: BaseModel) -> Any:
    return lambda state: {"log": [point.pause(shown).note]}


def first_version(hub: Interrupts, name: str = "gate") -> StateGraph[State]:
    point = hub.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
    return graph_of(asking(point, Refund(order="A", amount=1)), name=name)


@contextmanager
def deployed(bench: Bench, build: Build) -> Iterator[tuple[Any, Any]]:
    """A version of the code over the bench's databases: its graph and adapter."""
    with Interrupts(bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=bench.clock) as hub:
        graph = build(hub).compile(checkpointer=hub.checkpointer(bench.saver))
        yield graph, hub.resume_adapter(graph)


async def paused(bench: Bench, *, stored: bool = False) -> str:
    """The token of a question that the first version asked; `stored`: and has been answered, undelivered."""
    with deployed(bench, first_version) as (graph, adapter):
        await bench.call(graph, "invoke", {"log": []}, thread())
        (token,) = (await asked(bench, adapter)).values()
        if stored:
            await bench.call(adapter, "answer", token, YES)
        return token


async def finishes_under_the_first_version(bench: Bench, *, token: str | None = None) -> None:
    with deployed(bench, first_version) as (graph, adapter):
        if token is None:
            delivery = await bench.call(adapter, "deliver", "t1")
            assert len(delivery.applied) == 1
        else:
            await bench.call(adapter, "invoke", token, YES)
        assert await log_of(bench, graph) == ["yes", "after"]
    assert bench.states() == ["applied"]


# -- the node


@pytest.mark.parametrize("stored", [False, True], ids=["answered after", "answered before"])
async def test_an_answer_to_a_renamed_node_is_told_of_and_kept_until_the_node_is_back(
    bench: Bench, stored: bool
) -> None:
    token = await paused(bench, stored=stored)

    with deployed(bench, lambda hub: first_version(hub, "review")) as (_, adapter):
        if stored:
            (delivery,) = await bench.call(adapter, "recover")
            assert isinstance(delivery.error, RegistrationError)
        else:
            with pytest.raises(RegistrationError, match="renamed or removed; the answer stays stored"):
                await bench.call(adapter, "invoke", token, YES)
        with pytest.raises(RegistrationError, match="renamed or removed"):
            await bench.call(adapter, "deliver", "t1")
        assert bench.rows("SELECT * FROM interrupt_thread_leases") == []
    assert bench.states() == ["answered"]

    await finishes_under_the_first_version(bench)


async def test_an_answer_to_a_renamed_node_ends_unused_once_the_thread_goes_on(bench: Bench) -> None:
    await paused(bench, stored=True)

    with deployed(bench, lambda hub: first_version(hub, "review")) as (graph, adapter):
        await bench.call(graph, "invoke", {"log": []}, thread())
        (delivery,) = await bench.call(adapter, "recover")
        (new,) = (await asked(bench, adapter)).values()
        assert (await bench.call(adapter, "invoke", new, OTHER))["log"] == ["other", "after"]

    assert len(delivery.unused) == 1
    assert bench.states() == ["unused", "applied"]


@pytest.mark.parametrize("stored", [False, True], ids=["answered after", "answered before"])
async def test_an_answer_to_a_point_that_moved_to_a_later_node_is_unused_there(bench: Bench, stored: bool) -> None:
    token = await paused(bench, stored=stored)

    def moved(hub: Interrupts) -> StateGraph[State]:
        point = hub.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        return graph_of(lambda state: {"log": ["gate"]}, asking(point, Refund(order="A", amount=1)))

    with deployed(bench, moved) as (_, adapter):
        if stored:
            (delivery,) = await bench.call(adapter, "recover")
            assert (delivery.applied, len(delivery.unused)) == ((), 1)
        else:
            with pytest.raises(AnswerUnused):
                await bench.call(adapter, "invoke", token, YES)
        (new,) = (await asked(bench, adapter)).values()
        assert (await bench.call(adapter, "invoke", new, OTHER))["log"] == ["gate", "other"]

    assert bench.states() == ["unused", "applied"]
    assert kinds(bench).count("interrupt_unused") == 1


# -- what it asks


class RefundWithCurrency(BaseModel):
    order: str
    amount: int
    currency: str


def another_amount(hub: Interrupts) -> StateGraph[State]:
    point = hub.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
    return graph_of(asking(point, Refund(order="A", amount=2)))


def another_schema(hub: Interrupts) -> StateGraph[State]:
    point = hub.register_interrupt("approval", payload_schema=RefundWithCurrency, response_schema=Decision)
    return graph_of(asking(point, RefundWithCurrency(order="A", amount=1, currency="EUR")))


@pytest.mark.parametrize("stored", [False, True], ids=["answered after", "answered before"])
@pytest.mark.parametrize("build", [another_amount, another_schema], ids=lambda build: build.__name__)
async def test_an_answer_to_what_the_node_no_longer_shows_is_not_taken_for_what_it_shows_now(
    bench: Bench, build: Build, stored: bool
) -> None:
    token = await paused(bench, stored=stored)

    with deployed(bench, build) as (graph, adapter):
        call = ("recover",) if stored else ("invoke", token, YES)
        with pytest.warns(UserWarning, match="approval: an answer did not fit what was asked next"):
            await bench.call(adapter, *call)
        assert await log_of(bench, graph) == []
        (new,) = (await asked(bench, adapter)).values()
        assert (await bench.call(adapter, "invoke", new, OTHER))["log"] == ["other", "after"]

    assert bench.states() == ["unused", "applied"]
    assert kinds(bench).count("interrupt_unused") == 1


async def test_an_answer_that_cannot_be_checked_against_what_was_shown_spends_nothing_and_says_why(
    bench: Bench,
) -> None:
    token = await paused(bench)

    def checked(hub: Interrupts) -> StateGraph[State]:
        point = hub.register_interrupt(
            "approval",
            payload_schema=RefundWithCurrency,
            response_schema=Decision,
            validate_response=lambda decision, refund: None,
        )
        return graph_of(asking(point, RefundWithCurrency(order="A", amount=1, currency="EUR")))

    with deployed(bench, checked) as (graph, adapter):
        with pytest.raises(PayloadInvalid, match="does not fit RefundWithCurrency any more") as refused:
            await bench.call(adapter, "invoke", token, YES)
        assert refused.value.errors[0]["loc"] == ("currency",)
        assert bench.states() == ["pending"]

        await bench.call(graph, "invoke", None, thread())  # asks anew
        new = next(e for e in await bench.call(adapter, "pending") if "currency" in e.payload).pause_token
        assert (await bench.call(adapter, "invoke", new, OTHER))["log"] == ["other", "after"]


async def test_a_node_that_asks_another_point_first_gets_each_answer_at_its_own_point(bench: Bench) -> None:
    await paused(bench, stored=True)

    def another_first(hub: Interrupts) -> StateGraph[State]:
        point = hub.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        identity = hub.register_interrupt("identity", payload_schema=Refund, response_schema=Decision)

        def gate(state: State) -> dict[str, Any]:
            who = identity.pause(Refund(order="who", amount=0)).note
            return {"log": [f"who={who}", f"approval={point.pause(Refund(order='A', amount=1)).note}"]}

        return graph_of(gate)

    with deployed(bench, another_first) as (_, adapter):
        await bench.call(adapter, "recover")
        tokens = await asked(bench, adapter)
        assert set(tokens) == {"who"}
        result = await bench.call(adapter, "invoke", tokens["who"], OTHER)

    assert result["log"] == ["who=other", "approval=yes", "after"]  # the stored answer, and nobody asked for it again
    assert bench.rows() == [("approval", "applied"), ("identity", "applied")]


# -- what may be answered


class DecisionWithReason(BaseModel):
    approved: bool
    reason: str
    note: str = ""


def another_answer(hub: Interrupts) -> StateGraph[State]:
    point = hub.register_interrupt("approval", payload_schema=Refund, response_schema=DecisionWithReason)
    return graph_of(asking(point, Refund(order="A", amount=1)))


async def test_a_stored_answer_that_no_longer_fits_is_told_of_and_kept_for_the_code_that_takes_it(
    bench: Bench,
) -> None:
    await paused(bench, stored=True)

    with deployed(bench, another_answer) as (graph, adapter):
        (delivery,) = await bench.call(adapter, "recover")
        assert isinstance(delivery.error, ResponseInvalid)
        with pytest.raises(ResponseInvalid, match="does not fit DecisionWithReason any more: reason"):
            await bench.call(adapter, "deliver", "t1")
        assert await log_of(bench, graph) == []
        assert await bench.call(adapter, "pending") == []
    assert bench.states() == ["answered"]

    await finishes_under_the_first_version(bench)


async def test_an_open_question_takes_the_answer_that_the_new_schema_wants(bench: Bench) -> None:
    token = await paused(bench)

    with deployed(bench, another_answer) as (_, adapter):
        with pytest.raises(ResponseInvalid, match="reason"):
            await bench.call(adapter, "invoke", token, YES)
        assert "reason" in (await bench.call(adapter, "inspect", token)).response_schema["required"]
        result = await bench.call(adapter, "invoke", token, {**YES, "reason": "late delivery"})

    assert result["log"] == ["yes", "after"]
    assert bench.states() == ["applied"]


# -- the point


def without_the_point(hub: Interrupts) -> StateGraph[State]:
    return graph_of(lambda state: {"log": ["no gate"]})


async def test_the_token_of_a_point_that_is_not_registered_any_more_is_refused_unspent(bench: Bench) -> None:
    token = await paused(bench)

    with deployed(bench, without_the_point) as (graph, adapter):
        for call in ("inspect", "invoke"):
            with pytest.raises(UnknownInterrupt, match="approval"):
                await bench.call(adapter, call, token, *([YES] if call == "invoke" else []))
        assert await bench.call(adapter, "recover") == []
        assert await log_of(bench, graph) == []
    assert bench.states() == ["pending"]

    await finishes_under_the_first_version(bench, token=token)


async def test_a_stored_answer_of_a_point_that_is_gone_is_reported_unused(bench: Bench) -> None:
    await paused(bench, stored=True)

    with deployed(bench, without_the_point) as (graph, adapter):
        (delivery,) = await bench.call(adapter, "recover")
        assert (delivery.applied, len(delivery.unused), delivery.error) == ((), 1, None)
        assert await log_of(bench, graph) == ["no gate", "after"]

    assert bench.states() == ["unused"]
    assert kinds(bench) == ["interrupt", "interrupt_resolved", "interrupt_unused"]


async def test_a_sweep_leaves_the_questions_of_a_point_that_is_gone_to_a_process_that_has_it(bench: Bench) -> None:
    bench.clock.move(-timedelta(hours=30))  # PostgreSQL decides by its own clock: ask in the past
    with deployed(bench, first_version) as (graph, _):
        await bench.call(graph, "invoke", {"log": []}, thread())
    bench.clock.move(timedelta(hours=30))

    with Interrupts(bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=bench.clock) as hub:
        graph = without_the_point(hub).compile(checkpointer=hub.checkpointer(bench.saver))
        report = await bench.call(hub.janitor(hub.resume_adapter(graph)), "sweep")
    assert (report.events, len(report.unknown)) == ((), 1)
    assert bench.states() == ["pending"]

    with Interrupts(bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=bench.clock) as hub:
        graph = first_version(hub).compile(checkpointer=hub.checkpointer(bench.saver))
        report = await bench.call(hub.janitor(hub.resume_adapter(graph)), "sweep")
    assert [event.type for event in report.events] == ["interrupt_expired"]
    assert bench.states() == ["expired"]


async def test_an_answer_to_a_plain_interrupt_does_not_pass_where_the_node_asks_with_a_point_now(
    bench: Bench,
) -> None:
    def plain(hub: Interrupts) -> StateGraph[State]:
        hub.register_interrupt("approval", payload_schema=Refund, response_schema=Decision, nodes=("gate",))
        return graph_of(lambda state: {"log": [interrupt({"order": "A", "amount": 1})["note"]]})

    with deployed(bench, plain) as (graph, adapter):
        await bench.call(graph, "invoke", {"log": []}, thread())
        await bench.call(adapter, "answer", (await asked(bench, adapter))["A"], YES)

    with deployed(bench, first_version) as (graph, adapter):
        (delivery,) = await bench.call(adapter, "recover")
        assert isinstance(delivery.error, ResumeRefused)
        assert "answered with its token" in str(delivery.error)
        assert await log_of(bench, graph) == []
    assert bench.states() == ["answered"]

    with deployed(bench, plain) as (_, adapter):
        assert (await bench.call(adapter, "deliver", "t1")).output["log"] == ["yes", "after"]
    assert bench.states() == ["applied"]
