"""Events in the stream of a run: when a pause may be announced (its checkpoint is stored), and how (once, in mode "custom")."""

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
        """Note that a run of the thread begins. Returns the oldest checkpoint that the run before failed to store, or None."""
        with self._lock:
            unstored: str | None = self._broken.pop(thread_id, None)
        return unstored

    def wait_for(self, thread_id: str, checkpoint_id: str) -> Effects[None]:
        """Wait until this root checkpoint is stored.

        Raises:
            StoreError: it was not stored, or not within `PUT_WAIT_SECONDS`.
        """
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
        """Note that the checkpoint (thread id, checkpoint id) is stored."""
        with self._lock:
            signal = self._durable.get(key)
            self._durable.note(key)
        if isinstance(signal, concurrent.futures.Future):
            signal.set_result(True)

    def failed(self, thread_id: str, checkpoint_id: str) -> None:
        """Note that a checkpoint could not be stored. LangGraph drops the later ones of that run, so all waits for them end."""
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
        self._emitted = Remembered(MOST_RUNS)  # each keeps a run's runtime alive
        self._outbox = Remembered()

    def has_any(self, thread_id: str) -> bool:
        """Whether events of this thread are queued for the next write at its root."""
        return thread_id in self._outbox

    def queue(self, thread_id: str, events: list[AnswerEvent]) -> None:
        """Keep events until the next write at the root of the thread, after which they are emitted."""
        if events:
            with self._lock:
                self._outbox.note(thread_id, [*self._outbox.get(thread_id, []), *events])

    def outgoing(self, thread_id: str) -> list[AnswerEvent]:
        """Take the queued events of this thread."""
        with self._lock:
            events: list[AnswerEvent] = self._outbox.pop(thread_id, [])
        return events

    def new_pauses(self, configurable: Config, opened: list[PauseRow], scopes: list[str]) -> list[PauseEvent]:
        """The events of pending rows, each once in a run, and only to a run of the pause's own scope.

        Args:
            scopes: by row, the hash of the scope of this run.
        """
        run = names.run_of(configurable)
        events = []
        for row, scope_hash in zip(opened, scopes, strict=True):
            key = (id(run), row["jti"])
            with self._lock:
                was_emitted = key in self._emitted
                self._emitted.note(key, run)  # kept alive, so that its `id()` is not reused
            if row["state"] == "pending" and row["scope_hash"] == scope_hash and not was_emitted:
                events.append(pause_event(self._hub, row))
        return events

    @staticmethod
    def emit(config: Config, task_id: str, events: Sequence[PauseEvent | AnswerEvent]) -> None:
        """Write the events into the run's stream, as coming from this task."""
        names.write_custom(config, task_id, events)
