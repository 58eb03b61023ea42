"""What `--graph` names in the tests of `adopt`: a graph whose node asks by `interrupt()`. Places come from variables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from symfonic_interrupts import FrameworkConfig, Interrupts, KeyRing, ResumeAdapter
from tests.cli.applications import Decision, Refund


class State(TypedDict, total=False):
    order: str
    result: Any


def build() -> StateGraph[State]:
    def gate(state: State) -> State:
        return {"result": interrupt({"order": state["order"], "amount": 5})}

    def free(state: State) -> State:
        return {"result": interrupt("of no point")}

    builder = StateGraph(State).add_node("gate", gate).add_node("free", free)
    return builder.add_conditional_edges(START, lambda state: "free" if state["order"] == "free" else "gate")


@contextmanager
def waiting() -> Iterator[ResumeAdapter]:
    """The graph, with its node covered; no tenant is the default."""
    config = FrameworkConfig(experimental_interrupt=True)
    keys = KeyRing.from_env("SYMFONIC_INTERRUPTS_KEYS")
    with Interrupts(os.environ["SHOP_STORE"], keys=keys, config=config) as interrupts:
        interrupts.register_interrupt("native", payload_schema=Refund, response_schema=Decision, nodes=["gate"])
        with SqliteSaver.from_conn_string(os.environ["SHOP_CHECKPOINTS"]) as saver:
            graph = build().compile(checkpointer=interrupts.checkpointer(saver, graph="shop"))
            yield interrupts.resume_adapter(graph)
