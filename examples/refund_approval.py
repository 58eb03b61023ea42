"""A refund that waits for a manager, on SQLite, with nothing to set up.

What it shows: a small refund is paid at once, a large one pauses; another process answers with two file paths and the
token, and finishes the run; the same token is refused the second time; a question that nobody answers gets its default
answer from the janitor, on a clock that is set by hand.

What it needs: `langgraph-checkpoint-sqlite` beside the library; `make demo` installs it.

How to run: `make demo`, or `python examples/refund_approval.py [--answer yes|no]`. At a terminal it asks you; elsewhere the
answer is yes unless `--answer` says no. It works in a temporary directory and removes it.

What it prints: one block per step. Never a token: whoever has it may answer.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from symfonic_interrupts import InterruptEvent, Interrupts
from symfonic_interrupts.errors import TokenConsumed

LIMIT = 50


class Money(BaseModel):
    order: str
    amount: int


class Decision(BaseModel):
    approved: bool
    note: str = ""


class State(TypedDict, total=False):
    order: str
    refund: int
    voucher: int
    result: str


def build(interrupts: Interrupts) -> StateGraph[State]:
    """The graph; both processes build the same one."""

    @interrupts.interrupt_point(
        "refund_approval",
        payload_schema=Money,
        response_schema=Decision,
        payload=lambda state: Money(order=state["order"], amount=state["refund"]),
        when=lambda state: state["refund"] > LIMIT,
    )
    def refund(state: State, decision: Decision | None) -> State:
        if decision is None:
            return {"result": "paid without asking"}
        return {"result": "paid, approved" if decision.approved else "not paid, declined"}

    @interrupts.interrupt_point(
        "voucher_approval",
        payload_schema=Money,
        response_schema=Decision,
        payload=lambda state: Money(order=state["order"], amount=state["voucher"]),
        when=lambda state: state.get("voucher", 0) > 0,
        ttl=timedelta(minutes=15),
        on_expire=Decision(approved=False, note="nobody answered in time"),
    )
    def voucher(state: State, decision: Decision | None) -> State:
        if decision is None:
            return {}
        return {"result": "voucher sent" if decision.approved else f"voucher not sent, {decision.note}"}

    builder = StateGraph(State).add_node("refund", refund).add_node("voucher", voucher)
    return builder.add_edge(START, "refund").add_edge("refund", "voucher")


def run(graph: Any, order: State) -> InterruptEvent | None:
    """Run the graph until it ends or asks. Prints what its nodes return; returns the question."""
    question = None
    config = {"configurable": {"thread_id": order["order"]}}
    for mode, chunk in graph.stream(order, config, stream_mode=["updates", "custom"]):
        if mode == "updates":
            for update in chunk.values():
                if isinstance(update, dict) and update:
                    print("   result:", update["result"])
        elif isinstance(chunk, InterruptEvent):
            question = chunk
            print(f"   The graph waits: {chunk.name.replace('_', ' ')} ({chunk.interrupt_id})")
            print(f"   order {chunk.payload['order']}, amount {chunk.payload['amount']}")
            print(f"   answer until {chunk.expires_at:%d %B %Y, %H:%M} UTC")
    return question


def answer_elsewhere(files: list[str], token: str, answer: str) -> bool:
    """Have another process answer. The token goes in by stdin: arguments and environment can be read by others."""
    command = [sys.executable, __file__, "--answer", answer, *files]
    return subprocess.run(command, input=token, text=True, check=False).returncode == 0


def answer_here(store: str, checkpoints: str, answer: str) -> int:
    """What that other process does."""
    with Interrupts.local(store) as interrupts, SqliteSaver.from_conn_string(checkpoints) as saver:
        graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver))
        adapter = interrupts.resume_adapter(graph)
        who = f"   [process {os.getpid()}] {answer}:"
        try:
            state = adapter.invoke(sys.stdin.read(), {"approved": answer == "yes"}, actor="manager")
        except TokenConsumed as error:
            print(who, f"refused, this token was spent before ({error.code})")
            return 1
        print(who, f"accepted, the graph went on. result: {state['result']}")
        return 0


def demo(folder: Path, answer: str | None) -> int:
    files = store, checkpoints = [str(folder / "interrupts.db"), str(folder / "checkpoints.db")]
    ahead = timedelta(0)
    with (
        Interrupts.local(store, clock=lambda: datetime.now(UTC) + ahead) as interrupts,
        SqliteSaver.from_conn_string(checkpoints) as saver,
    ):
        graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver))
        janitor = interrupts.janitor(interrupts.resume_adapter(graph))

        print(f"1. A refund of 20. Up to {LIMIT} nobody is asked.")
        run(graph, {"order": "A-16", "refund": 20})

        print("2. A refund of 90.")
        question = run(graph, {"order": "A-17", "refund": 90})
        assert question is not None
        while answer is None:
            reply = input("   Approve? yes/no: ").strip().lower() if sys.stdin.isatty() else "yes"
            answer = reply if reply in ("yes", "no") else None

        print(f"3. Another process answers; this one is {os.getpid()}.", flush=True)
        accepted = answer_elsewhere(files, question.pause_token, answer)

        print("4. The same token again, with the opposite answer.", flush=True)
        accepted_again = answer_elsewhere(files, question.pause_token, "no" if answer == "yes" else "yes")

        print("5. A refund of 10, a voucher of 30. Nobody answers. Set the clock 16 minutes ahead, and sweep.")
        run(graph, {"order": "A-18", "refund": 10, "voucher": 30})
        ahead = timedelta(minutes=16)
        swept = janitor.sweep()
        for delivery in swept.deliveries:
            print("   expired, default answer applied. result:", delivery.output["result"])
    return 0 if accepted and not accepted_again and swept.defaulted else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="A refund that waits for a manager, on SQLite.")
    parser.add_argument("--answer", choices=("yes", "no"), help="answer for the person")
    parser.add_argument("files", nargs="*", help="for the other process: pause store, checkpoints; the token on stdin")
    arguments = parser.parse_args()
    if arguments.files:
        store, checkpoints = arguments.files
        return answer_here(store, checkpoints, arguments.answer)
    with tempfile.TemporaryDirectory() as folder:
        return demo(Path(folder), arguments.answer)


if __name__ == "__main__":
    sys.exit(main())
