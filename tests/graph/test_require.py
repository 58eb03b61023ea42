"""A later, dangerous node checks that exactly this payload was answered through the adapter."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from symfonic_interrupts import Approval, ReceiptInvalid
from tests.harness import Bench, Decision, Refund, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]
    approval: dict[str, Any]


SHOWN = Refund(order="A1", amount=90)


def guarded(bench: Bench, about: Refund = SHOWN, checked_by: str = "approval") -> Any:
    points = {name: bench.refunds(name) for name in ("approval", "other")}

    def gate(state: State) -> dict[str, Any]:
        return {"approval": points["approval"].ask(SHOWN).model_dump(mode="json")}

    def pay(state: State) -> dict[str, Any]:
        decision = points[checked_by].require(state["approval"], about)
        return {"log": [f"paid: {decision.note}"]}

    builder = StateGraph(State).add_node("gate", gate).add_node("pay", pay)
    return bench.compile(builder.add_edge(START, "gate").add_edge("gate", "pay"))


async def approved(bench: Bench, graph: Any, adapter: Any, thread_id: str = "t1") -> Any:
    await bench.call(graph, "invoke", {"log": [], "approval": {}}, thread(thread_id))
    (event,) = await bench.call(adapter, "pending", thread_id=thread_id)
    return await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "ok"}, actor="ann")


async def test_an_approval_travels_through_the_state_as_a_dict_and_is_accepted(bench: Bench) -> None:
    graph, adapter = guarded(bench)

    result = await approved(bench, graph, adapter)

    assert result["log"] == ["paid: ok"]
    found = Approval[Decision].model_validate(result["approval"])
    assert (found.actor, found.response) == ("ann", Decision(approved=True, note="ok"))
    assert found.answered_at.tzinfo is not None


@pytest.mark.parametrize(
    ("about", "checked_by", "names"),
    [(Refund(order="A1", amount=91), "approval", "request"), (SHOWN, "other", "name")],
    ids=["another payload", "another point"],
)
async def test_an_approval_of_something_else_is_refused(
    bench: Bench, about: Refund, checked_by: str, names: str
) -> None:
    graph, adapter = guarded(bench, about, checked_by)
    with pytest.raises(ReceiptInvalid, match=f"another {names}"):
        await approved(bench, graph, adapter)


async def test_walking_around_the_gate_ends_in_an_invalid_receipt(bench: Bench) -> None:
    graph, _ = guarded(bench)
    await bench.call(graph, "invoke", {"log": [], "approval": {}}, thread())
    with pytest.raises(ReceiptInvalid):
        await bench.call(graph, "invoke", Command(goto="pay"), thread())

    await bench.call(graph, "invoke", {"log": [], "approval": {}}, thread("t2"))
    forged = {"response": {"approved": True, "note": ""}, "receipt": {"jti": "x", "response": "{}"}}
    await bench.call(graph, "update_state", thread("t2"), {"approval": forged}, as_node="gate")
    with pytest.raises(ReceiptInvalid):
        await bench.call(graph, "invoke", None, thread("t2"))


@pytest.mark.parametrize("where", ["another thread", "another tenant"])
async def test_an_approval_of_another_thread_or_tenant_is_refused(bench: Bench, where: str) -> None:
    graph, adapter = guarded(bench)
    stolen = (await approved(bench, graph, adapter))["approval"]
    config = thread("t2") if where == "another thread" else thread("t1", tenant_id="globex")

    await bench.call(graph, "update_state", config, {"approval": stolen, "log": []}, as_node="gate")
    with pytest.raises(ReceiptInvalid, match="another thread" if where == "another thread" else "another scope"):
        await bench.call(graph, "invoke", None, config)


@pytest.mark.parametrize("field", ["response", "receipt"])
async def test_an_approval_whose_response_was_changed_is_refused(bench: Bench, field: str) -> None:
    graph, adapter = guarded(bench)
    approval = (await approved(bench, graph, adapter))["approval"]
    if field == "response":
        approval["response"]["note"] = "more"
    else:
        approval["receipt"]["response"] = '{"approved":true,"note":"more"}'

    await bench.call(graph, "update_state", thread(), {"approval": approval}, as_node="gate")
    with pytest.raises(ReceiptInvalid, match="response was changed"):
        await bench.call(graph, "invoke", None, thread())
