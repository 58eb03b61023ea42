"""The processes of an application on several machines: some start threads, some answer, some work in the background.

Each is a task of the forking process, and may be killed and begun again at any time. What it has done stands in its journal.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from langgraph.checkpoint.postgres import PostgresSaver

from symfonic_interrupts import FrameworkConfig, Interrupts, KeyRing, ResumeAdapter
from symfonic_interrupts.errors import PauseNotReady, PauseSuperseded, ThreadBusy, TokenConsumed
from tests.crash.lives import Journal
from tests.crash.shapes import Points, empty, siblings
from tests.harness import ACME, KEY, thread

CONFIG = FrameworkConfig(
    experimental_interrupt=True, default_scope=ACME, lease_ttl=timedelta(seconds=4), lease_wait=timedelta(seconds=20)
)
ASKED = sa.text("SELECT 1 FROM interrupt_pauses WHERE thread_id = :thread_id")
INTERVAL = timedelta(seconds=0.2)
LOST_RACES = (TokenConsumed, PauseSuperseded, PauseNotReady, ThreadBusy)
"""What whoever answers is told where another one was first, or the question is not whole yet: look again."""


def open_application(stack: ExitStack, store: str) -> tuple[Interrupts, ResumeAdapter]:
    """One process's connections, its graph of two gates side by side, and its adapter."""
    url = store.replace("postgresql+psycopg://", "postgresql://", 1)
    saver = stack.enter_context(PostgresSaver.from_conn_string(url))
    interrupts = stack.enter_context(Interrupts(store, keys=KeyRing([KEY]), config=CONFIG))
    builder = siblings(Points(interrupts, awaits=False))
    return interrupts, interrupts.resume_adapter(builder.compile(checkpointer=interrupts.checkpointer(saver)))


def start_threads(ready: Callable[[], object], store: str, directory: str, name: str, threads: list[str]) -> None:
    """Run each of these threads until it asks; go on where the process before this one stopped. Ends when all were run."""
    journal = Journal(Path(directory) / name)
    with ExitStack() as stack:
        _, adapter = open_application(stack, store)
        ready()
        for thread_id in threads:
            if journal.noted("ran", thread_id):
                continue
            if not adapter.graph.get_state(thread(thread_id)).created_at:
                adapter.graph.invoke(empty(), thread(thread_id))
            elif not has_asked(store, thread_id):  # else it is under way, and whoever answers or works moves it on
                adapter.graph.invoke(None, thread(thread_id))
            journal.note("ran", thread_id)


def has_asked(store: str, thread_id: str) -> bool:
    """Whether the thread has got as far as a question."""
    engine = sa.create_engine(store)
    with engine.connect() as connection:
        asked = connection.execute(ASKED, {"thread_id": thread_id}).first() is not None
    engine.dispose()
    return asked


def answer_pauses(ready: Callable[[], object], store: str, directory: str, name: str, seed: int) -> None:
    """Answer whatever is open, in any order, half of it with its delivery; until killed."""
    journal, chance = Journal(Path(directory) / name), random.Random(seed)
    with ExitStack() as stack:
        _, adapter = open_application(stack, store)
        ready()
        while True:
            events = adapter.pending()
            chance.shuffle(events)
            for number, event in enumerate(events[:10]):
                order, note = event.payload["order"], f"{os.getpid()}.{number}"
                call = adapter.invoke if chance.random() < 0.5 else adapter.answer
                try:
                    call(event.pause_token, {"approved": True, "note": note})
                except LOST_RACES as error:
                    journal.note("refused", event.thread_id, order=order, why=error.code)
                else:
                    journal.note("acknowledged", event.thread_id, order=order, note=note)
            if not events:
                threading.Event().wait(0.02)


def work(ready: Callable[[], object], store: str) -> None:
    """Recover and sweep, until killed."""
    with ExitStack() as stack:
        interrupts, adapter = open_application(stack, store)
        ready()
        interrupts.worker(adapter).run(INTERVAL)


def final_states(store: str, threads: list[str]) -> dict[str, dict[str, Any]]:
    """By thread, what is in its state, and what it still has to do."""
    with ExitStack() as stack:
        _, adapter = open_application(stack, store)
        reports = {}
        for thread_id in threads:
            state = adapter.graph.get_state(thread(thread_id))
            unfinished = [task.name for task in state.tasks] + list(state.next)
            reports[thread_id] = {"log": state.values.get("log", []), "unfinished": unfinished, "problems": []}
        return reports
