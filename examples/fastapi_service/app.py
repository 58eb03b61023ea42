"""Refunds of several shops, answered in a browser or by programs: FastAPI, SQLite, nothing else.

What it shows: tenants that never see each other's questions; a tenant's admin who answers for its shops, across scopes; a
stream of what happens; a worker in the same process that finishes what a crash left.

What it needs: `pip install 'symfonic-interrupts[fastapi]' langgraph-checkpoint-sqlite aiosqlite uvicorn`.

How to run: `python examples/fastapi_service/app.py [--port 8000] [--data DIRECTORY]`, then `tour.py` beside it.

What it prints: the server's own lines. http://127.0.0.1:8000/docs shows the routes.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, Interrupts, KeyRing, ResumeAdapter
from symfonic_interrupts.contrib.fastapi import Identity, interrupt_router

SESSIONS = {  # a real service looks these up; the client never says itself which tenant it is
    "north-clerk": Identity(FrameworkTenantScope("acme", "north"), "nina"),
    "south-clerk": Identity(FrameworkTenantScope("acme", "south"), "sam"),
    "acme-admin": Identity(FrameworkTenantScope("acme"), "ada"),
    "globex-clerk": Identity(FrameworkTenantScope("globex"), "gus"),
}


class Refund(BaseModel):
    order: str
    amount: int


class Decision(BaseModel):
    approved: bool
    note: str = ""


class State(TypedDict, total=False):
    order: str
    amount: int
    result: str


def identify(x_session: Annotated[str, Header()] = "") -> Identity:
    """Who is calling."""
    if x_session not in SESSIONS:
        raise HTTPException(401, "send a session that exists in the header X-Session")
    return SESSIONS[x_session]


def build(interrupts: Interrupts) -> StateGraph[State]:
    """The graph: a refund, for which a clerk of the shop or an admin above it is asked."""

    @interrupts.interrupt_point(
        "refund_approval",
        payload_schema=Refund,
        response_schema=Decision,
        payload=lambda state: Refund(order=state["order"], amount=state["amount"]),
        cross_scope_allowed=True,  # an answer from another scope counts, and is recorded as such
    )
    def refund(state: State, decision: Decision) -> State:
        return {"result": "paid" if decision.approved else f"not paid: {decision.note}"}

    return StateGraph(State).add_node("refund", refund).add_edge(START, "refund")


def make_app(interrupts: Interrupts, graph: Any, adapter: ResumeAdapter) -> FastAPI:
    """The application: one route that starts refunds, and the router for their questions."""
    worker = interrupts.worker(adapter)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        working = asyncio.create_task(worker.arun(timedelta(seconds=5)))
        yield
        worker.stop()
        await working

    app = FastAPI(title="Refunds", lifespan=lifespan)

    @app.post("/orders/{order}/refund", status_code=202)
    async def start_refund(order: str, amount: int, who: Annotated[Identity, Depends(identify)]) -> dict[str, str]:
        scope = who.scope
        thread_id = f"{scope.tenant_id}-{order}"
        configurable = {"thread_id": thread_id, "tenant_id": scope.tenant_id, "sub_tenant_id": scope.sub_tenant_id}
        await graph.ainvoke({"order": order, "amount": amount}, {"configurable": configurable})
        return {"thread_id": thread_id}

    app.include_router(interrupt_router(adapter, identity=identify), prefix="/questions", tags=["questions"])
    return app


async def serve(port: int, data: Path) -> None:
    """Run the service until it is stopped."""
    store = Interrupts(
        f"sqlite:///{data / 'interrupts.db'}",
        keys=KeyRing.create_file(data / "interrupts.key"),
        config=FrameworkConfig(experimental_interrupt=True),
    )
    async with store as interrupts, AsyncSqliteSaver.from_conn_string(str(data / "checkpoints.db")) as saver:
        graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver, graph="refunds"))
        app = make_app(interrupts, graph, interrupts.resume_adapter(graph))
        await uvicorn.Server(uvicorn.Config(app, port=port, timeout_graceful_shutdown=10)).serve()


def main() -> None:
    parser = argparse.ArgumentParser(description="Refunds of several shops, as a web service.")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any that is free")
    parser.add_argument("--data", type=Path, default=Path(), help="where its files are kept")
    arguments = parser.parse_args()
    arguments.data.mkdir(parents=True, exist_ok=True)
    with suppress(KeyboardInterrupt):  # uvicorn has ended in good order by then
        asyncio.run(serve(arguments.port, arguments.data))


if __name__ == "__main__":
    main()
