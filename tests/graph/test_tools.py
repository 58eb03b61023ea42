"""Tools that ask: together, wrapped, failing, in fan-outs and agents. Each call gets its own answer and has its effect once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send

from symfonic_interrupts import ResumeRefused
from tests.harness import Bench, Refund, open_bench, thread


def asking_for(*orders: str, tool: str = "refund") -> dict[str, Any]:
    """A model's message with one call per order; the calls are named 0, 1, ..."""
    listed = [
        {"name": tool, "args": {"order": order}, "id": str(n), "type": "tool_call"} for n, order in enumerate(orders)
    ]
    return {"messages": [AIMessage("", tool_calls=listed)]}


class Till:
    """Makes tools that ask before they pay, and counts what they pay by the call's id.

    Attributes:
        bodies: how often each call began.
        effects: how often each call paid.
        amounts: what an order is worth, if not 1.
        failing: ids of calls that raise after their answer, once.
        together: what every call waits for before it asks.
    """

    def __init__(self, bench: Bench) -> None:
        self.mode = bench.mode
        self.point = bench.refunds()
        self.bodies: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.amounts: dict[str, int] = {}
        self.failing: set[str] = set()
        self.together: Any = None

    def _pay(self, order: str, call_id: str) -> str:
        decision = self.point.pause(Refund(order=order, amount=self.amounts.get(order, 1)))
        if call_id in self.failing:
            self.failing.remove(call_id)
            raise ConnectionError("the ledger is away")
        self.effects[call_id] += 1
        return f"{order}: {decision.note}"

    def tool(self, name: str = "refund") -> StructuredTool:
        """A tool `name(order)`: a coroutine on an async bench, else a function."""

        def function(order: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
            self.bodies[call_id] += 1
            if self.together is not None:
                self.together.wait(30)
            return self._pay(order, call_id)

        async def coroutine(order: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
            self.bodies[call_id] += 1
            if self.together is not None:
                await asyncio.wait_for(self.together.wait(), 30)
            return self._pay(order, call_id)

        as_what: Any = {"coroutine": coroutine} if self.mode == "async" else {"func": function}
        return StructuredTool.from_function(name=name, description="Pay.", **as_what)

    def all_at_once(self, calls: int) -> None:
        """Let no call ask before all have begun."""
        self.together = asyncio.Barrier(calls) if self.mode == "async" else threading.Barrier(calls)


def one_node(node: Any, **options: Any) -> StateGraph[MessagesState]:
    return StateGraph(MessagesState).add_node("tools", node, **options).add_edge(START, "tools")


async def answer(bench: Bench, adapter: Any, *events: Any) -> None:
    """Answer each with a note that names it."""
    for event in events:
        note = f"for {event.payload['order']} {event.payload['amount']}"
        await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": note})


def told(output: Any) -> dict[str, str]:
    """What each call's tool said, by the call's id."""
    return {m.tool_call_id: str(m.content) for m in output["messages"] if isinstance(m, ToolMessage)}


def paid_once(orders: tuple[str, ...]) -> dict[str, int]:
    return {str(n): 1 for n in range(len(orders))}


def right(orders: tuple[str, ...]) -> dict[str, str]:
    return {str(n): f"{order}: for {order} 1" for n, order in enumerate(orders)}


ORDERS = [("A", "B"), ("A", "B", "C", "D", "E"), ("A", "A", "A", "A", "A"), ("A", "B", "A", "B")]


@pytest.mark.parametrize("orders", ORDERS, ids="".join)
@pytest.mark.parametrize("nested", [False, True], ids=["in the graph", "in a subgraph"])
async def test_calls_that_ask_together_are_out_together_and_one_delivery_has_each_effect_once(
    bench: Bench, orders: tuple[str, ...], nested: bool
) -> None:
    till = Till(bench)
    till.all_at_once(len(orders))
    node: Any = ToolNode([till.tool()])
    graph, adapter = bench.compile(one_node(one_node(node).compile() if nested else node))
    await bench.call(graph, "invoke", asking_for(*orders), thread())
    asked = await bench.call(adapter, "pending")
    assert sorted(event.payload["order"] for event in asked) == sorted(orders)

    await answer(bench, adapter, *asked)
    delivery = await bench.call(adapter, "deliver", "t1")

    assert told(delivery.output) == right(orders)
    assert till.effects == paid_once(orders)
    assert sorted(delivery.applied) == sorted(event.interrupt_id for event in asked)
    assert delivery.open == ()


async def test_two_tools_that_show_the_very_same_are_two_questions(bench: Bench) -> None:
    till = Till(bench)
    till.all_at_once(2)
    graph, adapter = bench.compile(one_node(ToolNode([till.tool("refund"), till.tool("cancel")])))
    second_call = {"name": "cancel", "args": {"order": "A"}, "id": "1", "type": "tool_call"}
    calls = [*asking_for("A")["messages"][0].tool_calls, second_call]
    await bench.call(graph, "invoke", {"messages": [AIMessage("", tool_calls=calls)]}, thread())
    first, second = await bench.call(adapter, "pending")
    assert first.payload == second.payload

    await bench.call(adapter, "answer", first.pause_token, {"approved": True, "note": "one"})
    await bench.call(adapter, "answer", second.pause_token, {"approved": True, "note": "two"})
    delivery = await bench.call(adapter, "deliver", "t1")

    assert sorted(told(delivery.output).values()) == ["A: one", "A: two"]


async def test_a_call_that_outlived_its_pass_hides_no_question_of_the_next_pass(store_url: str, tmp_path: Path) -> None:
    async with open_bench("async", store_url, tmp_path) as bench:
        point = bench.refunds()
        begun: Counter[str] = Counter()
        c_asked, late_b_asked, b_asked, never = (asyncio.Event() for _ in range(4))

        async def refund(order: str) -> str:
            begun[order] += 1
            first_pass = begun[order] == 1
            if order == "C" and first_pass:
                await never.wait()
            if order == "B":  # the first pass's B outlives it, and asks between the second pass's C and B
                await asyncio.wait_for((c_asked if first_pass else late_b_asked).wait(), 30)
            try:
                return f"{order}: {point.pause(Refund(order=order, amount=1)).note}"
            except GraphBubbleUp:
                if order == "C" and begun["C"] == 2:
                    c_asked.set()
                    await asyncio.wait_for(b_asked.wait(), 30)  # so that B's question ends the second pass
                raise
            finally:
                if order == "B":
                    (late_b_asked if first_pass else b_asked).set()

        tool = StructuredTool.from_function(name="refund", description="Pay.", coroutine=refund)
        graph, adapter = bench.compile(one_node(ToolNode([tool])))
        await graph.ainvoke(asking_for("A", "B", "C"), thread())
        (first,) = await adapter.apending()
        assert first.payload["order"] == "A"
        await answer(bench, adapter, first)
        await adapter.adeliver("t1")

        assert sorted(event.payload["order"] for event in await adapter.apending()) == ["B", "C"]
        await answer(bench, adapter, *await adapter.apending())
        assert told((await adapter.adeliver("t1")).output) == right(("A", "B", "C"))


def as_text(error: Exception) -> str:
    return f"failed: {error}"


HANDLERS: list[Any] = [True, "failed", (Exception,), Exception, as_text]


@pytest.mark.parametrize("handler", HANDLERS, ids=["True", "text", "tuple", "class", "function"])
async def test_neither_a_pause_nor_a_refused_resume_is_handled_as_a_tool_error(bench: Bench, handler: Any) -> None:
    till = Till(bench)
    till.all_at_once(2)
    graph, adapter = bench.compile(one_node(ToolNode([till.tool()], handle_tool_errors=handler)))
    await bench.call(graph, "invoke", asking_for("A", "B"), thread())
    asked = await bench.call(adapter, "pending")
    assert len(asked) == 2
    (interrupt,) = (await bench.call(graph, "get_state", thread())).interrupts
    raw: dict[str, Any] = {"approved": True, "note": "raw"}

    for resume in (raw, {interrupt.id: raw}):
        with pytest.raises(ResumeRefused, match="answered with its token"):
            await bench.call(graph, "invoke", Command(resume=resume), thread())
        still = await bench.call(adapter, "pending")
        assert {event.pause_token for event in still} == {event.pause_token for event in asked}

    await answer(bench, adapter, *asked)
    delivery = await bench.call(adapter, "deliver", "t1")
    assert told(delivery.output) == right(("A", "B"))
    assert till.effects == {"0": 1, "1": 1}


async def test_a_tool_error_after_the_answer_goes_to_the_model_and_the_answer_is_applied(bench: Bench) -> None:
    till = Till(bench)
    till.all_at_once(2)
    till.failing.add("1")
    graph, adapter = bench.compile(one_node(ToolNode([till.tool()], handle_tool_errors=as_text)))
    await bench.call(graph, "invoke", asking_for("A", "B"), thread())
    await answer(bench, adapter, *await bench.call(adapter, "pending"))

    delivery = await bench.call(adapter, "deliver", "t1")

    assert told(delivery.output) == {"0": "A: for A 1", "1": "failed: the ledger is away"}
    assert bench.states() == ["applied", "applied"]
    assert till.effects == {"0": 1}


async def test_a_tool_that_fails_after_its_answer_is_tried_again_by_the_policy_and_nobody_is_asked_again(
    bench: Bench,
) -> None:
    till = Till(bench)
    till.all_at_once(3)
    till.failing.add("2")
    policy = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False)
    graph, adapter = bench.compile(one_node(ToolNode([till.tool()]), retry_policy=policy))
    await bench.call(graph, "invoke", asking_for("A", "B", "B"), thread())
    asked = await bench.call(adapter, "pending")
    assert len(asked) == 3
    await answer(bench, adapter, *asked)

    delivery = await bench.call(adapter, "deliver", "t1")

    assert told(delivery.output) == right(("A", "B", "B"))
    assert till.bodies == {"0": 3, "1": 3, "2": 3}
    assert bench.states() == ["applied"] * 3
    assert delivery.open == ()


async def test_a_call_whose_payload_changed_asks_again_and_its_neighbour_keeps_its_answer(bench: Bench) -> None:
    till = Till(bench)
    till.all_at_once(2)
    graph, adapter = bench.compile(one_node(ToolNode([till.tool()])))
    await bench.call(graph, "invoke", asking_for("A", "B"), thread())
    await answer(bench, adapter, *await bench.call(adapter, "pending"))
    till.amounts["B"] = 7

    delivery = await bench.call(adapter, "deliver", "t1")

    (again,) = delivery.open
    assert again.payload == {"order": "B", "amount": 7}
    await answer(bench, adapter, again)
    delivery = await bench.call(adapter, "deliver", "t1")
    assert told(delivery.output) == {"0": "A: for A 1", "1": "B: for B 7"}
    assert sorted(bench.states()) == ["applied", "applied", "unused"]


async def test_a_wrapper_that_changes_the_arguments_asks_for_what_will_be_done(bench: Bench) -> None:
    till = Till(bench)

    def upper(request: Any) -> Any:
        changed = {**request.tool_call, "args": {"order": request.tool_call["args"]["order"].upper()}}
        return request.override(tool_call=changed)

    def wrap(request: Any, execute: Callable[[Any], Any]) -> Any:
        return execute(upper(request))

    async def awrap(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
        return await execute(upper(request))

    till.all_at_once(2)
    graph, adapter = bench.compile(one_node(ToolNode([till.tool()], wrap_tool_call=wrap, awrap_tool_call=awrap)))
    await bench.call(graph, "invoke", asking_for("a", "b"), thread())
    asked = await bench.call(adapter, "pending")
    assert sorted(event.payload["order"] for event in asked) == ["A", "B"]

    await answer(bench, adapter, *asked)

    assert told((await bench.call(adapter, "deliver", "t1")).output) == right(("A", "B"))


async def test_a_wrapper_may_ask_for_tools_that_do_not_and_a_refused_call_does_not_run(bench: Bench) -> None:
    point = bench.refunds("gate")
    ran: list[str] = []

    def delete(order: str) -> str:
        ran.append(order)
        return f"deleted {order}"

    def gate(request: Any) -> ToolMessage | None:
        decision = point.pause(Refund(order=request.tool_call["args"]["order"], amount=0))
        if decision.approved:
            return None
        return ToolMessage(decision.note, name="delete", tool_call_id=request.tool_call["id"])

    def wrap(request: Any, execute: Callable[[Any], Any]) -> Any:
        return gate(request) or execute(request)

    async def awrap(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
        return gate(request) or await execute(request)

    tool = StructuredTool.from_function(name="delete", description="Delete.", func=delete)
    node = ToolNode([tool], wrap_tool_call=wrap, awrap_tool_call=awrap, handle_tool_errors=True)
    graph, adapter = bench.compile(one_node(node))
    await bench.call(graph, "invoke", asking_for("A", "B", tool="delete"), thread())
    output: Any = None
    while asked := await bench.call(adapter, "pending"):
        for event in asked:
            decision = {"approved": event.payload["order"] == "B", "note": f"keep {event.payload['order']}"}
            await bench.call(adapter, "answer", event.pause_token, decision)
        output = (await bench.call(adapter, "deliver", "t1")).output

    assert told(output) == {"0": "keep A", "1": "deleted B"}
    assert set(ran) == {"B"}
    assert bench.states() == ["applied", "applied"]


# -- one task per call


def fanned_out(till: Till) -> StateGraph[MessagesState]:
    builder = StateGraph(MessagesState).add_node("tools", ToolNode([till.tool()]))

    def one_task_per_call(state: Any) -> list[Send]:
        return [Send("tools", [call]) for call in state["messages"][-1].tool_calls]

    return builder.add_conditional_edges(START, one_task_per_call, ["tools"])


EIGHT = ("A", "B", "A", "C", "A", "D", "B", "E")


async def test_with_a_task_per_call_one_delivery_has_each_effect_once_and_each_body_twice(bench: Bench) -> None:
    till = Till(bench)
    graph, adapter = bench.compile(fanned_out(till))
    await bench.call(graph, "invoke", asking_for(*EIGHT), thread())
    asked = await bench.call(adapter, "pending")
    assert sorted(event.payload["order"] for event in asked) == sorted(EIGHT)
    assert till.effects == {}

    await answer(bench, adapter, *asked)
    delivery = await bench.call(adapter, "deliver", "t1")

    assert told(delivery.output) == right(EIGHT)
    assert till.effects == paid_once(EIGHT)
    assert till.bodies == dict.fromkeys(till.effects, 2)


async def test_with_a_task_per_call_answers_one_at_a_time_in_any_order_have_each_effect_once(bench: Bench) -> None:
    till = Till(bench)
    graph, adapter = bench.compile(fanned_out(till))
    await bench.call(graph, "invoke", asking_for(*EIGHT), thread())
    asked = await bench.call(adapter, "pending")
    result: Any = None

    for event in (*asked[1::2], *asked[::2]):
        response = {"approved": True, "note": f"for {event.payload['order']} 1"}
        result = await bench.call(adapter, "invoke", event.pause_token, response)

    assert told(result) == right(EIGHT)
    assert till.effects == paid_once(EIGHT)
    assert bench.states() == ["applied"] * 8


async def test_with_a_task_per_call_one_that_fails_does_not_run_the_others_again(bench: Bench) -> None:
    till = Till(bench)
    till.failing.add("3")
    graph, adapter = bench.compile(fanned_out(till))
    await bench.call(graph, "invoke", asking_for(*EIGHT[:4]), thread())
    await answer(bench, adapter, *await bench.call(adapter, "pending"))
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "deliver", "t1")
    assert await bench.call(adapter, "pending") == []

    delivery = await bench.call(adapter, "deliver", "t1")

    assert told(delivery.output) == right(EIGHT[:4])
    assert till.effects == paid_once(EIGHT[:4])
    assert bench.states() == ["applied"] * 4


class Scripted(GenericFakeChatModel):
    """Says what the script says, whatever it is asked."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


async def test_an_agent_s_parallel_calls_are_answered_each_and_the_agent_goes_on_once(bench: Bench) -> None:
    till = Till(bench)
    orders = ("A", "B", "A")
    script: Iterator[AIMessage] = iter([asking_for(*orders)["messages"][0], AIMessage("all paid")])
    graph = create_agent(
        Scripted(messages=script), tools=[till.tool()], checkpointer=bench.interrupts.checkpointer(bench.saver)
    )
    adapter = bench.interrupts.resume_adapter(graph)
    await bench.call(graph, "invoke", {"messages": [("user", "refund them")]}, thread())
    asked = await bench.call(adapter, "pending")
    assert sorted(event.payload["order"] for event in asked) == ["A", "A", "B"]

    await answer(bench, adapter, *asked)
    delivery = await bench.call(adapter, "deliver", "t1")

    assert told(delivery.output) == right(orders)
    assert delivery.output["messages"][-1].content == "all paid"
    assert till.effects == paid_once(orders)


async def test_a_tool_that_runs_a_graph_of_its_own_asks_there_and_gets_the_answer_there(bench: Bench) -> None:
    point = bench.refunds()

    def ask(state: MessagesState) -> dict[str, Any]:
        order = str(state["messages"][-1].content)
        return {"messages": [AIMessage(f"{order}: {point.pause(Refund(order=order, amount=1)).note}")]}

    child: Any = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()

    def function(order: str) -> str:
        return str(child.invoke({"messages": [("user", order)]})["messages"][-1].content)

    async def coroutine(order: str) -> str:
        return str((await child.ainvoke({"messages": [("user", order)]}))["messages"][-1].content)

    tool = StructuredTool.from_function(function, coroutine, name="refund", description="Pay.")
    builder = StateGraph(MessagesState).add_node("tools", ToolNode([tool]))
    builder.add_conditional_edges(
        START, lambda state: [Send("tools", [call]) for call in state["messages"][-1].tool_calls], ["tools"]
    )
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", asking_for("A", "B", "A"), thread())
    asked = await bench.call(adapter, "pending")
    assert sorted(event.payload["order"] for event in asked) == ["A", "A", "B"]

    await answer(bench, adapter, *asked)

    assert told((await bench.call(adapter, "deliver", "t1")).output) == right(("A", "B", "A"))
    assert bench.states() == ["applied"] * 3


async def test_a_tool_that_returns_a_command_moves_the_graph_after_its_answer(bench: Bench) -> None:
    point = bench.refunds()

    def refund(order: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        note = point.pause(Refund(order=order, amount=1)).note
        return Command(update={"messages": [ToolMessage(f"{order}: {note}", tool_call_id=call_id)]}, goto="after")

    tool = StructuredTool.from_function(refund, name="refund", description="Pay.")
    builder = one_node(ToolNode([tool])).add_node("after", lambda state: {"messages": [AIMessage("after")]})
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", asking_for("A"), thread())
    await answer(bench, adapter, *await bench.call(adapter, "pending"))

    output = (await bench.call(adapter, "deliver", "t1")).output

    assert told(output) == {"0": "A: for A 1"}
    assert output["messages"][-1].content == "after"
