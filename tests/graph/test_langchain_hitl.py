"""LangChain's `HumanInTheLoopMiddleware` on an agent that nobody changed: tokens answer its questions, in both modes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from symfonic_interrupts import (
    Interrupts,
    PayloadInvalid,
    RegistrationError,
    ResponseInvalid,
    ResumeRefused,
    TokenConsumed,
)
from symfonic_interrupts.contrib.langchain import (
    HITLAction,
    HITLApprove,
    HITLCallRequest,
    HITLCallResponse,
    HITLEdit,
    HITLReject,
    HITLRequest,
    HITLRespond,
    HITLResponse,
    register_hitl,
    validate_hitl_call_response,
    validate_hitl_response,
)
from symfonic_interrupts.streaming import InterruptTransformer
from tests.harness import Bench, answers, pauses, thread

ALL = ["approve", "edit", "reject", "respond"]


class Scripted(FakeMessagesListChatModel):
    """Says what the script says, whatever it is asked."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


class Office:
    """An agent with two tools, and what its tools did."""

    def __init__(self, bench: Bench, mode: str, *calls: dict[str, Any], gated: Any = None, **registration: Any) -> None:
        self.done: list[tuple[str, ...]] = []

        def send_mail(to: str, copies: int = 0) -> str:
            """Send a mail."""
            self.done.append(("mail", to, str(copies)))
            return f"sent to {to}"

        def delete_file(path: str) -> str:
            """Delete a file."""
            self.done.append(("delete", path))
            return f"deleted {path}"

        def look_up(word: str) -> str:
            """Look a word up; nobody is asked."""
            self.done.append(("look up", word))
            return word.upper()

        self.tools: list[Any] = [send_mail, delete_file, look_up]
        self.middleware: Any = HumanInTheLoopMiddleware(
            gated or {"send_mail": True, "delete_file": {"allowed_decisions": ["approve", "reject"]}},
            interrupt_mode=mode,  # type: ignore[arg-type]
        )
        self.script: list[BaseMessage] = [AIMessage(content="", tool_calls=list(calls)), AIMessage(content="done")]
        if registration.pop("register", True):
            register_hitl(bench.interrupts, self.middleware, tools=self.tools, **registration)

    def agent(self, checkpointer: Any = None, **options: Any) -> Any:
        return create_agent(
            Scripted(responses=self.script),
            tools=self.tools,
            middleware=[self.middleware],
            checkpointer=checkpointer,
            **options,
        )

    def open(self, bench: Bench) -> tuple[Any, Any]:
        graph = self.agent(bench.interrupts.checkpointer(bench.saver))
        return graph, bench.interrupts.resume_adapter(graph)


def mail(to: str = "ann", id_: str = "c1") -> dict[str, Any]:
    return {"name": "send_mail", "args": {"to": to}, "id": id_, "type": "tool_call"}


def delete(path: str = "a.txt", id_: str = "c2") -> dict[str, Any]:
    return {"name": "delete_file", "args": {"path": path}, "id": id_, "type": "tool_call"}


def edited(to: Any = "bob", name: str = "send_mail", **args: Any) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": name, "args": {"to": to, **args}}}


def start() -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "please"}]}


def told(output: Any) -> dict[str, ToolMessage]:
    """The tools' messages, by the call that they answer."""
    return {m.tool_call_id: m for m in output["messages"] if isinstance(m, ToolMessage)}


REJECTED_WITHOUT_REASON = (
    "User rejected the tool call for `send_mail` with id c1. The tool was not executed. Do not retry this tool call"
    " unless the user explicitly requests it."
)
DECISIONS: dict[str, tuple[Any, list[tuple[str, ...]], str, str]] = {
    "approve": ({"type": "approve"}, [("mail", "ann", "0")], "success", "sent to ann"),
    "edit": (edited("bob", copies=2), [("mail", "bob", "2")], "success", "sent to bob"),
    "reject": ({"type": "reject", "message": "too early"}, [], "error", "with reason: too early"),
    "reject without a reason": ({"type": "reject"}, [], "error", REJECTED_WITHOUT_REASON),
    "respond": ({"type": "respond", "message": "I told her"}, [], "success", "I told her"),
}
MODELS: dict[str, Any] = {
    "approve": HITLApprove(),
    "edit": HITLEdit(edited_action=HITLAction(name="send_mail", args={"to": "bob", "copies": 2})),
    "reject": HITLReject(message="too early"),
    "reject without a reason": HITLReject(),
    "respond": HITLRespond(message="I told her"),
}


@pytest.mark.parametrize("given", ["data", "model"])
@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("how", ["batched", "per_call"])
async def test_each_decision_arrives_and_the_token_is_spent(bench: Bench, how: str, decision: str, given: str) -> None:
    office = Office(bench, how, mail())
    graph, adapter = office.open(bench)
    (event,) = pauses(await bench.collect(graph, "stream", start(), thread(), stream_mode="custom"))
    assert event.name == "tool_approval"
    assert office.done == []
    data, done, status, said = DECISIONS[decision]
    response: Any = data if given == "data" else MODELS[decision]
    if how == "batched":
        response = {"decisions": [data]} if given == "data" else HITLResponse(decisions=[MODELS[decision]])
    elif given == "model":
        response = HITLCallResponse(MODELS[decision])

    output = await bench.call(adapter, "invoke", event.pause_token, response)

    assert office.done == done
    message = told(output)["c1"]
    assert message.status == status
    assert message.text.endswith(said)
    assert output["messages"][-1].content == "done"
    assert bench.states() == ["applied"]
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", event.pause_token, response)


async def test_a_batched_question_shows_every_gated_call_and_what_is_allowed(bench: Bench) -> None:
    office = Office(bench, "batched", mail(), delete())
    graph, adapter = office.open(bench)
    await bench.call(graph, "invoke", start(), thread())

    (event,) = await bench.call(adapter, "pending")

    assert event.payload == {
        "action_requests": [
            {
                "name": "send_mail",
                "args": {"to": "ann"},
                "description": "Tool execution requires approval\n\nTool: send_mail\nArgs: {'to': 'ann'}",
            },
            {
                "name": "delete_file",
                "args": {"path": "a.txt"},
                "description": "Tool execution requires approval\n\nTool: delete_file\nArgs: {'path': 'a.txt'}",
            },
        ],
        "review_configs": [
            {"action_name": "send_mail", "allowed_decisions": ["approve", "edit", "reject", "respond"]},
            {"action_name": "delete_file", "allowed_decisions": ["approve", "reject"]},
        ],
    }


async def test_two_calls_of_one_message_are_decided_together_in_batched_mode(bench: Bench) -> None:
    look = {"name": "look_up", "args": {"word": "x"}, "id": "c0", "type": "tool_call"}
    office = Office(bench, "batched", look, mail(), delete())
    graph, adapter = office.open(bench)
    (event,) = pauses(await bench.collect(graph, "stream", start(), thread(), stream_mode="custom"))

    decisions = [edited("bob"), {"type": "reject", "message": "keep it"}]
    output = await bench.call(adapter, "invoke", event.pause_token, {"decisions": decisions})

    assert sorted(office.done) == [("look up", "x"), ("mail", "bob", "0")]
    assert {id_: m.status for id_, m in told(output).items()} == {"c0": "success", "c1": "success", "c2": "error"}


async def test_two_calls_of_one_message_are_two_questions_in_per_call_mode_answered_in_any_order(bench: Bench) -> None:
    office = Office(bench, "per_call", mail(), delete())
    graph, adapter = office.open(bench)
    chunks = await bench.collect(graph, "stream", start(), thread(), stream_mode=["updates", "custom"])
    asked = {event.payload["tool_call_id"]: event for event in pauses(chunks)}
    assert {id_: event.payload for id_, event in asked.items()} == {
        "c1": {
            "type": "tool_approval",
            "tool_call_id": "c1",
            "name": "send_mail",
            "args": {"to": "ann"},
            "description": "Tool execution requires approval\n\nTool: send_mail\nArgs: {'to': 'ann'}",
        },
        "c2": {
            "type": "tool_approval",
            "tool_call_id": "c2",
            "name": "delete_file",
            "args": {"path": "a.txt"},
            "description": "Tool execution requires approval\n\nTool: delete_file\nArgs: {'path': 'a.txt'}",
        },
    }

    await bench.collect(adapter, "stream", asked["c2"].pause_token, {"type": "approve"}, stream_mode="custom")
    assert office.done == [("delete", "a.txt")]
    resumed = await bench.collect(adapter, "stream", asked["c1"].pause_token, edited("bob"), stream_mode="custom")

    assert office.done == [("delete", "a.txt"), ("mail", "bob", "0")]
    assert [event.interrupt_id for event in answers(resumed)] == [asked["c1"].interrupt_id]
    assert bench.states() == ["applied", "applied"]


async def test_two_equal_calls_need_two_answers_in_per_call_mode_and_run_as_each_was_decided(bench: Bench) -> None:
    office = Office(bench, "per_call", mail(id_="c1"), mail(id_="c2"))
    graph, adapter = office.open(bench)
    await bench.call(graph, "invoke", start(), thread())
    asked = {event.payload["tool_call_id"]: event for event in await bench.call(adapter, "pending")}

    await bench.call(adapter, "answer", asked["c2"].pause_token, {"type": "approve"})
    await bench.call(adapter, "answer", asked["c1"].pause_token, {"type": "reject"})
    delivery = await bench.call(adapter, "deliver", "t1")

    assert office.done == [("mail", "ann", "0")]
    assert {id_: m.status for id_, m in told(delivery.output).items()} == {"c1": "error", "c2": "success"}
    assert delivery.applied == tuple(sorted(event.interrupt_id for event in asked.values()))


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol:langchain_core._api.LangChainBetaWarning")
async def test_a_v3_run_of_an_agent_has_the_question_in_its_channel(bench: Bench) -> None:
    office = Office(bench, "per_call", mail())
    graph = office.agent(bench.interrupts.checkpointer(bench.saver), transformers=[InterruptTransformer])
    adapter = bench.interrupts.resume_adapter(graph)
    if bench.mode == "async":
        run = await graph.astream_events(start(), thread(), version="v3")
        found = [event async for event in run.interrupt_events]
    else:
        run = graph.stream_events(start(), thread(), version="v3")
        found = await asyncio.to_thread(list, run.interrupt_events)

    assert found == await bench.call(adapter, "pending")
    assert found[0].payload["tool_call_id"] == "c1"


async def test_a_second_turn_asks_again_with_another_token(bench: Bench) -> None:
    office = Office(bench, "batched", mail("ann"))
    office.script.insert(1, AIMessage(content="", tool_calls=[mail("eve", "c9")]))
    graph, adapter = office.open(bench)
    await bench.call(graph, "invoke", start(), thread())
    (first,) = await bench.call(adapter, "pending")

    await bench.call(adapter, "invoke", first.pause_token, {"decisions": [{"type": "approve"}]})
    (second,) = await bench.call(adapter, "pending")
    output = await bench.call(adapter, "invoke", second.pause_token, {"decisions": [{"type": "reject"}]})

    assert second.payload["action_requests"][0]["args"] == {"to": "eve"}
    assert office.done == [("mail", "ann", "0")]
    assert told(output)["c9"].status == "error"


UNFIT_BATCHED: dict[str, tuple[Any, str]] = {
    "too few decisions": ([{"type": "approve"}], "2 tool calls need 2 decisions in their order, not 1"),
    "too many decisions": ([{"type": "approve"}] * 3, "2 tool calls need 2 decisions in their order, not 3"),
    "not allowed for this tool": (
        [{"type": "approve"}, {"type": "respond", "message": "no"}],
        r"decisions\.1: delete_file allows approve, reject, not respond",
    ),
    "an edit of another tool": (
        [edited(name="delete_file"), {"type": "approve"}],
        r"decisions\.0\.edited_action\.name: an edit changes the arguments of send_mail",
    ),
    "an edit without an action": ([{"type": "edit"}, {"type": "approve"}], r"edited_action: Field required"),
    "a response without a text": ([{"type": "respond"}, {"type": "approve"}], r"message: Field required"),
    "a reason that is null": ([{"type": "reject", "message": None}, {"type": "approve"}], r"message: Input should be"),
    "an unknown decision": ([{"type": "yes"}, {"type": "approve"}], r"decisions\.0"),
    "a misspelt field": ([{"type": "reject", "reason": "x"}, {"type": "approve"}], r"reason: Extra inputs"),
}


@pytest.mark.parametrize("what", UNFIT_BATCHED)
async def test_what_the_middleware_would_refuse_is_refused_before_the_token_is_spent(bench: Bench, what: str) -> None:
    office = Office(bench, "batched", mail(), delete())
    graph, adapter = office.open(bench)
    await bench.call(graph, "invoke", start(), thread())
    (event,) = await bench.call(adapter, "pending")
    decisions, message = UNFIT_BATCHED[what]

    with pytest.raises(ResponseInvalid, match=message):
        await bench.call(adapter, "invoke", event.pause_token, {"decisions": decisions})

    assert office.done == []
    assert bench.states() == ["pending"]
    await bench.call(adapter, "invoke", event.pause_token, {"decisions": [{"type": "approve"}] * 2})
    assert sorted(office.done) == [("delete", "a.txt"), ("mail", "ann", "0")]


UNFIT_CALL: dict[str, tuple[Any, str]] = {
    "not allowed for this tool": (
        {"type": "respond", "message": "no"},
        "delete_file allows approve, reject, not respond",
    ),
    "an edit where none is allowed": (edited(name="delete_file"), "delete_file allows approve, reject, not edit"),
    "the batched answer": ({"decisions": [{"type": "approve"}]}, "type"),
    "a reason that is null": ({"type": "reject", "message": None}, r"message: Input should be"),
}
UNFIT_MAIL: dict[str, tuple[Any, str]] = {
    "an edit of another tool": (edited(name="look_up"), "an edit changes the arguments of send_mail"),
    "an argument of another type": (edited(["bob"]), "to: Input should be a valid string"),
    "an argument that is missing": (
        {"type": "edit", "edited_action": {"name": "send_mail", "args": {"copies": 1}}},
        "to: Field required",
    ),
}


@pytest.mark.parametrize("what", [*UNFIT_CALL, *UNFIT_MAIL])
async def test_what_the_tool_would_refuse_is_refused_before_the_token_is_spent(bench: Bench, what: str) -> None:
    office = Office(bench, "per_call", delete() if what in UNFIT_CALL else mail())
    graph, adapter = office.open(bench)
    await bench.call(graph, "invoke", start(), thread())
    (event,) = await bench.call(adapter, "pending")
    response, message = (UNFIT_CALL | UNFIT_MAIL)[what]

    with pytest.raises(ResponseInvalid, match=message):
        await bench.call(adapter, "invoke", event.pause_token, response)

    assert bench.states() == ["pending"]
    await bench.call(adapter, "invoke", event.pause_token, {"type": "approve"})
    assert len(office.done) == 1


async def test_an_edit_of_a_tool_whose_schema_is_not_known_is_refused(bench: Bench) -> None:
    office = Office(bench, "per_call", mail(), register=False)
    register_hitl(bench.interrupts, office.middleware)
    graph, adapter = office.open(bench)
    await bench.call(graph, "invoke", start(), thread())
    (event,) = await bench.call(adapter, "pending")

    with pytest.raises(ResponseInvalid, match="the arguments of send_mail cannot be checked"):
        await bench.call(adapter, "invoke", event.pause_token, edited())
    assert bench.states() == ["pending"]


async def test_an_agent_that_is_a_node_of_another_graph_is_covered_by_its_path(bench: Bench) -> None:
    office = Office(bench, "batched", mail(), nodes=("office:HumanInTheLoopMiddleware.after_model",))
    builder = StateGraph(MessagesState).add_node("office", office.agent()).add_edge(START, "office")
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", start(), thread())
    (event,) = await bench.call(adapter, "pending")

    output = await bench.call(adapter, "invoke", event.pause_token, {"decisions": [{"type": "approve"}]})

    assert office.done == [("mail", "ann", "0")]
    assert told(output)["c1"].content == "sent to ann"


async def test_a_call_that_nobody_decides_in_time_gets_the_default(bench: Bench) -> None:
    default = HITLCallResponse(HITLReject(message="nobody answered"))
    office = Office(bench, "per_call", mail(), ttl=timedelta(minutes=5), on_expire=default)
    graph, adapter = office.open(bench)
    bench.clock.move(-timedelta(minutes=6))  # PostgreSQL decides by its own clock
    await bench.call(graph, "invoke", start(), thread())
    bench.clock.move(timedelta(minutes=6))

    (delivery,) = (await bench.call(bench.interrupts.janitor(adapter), "sweep")).deliveries

    assert told(delivery.output)["c1"].text.endswith("with reason: nobody answered")
    assert office.done == []
    assert bench.states() == ["applied"]


async def test_a_raw_resume_does_not_reach_the_middleware_and_the_token_still_works(bench: Bench) -> None:
    office = Office(bench, "batched", mail())
    graph, adapter = office.open(bench)
    await bench.call(graph, "invoke", start(), thread())

    with pytest.raises(ResumeRefused, match="answered with its token"):
        await bench.call(graph, "invoke", Command(resume={"decisions": [{"type": "approve"}]}), thread())
    assert office.done == []

    (event,) = await bench.call(adapter, "pending")
    output = await bench.call(adapter, "invoke", event.pause_token, {"decisions": [{"type": "approve"}]})

    assert office.done == [("mail", "ann", "0")]
    assert output["messages"][-1].content == "done"
    assert await bench.call(adapter, "pending") == []


async def test_the_schemas_and_the_validator_also_serve_a_registration_by_hand(bench: Bench) -> None:
    office = Office(bench, "batched", mail(), register=False)
    bench.interrupts.register_interrupt(
        "review",
        payload_schema=HITLRequest,
        response_schema=HITLResponse,
        validate_response=validate_hitl_response,
        nodes=("HumanInTheLoopMiddleware.after_model",),
    )
    graph, adapter = office.open(bench)
    await bench.call(graph, "invoke", start(), thread())
    (event,) = await bench.call(adapter, "pending", name="review")

    with pytest.raises(ResponseInvalid, match="need 1 decisions"):
        await bench.call(adapter, "invoke", event.pause_token, {"decisions": []})
    await bench.call(adapter, "invoke", event.pause_token, {"decisions": [{"type": "approve"}]})
    assert office.done == [("mail", "ann", "0")]


async def test_the_wrong_modes_schema_is_told_when_the_agent_asks(bench: Bench) -> None:
    office = Office(bench, "per_call", mail(), register=False)
    bench.interrupts.register_interrupt(
        "review", payload_schema=HITLRequest, response_schema=HITLResponse, nodes=("tools",)
    )
    graph, _ = office.open(bench)

    with pytest.raises(PayloadInvalid, match=r"'tools'.*action_requests: Field required"):
        await bench.call(graph, "invoke", start(), thread())


def test_the_call_validator_alone_refuses_an_edit_of_another_tool() -> None:
    request = HITLCallRequest(tool_call_id="c1", name="send_mail", args={"to": "ann"})

    validate_hitl_call_response(HITLCallResponse(HITLReject()), request)
    with pytest.raises(ValueError, match="cannot name another tool"):
        validate_hitl_call_response(HITLCallResponse.model_validate(edited(name="delete_file")), request)


def test_a_default_that_some_question_does_not_allow_is_refused_at_registration(tmp_path: Path) -> None:
    by_call: Any = HumanInTheLoopMiddleware({"pay": {"allowed_decisions": ["approve"]}}, interrupt_mode="per_call")
    batched: Any = HumanInTheLoopMiddleware({"pay": True})
    with Interrupts.local(tmp_path / "interrupts.db") as interrupts:
        with pytest.raises(RegistrationError, match="reject is not allowed for pay"):
            register_hitl(interrupts, by_call, on_expire=HITLCallResponse(HITLReject()))
        with pytest.raises(RegistrationError, match="on_expire cannot fit"):
            register_hitl(interrupts, batched, on_expire=HITLResponse(decisions=[HITLReject()]))
        assert list(interrupts.registrations) == ["ask_user"]


def test_what_is_no_such_middleware_is_refused(tmp_path: Path) -> None:
    with (
        Interrupts.local(tmp_path / "interrupts.db") as interrupts,
        pytest.raises(RegistrationError, match="must be a HumanInTheLoopMiddleware"),
    ):
        register_hitl(interrupts, object())  # type: ignore[arg-type]
