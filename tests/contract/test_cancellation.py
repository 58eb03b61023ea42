"""A cancelled await finishes the transaction that it began: what was claimed is committed, and no connection is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.util import await_only

from tests.contract.stores import ASKED, Store, answer_claim, pause_row, reseal, told

SECONDS = 20


class Gate:
    """A place in a transaction body where it stands until it is let through, in a thread or on the loop."""

    def __init__(self, store: Store) -> None:
        self._on_loop = store.database.async_only
        self._loop = asyncio.get_running_loop()
        self.reached = asyncio.Event()
        self._open_loop = asyncio.Event()
        self._open_thread = threading.Event()

    def stand(self) -> None:
        if self._on_loop:
            self.reached.set()
            await_only(asyncio.wait_for(self._open_loop.wait(), SECONDS))
        else:
            self._loop.call_soon_threadsafe(self.reached.set)
            assert self._open_thread.wait(SECONDS)

    def open(self) -> None:
        self._open_loop.set()
        self._open_thread.set()


async def cancelled_at_gate(store: Store, body: Callable[..., Any], gate: Gate, *, times: int) -> asyncio.Task[Any]:
    """A task that stands in the middle of its transaction and was cancelled."""
    task = asyncio.ensure_future(store.database.arun(body))
    await asyncio.wait_for(gate.reached.wait(), SECONDS)
    for _ in range(times):
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=0.01)
        assert not done, "the await ended before its transaction"
    return task


@pytest.mark.parametrize("times", [1, 4])
async def test_the_transaction_is_committed_and_the_await_is_cancelled(store: Store, times: int) -> None:
    row = pause_row()
    gate = Gate(store)

    def body(connection: sa.Connection) -> None:
        store.operations.opening.open_pauses(connection, [(row, ASKED)], reseal)
        gate.stand()
        store.operations.claiming.answer(connection, row, answer_claim(), told("answered"))

    task = await cancelled_at_gate(store, body, gate, times=times)
    assert store.states() == {}
    gate.open()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.states() == {row["jti"]: "answered"}
    assert store.event_types() == ["answered"]
    assert store.checked_out() == 0


async def test_a_cancelled_transaction_that_fails_is_rolled_back_and_the_await_is_cancelled(store: Store) -> None:
    row = pause_row()
    gate = Gate(store)

    def body(connection: sa.Connection) -> None:
        store.operations.opening.open_pauses(connection, [(row, ASKED)], reseal)
        gate.stand()
        raise ZeroDivisionError

    task = await cancelled_at_gate(store, body, gate, times=2)
    gate.open()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.states() == {}
    assert store.checked_out() == 0


async def test_a_timeout_around_the_await_still_commits(store: Store) -> None:
    row = pause_row()
    gate = Gate(store)

    def body(connection: sa.Connection) -> None:
        store.operations.opening.open_pauses(connection, [(row, ASKED)], reseal)
        gate.stand()

    async def open_later() -> None:
        await gate.reached.wait()
        await asyncio.wait({asyncio.ensure_future(gate.reached.wait())}, timeout=0.05)
        await asyncio.sleep(0.1)  # longer than the timeout below
        gate.open()

    opener = asyncio.ensure_future(open_later())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.database.arun(body), 0.05)
    await opener

    assert store.states() == {row["jti"]: "pending"}
    assert store.checked_out() == 0


async def test_30_awaits_cancelled_at_once_leave_whole_transactions_and_no_connection(store: Store) -> None:
    rows = [pause_row() for _ in range(30)]
    tasks = [
        asyncio.ensure_future(store.database.arun(store.operations.opening.open_pauses, [(row, ASKED)], reseal))
        for row in rows
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert store.rows("SELECT count(*) FROM interrupt_pauses") == store.rows("SELECT count(*) FROM interrupt_events")
    assert store.checked_out() == 0
    (opened,) = await store.open(pause_row())
    assert store.states()[opened["jti"]] == "pending"
