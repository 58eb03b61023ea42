"""The AG-UI agent over real HTTP: a client that speaks the protocol with its own types, and knows nothing of this library."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Header, HTTPException
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import TypeAdapter

from symfonic_interrupts import FrameworkTenantScope, Identity
from symfonic_interrupts.contrib.langchain import register_hitl
from tests.graph.test_langchain_hitl import Scripted, mail
from tests.harness import ACME, Bench, Decision, Refund

core = pytest.importorskip("ag_ui.core", reason="ag-ui-langgraph is not installed: the extra ag-ui")
ag_ui_langgraph = pytest.importorskip("ag_ui_langgraph", reason="ag-ui-langgraph is not installed: the extra ag-ui")
ag_ui: Any = import_module("symfonic_interrupts.contrib.ag_ui")

# ag-ui-langgraph asks a graph for its schemas by a name that LangGraph has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:`get_config_jsonschema` is deprecated")

JSON = "application/json"
YES = {"approved": True, "note": ""}
EVENT: TypeAdapter[Any] = TypeAdapter(core.Event)


@pytest.fixture
def mode() -> str:
    """The agent is async only."""
    return "async"


def who_is_calling(x_tenant: str | None = Header(None), x_user: str | None = Header(None)) -> Identity:
    if x_tenant is None:
        raise HTTPException(401)
    return Identity(FrameworkTenantScope(x_tenant), actor=x_user)


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """The app behind a real port of this machine; its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        assert not running.done(), running
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


class Frontend:
    """What a frontend does: it sends `RunAgentInput` as JSON, and reads the events that come back.

    Attributes:
        body: the last answer, as it came.
    """

    def __init__(self, url: str, tenant: str = "acme") -> None:
        self._url = url + "/agent"
        self._headers = {"x-tenant": tenant, "x-user": "ann", "accept": "text/event-stream"}
        self._runs = 0
        self.body = ""

    async def run(self, thread_id: str = "t1", **said: Any) -> list[Any]:
        """The events of one run, without what LangGraph streams besides."""
        self._runs += 1
        given = {"state": {}, "messages": [], "tools": [], "context": [], "forwarded_props": {}, **said}
        sent = core.RunAgentInput(thread_id=thread_id, run_id=f"run-{self._runs}", **given)
        async with httpx.AsyncClient(timeout=60) as client:
            response = await client.post(
                self._url, content=sent.model_dump_json(by_alias=True), headers=self._headers | {"content-type": JSON}
            )
        assert response.status_code == 200, response.text
        self.body = response.text
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
        events = [EVENT.validate_json(line) for line in lines]
        assert events[0].type == "RUN_STARTED"
        return [event for event in events if event.type in ("CUSTOM", "RUN_FINISHED", "RUN_ERROR")]

    async def answer(self, interrupt_id: str, payload: Any = YES, status: str = "resolved", **said: Any) -> list[Any]:
        """The events of a run that answers one interrupt."""
        return await self.run(
            resume=[{"interrupt_id": interrupt_id, "status": status, "payload": payload}],
            **said,
        )


def interrupts(events: list[Any]) -> list[Any]:
    """What a run's outcome asks."""
    last = events[-1]
    assert last.type == "RUN_FINISHED"
    return list(last.outcome.interrupts) if last.outcome is not None else []


def graph_of(bench: Bench, *orders: str, side_by_side: bool = False, **options: Any) -> Any:
    """Asks for each order, one after another or all at once; the adapter of it."""
    point = bench.refunds("refund_approval", **options)

    def asks(order: str) -> Any:
        def node(state: MessagesState) -> dict[str, Any]:
            approved = point.pause(Refund(order=order, amount=25)).approved
            return {"messages": [AIMessage(f"{order}:{approved}", id=order)]}

        return node

    builder = StateGraph(MessagesState)
    last = START
    for order in orders:
        builder.add_node(order, asks(order)).add_edge(START if side_by_side else last, order)
        last = order
    return bench.compile(builder)[1]


@asynccontextmanager
async def frontend(adapter: Any, tenant: str = "acme", **options: Any) -> AsyncIterator[Frontend]:
    app = FastAPI()
    ag_ui.add_interrupt_agent(
        app, ag_ui.InterruptAgent(adapter, name="refunds", **options), "/agent", identity=who_is_calling
    )
    async with served(app) as url:
        yield Frontend(url, tenant)


async def all_said(adapter: Any) -> list[Any]:
    state = await adapter.graph.aget_state({"configurable": {"thread_id": "t1"}})
    return [message.content for message in state.values.get("messages", []) if message.type == "ai"]


async def test_a_frontend_gets_an_interrupt_with_id_message_and_schema_and_its_answer_counts_once(bench: Bench) -> None:
    adapter = graph_of(bench, "A", "B", metadata={"team": "billing"}, ttl=timedelta(hours=2))
    async with frontend(adapter) as client:
        events = await client.run()
        (asked,) = interrupts(events)
        assert (asked.reason, asked.message, asked.response_schema) == (
            "input_required",
            "refund approval",
            Decision.model_json_schema(),
        )
        ends_in = datetime.fromisoformat(asked.expires_at) - bench.clock.now
        assert timedelta(hours=2) <= ends_in < timedelta(hours=2, seconds=1)  # a token's end is a whole second
        assert asked.metadata == {
            "symfonic_interrupts": {
                "name": "refund_approval",
                "payload": {"order": "A", "amount": 25},
                "metadata": {"team": "billing"},
            }
        }
        assert "pause_token" not in client.body

        (next_one,) = interrupts(await client.answer(asked.id))
        assert next_one.metadata["symfonic_interrupts"]["payload"]["order"] == "B"
        assert bench.states() == ["applied", "pending"]

        told, _, finished = await client.answer(asked.id)
        assert (told.name, told.value["code"]) == ("answer_refused", "pause_superseded")
        assert [i.id for i in finished.outcome.interrupts] == [next_one.id]

        assert interrupts(await client.answer(next_one.id, {"approved": False})) == []
        assert await all_said(adapter) == ["A:True", "B:False"]
    assert bench.rows("SELECT DISTINCT actor FROM interrupt_consumed_tokens") == [("ann",)]


async def test_a_frontend_of_the_older_words_gets_the_same_as_on_interrupt_and_answers_with_command_resume(
    bench: Bench,
) -> None:
    adapter = graph_of(bench, "A", "B")
    async with frontend(adapter, emit_interrupt_outcome=False) as client:
        asked, finished = await client.run()
        assert (asked.name, finished.outcome) == ("on_interrupt", None)
        shown = json.loads(asked.value)
        assert shown["response_schema"] == Decision.model_json_schema()
        assert shown["metadata"]["symfonic_interrupts"]["payload"] == {"order": "A", "amount": 25}

        asked, _ = await client.run(forwarded_props={"command": {"resume": json.dumps(YES)}})
        following = json.loads(asked.value)["id"]
        await client.run(forwarded_props={"command": {"resume": {following: YES}}})
        assert await all_said(adapter) == ["A:True", "B:True"]


async def test_several_questions_are_several_interrupts_and_are_answered_together_or_one_by_one(bench: Bench) -> None:
    adapter = graph_of(bench, "A", "B", "C", side_by_side=True)
    async with frontend(adapter) as client:
        asked = {i.metadata["symfonic_interrupts"]["payload"]["order"]: i.id for i in interrupts(await client.run())}
        assert sorted(asked) == ["A", "B", "C"]

        left = await client.run(
            resume=[
                {"interrupt_id": asked["C"], "status": "resolved", "payload": YES},
                {"interrupt_id": asked["A"], "status": "resolved", "payload": {"approved": False}},
            ]
        )
        assert [i.id for i in interrupts(left)] == [asked["B"]]
        assert interrupts(await client.answer(asked["B"])) == []
        assert sorted(await all_said(adapter)) == ["A:False", "B:True", "C:True"]


async def test_two_questions_of_one_task_are_two_interrupts_each_with_an_id_of_its_own(bench: Bench) -> None:
    point = bench.refunds()

    async def node(state: MessagesState) -> dict[str, Any]:
        async def ask(order: str) -> str:
            return f"{order}:{point.pause(Refund(order=order, amount=1)).approved}"

        found = await asyncio.gather(ask("A"), ask("B"), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return {"messages": [AIMessage(" ".join(map(str, found)))]}

    adapter = bench.compile(StateGraph(MessagesState).add_node("both", node).add_edge(START, "both"))[1]
    async with frontend(adapter) as client:
        first, second = interrupts(await client.run())
        assert first.id != second.id
        answers = [{"interrupt_id": i.id, "status": "resolved", "payload": YES} for i in (second, first)]
        assert interrupts(await client.run(resume=answers)) == []
        assert await all_said(adapter) == ["A:True B:True"]


async def test_an_answer_that_does_not_fit_says_why_asks_again_and_spends_nothing(bench: Bench) -> None:
    adapter = graph_of(bench, "A")
    async with frontend(adapter) as client:
        (asked,) = interrupts(await client.run())

        told, again, finished = await client.answer(asked.id, {"approved": "secret"})

        assert (told.name, told.value["code"]) == ("answer_refused", "response_invalid")
        assert told.value["errors"][0]["loc"] == ["approved"]
        (standing,) = finished.outcome.interrupts
        assert (standing.id, standing.metadata["symfonic_interrupts"]["refused"]) == (asked.id, told.value)
        assert json.loads(again.value)["metadata"]["symfonic_interrupts"]["refused"] == told.value
        assert "secret" not in client.body
        assert interrupts(await client.answer(asked.id)) == []


async def test_a_cancelled_interrupt_is_no_answer(bench: Bench) -> None:
    adapter = graph_of(bench, "A")
    async with frontend(adapter) as client:
        (asked,) = interrupts(await client.run())

        assert [i.id for i in interrupts(await client.answer(asked.id, YES, "cancelled"))] == [asked.id]
        assert bench.states() == ["pending"]


async def test_another_tenant_sees_nothing_of_a_question_and_answers_nothing(bench: Bench) -> None:
    adapter = graph_of(bench, "A")
    async with frontend(adapter) as client:
        (asked,) = interrupts(await client.run())
        thief = Frontend(client._url.removesuffix("/agent"), "globex")

        for events in (
            await thief.run(),
            await thief.answer(asked.id),
            await thief.run(forwarded_props={"command": {"resume": YES}}),
            await thief.answer(asked.id, None, "cancelled"),
        ):
            (failed,) = events
            assert (failed.type, failed.code) == ("RUN_ERROR", "scope_mismatch")
            assert "amount" not in thief.body
            assert "approved" not in thief.body.replace(json.dumps(YES), "")
        assert bench.states() == ["pending"]
        async with httpx.AsyncClient() as nobody:
            response = await nobody.post(client._url, json={"threadId": "t1", "runId": "r", "messages": []})
            assert response.status_code == 401


@pytest.mark.parametrize(
    "said",
    [
        {"resume": [{"interrupt_id": "the first", "status": "resolved", "payload": YES}]},
        {"resume": [{"interrupt_id": "i-000000000000", "status": "resolved", "payload": YES}] * 2},
        {
            "resume": [{"interrupt_id": "i-000000000000", "status": "resolved", "payload": YES}],
            "forwarded_props": {"command": {"resume": YES}},
        },
    ],
    ids=["not an id", "twice", "in both places"],
)
async def test_answers_that_say_no_clear_question_are_an_error_and_answer_nothing(bench: Bench, said: Any) -> None:
    adapter = graph_of(bench, "A")
    async with frontend(adapter) as client:
        await client.run()

        (failed,) = await client.run(**said)

        assert (failed.type, failed.code) == ("RUN_ERROR", "usage_error")
        assert bench.states() == ["pending"]


async def test_a_question_that_no_point_covers_goes_on_as_it_does_natively(bench: Bench) -> None:
    def native(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(str(interrupt({"message": "Sure?", "responseSchema": {"type": "string"}})))]}

    adapter = bench.compile(StateGraph(MessagesState).add_node("n", native).add_edge(START, "n"))[1]
    async with frontend(adapter) as client:
        (asked,) = interrupts(await client.run())
        assert (asked.message, asked.response_schema) == ("Sure?", {"type": "string"})

        assert interrupts(await client.answer(asked.id, "fine")) == []
        assert await all_said(adapter) == ["fine"]


@pytest.mark.parametrize("way", ["batched", "per_call"])
async def test_a_tool_call_that_langchains_middleware_gates_is_an_interrupt_too(bench: Bench, way: Any) -> None:
    sent: list[str] = []

    def send_mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"sent to {to}"

    gate: Any = HumanInTheLoopMiddleware({"send_mail": True}, interrupt_mode=way)
    register_hitl(bench.interrupts, gate)
    script = [AIMessage("", tool_calls=[mail("ann"), mail("bob", "c2")]), AIMessage("done")]
    saver = bench.interrupts.checkpointer(bench.saver)
    agent = create_agent(Scripted(responses=script), tools=[send_mail], middleware=[gate], checkpointer=saver)
    approve: Any = {"type": "approve"} if way == "per_call" else {"decisions": [{"type": "approve"}] * 2}
    question = {"id": "m1", "role": "user", "content": "please"}
    async with frontend(bench.interrupts.resume_adapter(agent)) as client:
        asked = interrupts(await client.run(messages=[question]))
        assert [i.tool_call_id for i in asked] == (["c1", "c2"] if way == "per_call" else [None])
        assert (sent, bench.states()) == ([], ["pending"] * len(asked))

        answers = [{"interrupt_id": i.id, "status": "resolved", "payload": approve} for i in asked]
        assert interrupts(await client.run(messages=[question], resume=answers)) == []
        assert sorted(sent) == ["ann", "bob"]


async def test_of_four_answers_at_once_one_counts(bench: Bench) -> None:
    adapter = graph_of(bench, "A")
    async with frontend(adapter) as client:
        (asked,) = interrupts(await client.run())

        runs = await asyncio.gather(*(client.answer(asked.id) for _ in range(4)))

        refused = [event.value["code"] for events in runs for event in events if event.type == "CUSTOM"]
        assert len(refused) == 3
        assert set(refused) <= {"token_consumed", "pause_superseded"}
        assert await all_said(adapter) == ["A:True"]


async def test_the_agent_can_be_served_by_the_endpoint_of_ag_ui_langgraph_in_the_scope_of_its_config(
    bench: Bench,
) -> None:
    adapter = graph_of(bench, "A")
    agent = ag_ui.InterruptAgent(adapter, name="refunds", config={"configurable": {"tenant_id": ACME.tenant_id}})
    app = FastAPI()
    ag_ui_langgraph.add_langgraph_fastapi_endpoint(app, agent, "/agent")
    async with served(app) as url:
        client = Frontend(url)
        (asked,) = interrupts(await client.run())
        assert interrupts(await client.answer(asked.id)) == []
        assert await all_said(adapter) == ["A:True"]


@pytest.mark.parametrize("missing", ["ag_ui", "ag_ui_langgraph", "fastapi"])
def test_without_the_extra_the_import_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None\nimport symfonic_interrupts.contrib.ag_ui"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(
            "ImportError: symfonic_interrupts.contrib.ag_ui needs its extra: pip install 'symfonic-interrupts[ag-ui]'"
        )
    )
