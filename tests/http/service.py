"""The service that HTTP tests talk to: one graph, two points, two tenants by header; in process, or as a real server.

What the graph does after the answer is said by its input `then`: `end`, `ask` once more, `fail`, `wait` for the gate, return
things that have no JSON form (`odd`), or not ask when it comes back (`forget`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypedDict

import httpx
from fastapi import FastAPI, Header, HTTPException
from langchain_core.messages import AIMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, Interrupts, KeyRing, ResumeAdapter
from symfonic_interrupts.contrib.fastapi import Identity, interrupt_router
from tests.harness import KEY, Decision, Refund

MARK = "marked text that must not come back"


class State(TypedDict, total=False):
    order: str
    amount: int
    point: str
    then: str
    result: str
    odd: Any


@dataclass
class Box:
    content: Any


class Odd:
    """Has no JSON form."""

    def __repr__(self) -> str:
        return MARK


class Service:
    """The graph and what its nodes wait for.

    Attributes:
        gate: a node that was told to `wait` waits for it.
        waiting: such a node is there.
        runs: how often a node came behind its answer, by order.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self.runs: dict[str, int] = {}
        self.asked: set[str] = set()
        schemas: dict[str, Any] = {"payload_schema": Refund, "response_schema": Decision}
        self._points = {
            "approval": interrupts.register_interrupt("approval", metadata={"team": "billing"}, **schemas),
            "shared": interrupts.register_interrupt("shared", cross_scope_allowed=True, **schemas),
        }

    def build(self) -> StateGraph[State]:
        """The graph, not compiled yet."""
        return StateGraph(State).add_node("review", self.review).add_edge(START, "review")

    def review(self, state: State) -> State:
        """The one node."""
        order, then = state["order"], state.get("then", "end")
        point = self._points[state.get("point", "approval")]
        if then == "forget" and order in self.asked:
            return {"result": "did not ask"}
        self.asked.add(order)
        decision = point.pause(Refund(order=order, amount=state["amount"]))
        if then == "ask":
            decision = point.pause(Refund(order=order, amount=state["amount"] + 1))
        self.runs[order] = self.runs.get(order, 0) + 1
        if then == "wait":
            self.waiting.set()
            assert self.gate.wait(30), "nobody opened the gate"
        if then == "fail":
            raise ValueError(MARK)
        result: State = {"result": "paid" if decision.approved else "not paid"}
        if then == "odd":
            get_stream_writer()(streamed())
            result["odd"] = stored()
        return result


def stored() -> dict[Any, Any]:
    """Things that a checkpoint can hold and JSON has no form for."""
    return {
        "message": AIMessage("hello"),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "money": Decimal("1.50"),
        "set": {7},
        "nan": float("nan"),
        3: "a key that is no text",
    }


def streamed() -> dict[Any, Any]:
    """Things that not even a checkpoint can hold."""
    return {"box": Box(Refund(order="A", amount=1)), "odd": Odd(), "big": 10**5000, "text": "half a pair: \ud800"}


def caller(
    x_tenant: str | None = Header(None),
    x_sub_tenant: str | None = Header(None),
    x_actor: str | None = Header(None),
) -> Identity:
    """Who is calling. A real service takes it from its session."""
    if x_tenant is None:
        raise HTTPException(401, "sign in first")
    if x_tenant == "banned":
        raise HTTPException(403, "not for you")
    return Identity(FrameworkTenantScope(x_tenant, x_sub_tenant), x_actor)


def make_app(adapter: ResumeAdapter, **options: Any) -> FastAPI:
    """An application with the router under /refunds. It has no exception handler of its own."""
    app = FastAPI()
    app.include_router(interrupt_router(adapter, identity=caller, **options), prefix="/refunds")
    return app


def client_of(app: FastAPI, **headers: str) -> httpx.AsyncClient:
    """A client that talks to the application in this process."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=headers)


@asynccontextmanager
async def _saver(url: str, checkpoints: str) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        if url.startswith("sqlite"):
            yield await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(checkpoints))
        else:
            plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
            options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            pool = stack.enter_context(ConnectionPool(plain, kwargs=options, min_size=2, max_size=8, open=True))
            saver = PostgresSaver(pool)  # type: ignore[arg-type]  # the pool's rows are dicts
            saver.setup()
            yield saver


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    url = os.environ["STORE"]
    config = FrameworkConfig(experimental_interrupt=True)
    async with (
        _saver(url, os.environ["CHECKPOINTS"]) as saver,
        Interrupts(url, keys=KeyRing([KEY]), config=config) as hub,
    ):
        hub.create_schema()
        service = Service(hub)
        graph: Any = service.build().compile(checkpointer=hub.checkpointer(saver))
        adapter = hub.resume_adapter(graph)
        router = interrupt_router(adapter, identity=caller, poll=timedelta(milliseconds=50))
        is_async = isinstance(saver, AsyncSqliteSaver)

        async def start(thread_id: str, state: dict[str, Any], x_tenant: str = Header()) -> None:
            config: Any = {"configurable": {"thread_id": thread_id, "tenant_id": x_tenant}}
            if is_async:
                await graph.ainvoke(state, config)
            else:
                await asyncio.to_thread(graph.invoke, state, config)

        async def deliver(thread_id: str) -> None:
            if is_async:
                await adapter.adeliver(thread_id)
            else:
                await asyncio.to_thread(adapter.deliver, thread_id)

        def open_gate() -> dict[str, int]:
            service.gate.set()
            return service.runs

        app.include_router(router, prefix="/refunds")
        app.add_api_route("/start/{thread_id}", start, methods=["POST"])
        app.add_api_route("/deliver/{thread_id}", deliver, methods=["POST"])
        app.add_api_route("/gate", open_gate, methods=["POST"])
        async with router.lifespan_context(app):
            yield


def app() -> FastAPI:
    """The application for a server process; STORE and CHECKPOINTS in the environment say where its data is."""
    return FastAPI(lifespan=_lifespan)
