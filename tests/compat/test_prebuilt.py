"""Agents that other packages assemble, unchanged: supervisor, swarm, deepagents. Models are scripted: there is no network.

Each question is answered by its token through the adapter (`token`), and as LangGraph's documentation says, through the
answering graph (`resume`).
"""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import Command

from symfonic_interrupts import ResumeRefused, TokenConsumed
from symfonic_interrupts.contrib.langchain import register_hitl
from tests.harness import Bench, Refund, thread

WAYS = ["token", "resume"]
START = {"messages": [{"role": "user", "content": "please"}]}
APPROVE = {"decisions": [{"type": "approve"}]}


class Scripted(FakeMessagesListChatModel):
    """Says what the script says, whatever it is asked."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def model(*said: Any) -> Scripted:
    """Each one a text, or the calls of tools."""
    messages = [AIMessage(one) if isinstance(one, str) else AIMessage("", tool_calls=list(one)) for one in said]
    return Scripted(responses=messages)  # type: ignore[arg-type]


def call(tool: str, id_: str, **args: Any) -> dict[str, Any]:
    return {"name": tool, "args": args, "id": id_, "type": "tool_call"}


class Desk:
    """A tool that asks a person first, one that does not, and what they did."""

    def __init__(self, bench: Bench) -> None:
        self.done: list[str] = []
        point = bench.refunds()

        def refund(order: str) -> str:
            """Pay an order back, if a person agrees."""
            approved = point.pause(Refund(order=order, amount=25)).approved
            self.done.append(f"{order}:{approved}")
            return f"{order}: {approved}"

        def send_mail(to: str) -> str:
            """Send a mail."""
            self.done.append(f"mail to {to}")
            return f"sent to {to}"

        self.refund = refund
        self.send_mail = send_mail


class Talk:
    """A thread of a graph, answered in one of the `WAYS`; each answer is then sent once more, and changes nothing.

    Attributes:
        adapter: of the graph.
    """

    def __init__(self, bench: Bench, graph: Any, way: str) -> None:
        self._bench, self._graph, self._way = bench, graph, way
        self.adapter = bench.interrupts.resume_adapter(graph)
        self._served = self.adapter.as_graph()

    async def begin(self) -> None:
        await self._bench.call(self._graph, "invoke", START, thread())

    async def open(self) -> list[Any]:
        """The open questions, oldest first."""
        events = await self._bench.call(self.adapter, "pending", thread_id="t1")
        return list(reversed(events))

    async def answer(self, event: Any, answer: Any) -> Any:
        """The graph's output after this answer."""
        if self._way == "resume":
            resume = Command(resume={event.interrupt_id: answer})
            output = await self._bench.call(self._served, "invoke", resume, thread())
            await self._bench.call(self._served, "invoke", resume, thread())
            return output
        output = await self._bench.call(self.adapter, "invoke", event.pause_token, answer)
        with pytest.raises(TokenConsumed):
            await self._bench.call(self.adapter, "invoke", event.pause_token, answer)
        return output


def tool_messages(output: Any) -> list[Any]:
    return [message.content for message in output["messages"] if isinstance(message, ToolMessage)]


# -- langgraph-supervisor


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")  # the package builds its own agent with it
@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_of_a_supervisors_worker_asks_and_each_answer_counts_once(bench: Bench, way: str) -> None:
    supervisor = pytest.importorskip("langgraph_supervisor", reason="langgraph-supervisor is not installed")
    desk = Desk(bench)
    worker = create_agent(
        model([call("refund", "r1", order="A"), call("refund", "r2", order="B")], "both are decided"),
        tools=[desk.refund],
        name="clerk",
    )
    graph = supervisor.create_supervisor(
        [worker], model=model([call("transfer_to_clerk", "h1")], "all is done"), output_mode="full_history"
    ).compile(checkpointer=bench.interrupts.checkpointer(bench.saver))
    talk = Talk(bench, graph, way)

    await talk.begin()
    asked = {event.payload["order"]: event for event in await talk.open()}
    assert sorted(asked) == ["A", "B"]
    await talk.answer(asked["B"], {"approved": False})
    output = await talk.answer(asked["A"], {"approved": True})

    assert sorted(desk.done) == ["A:True", "B:False"]
    assert output["messages"][-1].content == "all is done"
    assert bench.states() == ["applied", "applied"]


# -- langgraph-swarm


@pytest.mark.parametrize("way", WAYS)
async def test_agents_of_a_swarm_ask_one_after_another_and_the_active_one_goes_on(bench: Bench, way: str) -> None:
    swarm = pytest.importorskip("langgraph_swarm", reason="langgraph-swarm is not installed")
    desk = Desk(bench)
    hand_over = swarm.create_handoff_tool(agent_name="bob")
    ann = create_agent(
        model([call("refund", "r1", order="A")], [call(hand_over.name, "h1")]),
        tools=[desk.refund, hand_over],
        name="ann",
    )
    bob = create_agent(model([call("refund", "r2", order="B")], "bob is done"), tools=[desk.refund], name="bob")
    graph = swarm.create_swarm([ann, bob], default_active_agent="ann").compile(
        checkpointer=bench.interrupts.checkpointer(bench.saver)
    )
    talk = Talk(bench, graph, way)

    await talk.begin()
    (first,) = await talk.open()
    assert first.payload["order"] == "A"
    await talk.answer(first, {"approved": True})
    (second,) = await talk.open()
    assert second.payload["order"] == "B"
    output = await talk.answer(second, {"approved": False})

    assert desk.done == ["A:True", "B:False"]
    assert (output["active_agent"], output["messages"][-1].content) == ("bob", "bob is done")
    assert bench.states() == ["applied", "applied"]


# -- deepagents

GATED = {"send_mail": True}
MAIN = "HumanInTheLoopMiddleware.after_model"
SUBAGENT = "tools:HumanInTheLoopMiddleware.after_model"


def deep_agent(bench: Bench, main: Any, sub: Any, desk: Desk, **options: Any) -> Any:
    deepagents = pytest.importorskip("deepagents", reason="deepagents is not installed")
    clerk = {"name": "clerk", "description": "decides", "system_prompt": "decide", "tools": options.pop("sub_tools")}
    return deepagents.create_deep_agent(
        model=main,
        subagents=[{**clerk, "model": sub}],
        checkpointer=bench.interrupts.checkpointer(bench.saver),
        **options,
    )


def delegate(id_: str = "d1") -> dict[str, Any]:
    return call("task", id_, description="decide it", subagent_type="clerk")


@pytest.mark.parametrize("way", WAYS)
async def test_a_deep_agents_own_tool_and_that_of_its_subagent_ask_and_count_once(bench: Bench, way: str) -> None:
    desk = Desk(bench)
    main = model([call("refund", "r1", order="A")], [delegate()], "all is done")
    sub = model([call("refund", "r2", order="B")], "the clerk is done")
    graph = deep_agent(bench, main, sub, desk, tools=[desk.refund], sub_tools=[desk.refund])
    talk = Talk(bench, graph, way)

    await talk.begin()
    (first,) = await talk.open()
    await talk.answer(first, {"approved": True})
    (second,) = await talk.open()
    assert second.payload["order"] == "B"
    output = await talk.answer(second, {"approved": False})

    assert desk.done == ["A:True", "B:False"]
    assert tool_messages(output) == ["A: True", "the clerk is done"]
    assert output["messages"][-1].content == "all is done"
    assert bench.states() == ["applied", "applied"]


@pytest.mark.parametrize("way", WAYS)
async def test_interrupt_on_of_a_deep_agent_is_answered_in_the_main_agent_and_in_a_subagent(
    bench: Bench, way: str
) -> None:
    desk = Desk(bench)
    register_hitl(bench.interrupts, HumanInTheLoopMiddleware(GATED), nodes=(MAIN, SUBAGENT))  # type: ignore[arg-type]
    main = model([call("send_mail", "m1", to="ann")], [delegate()], "all is done")
    sub = model([call("send_mail", "m2", to="bob")], "the clerk is done")
    graph = deep_agent(bench, main, sub, desk, tools=[desk.send_mail], sub_tools=[desk.send_mail], interrupt_on=GATED)
    talk = Talk(bench, graph, way)

    await talk.begin()
    (first,) = await talk.open()
    await talk.answer(first, APPROVE)
    (second,) = await talk.open()
    assert second.payload["action_requests"][0]["args"] == {"to": "bob"}
    assert desk.done == ["mail to ann"]
    output = await talk.answer(second, {"decisions": [{"type": "reject", "message": "not bob"}]})

    assert desk.done == ["mail to ann"]
    assert tool_messages(output) == ["sent to ann", "the clerk is done"]
    assert bench.states() == ["applied", "applied"]


async def test_a_raw_resume_past_the_adapter_is_refused_where_a_subagents_tool_asks(bench: Bench) -> None:
    desk = Desk(bench)
    sub = model([call("refund", "r2", order="B")], "the clerk is done")
    graph = deep_agent(bench, model([delegate()], "all is done"), sub, desk, sub_tools=[desk.refund])
    talk = Talk(bench, graph, "token")
    await talk.begin()

    with pytest.raises(ResumeRefused):
        await bench.call(graph, "invoke", Command(resume={"approved": True}), thread())

    assert (desk.done, bench.states()) == ([], ["pending"])
    (asked,) = await talk.open()
    await talk.answer(asked, {"approved": True})
    assert desk.done == ["B:True"]
