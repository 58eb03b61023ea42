"""The graph that one token of the contract suite moves on, and the sync savers."""

from __future__ import annotations

import operator
from contextlib import ExitStack
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import Interrupts
from tests.harness import Decision, Refund


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def gate_graph(interrupts: Interrupts, bodies: list[str] | None = None) -> StateGraph[State]:
    """One gate; its body notes the answer."""
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

    @point.node(payload=lambda state: Refund(order="A1", amount=90))
    def gate(state: State, decision: Decision) -> dict[str, Any]:
        if bodies is not None:
            bodies.append(decision.note)
        return {"log": [decision.note]}

    return StateGraph(State).add_node("gate", gate).add_edge(START, "gate")


def open_saver(stack: ExitStack, place: str) -> Any:
    """The sync saver of a PostgreSQL URL or an SQLite file, closed with the stack."""
    if place.startswith("postgresql"):
        url = place.replace("postgresql+psycopg://", "postgresql://", 1)
        return stack.enter_context(PostgresSaver.from_conn_string(url))
    return stack.enter_context(SqliteSaver.from_conn_string(place))
