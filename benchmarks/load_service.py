"""The service that the load run talks to: one graph with one question, five tenants by header, PostgreSQL for everything.

STORE in the environment is the SQLAlchemy URL of its database. A thread's node notes each time that it comes behind its
answer in the table `effects`, and waits there for `slow` seconds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

from fastapi import FastAPI, Header
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, Interrupts, KeyRing
from symfonic_interrupts.contrib.fastapi import Identity, interrupt_router

KEY = b"a key of a load run, no secret.."


class Refund(BaseModel):
    order: str


class Decision(BaseModel):
    approved: bool
    note: str = ""


class State(TypedDict, total=False):
    order: str
    slow: float
    result: str


def caller(x_tenant: str = Header()) -> Identity:
    """Who is calling; a real service takes it from its session."""
    return Identity(FrameworkTenantScope(x_tenant), x_tenant)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Everything that the service needs, while it runs."""
    url = os.environ["STORE"]
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
    config = FrameworkConfig(experimental_interrupt=True)
    async with (
        AsyncConnectionPool(plain, kwargs=options, min_size=2, max_size=7, open=False) as pool,
        Interrupts(url.replace("+psycopg:", "+psycopg_async:", 1), keys=KeyRing([KEY]), config=config) as interrupts,
    ):
        saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]  # the pool's rows are dicts
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

        async def pay(state: State) -> State:
            decision = point.pause(Refund(order=state["order"]))
            async with pool.connection() as connection:
                await connection.execute("INSERT INTO effects VALUES (%s)", [state["order"]])
            await asyncio.sleep(state.get("slow", 0.0))
            return {"result": "paid" if decision.approved else "not paid"}

        builder = StateGraph(State).add_node("pay", pay).add_edge(START, "pay")
        graph: Any = builder.compile(checkpointer=interrupts.checkpointer(saver))
        router = interrupt_router(interrupts.resume_adapter(graph), identity=caller)

        async def start(state: dict[str, Any], x_tenant: str = Header()) -> None:
            configurable = {"thread_id": state["order"], "tenant_id": x_tenant}
            await graph.ainvoke(state, {"configurable": configurable})

        app.add_api_route("/start", start, methods=["POST"])
        app.include_router(router)
        async with router.lifespan_context(app):
            yield


def app() -> FastAPI:
    """For `uvicorn --factory`."""
    return FastAPI(lifespan=lifespan)
