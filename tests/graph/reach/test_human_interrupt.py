"""Nodes that ask with LangGraph's `HumanInterrupt`, and the answers that Agent Inbox and agent-chat-ui send to them."""

from __future__ import annotations

import operator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from symfonic_interrupts import FrameworkTenantScope, Interrupts
from symfonic_interrupts.contrib.langchain import HumanResponse, HumanResponses, register_human_interrupt
from symfonic_interrupts.errors import (
    PayloadInvalid,
    RegistrationError,
    ResponseInvalid,
    ResumeRefused,
    ScopeMismatch,
    TokenConsumed,
)
from tests.harness import Bench, thread

ALL = ("accept", "edit", "respond", "ignore")
SHOWN = {"action": "send_mail", "args": {"to": "ann"}}


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


def request(*allowed: str, action: str = "send_mail") -> dict[str, Any]:
    return {
        "action_request": {"action": action, "args": {"to": "ann"}},
        "config": {f"allow_{what}": what in allowed for what in ALL},
        "description": "A mail to Ann",
    }


def asks_with(value: Any) -> StateGraph[State]:
    def node(state: State) -> dict[str, Any]:
        return {"log": interrupt(value)}

    return StateGraph(State).add_node("review", node).add_edge(START, "review")


async def asked(bench: Bench, value: Any) -> tuple[Any, Any, str]:
    """Graph, adapter and token, where a covered node has asked."""
    register_human_interrupt(bench.interrupts, nodes=("review",))
    graph, adapter = bench.compile(asks_with(value))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    return graph, adapter, event.pause_token


EDITED = {"action": "send_mail", "args": {"to": "bob"}}
ANSWERS: dict[str, tuple[Any, dict[str, Any]]] = {
    # as Agent Inbox and older versions of agent-chat-ui send them
    "accept": ([{"type": "accept", "args": None}], {"type": "accept", "args": None}),
    "accept as shown": ([{"type": "accept", "args": SHOWN}], {"type": "accept", "args": SHOWN}),
    "accept without args": ([{"type": "accept"}], {"type": "accept"}),
    "edit": ([{"type": "edit", "args": EDITED}], {"type": "edit", "args": EDITED}),
    "response": ([{"type": "response", "args": "later"}], {"type": "response", "args": "later"}),
    "ignore": ([{"type": "ignore", "args": None}], {"type": "ignore", "args": None}),
    "one that is in no list": ({"type": "accept", "args": None}, {"type": "accept", "args": None}),
    # as newer versions of agent-chat-ui send them
    "approve": ({"decisions": [{"type": "approve"}]}, {"type": "accept", "args": None}),
    "edited action": (
        {"decisions": [{"type": "edit", "edited_action": {"name": "send_mail", "args": {"to": "bob"}}}]},
        {"type": "edit", "args": EDITED},
    ),
    "reject with a reason": (
        {"decisions": [{"type": "reject", "message": "no"}]},
        {"type": "response", "args": "no"},
    ),
    "reject": ({"decisions": [{"type": "reject"}]}, {"type": "ignore", "args": None}),
    "respond": ({"decisions": [{"type": "respond", "message": "hi"}]}, {"type": "response", "args": "hi"}),
}


@pytest.mark.parametrize("what", ANSWERS)
@pytest.mark.parametrize("shape", ["a list", "a single request"])
async def test_what_an_inbox_sends_reaches_the_node_as_a_list_of_human_responses(
    bench: Bench, what: str, shape: str
) -> None:
    answer, received = ANSWERS[what]
    _, adapter, token = await asked(bench, [request(*ALL)] if shape == "a list" else request(*ALL))

    output = await bench.call(adapter, "invoke", token, answer)

    assert output["log"] == [received]
    assert bench.states() == ["applied"]


@pytest.mark.parametrize("allowed", ALL)
async def test_only_what_the_config_allows_is_taken_and_the_token_stays(bench: Bench, allowed: str) -> None:
    _, adapter, token = await asked(bench, [request(allowed)])
    word = {"respond": "response"}.get(allowed, allowed)
    older = [ANSWERS[what][0] for what in ("accept", "edit", "response", "ignore")]
    for answer in older:
        if answer[0]["type"] != word:
            with pytest.raises(ResponseInvalid, match=f"is not allowed here, but {allowed}"):
                await bench.call(adapter, "answer", token, answer)
    assert bench.states() == ["pending"]

    output = await bench.call(adapter, "invoke", token, ANSWERS[word][0])

    assert output["log"] == [ANSWERS[word][1]]


@pytest.mark.parametrize(("allowed", "word"), [("respond", "response"), ("ignore", "ignore")])
@pytest.mark.parametrize("reason", ["no", ""])
async def test_a_rejection_is_what_the_config_allows_of_response_and_ignore(
    bench: Bench, allowed: str, word: str, reason: str
) -> None:
    _, adapter, token = await asked(bench, [request(allowed)])

    output = await bench.call(adapter, "invoke", token, {"decisions": [{"type": "reject", "message": reason}]})

    assert output["log"] == [{"type": word, "args": reason if word == "response" else None}]


UNFIT: dict[str, tuple[Any, str]] = {
    "no response": ([], "List should have at least 1 item"),
    "too many": ([{"type": "accept"}] * 2, "1 requests need 1 responses in their order, not 2"),
    "too many decisions": ({"decisions": [{"type": "approve"}] * 2}, "1 requests need 1 responses"),
    "another word": ([{"type": "approve"}], "type: Input should be"),
    "another decision": ({"decisions": [{"type": "yes"}]}, "decisions: each is approve, edit"),
    "a decision with more than it has": ({"decisions": [{"type": "approve", "note": 1}]}, "decisions: each is"),
    "an edit of another action": (
        [{"type": "edit", "args": {"action": "delete", "args": {}}}],
        "it cannot name another action",
    ),
    "an edit without an action": ([{"type": "edit", "args": "bob"}], "must be the changed action"),
    "a response without a text": ([{"type": "response", "args": None}], "must be its text"),
    "an ignore with a text": ([{"type": "ignore", "args": "x"}], "args of ignore must be null"),
    "an accept of something else": ([{"type": "accept", "args": EDITED}], "send an edit"),
    "a further key": ([{"type": "accept", "args": None, "id": 1}], "Extra inputs are not permitted"),
}


@pytest.mark.parametrize("what", UNFIT)
async def test_what_the_node_could_not_read_is_refused_before_the_token_is_spent(bench: Bench, what: str) -> None:
    answer, message = UNFIT[what]
    _, adapter, token = await asked(bench, [request(*ALL)])

    with pytest.raises(ResponseInvalid, match=message):
        await bench.call(adapter, "invoke", token, answer)

    assert bench.states() == ["pending"]


async def test_two_requests_take_two_responses_each_by_its_own_config(bench: Bench) -> None:
    _, adapter, token = await asked(bench, [request("accept"), request("ignore", action="pay")])

    with pytest.raises(ResponseInvalid, match="response 1: accept is not allowed here, but ignore"):
        await bench.call(adapter, "answer", token, {"decisions": [{"type": "approve"}] * 2})
    output = await bench.call(
        adapter, "invoke", token, {"decisions": [{"type": "approve"}, {"type": "reject", "message": "no"}]}
    )

    assert output["log"] == [{"type": "accept", "args": None}, {"type": "ignore", "args": None}]


async def test_it_counts_once_in_its_tenant_and_not_past_the_adapter(bench: Bench) -> None:
    graph, adapter, token = await asked(bench, [request(*ALL)])
    answer = [{"type": "accept", "args": None}]

    with pytest.raises(ResumeRefused):
        await bench.call(graph, "invoke", Command(resume=answer), thread())
    with pytest.raises(ScopeMismatch):
        await bench.call(adapter, "answer", token, answer, scope=FrameworkTenantScope("globex"))
    first = await bench.call(adapter, "answer", token, answer, idempotency_key="k")
    again = await bench.call(adapter, "answer", token, answer, idempotency_key="k")
    assert first.interrupt_id == again.interrupt_id
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", token, [{"type": "ignore", "args": None}])

    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output["log"] == answer


async def test_the_same_decision_sent_again_with_its_key_is_the_same_answer(bench: Bench) -> None:
    _, adapter, token = await asked(bench, [request(*ALL)])
    newer = {"decisions": [{"type": "approve"}]}

    first = await bench.call(adapter, "answer", token, newer, idempotency_key="k")

    assert await bench.call(adapter, "answer", token, newer, idempotency_key="k") == first


def in_a_tool(point: Any) -> Any:
    @tool
    def send_mail(to: str) -> str:
        """Send a mail."""
        return str(point.interrupt([request(*ALL)])[0]["type"])

    call = {"name": "send_mail", "args": {"to": "ann"}, "id": "c1", "type": "tool_call"}
    builder = StateGraph(MessagesState).add_node("model", lambda _: {"messages": [AIMessage("", tool_calls=[call])]})
    builder.add_node("tools", ToolNode([send_mail])).add_edge(START, "model").add_edge("model", "tools")
    return builder


async def test_a_tool_asks_with_the_point_and_an_inbox_of_either_shape_knows_the_marker(bench: Bench) -> None:
    point = register_human_interrupt(bench.interrupts)
    _, adapter = bench.compile(in_a_tool(point))
    served = adapter.as_graph()

    (shown,) = (await bench.call(served, "invoke", {"messages": []}, thread()))["__interrupt__"]

    assert {key: shown.value[key] for key in ("action_request", "config", "description")} == request(*ALL)
    assert shown.value["action_requests"] == [
        {"name": "send_mail", "args": {"to": "ann"}, "description": "A mail to Ann"}
    ]
    assert shown.value["review_configs"] == [
        {"action_name": "send_mail", "allowed_decisions": ["approve", "edit", "reject", "respond"]}
    ]
    output = await bench.call(served, "invoke", Command(resume=[{"type": "accept", "args": SHOWN}]), thread())
    assert output["messages"][-1].content == "accept"


async def test_a_covered_node_of_a_subgraph_asks_as_it_did(bench: Bench) -> None:
    register_human_interrupt(bench.interrupts, nodes=("sub:review",))
    below = asks_with([request("accept")]).compile()
    graph, adapter = bench.compile(StateGraph(State).add_node("sub", below).add_edge(START, "sub"))

    (shown,) = (await bench.call(graph, "invoke", {"log": []}, thread()))["__interrupt__"]
    assert shown.value == [request("accept")]

    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(ResumeRefused):
        await bench.call(graph, "invoke", Command(resume=[{"type": "accept"}]), thread())
    output = await bench.call(adapter, "invoke", event.pause_token, HumanResponses([HumanResponse(type="accept")]))
    assert output["log"] == [{"type": "accept", "args": None}]


async def test_a_question_in_another_shape_is_told(bench: Bench) -> None:
    register_human_interrupt(bench.interrupts, nodes=("review",))
    graph, _ = bench.compile(asks_with("may I?"))

    with pytest.raises(PayloadInvalid, match="'review' does not fit HumanInterrupts"):
        await bench.call(graph, "invoke", {"log": []}, thread())


def test_a_default_answer_is_refused(tmp_path: Path) -> None:
    default = HumanResponses([HumanResponse(type="ignore")])
    with (
        Interrupts.local(tmp_path / "interrupts.db") as interrupts,
        pytest.raises(RegistrationError, match="on_expire cannot fit"),
    ):
        register_human_interrupt(interrupts, ttl=timedelta(hours=1), on_expire=default)
