"""LangChain's middleware in an agent that a tool calls, as deepagents' subagents are: no adapter sees its nodes."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from symfonic_interrupts import FrameworkTenantScope, PayloadInvalid
from symfonic_interrupts.contrib.langchain import register_hitl
from symfonic_interrupts.errors import ResponseInvalid, ResumeRefused, ScopeMismatch, TokenConsumed
from tests.graph.test_langchain_hitl import Scripted, edited, mail, start, told
from tests.harness import Bench, thread

MODES = ["batched", "per_call"]


def approval(mode: str, decision: dict[str, Any] | None = None) -> Any:
    decision = decision or {"type": "approve"}
    return decision if mode == "per_call" else {"decisions": [decision]}


class Company:
    """A chief whose tool calls a clerk; the clerk's mails are gated by the middleware, whose tool is `send_mail`."""

    def __init__(self, mode: str, kind: type[Any] = HumanInTheLoopMiddleware) -> None:
        self.done: list[str] = []
        self.gate: Any = kind({"send_mail": True}, interrupt_mode=mode)

        @tool
        def send_mail(to: str) -> str:
            """Send a mail."""
            self.done.append(to)
            return f"sent to {to}"

        self.send_mail = send_mail

    def clerk(self, **options: Any) -> Any:
        script = [AIMessage("", tool_calls=[mail()]), AIMessage("the clerk is done")]
        return create_agent(
            Scripted(responses=script), tools=[self.send_mail], middleware=[self.gate], name="clerk", **options
        )

    def chief(self, checkpointer: Any) -> Any:
        clerk = self.clerk()

        @tool
        def delegate(task: str, config: RunnableConfig) -> str:
            """Have it done."""
            return str(clerk.invoke({"messages": [("user", task)]}, config)["messages"][-1].content)

        @tool("delegate")
        async def adelegate(task: str, config: RunnableConfig) -> str:
            """Have it done."""
            return str((await clerk.ainvoke({"messages": [("user", task)]}, config))["messages"][-1].content)

        delegate.coroutine = adelegate.coroutine  # type: ignore[attr-defined]
        call = {"name": "delegate", "args": {"task": "write"}, "id": "d1", "type": "tool_call"}
        script = [AIMessage("", tool_calls=[call]), AIMessage("all is done")]
        return create_agent(Scripted(responses=script), tools=[delegate], checkpointer=checkpointer)

    def open(self, bench: Bench) -> tuple[Any, Any]:
        graph = self.chief(bench.interrupts.checkpointer(bench.saver))
        return graph, bench.interrupts.resume_adapter(graph)


@pytest.mark.parametrize("how", MODES)
async def test_its_question_is_a_points_own_and_nothing_but_the_token_answers_it(bench: Bench, how: str) -> None:
    company = Company(how)
    register_hitl(bench.interrupts, company.gate, tools=[company.send_mail])
    graph, adapter = company.open(bench)
    output = await bench.call(graph, "invoke", start(), thread())
    (asked,) = output["__interrupt__"]
    (event,) = await bench.call(adapter, "pending")

    for raw in (approval(how), {asked.id: approval(how)}):
        with pytest.raises(ResumeRefused):
            await bench.call(graph, "invoke", Command(resume=raw), thread())
    with pytest.raises(ScopeMismatch):
        await bench.call(adapter, "answer", event.pause_token, approval(how), scope=FrameworkTenantScope("globex"))
    with pytest.raises(ResponseInvalid, match="cannot name another tool"):
        await bench.call(adapter, "answer", event.pause_token, approval(how, edited(name="delegate")))
    assert company.done == []
    output = await bench.call(adapter, "invoke", event.pause_token, approval(how, edited("bob")))

    assert company.done == ["bob"]
    assert told(output)["d1"].content == "the clerk is done"
    assert output["messages"][-1].content == "all is done"
    assert bench.states() == ["applied"]
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", event.pause_token, approval(how))
    assert company.done == ["bob"]


async def test_clients_find_the_middlewares_keys_in_the_marker(bench: Bench) -> None:
    company = Company("batched")
    register_hitl(bench.interrupts, company.gate)
    graph, _ = company.open(bench)

    (asked,) = (await bench.call(graph, "invoke", start(), thread()))["__interrupt__"]

    assert asked.value["name"] == "tool_approval"
    assert asked.value["action_requests"] == asked.value["payload"]["action_requests"]
    assert asked.value["review_configs"] == [
        {"action_name": "send_mail", "allowed_decisions": ["approve", "edit", "reject", "respond"]}
    ]


async def test_the_answering_graph_takes_its_answer(bench: Bench) -> None:
    company = Company("batched")
    register_hitl(bench.interrupts, company.gate)
    _, adapter = company.open(bench)
    served = adapter.as_graph()
    await bench.call(served, "invoke", start(), thread())

    output = await bench.call(served, "invoke", Command(resume=approval("batched")), thread())

    assert company.done == ["ann"]
    assert output["messages"][-1].content == "all is done"


@pytest.mark.parametrize("how", MODES)
async def test_the_same_middleware_in_an_agent_that_the_adapter_sees_shows_what_langchain_shows(
    bench: Bench, how: str
) -> None:
    company = Company(how)
    register_hitl(bench.interrupts, company.gate)
    graph = company.clerk(checkpointer=bench.interrupts.checkpointer(bench.saver))
    adapter = bench.interrupts.resume_adapter(graph)

    (asked,) = (await bench.call(graph, "invoke", start(), thread()))["__interrupt__"]

    shown = {"name", "args", "description", "type", "tool_call_id"}
    assert set(asked.value) == (shown if how == "per_call" else {"action_requests", "review_configs"})
    (event,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "invoke", event.pause_token, approval(how))
    assert company.done == ["ann"]


@pytest.mark.parametrize("how", MODES)
async def test_under_another_saver_it_asks_as_langchain_does(bench: Bench, how: str) -> None:
    company = Company(how)
    register_hitl(bench.interrupts, company.gate)
    graph = company.clerk(checkpointer=InMemorySaver())
    await bench.call(graph, "invoke", start(), thread())

    await bench.call(graph, "invoke", Command(resume=approval(how)), thread())

    assert company.done == ["ann"]
    assert bench.states() == []


class Careful(HumanInTheLoopMiddleware[Any, Any, Any]):
    """A middleware of an author, with a question of its own, and methods that call those it inherits."""

    @property
    def name(self) -> str:
        return "careful"

    def after_model(self, state: Any, runtime: Any) -> Any:
        found = super().after_model(state, runtime)
        if found is not None:
            interrupt("not the middleware's shape")
        return found


async def test_a_subclass_of_an_author_asks_with_the_point_too_also_in_questions_of_its_own(bench: Bench) -> None:
    company = Company("batched", Careful)
    register_hitl(bench.interrupts, company.gate)
    graph, adapter = company.open(bench)
    await bench.call(graph, "invoke", start(), thread())
    (event,) = await bench.call(adapter, "pending")

    with pytest.raises(PayloadInvalid, match=r"careful\.after_model"):
        await bench.call(adapter, "invoke", event.pause_token, approval("batched"))
    assert company.done == []


def test_the_middleware_stays_one_of_its_class_and_the_class_stays_as_it_was(bench: Bench) -> None:
    gate: Any = HumanInTheLoopMiddleware({"send_mail": True})
    register_hitl(bench.interrupts, gate)

    assert isinstance(gate, HumanInTheLoopMiddleware)
    assert gate.name == "HumanInTheLoopMiddleware"
    assert HumanInTheLoopMiddleware.after_model.__globals__["interrupt"] is interrupt
    assert type(gate).after_model.__globals__["interrupt"] is not interrupt
