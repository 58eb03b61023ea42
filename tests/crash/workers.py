"""A process that works on a thread and is killed: `python -m tests.crash.workers TASK STORE CHECKPOINTS EFFECTS [OPTIONS]`.

It reads tokens from stdin, one a line, and says on stdout how far it has come. Where it says `stopped` it stands until it is
killed. Every node body appends a line to EFFECTS, so what ran, and how often, outlives the process.
"""

from __future__ import annotations

import json
import operator
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import FrameworkConfig, Interrupts, KeyRing, ResumeAdapter
from tests.harness import ACME, KEY, Decision, Refund

ROOT = Path(__file__).parents[2]
SECONDS = 45
LONGEST_TO_OVERTAKE = 3
SHORT_LEASE = FrameworkConfig(experimental_interrupt=True, default_scope=ACME, lease_ttl=timedelta(seconds=1))
LONG_LEASE = FrameworkConfig(experimental_interrupt=True, default_scope=ACME)


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Place:
    """Where a test's data are, the same for all its processes.

    Attributes:
        store: URL of the pause store.
        checkpoints: PostgreSQL URL, or an SQLite file.
        effects: file of what node bodies did.
    """

    def __init__(self, store: str, checkpoints: str, effects: str) -> None:
        self.store = store
        self.checkpoints = checkpoints
        self.effects = effects

    def note(self, line: str) -> None:
        """Append a line in one write, so that lines of several processes do not mix."""
        descriptor = os.open(self.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def noted(self) -> list[str]:
        """All lines."""
        file = Path(self.effects)
        return file.read_text().split() if file.exists() else []

    def open_saver(self, stack: ExitStack, stop_at: str | None = None) -> Any:
        """The sync saver, closed with the stack; it stops where it is told to."""
        if self.checkpoints.startswith("postgresql"):
            kind = stopping(PostgresSaver, stop_at) if stop_at else PostgresSaver
            url = self.checkpoints.replace("postgresql+psycopg://", "postgresql://", 1)
            saver: Any = stack.enter_context(kind.from_conn_string(url))
        else:
            kind = stopping(SqliteSaver, stop_at) if stop_at else SqliteSaver
            saver = stack.enter_context(kind.from_conn_string(self.checkpoints))
        return saver

    def open_adapter(
        self,
        stack: ExitStack,
        build: Callable[..., StateGraph[State]],
        *options: Any,
        config: FrameworkConfig = SHORT_LEASE,
        stop_at: str | None = None,
    ) -> ResumeAdapter:
        """The adapter of a graph, closed with the stack."""
        interrupts = stack.enter_context(Interrupts(self.store, keys=KeyRing([KEY]), config=config))
        saver = interrupts.checkpointer(self.open_saver(stack, stop_at))
        return interrupts.resume_adapter(build(self, interrupts, *options).compile(checkpointer=saver))


def gate_graph(place: Place, interrupts: Interrupts, stop_in_body: bool = False) -> StateGraph[State]:
    """A gate, and a node after it."""
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

    @point.node(payload=lambda state: Refund(order="A1", amount=90))
    def gate(state: State, decision: Decision) -> dict[str, Any]:
        place.note(f"begun:{decision.note}")
        if stop_in_body:
            stop()
        place.note(f"done:{decision.note}")
        return {"log": [decision.note]}

    def after(state: State) -> dict[str, Any]:
        place.note("after")
        return {"log": ["after"]}

    return StateGraph(State).add_sequence([("gate", gate), ("after", after)]).add_edge(START, "gate")


def siblings_graph(place: Place, interrupts: Interrupts) -> StateGraph[State]:
    """Two gates side by side, and a node that joins them."""
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

    def gate(side: str) -> Any:
        @point.node(payload=lambda state: Refund(order=side, amount=90))
        def body(state: State, decision: Decision) -> dict[str, Any]:
            place.note(f"{side}:{decision.note}")
            return {"log": [side]}

        return body

    def join(state: State) -> dict[str, Any]:
        place.note("join:" + "+".join(sorted(state["log"])))
        return {"log": ["join"]}

    builder = StateGraph(State).add_node("left", gate("left")).add_node("right", gate("right")).add_node("join", join)
    return builder.add_edge(START, "left").add_edge(START, "right").add_edge(["left", "right"], "join")


# -- the process


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def stop() -> None:
    """Stand until killed."""
    say("stopped")
    sys.stdin.read()


def stopping(kind: Any, where: str) -> Any:
    """A saver that stops before it stores a question, before it stores an answer, or after that and before the checkpoint.

    Or, where it is to stop `overtaken`, after the checkpoint and before the answer that led to it, if that can be.
    """

    class Stopping(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.answer_stored = threading.Event()
            self.checkpoint_stored = threading.Event()

        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            channels = {channel for channel, _ in writes}
            if (where == "question" and INTERRUPT in channels) or (where == "answer" and RESUME in channels):
                stop()
            if where == "overtaken" and RESUME in channels:
                self.answer_stored.set()  # it is about to be, where the checkpoint waits for it
                if self.checkpoint_stored.wait(LONGEST_TO_OVERTAKE):
                    sys.stdin.read()
            super().put_writes(config, writes, task_id, task_path)
            if RESUME in channels:
                self.answer_stored.set()

        def put(self, *args: Any) -> Any:
            if where == "checkpoint":
                assert self.answer_stored.wait(SECONDS)  # LangGraph stores both in the background
                stop()
            if where == "answer":
                sys.stdin.read()
            if where == "overtaken":
                assert self.answer_stored.wait(SECONDS)
                super().put(*args)
                self.checkpoint_stored.set()
                stop()
            return super().put(*args)

    return Stopping


def start_run(place: Place, stop_at: str) -> None:
    """Run the graph until it asks."""
    with ExitStack() as stack:
        adapter = place.open_adapter(stack, gate_graph, stop_at=stop_at)
        adapter.graph.invoke({"log": []}, {"configurable": {"thread_id": "t1", "tenant_id": "acme"}})


def answer_only(place: Place) -> None:
    """Answer, and deliver nothing."""
    with ExitStack() as stack:
        adapter = place.open_adapter(stack, gate_graph)
        adapter.answer(sys.stdin.readline().strip(), {"approved": True, "note": "go"})
        stop()


def invoke(place: Place, stop_at: str) -> None:
    """Answer and deliver, stopping in the node's body or in the saver."""
    with ExitStack() as stack:
        in_body = stop_at == "body"
        adapter = place.open_adapter(stack, gate_graph, in_body, stop_at=None if in_body else stop_at)
        adapter.invoke(sys.stdin.readline().strip(), {"approved": True, "note": "go"}, durability="sync")


def recover(place: Place) -> None:
    """When told to: call `recover()` until it has found something, and say what."""
    sys.stdin.readline()
    with ExitStack() as stack:
        adapter = place.open_adapter(stack, gate_graph)
        give_up = time.monotonic() + SECONDS / 2
        deliveries = adapter.recover()
        while not deliveries and time.monotonic() < give_up:
            threading.Event().wait(0.05)
            deliveries = adapter.recover()
        again = adapter.recover()
        outputs = [[d.thread_id, d.output, len(d.applied), len(d.open), repr(d.error)] for d in deliveries]
        say(json.dumps({"deliveries": outputs, "again": len(again)}, default=repr))


def invoke_siblings(place: Place) -> None:
    """Answer and deliver every token that comes."""
    with ExitStack() as stack:
        adapter = place.open_adapter(stack, siblings_graph, config=LONG_LEASE)
        say("ready")
        for line in sys.stdin:
            try:
                adapter.invoke(line.strip(), {"approved": True, "note": "go"})
            except Exception as error:
                say(repr(error).replace("\n", " "))
            else:
                say("ok")


TASKS: dict[str, Callable[..., None]] = {
    "start_run": start_run,
    "answer_only": answer_only,
    "invoke": invoke,
    "recover": recover,
    "invoke_siblings": invoke_siblings,
}


# -- the test's side of it


class Child:
    """A running worker."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put("the process has ended")

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """The next line; fails after a while."""
        return self._lines.get(timeout=SECONDS)

    def end(self) -> None:
        """Kill it (SIGKILL) if it still runs, and wait until it is gone."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=SECONDS)
        self._reader.join(timeout=SECONDS)


@contextmanager
def worker(place: Place, task: str, *options: str) -> Iterator[Child]:
    """A worker; it is gone when the block ends."""
    command = [
        sys.executable,
        "-m",
        "tests.crash.workers",
        task,
        place.store,
        place.checkpoints,
        place.effects,
        *options,
    ]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        child = Child(process)
        try:
            yield child
        finally:
            child.end()


if __name__ == "__main__":
    TASKS[sys.argv[1]](Place(*sys.argv[2:5]), *sys.argv[5:])
