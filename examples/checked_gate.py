"""A gate that is checked again where it matters: money leaves only with the approval of exactly this transfer.

What it shows: a node asks with `ask` and puts the approval, a signed proof, into the state; the node that pays calls `require`.
It pays what was approved. It does not pay after the amount was raised behind the gate, nor when someone walks around the
gate with `update_state`, nor with an approval that was taken from another thread.

What it needs: nothing but the library, and langgraph-checkpoint-sqlite for the checkpoints.

How to run: `python examples/checked_gate.py`. It works in a temporary directory and removes it.

What it prints: each attempt and what became of it. Never a token.
"""

import tempfile
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from symfonic_interrupts import Interrupts
from symfonic_interrupts.errors import ReceiptInvalid


class Transfer(BaseModel):  # what a person is shown
    to: str
    amount: int


class Decision(BaseModel):  # what a person may answer
    approved: bool


class State(TypedDict, total=False):
    to: str
    amount: int
    approval: dict[str, Any]
    result: str


def build(interrupts: Interrupts) -> StateGraph[State]:
    point = interrupts.register_interrupt("transfer", payload_schema=Transfer, response_schema=Decision)

    def ask(state: State) -> State:
        approval = point.ask(Transfer(to=state["to"], amount=state["amount"]))
        return {"approval": approval.model_dump(mode="json")}  # JSON: it may travel through the state and any saver

    def pay(state: State) -> State:
        decision = point.require(state.get("approval", {}), Transfer(to=state["to"], amount=state["amount"]))
        return {"result": f"{state['amount']} paid to {state['to']}" if decision.approved else "declined"}

    builder = StateGraph(State).add_node("ask", ask).add_node("pay", pay)
    return builder.add_edge(START, "ask").add_edge("ask", "pay")


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Interrupts.local(Path(folder) / "interrupts.db") as interrupts,
        SqliteSaver.from_conn_string(str(Path(folder) / "checkpoints.db")) as saver,
    ):
        graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver))
        adapter = interrupts.resume_adapter(graph)

        def approved(name: str) -> None:
            graph.invoke({"to": "Ann", "amount": 50}, thread(name))
            (event,) = adapter.pending(thread_id=name)
            stop = ["pay"]  # so that the state between the two nodes can be tampered with
            adapter.invoke(event.pause_token, Decision(approved=True), actor="kim", interrupt_before=stop)

        def pay(name: str) -> None:
            try:
                print("  ", graph.invoke(None, thread(name))["result"])
            except ReceiptInvalid as error:
                print(f"   not paid ({error.code})")

        print("1. 50 for Ann, approved.")
        approved("honest")
        pay("honest")

        print("2. 50 for Ann, approved; then the state says 5000.")
        approved("raised")
        graph.update_state(thread("raised"), {"amount": 5000})
        pay("raised")

        print("3. 50 for Eve, with the gate walked around.")
        graph.update_state(thread("around"), {"to": "Eve", "amount": 50}, as_node="ask")
        pay("around")

        print("4. The approval of the first thread, used in another.")
        stolen = graph.get_state(thread("honest")).values["approval"]
        graph.update_state(thread("stolen"), {"to": "Ann", "amount": 50, "approval": stolen}, as_node="ask")
        pay("stolen")


if __name__ == "__main__":
    main()
