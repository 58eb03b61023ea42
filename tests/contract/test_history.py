"""What has ended is not read again: sweeps, recovery, listings, answers and deliveries cost the same, however long the past."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from symfonic_interrupts import FrameworkTenantScope
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.operations import Lease, Operations
from symfonic_interrupts.store.schema import metadata, pauses
from tests.contract.stores import ASKED, answer_claim, checkpoint, overdue_row, pause_row, told

OPERATIONS = Operations(system_clock)
FEW, MANY = 20, 2000
ENDED = ("applied", "unused", "superseded", "expired", "revoked")
LISTED: dict[str, Any] = {
    "graph": "default",
    "scope": FrameworkTenantScope("acme"),
    "sub_scope_names": None,
    "name": None,
    "thread_id": None,
    "limit": 50,
    "after": None,
}
NEXT = checkpoint(999_999)
LEASE = Lease("default", "open", "me", taken_over=False)


def listing(connection: sa.Connection, **changes: Any) -> Any:
    return OPERATIONS.reading.list_open(connection, **{**LISTED, **changes})


WORK: dict[str, Callable[[sa.Connection], Any]] = {
    "sweep": lambda c: OPERATIONS.reading.list_due(c, "default", most=100),
    "recover": lambda c: OPERATIONS.upkeep.list_unfinished(c, "default", created_before=datetime.now(UTC), most=100),
    "failed": lambda c: OPERATIONS.reading.list_failed(c, "default"),
    "pending": listing,
    "the next page": lambda c: listing(c, after="i-answered"),
    "pending of a thread": lambda c: listing(c, thread_id="open"),
    "pending by id": lambda c: listing(c, interrupt_id="i-open"),
    "of a thread": lambda c: OPERATIONS.reading.load_thread(c, "default", "open"),
    "by id": lambda c: OPERATIONS.reading.find_pauses(c, "default", "i-open"),
    "the latest of a thread": lambda c: OPERATIONS.reading.load_latest(c, "default", "open"),
    "a newer checkpoint": lambda c: OPERATIONS.settling.advance(c, "default", "open", NEXT),
    "the end of a delivery": lambda c: OPERATIONS.leasing.conclude(c, LEASE, NEXT, [], []),
}


def past(connection: sa.Connection, count: int, **changes: Any) -> None:
    """Add pauses that have ended."""
    rows = [pause_row(state=ENDED[n % len(ENDED)], **{"thread_id": f"ended {n}", **changes}) for n in range(count)]
    connection.execute(sa.insert(pauses), rows)


def present(connection: sa.Connection) -> None:
    """Add what is open: a question, an answer on its way, and a question whose time is over."""
    opened = [
        pause_row(thread_id="open", interrupt_id="i-open"),
        answered := pause_row(thread_id="open", interrupt_id="i-answered"),
        overdue_row(thread_id="overdue"),
    ]
    OPERATIONS.opening.open_pauses(connection, [(row, ASKED) for row in opened], lambda row: row)
    OPERATIONS.claiming.answer(connection, answered, answer_claim(), told("answered"))
    OPERATIONS.leasing.take_lease(connection, "default", "open", "me", timedelta(minutes=1))


def steps_of(work: Callable[[sa.Connection], Any], connection: sa.Connection) -> int:
    """How many instructions SQLite's virtual machine carries out for it. Leaves nothing behind."""
    driver: Any = connection.connection.driver_connection
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1

    driver.set_progress_handler(step, 1)
    try:
        work(connection)
    finally:
        driver.set_progress_handler(None, 1)
        connection.rollback()
    return taken


def steps_after(count: int, url: str, name: str, **changes: Any) -> int:
    """The instructions of this work on a new SQLite store, after so many pauses have ended."""
    engine = sa.create_engine(url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    with engine.connect() as connection:
        past(connection, count, **changes)
        present(connection)
        connection.commit()
        steps = steps_of(WORK[name], connection)
    engine.dispose()
    return steps


@pytest.mark.parametrize("name", WORK)
def test_sqlite_does_the_same_work_after_20_pauses_and_after_2000(name: str, sqlite_url: str) -> None:
    few = steps_after(FEW, sqlite_url, name)

    assert few > 0
    assert steps_after(MANY, sqlite_url, name) == few


@pytest.mark.parametrize("name", ["of a thread", "a newer checkpoint", "the end of a delivery"])
def test_sqlite_does_the_same_work_in_a_thread_that_has_asked_often(name: str, sqlite_url: str) -> None:
    few = steps_after(FEW, sqlite_url, name, thread_id="open")

    assert few > 0
    assert steps_after(MANY, sqlite_url, name, thread_id="open") == few


def _note(asked: list[tuple[str, Any]], _connection: Any, _cursor: Any, text: str, given: Any, *_: Any) -> None:
    asked.append((text, given))


@pytest.mark.postgres
@pytest.mark.parametrize("name", WORK)
def test_postgres_has_an_index_for_each_of_them(name: str, postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    metadata.create_all(engine)
    asked: list[tuple[str, Any]] = []
    with engine.connect() as connection:
        past(connection, MANY)
        present(connection)
        connection.commit()
        connection.exec_driver_sql("ANALYZE interrupt_pauses")
        hear = functools.partial(_note, asked)
        sa.event.listen(engine, "before_cursor_execute", hear)
        WORK[name](connection)
        sa.event.remove(engine, "before_cursor_execute", hear)
        connection.rollback()
        plans = [
            "\n".join(line for (line,) in connection.exec_driver_sql(f"EXPLAIN {text}", given)) for text, given in asked
        ]
        connection.rollback()
    engine.dispose()

    about_pauses = [plan for plan in plans if "interrupt_pauses" in plan]
    assert about_pauses
    for plan in about_pauses:
        assert "Seq Scan on interrupt_pauses" not in plan, plan


@pytest.mark.postgres
def test_a_sweep_on_postgres_reads_no_question_whose_time_is_to_come(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    metadata.create_all(engine)
    asked: list[tuple[str, Any]] = []
    with engine.connect() as connection:
        connection.execute(sa.insert(pauses), [pause_row(thread_id=f"open {n}") for n in range(MANY)])
        present(connection)
        connection.commit()
        connection.exec_driver_sql("ANALYZE interrupt_pauses")
        sa.event.listen(engine, "before_cursor_execute", functools.partial(_note, asked))
        assert len(WORK["sweep"](connection)) == 1
        (text, given) = asked[0]
        plan = "\n".join(line for (line,) in connection.exec_driver_sql(f"EXPLAIN (ANALYZE) {text}", given))
    engine.dispose()

    assert "interrupt_pauses_due" in plan
    assert "Rows Removed by Filter" not in plan, plan
