"""`present=`: a point that Agent Inbox and agent-chat-ui draw, and whose answers they give."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from symfonic_interrupts import Interrupts, Presentation
from symfonic_interrupts.errors import RegistrationError, ResponseInvalid
from tests.harness import Bench, Decision, Refund, thread


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


def edit(shown: Refund, changed: dict[str, Any]) -> Decision:
    if Refund.model_validate(changed).amount > shown.amount:
        raise ValueError("an edit may only lower the amount")
    return Decision(approved=True, note=f"{changed['amount']} instead of {shown.amount}")


FULL: Presentation[Refund, Decision] = Presentation(
    title="refund",
    description=lambda shown: f"Pay **{shown.amount}** for {shown.order}",
    accept=lambda _: Decision(approved=True),
    edit=edit,
    respond=lambda _, text: Decision(approved=False, note=text),
    ignore=lambda _: Decision(approved=False),
)


async def asked(bench: Bench, present: Any, **options: Any) -> tuple[Any, Any, str]:
    """The marker, the adapter and the token."""
    point = bench.refunds(present=present, **options)

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="A", amount=9)).model_dump()]}

    graph, adapter = bench.compile(StateGraph(State).add_node("pay", node).add_edge(START, "pay"))
    (shown,) = (await bench.call(graph, "invoke", {"log": []}, thread()))["__interrupt__"]
    (event,) = await bench.call(adapter, "pending")
    return shown.value, adapter, event.pause_token


async def test_the_marker_has_what_inboxes_of_both_shapes_draw_beside_its_own_keys(bench: Bench) -> None:
    marker, adapter, _ = await asked(bench, FULL)
    (event,) = await bench.call(adapter, "pending")

    args = {"order": "A", "amount": 9}
    assert {key: marker[key] for key in ("type", "name", "interrupt_id", "payload")} == {
        "type": "interrupt",
        "name": "approval",
        "interrupt_id": event.interrupt_id,
        "payload": args,
    }
    del marker["task_id"]
    assert {key: marker[key] for key in marker.keys() - {"type", "name", "interrupt_id", "payload"}} == {
        "action_request": {"action": "refund", "args": args},
        "config": {"allow_accept": True, "allow_edit": True, "allow_respond": True, "allow_ignore": True},
        "description": "Pay **9** for A",
        "action_requests": [{"name": "refund", "args": args, "description": "Pay **9** for A"}],
        "review_configs": [{"action_name": "refund", "allowed_decisions": ["approve", "edit", "reject", "respond"]}],
    }


ANSWERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "accept": ([{"type": "accept", "args": None}], {"approved": True, "note": ""}),
    "edit": (
        [{"type": "edit", "args": {"action": "refund", "args": {"order": "A", "amount": 5}}}],
        {"approved": True, "note": "5 instead of 9"},
    ),
    "response": ([{"type": "response", "args": "too much"}], {"approved": False, "note": "too much"}),
    "ignore": ([{"type": "ignore", "args": None}], {"approved": False, "note": ""}),
    "approve": ({"decisions": [{"type": "approve"}]}, {"approved": True, "note": ""}),
    "reject": ({"decisions": [{"type": "reject", "message": "no"}]}, {"approved": False, "note": "no"}),
    "the point's own": ({"approved": True, "note": "by hand"}, {"approved": True, "note": "by hand"}),
}


@pytest.mark.parametrize("what", ANSWERS)
async def test_an_inboxes_answer_is_the_response_that_its_function_makes(bench: Bench, what: str) -> None:
    answer, received = ANSWERS[what]
    _, adapter, _ = await asked(bench, FULL)

    output = await bench.call(adapter.as_graph(), "invoke", Command(resume=answer), thread())

    assert output["log"] == [received]
    assert bench.states() == ["applied"]


async def test_what_has_no_function_is_neither_offered_nor_taken(bench: Bench) -> None:
    present: Presentation[Refund, Decision] = Presentation(title="refund", accept=lambda _: Decision(approved=True))
    marker, adapter, token = await asked(bench, present)
    assert marker["review_configs"][0]["allowed_decisions"] == ["approve"]
    assert [key for key, allowed in marker["config"].items() if allowed] == ["allow_accept"]

    for answer in ([{"type": "ignore", "args": None}], {"decisions": [{"type": "reject"}]}):
        with pytest.raises(ResponseInvalid, match="ignore is not allowed here, but accept"):
            await bench.call(adapter, "answer", token, answer)
    assert bench.states() == ["pending"]


async def test_what_a_function_or_the_points_validator_refuses_leaves_the_token(bench: Bench) -> None:
    def never(response: Decision, shown: Refund) -> None:
        if response.note == "never":
            raise ValueError("not this note")

    _, adapter, token = await asked(bench, FULL, validate_response=never)

    def changed(**args: Any) -> Any:
        return [{"type": "edit", "args": {"action": "refund", "args": args}}]

    with pytest.raises(ResponseInvalid, match="an edit may only lower the amount"):
        await bench.call(adapter, "answer", token, changed(order="A", amount=10))
    with pytest.raises(ResponseInvalid, match="amount: Field required"):
        await bench.call(adapter, "answer", token, changed(order="A"))
    with pytest.raises(ResponseInvalid, match="not this note"):
        await bench.call(adapter, "answer", token, [{"type": "response", "args": "never"}])
    assert bench.states() == ["pending"]


def test_a_presentation_that_offers_nothing_or_has_no_title_is_refused(tmp_path: Path) -> None:
    wrong: Any = "a text"
    with pytest.raises(RegistrationError, match="give at least one of accept, edit, respond, ignore"):
        Presentation(title="refund")
    with pytest.raises(RegistrationError, match="title must be a text"):
        Presentation(title="", accept=lambda _: Decision(approved=True))
    with pytest.raises(RegistrationError, match="accept must be a function"):
        Presentation(title="refund", accept=wrong)
    with (
        Interrupts.local(tmp_path / "interrupts.db") as interrupts,
        pytest.raises(RegistrationError, match="approval: present must be a Presentation, not str"),
    ):
        interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision, present=wrong)
