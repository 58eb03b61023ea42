"""A child process of `test_what_attackers_found`: asks in a subgraph, answers and dies there, or recovers.

python killed_in_a_subgraph.py ask|"answer and die"|recover STORE SAVER
"""

from __future__ import annotations

import operator
import os
import signal
import sqlite3
import sys
import threading
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, Interrupts, KeyRing


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Note(BaseModel):
    note: str


class DyingSaver(SqliteSaver):
    """Dies before it stores the last node's write."""

    armed = False

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if self.armed and config["configurable"].get("checkpoint_ns") and ("log", ["last"]) in list(writes):
            os.kill(os.getpid(), signal.SIGKILL)
        super().put_writes(config, writes, task_id, task_path)


def main(part: str, store: str, path: str) -> None:
    config = FrameworkConfig(
        experimental_interrupt=True, default_scope=FrameworkTenantScope("acme"), lease_ttl=timedelta(seconds=1)
    )
    interrupts = Interrupts(f"sqlite:///{store}", keys=KeyRing([b"a test key of thirty-two bytes.."]), config=config)
    point = interrupts.register_interrupt("note", payload_schema=Note, response_schema=Note)
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = DyingSaver(connection)
    child = StateGraph(State).add_node("ask", lambda state: {"log": [point.pause(Note(note="?")).note]})
    child.add_node("next", lambda state: {"log": ["next"]}).add_node("last", lambda state: {"log": ["last"]})
    child.add_edge(START, "ask").add_edge("ask", "next").add_edge("next", "last")
    builder = StateGraph(State).add_node("sub", child.compile()).add_edge(START, "sub")
    graph = builder.compile(checkpointer=interrupts.checkpointer(saver))
    adapter = interrupts.resume_adapter(graph)
    if part == "ask":
        graph.invoke({"log": []}, {"configurable": {"thread_id": "t1"}}, durability="sync")
    elif part == "answer and die":
        saver.armed = True
        adapter.invoke(adapter.pending()[0].pause_token, {"note": "yes"}, durability="sync")
    else:
        for _ in range(200):  # until the dead worker's lease is over
            found = adapter.recover()
            if any(delivery.ran for delivery in found):
                break
            threading.Event().wait(0.05)
        print(",".join(graph.get_state({"configurable": {"thread_id": "t1"}}).values["log"]))
        with sqlite3.connect(store) as rows:
            print(rows.execute("SELECT state FROM interrupt_pauses").fetchone()[0])
            print(rows.execute("SELECT count(*) FROM interrupt_thread_leases").fetchone()[0])
    connection.close()
    interrupts.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
