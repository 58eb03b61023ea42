"""When a pause may be announced, and how: after its checkpoint is stored, once in a run, in the stream's mode "custom"."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from typing import Any

from symfonic_interrupts import forks
from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.core.effects import Effects, WaitFor
from symfonic_interrupts.core.executions import Remembered
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.rows import pause_event
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.events import AnswerEvent, PauseEvent
from symfonic_interrupts.store.rows import PauseRow

MOST_RUNS = 1_000
PUT_WAIT_SECONDS = 60.0

Config = Any
"""LangGraph's `RunnableConfig`, whose `configurable` has more keys than its type says."""


class PutWatch:
    """Knows which root checkpoints are stored. Under durability "async" a question can come before its checkpoint is."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._durable = Remembered()
        self._broken = Remembered()

    def begun(self, thread_id: str) -> str | None:
        """A run of the thread begins. The checkpoint that the one before it could not store, if that is how it ended."""
        with self._lock:
            found: str | None = self._broken.pop(thread_id, None)
        return found

    def wait_for(self, thread_id: str, checkpoint_id: str) -> Effects[None]:
        # Under durability "async" a checkpoint is put in the background, and a question can come before it is stored.
        key = (thread_id, checkpoint_id)
        with self._lock:
            if self._durable.get(key) is True:
                return
            signal = self._durable.get(key) or concurrent.futures.Future()
            if thread_id in self._broken and not signal.done():
                signal.set_result(False)
            else:
                self._durable.note(key, signal)
        if not (yield from WaitFor(signal, PUT_WAIT_SECONDS)):
            raise StoreError(
                "the checkpoint of a pause was not stored, so the pause is not opened; run the thread again"
            )

    def ended(self, key: tuple[str, str]) -> None:
        with self._lock:
            signal = self._durable.get(key)
            self._durable.note(key)
        if isinstance(signal, concurrent.futures.Future):
            signal.set_result(True)

    def failed(self, thread_id: str, checkpoint_id: str) -> None:
        # LangGraph does not try the puts after a failed one: whoever waits for them, now or later, would wait in vain
        with self._lock:
            self._broken.note(thread_id, names.older(checkpoint_id, self._broken.get(thread_id, checkpoint_id)))
            waiting = [key for key, signal in self._durable.items() if key[0] == thread_id and signal is not True]
            signals = [self._durable.pop(key) for key in waiting]
        for signal in signals:
            signal.set_result(False)


class Announcer:
    """Sends events into the stream of the run in which they happen."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = forks.Lock()
        self._emitted = Remembered(MOST_RUNS)  # each holds a run's runtime
        self._outbox = Remembered()

    def any_for(self, thread_id: str) -> bool:
        """Whether events of this thread wait for the next write at its root."""
        return thread_id in self._outbox

    def queue(self, thread_id: str, events: list[AnswerEvent]) -> None:
        if events:
            with self._lock:
                self._outbox.note(thread_id, [*self._outbox.get(thread_id, []), *events])

    def outgoing(self, thread_id: str) -> list[AnswerEvent]:
        with self._lock:
            found: list[AnswerEvent] = self._outbox.pop(thread_id, [])
        return found

    def new_pauses(self, place: Config, opened: list[PauseRow], scopes: list[str]) -> list[PauseEvent]:
        """The events of pending rows, each once in a run, and only to a run of the pause's own scope.

        Args:
            scopes: by row, the hash of the scope of this run.
        """
        run = names.run_of(place)
        events = []
        for row, scope_hash in zip(opened, scopes, strict=True):
            key = (id(run), row["jti"])
            with self._lock:
                told = key in self._emitted
                self._emitted.note(key, run)  # holding it keeps its id from being another's
            if row["state"] == "pending" and row["scope_hash"] == scope_hash and not told:
                events.append(pause_event(self._hub, row))
        return events

    @staticmethod
    def emit(config: Config, task_id: str, events: Sequence[PauseEvent | AnswerEvent]) -> None:
        names.write_custom(config, task_id, events)
