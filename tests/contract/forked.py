"""`python -m tests.contract.forked WAY URL`: a process that uses a store, forks, and uses it in parent and children."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.errors import StoreError
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Operations
from tests.contract.stores import ASKED, pause_row, reseal

CHILDREN = 3
EACH = 20
OPERATIONS = Operations(system_clock)


def open_own(database: Database, name: str) -> None:
    """Open pauses of a thread of one's own, and read them: those, and no other's."""
    for n in range(EACH):
        database.run(OPERATIONS.opening.open_pauses, [(named(name, n), ASKED)], reseal)
        check(name, n, database.run(OPERATIONS.reading.load_thread, "default", name))


async def aopen_own(database: Database, name: str) -> None:
    for n in range(EACH):
        await database.arun(OPERATIONS.opening.open_pauses, [(named(name, n), ASKED)], reseal)
        check(name, n, await database.arun(OPERATIONS.reading.load_thread, "default", name))


def named(name: str, n: int) -> Any:
    unique = f"{name}-{n}"
    ids = ("jti", "interrupt_id", "task_id", "leaf_task_id", "langgraph_id")
    return pause_row(thread_id=name, **dict.fromkeys(ids, unique))


def check(name: str, n: int, rows: Any) -> None:
    assert [row["jti"] for row in rows] == [f"{name}-{k}" for k in range(n + 1)]


def forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(children: list[int]) -> bool:
    """Whether all have ended well, within a minute."""
    end = time.monotonic() + 60
    statuses = []
    for child in children:
        while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
        if found == (0, 0):
            os.kill(child, 9)
            found = os.waitpid(child, 0)
        statuses.append(found[1])
    return statuses == [0] * len(children)


def sync(url: str) -> bool:
    database = Database(url, clock=system_clock)
    database.create_schema()
    children = [forked(lambda n=n: open_own(database, f"child {n}")) for n in range(CHILDREN)]  # type: ignore[misc]
    open_own(database, "parent")
    return ended(children)


def engine(url: str) -> bool:
    """An engine of the application's own."""
    database = Database(sa.create_engine(url), clock=system_clock)
    database.create_schema()
    children = [forked(lambda n=n: open_own(database, f"child {n}")) for n in range(CHILDREN)]  # type: ignore[misc]
    open_own(database, "parent")
    return ended(children)


def processes(url: str) -> bool:
    """With `multiprocessing`, and children of children."""
    database = Database(url, clock=system_clock)
    database.create_schema()
    context = multiprocessing.get_context("fork")

    def work(name: str) -> None:
        open_own(database, name)
        grandchild = forked(lambda: open_own(database, name + "'s child"))
        open_own(database, name + " again")
        assert ended([grandchild])

    workers = [context.Process(target=work, args=(f"worker {n}",)) for n in range(CHILDREN)]
    for worker in workers:
        worker.start()
    open_own(database, "parent")
    for worker in workers:
        worker.join(60)
    return [worker.exitcode for worker in workers] == [0] * CHILDREN


def coroutines(url: str) -> bool:
    """Used by coroutines before the fork (threads or an async driver), and by others after it."""
    database = Database(url, clock=system_clock)

    async def before() -> None:
        await database.acreate_schema()
        await asyncio.gather(*(aopen_own(database, f"before {n}") for n in range(4)))
        if database.async_only and database.dialect == "sqlite":
            await database.connections.of_this_loop().dispose()  # nothing else can close these

    asyncio.run(before())
    children = [
        forked(lambda n=n: asyncio.run(aopen_own(database, f"child {n}")))  # type: ignore[misc]
        for n in range(CHILDREN)
    ]
    asyncio.run(aopen_own(database, "parent"))
    return ended(children)


def under_load(url: str) -> bool:
    """Forked while other threads use the store."""
    database = Database(url, clock=system_clock)
    database.create_schema()
    stop = threading.Event()
    failures: list[BaseException] = []

    def load(name: str) -> None:
        n = 0
        try:
            while not stop.is_set():
                database.run(OPERATIONS.opening.open_pauses, [(named(name, n), ASKED)], reseal)
                n += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load, args=(f"load {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for n in range(8):
        children.append(forked(lambda n=n: open_own(database, f"child {n}")))  # type: ignore[misc]
        open_own(database, f"parent {n}")
    fine = ended(children)
    stop.set()
    for thread in threads:
        thread.join(60)
    return fine and not failures


def outlived(url: str) -> bool:
    """The parent gives back its connections while the child works: what the child stored stays."""
    database = Database(url, clock=system_clock)
    database.create_schema()
    begun, go_on = os.pipe(), os.pipe()

    def work() -> None:
        open_own(database, "first")
        os.write(begun[1], b".")
        os.read(go_on[0], 1)
        open_own(database, "second")

    child = forked(work)
    os.read(begun[0], 1)
    database.close()
    os.write(go_on[1], b".")
    fine = ended([child])
    check(
        "second", EACH - 1, Database(url, clock=system_clock).run(OPERATIONS.reading.load_thread, "default", "second")
    )
    return fine


def cut(url: str) -> bool:
    """Forked in the middle of a transaction: the child's store says so, the parent's goes on."""
    database = Database(url, clock=system_clock)
    database.create_schema()

    def refused() -> None:
        with pytest.raises(StoreError, match="forked"):
            open_own(database, "child")

    children: list[int] = []
    database.run(lambda _connection: children.append(forked(refused)))
    open_own(database, "parent")
    return ended(children)


if __name__ == "__main__":
    way: Callable[[str], bool] = globals()[sys.argv[1]]
    os._exit(0 if way(sys.argv[2]) else 1)
