from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from symfonic_interrupts import Interrupts


class Refund(BaseModel):  # what a person is shown
    order: str
    amount: int


class Decision(BaseModel):  # what a person may answer
    approved: bool
    note: str = ""


class State(TypedDict, total=False):
    order: str
    amount: int
    result: str


interrupts = Interrupts.local("interrupts.db")


@interrupts.interrupt_point(
    "refund_approval",
    payload_schema=Refund,
    response_schema=Decision,
    payload=lambda state: Refund(order=state["order"], amount=state["amount"]),
)
def review(state: State, decision: Decision) -> State:  # runs once, after the answer
    return {"result": "paid" if decision.approved else f"not paid: {decision.note}"}


builder = StateGraph(State).add_node("review", review).add_edge(START, "review")
graph = builder.compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
adapter = interrupts.resume_adapter(graph)

graph.invoke({"order": "A-17", "amount": 90}, {"configurable": {"thread_id": "order-17"}})  # stops at the question
event = adapter.pending(thread_id="order-17")[0]
print("asked: ", event.payload)
print("result:", adapter.invoke(event.pause_token, Decision(approved=True))["result"])
