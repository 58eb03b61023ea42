"""Two nodes whose clocks are four minutes apart, over one store: who decides that the time to answer is over.

`ahead` is two minutes before the true time, `behind` two minutes after it. On PostgreSQL the true time is the database's, and
it decides whatever a node's clock says. On SQLite a claim is decided by the clock of the node that makes it. Before the claim,
each node's verifier refuses by its own clock, without a look at the database, but only what is over, or comes from the
future, by more than `FrameworkConfig.clock_skew`.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
import sqlalchemy as sa
from langgraph.graph import START, StateGraph

from symfonic_interrupts import (
    FrameworkConfig,
    Interrupts,
    KeyRing,
    StoreError,
    ThreadBusy,
    TokenConsumed,
    TokenExpired,
    TokenInvalid,
)
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Operations
from tests.contract.graphs import open_saver
from tests.harness import CONFIG, KEY, Decision, Refund, SetClock, thread

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
YES = {"approved": True, "note": "yes"}
LATE = Decision(approved=False, note="no answer in time")


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def void(_: object) -> None:
    """Nothing, whatever came of it."""


class Node:
    """One process: its clock, and its adapter of the graph that both run."""

    def __init__(self, stack: ExitStack, store: str, checkpoints: str, now: datetime, config: FrameworkConfig) -> None:
        self.clock = SetClock()
        self.clock.now = now
        self.interrupts = stack.enter_context(Interrupts(store, keys=KeyRing([KEY]), config=config, clock=self.clock))
        options: dict[str, Any] = {"payload_schema": Refund, "response_schema": Decision, "ttl": HOUR}
        self.on_validation: Callable[[], object] = lambda: None
        plain = self.interrupts.register_interrupt(
            "approval", validate_response=lambda response, payload: void(self.on_validation()), **options
        )
        defaulted = self.interrupts.register_interrupt("defaulted", on_expire=LATE, **options)

        def gate(state: State) -> State:
            point = defaulted if state["log"] == ["defaulted"] else plain
            return {"log": [point.pause(Refund(order="A1", amount=90)).note]}

        builder = StateGraph(State).add_node("gate", gate).add_edge(START, "gate")
        saver = self.interrupts.checkpointer(open_saver(stack, checkpoints))
        self.adapter = self.interrupts.resume_adapter(builder.compile(checkpointer=saver))

    def ask(self, name: str = "approval") -> PauseEvent:
        """The question of thread `t1`, asked now by this node's clock."""
        stream = self.adapter.graph.stream({"log": [name]}, thread(), stream_mode="custom")
        found: list[PauseEvent] = list(stream)
        return found[0]

    def sweep(self) -> int:
        """How many pauses this node closes as overdue."""
        return len(self.interrupts.janitor(self.adapter).sweep().events)


class Nodes:
    """Both nodes and their store.

    Attributes:
        on_postgres: whether the database has a clock of its own.
        truth: the true time when the test began.
    """

    def __init__(self, stack: ExitStack, store: str, checkpoints: str, skew: timedelta = MINUTE) -> None:
        self.on_postgres = store.startswith("postgresql")
        self.store = store
        database = Database(store, clock=system_clock)
        database.create_schema()
        database.close()
        open_saver(stack, checkpoints).setup()
        self.truth = datetime.now(UTC).replace(microsecond=0)
        config = dataclasses.replace(CONFIG, clock_skew=skew, lease_wait=timedelta(0))
        self.ahead = Node(stack, store, checkpoints, self.truth + 2 * MINUTE, config)
        self.behind = Node(stack, store, checkpoints, self.truth - 2 * MINUTE, config)

    def ask(self, left: timedelta, name: str = "approval") -> PauseEvent:
        """A question whose time is over when the true time has moved on by `left`."""
        now = self.behind.clock.now
        self.behind.clock.now = self.truth - HOUR + left
        event = self.behind.ask(name)
        self.behind.clock.now = now
        assert event.expires_at == self.truth + left
        return event

    def rows(self, statement: str = "SELECT state FROM interrupt_pauses") -> list[tuple[Any, ...]]:
        engine = sa.create_engine(self.store)
        try:
            with engine.begin() as connection:
                found = connection.exec_driver_sql(statement)
                return [tuple(row) for row in found] if found.returns_rows else []
        finally:
            engine.dispose()


Open = Callable[..., Nodes]


@pytest.fixture
def nodes_with(store_url: str, tmp_path: Path) -> Iterator[Open]:
    """Makes the two nodes, with a clock skew of one's choice."""
    checkpoints = str(tmp_path / "checkpoints.db") if store_url.startswith("sqlite") else store_url
    with ExitStack() as stack:
        yield lambda *skew: Nodes(stack, store_url, checkpoints, *skew)


@pytest.fixture
def nodes(nodes_with: Open) -> Nodes:
    """The two nodes, with a clock skew of a minute, the default."""
    return nodes_with()


@contextmanager
def statements() -> Iterator[list[str]]:
    """What goes to the pause store meanwhile."""
    heard: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        heard.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", hear)


# -- who decides that the time is over

ACCEPTED, REFUSED_BY_STORE, REFUSED_BY_VERIFIER = (
    "accepted",
    "TokenExpired by the store",
    "TokenExpired by the verifier",
)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("left", "skew", "who", "on_postgres", "on_sqlite"),
    [
        # in time: 90 s before the end, `ahead` believes that it was 30 s ago
        (90 * SECOND, MINUTE, "behind", ACCEPTED, ACCEPTED),
        (90 * SECOND, MINUTE, "ahead", ACCEPTED, REFUSED_BY_STORE),
        # in time: 45 s before the end, `ahead` believes that it was 75 s ago, more than the clocks may be apart
        (45 * SECOND, MINUTE, "behind", ACCEPTED, ACCEPTED),
        (45 * SECOND, MINUTE, "ahead", REFUSED_BY_VERIFIER, REFUSED_BY_VERIFIER),
        (45 * SECOND, 5 * MINUTE, "ahead", ACCEPTED, REFUSED_BY_STORE),
        # over for 30 s: `behind` believes that there are 90 s left
        (-30 * SECOND, MINUTE, "behind", REFUSED_BY_STORE, ACCEPTED),
        (-30 * SECOND, MINUTE, "ahead", REFUSED_BY_VERIFIER, REFUSED_BY_VERIFIER),
        (-30 * SECOND, 5 * MINUTE, "ahead", REFUSED_BY_STORE, REFUSED_BY_STORE),
        # over for four minutes: for both
        (-4 * MINUTE, MINUTE, "behind", REFUSED_BY_VERIFIER, REFUSED_BY_VERIFIER),
        (-4 * MINUTE, 5 * MINUTE, "behind", REFUSED_BY_STORE, REFUSED_BY_STORE),
    ],
)
def test_who_accepts_an_answer_and_who_refuses_it(
    nodes_with: Open, left: timedelta, skew: timedelta, who: str, on_postgres: str, on_sqlite: str
) -> None:
    nodes = nodes_with(skew)
    event = nodes.ask(left)
    node: Node = getattr(nodes, who)

    expected = on_postgres if nodes.on_postgres else on_sqlite

    with statements() as heard:
        if expected == ACCEPTED:
            node.adapter.answer(event.pause_token, YES)
        else:
            with pytest.raises(TokenExpired) as refused:
                node.adapter.answer(event.pause_token, YES)
            assert refused.value.expired_at == event.expires_at

    assert (heard == []) is (expected == REFUSED_BY_VERIFIER)
    assert nodes.rows() == [("answered" if expected == ACCEPTED else "pending",)]
    assert len(nodes.rows("SELECT jti FROM interrupt_consumed_tokens")) == (expected == ACCEPTED)


def test_a_token_that_one_node_refused_too_early_is_not_spent_and_the_other_takes_it(nodes: Nodes) -> None:
    event = nodes.ask(45 * SECOND)
    with pytest.raises(TokenExpired):
        nodes.ahead.adapter.answer(event.pause_token, YES)

    assert nodes.behind.adapter.invoke(event.pause_token, YES)["log"] == ["approval", "yes"]
    with pytest.raises(TokenConsumed):
        nodes.behind.adapter.answer(event.pause_token, YES)


def test_an_answer_whose_time_ends_after_every_check_is_refused_by_the_claim_itself(nodes: Nodes) -> None:
    event = nodes.ask(30 * MINUTE)

    def an_hour_passes() -> None:
        nodes.behind.clock.move(HOUR)
        if nodes.on_postgres:  # its clock cannot be moved, so the end is; the row is an edited one from then on
            nodes.rows("UPDATE interrupt_pauses SET expires_at = expires_at - interval '1 hour'")

    nodes.behind.on_validation = an_hour_passes
    with pytest.raises(StoreError if nodes.on_postgres else TokenExpired):
        nodes.behind.adapter.answer(event.pause_token, YES)

    assert nodes.rows() == [("pending",)]
    assert nodes.rows("SELECT jti FROM interrupt_consumed_tokens") == []


# -- who lists and sweeps


def test_what_is_open_is_listed_by_the_clock_that_decides(nodes: Nodes) -> None:
    nodes.ask(-30 * SECOND)

    listed = {who: len(getattr(nodes, who).adapter.pending()) for who in ("ahead", "behind")}

    assert listed == {"ahead": 0, "behind": 0 if nodes.on_postgres else 1}


def test_a_node_that_is_ahead_does_not_sweep_before_postgresqls_time(nodes: Nodes) -> None:
    event = nodes.ask(45 * SECOND, "defaulted")

    swept = (nodes.behind.sweep(), nodes.ahead.sweep())

    if nodes.on_postgres:
        assert swept == (0, 0)
        assert nodes.behind.adapter.invoke(event.pause_token, YES)["log"] == ["defaulted", "yes"]
    else:  # it is over for the node that swept, and what it did holds for both
        assert swept == (0, 1)
        assert nodes.behind.adapter.graph.get_state(thread()).values["log"] == ["defaulted", "no answer in time"]
        with pytest.raises(TokenExpired):
            nodes.behind.adapter.answer(event.pause_token, YES)
    assert nodes.rows() == [("applied",)]
    assert len(nodes.rows("SELECT jti FROM interrupt_consumed_tokens")) == 1


def test_a_node_that_is_behind_sweeps_what_is_over_by_postgresqls_time(nodes: Nodes) -> None:
    nodes.ask(-30 * SECOND, "defaulted")

    swept = (nodes.behind.sweep(), nodes.ahead.sweep())

    assert swept == ((1, 0) if nodes.on_postgres else (0, 1))
    assert nodes.ahead.adapter.graph.get_state(thread()).values["log"] == ["defaulted", "no answer in time"]
    assert nodes.rows() == [("applied",)]


# -- tokens from the future


def test_a_token_from_further_in_the_future_than_the_skew_is_refused_until_the_time_has_come(nodes: Nodes) -> None:
    event = nodes.ahead.ask()  # four minutes from now, says `behind`

    for left in (4 * MINUTE, MINUTE + SECOND):
        nodes.behind.clock.now = nodes.ahead.clock.now - left
        with statements() as heard, pytest.raises(TokenInvalid, match="issued in the future; check the clocks"):
            nodes.behind.adapter.answer(event.pause_token, YES)
        assert heard == []
    assert nodes.rows() == [("pending",)]

    nodes.behind.clock.now = nodes.ahead.clock.now - MINUTE
    assert nodes.behind.adapter.invoke(event.pause_token, YES)["log"] == ["approval", "yes"]


def test_a_skew_as_wide_as_the_clocks_are_apart_lets_tokens_of_either_pass_at_the_other(nodes_with: Open) -> None:
    nodes = nodes_with(4 * MINUTE)
    event = nodes.ahead.ask()

    assert nodes.behind.adapter.inspect(event.pause_token).state == "pending"
    receipt = nodes.behind.adapter.answer(event.pause_token, YES)

    assert nodes.ahead.adapter.deliver(receipt.thread_id).output["log"] == ["approval", "yes"]
    ((body,),) = nodes.rows("SELECT body FROM interrupt_events WHERE type = 'interrupt_resolved'")
    assert json.loads(body)["time_to_resolve_seconds"] == 0.0  # answered before it was asked, by these clocks


# -- leases


@pytest.mark.postgres
def test_a_lease_lasts_as_long_as_postgresqls_clock_says_whatever_the_nodes_believe(
    postgres_url: str, tmp_path: Path
) -> None:
    take = Operations(system_clock).leasing.take_lease
    with ExitStack() as stack:
        nodes = Nodes(stack, postgres_url, postgres_url)
        event = nodes.ask(HOUR - 3 * MINUTE)
        nodes.behind.adapter.answer(event.pause_token, YES)
        database = Database(postgres_url, clock=system_clock)
        stack.callback(database.close)
        assert database.run(take, "default", "t1", "a worker", MINUTE) is not None

        # a minute is over long ago for `ahead`, and `behind` would wait three
        for node in (nodes.ahead, nodes.behind):
            with pytest.raises(ThreadBusy):
                node.adapter.deliver("t1")
            assert node.adapter.recover() == []
            nodes.rows("UPDATE interrupt_thread_leases SET expires_at = clock_timestamp() + interval '30 seconds'")

        nodes.rows("UPDATE interrupt_thread_leases SET expires_at = clock_timestamp() - interval '1 second'")
        (delivery,) = nodes.behind.adapter.recover()

    assert (delivery.error, delivery.output) == (None, {"log": ["approval", "yes"]})
    assert nodes.rows("SELECT * FROM interrupt_thread_leases") == []


@pytest.mark.postgres
def test_a_lease_that_a_node_takes_ends_by_postgresqls_clock_not_by_its_own(postgres_url: str) -> None:
    left = "SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM interrupt_thread_leases"
    with ExitStack() as stack:
        nodes = Nodes(stack, postgres_url, postgres_url)
        for node in (nodes.ahead, nodes.behind):
            operations = Operations(node.clock)
            database = Database(postgres_url, clock=node.clock)
            stack.callback(database.close)
            lease, _ = database.run(operations.leasing.take_lease, "default", "t1", "a worker", 10 * MINUTE)  # type: ignore[misc]
            ((seconds,),) = nodes.rows(left)
            assert 540 < seconds <= 600
            assert database.run(operations.leasing.renew_lease, lease, 20 * MINUTE)
            ((seconds,),) = nodes.rows(left)
            assert 1140 < seconds <= 1200
            database.run(operations.leasing.end_lease, lease, clean=False)
            ((seconds,),) = nodes.rows(left)
            assert -60 < seconds <= 0
