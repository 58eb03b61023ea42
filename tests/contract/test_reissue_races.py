"""Pauses that change meanwhile: between a look at the thread and the transaction another worker acts, or one dies."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
import sqlalchemy as sa
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import START, StateGraph

from symfonic_interrupts import Interrupts, KeyRing, PauseSuperseded, ResumeAdapter, TokenConsumed
from symfonic_interrupts.store.row_mac import seal_row
from symfonic_interrupts.store.schema import pauses
from symfonic_interrupts.testing import failpoints
from tests.harness import CONFIG, KEY, Decision, Refund, SetClock, thread

HOUR = timedelta(hours=1)


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def build(interrupts: Interrupts) -> StateGraph[State]:
    """One node that asks two questions side by side, as parallel tool calls do."""
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision, ttl=HOUR)

    def node(state: State) -> dict[str, Any]:
        notes, asked = [], None
        for order in ("first", "second"):
            try:
                notes.append(point.pause(Refund(order=order, amount=1)).note)
            except GraphInterrupt as error:
                asked = error
        if asked is not None:
            raise asked
        return {"log": notes}

    return StateGraph(State).add_node("node", node).add_edge(START, "node")


def meanwhile(kind: Any) -> Any:
    """A saver in which something happens once, after a thread has been looked at."""

    class Meanwhile(kind):  # type: ignore[misc]
        then: Callable[[], Any] | None = None

        def get_tuple(self, config: Any) -> Any:
            found = super().get_tuple(config)
            then, self.then = self.then, None
            if then is not None:
                then()
            return found

    return Meanwhile


class Two:
    """Two workers on the same data; `saver` belongs to the first."""

    def __init__(self, stack: ExitStack, url: str, tmp_path: Path) -> None:
        self.clock = SetClock()
        self.url = url
        adapters, hubs, savers = [], [], []
        for wrap in (meanwhile, lambda kind: kind):
            if url.startswith("sqlite"):
                saver = stack.enter_context(wrap(SqliteSaver).from_conn_string(str(tmp_path / "checkpoints.db")))
            else:
                there = url.replace("postgresql+psycopg://", "postgresql://", 1)
                saver = stack.enter_context(wrap(PostgresSaver).from_conn_string(there))
            saver.setup()
            hub = stack.enter_context(Interrupts(url, keys=KeyRing([KEY]), config=CONFIG, clock=self.clock))
            hub.create_schema()
            adapters.append(hub.resume_adapter(build(hub).compile(checkpointer=hub.checkpointer(saver))))
            hubs.append(hub)
            savers.append(saver)
        self.saver: Any = savers[0]
        self.hub: Interrupts = hubs[0]
        self.one: ResumeAdapter = adapters[0]
        self.two: ResumeAdapter = adapters[1]
        self.two.graph.invoke({"log": []}, thread())
        self.events = {event.payload["order"]: event for event in self.two.pending()}

    def let_expire(self, interrupt_id: str) -> None:
        """Its time is over: the clock is moved, or the row's end, where the clock is the server's."""
        if self.url.startswith("sqlite"):
            self.clock.move(2 * HOUR)
            return
        engine = sa.create_engine(self.url)
        with engine.begin() as connection:
            row = dict(
                connection.execute(sa.select(pauses).where(pauses.c.interrupt_id == interrupt_id)).mappings().one()
            )
            sealed = seal_row({**row, "expires_at": row["created_at"]}, KeyRing([KEY]))
            changed = {name: sealed[name] for name in ("expires_at", "mac_kid", "mac")}
            connection.execute(sa.update(pauses).where(pauses.c.id == row["id"]).values(**changed))
        engine.dispose()


@pytest.fixture
def pair(store_url: str, tmp_path: Path) -> Iterator[Two]:
    with ExitStack() as stack:
        yield Two(stack, store_url, tmp_path)


def test_a_question_that_moves_to_another_slot_while_it_is_reissued_keeps_a_token_that_works(pair: Two) -> None:
    first, second = pair.events["first"], pair.events["second"]
    pair.saver.then = lambda: pair.two.invoke(first.pause_token, {"approved": True, "note": "one"})

    renewed = pair.one.reissue(second.interrupt_id)

    assert [event.pause_token for event in pair.one.pending()] == [renewed.pause_token]
    with pytest.raises(TokenConsumed):
        pair.one.answer(second.pause_token, {"approved": True})
    assert pair.one.invoke(renewed.pause_token, {"approved": True, "note": "two"}) == {"log": ["one", "two"]}


def test_an_expired_pause_is_not_opened_again_where_new_input_came_meanwhile(pair: Two) -> None:
    old = pair.events["first"]
    pair.let_expire(old.interrupt_id)
    pair.two.janitor().sweep()
    pair.saver.then = lambda: pair.two.graph.invoke({"log": []}, thread())

    with pytest.raises(PauseSuperseded):
        pair.one.reissue(old.interrupt_id)

    listed = {event.interrupt_id for event in pair.one.pending()}
    assert (len(listed), old.interrupt_id in listed) == (2, False)


def test_a_question_that_lost_its_process_is_closed_by_recovery_when_the_thread_went_on(pair: Two) -> None:
    class Died(BaseException):
        """The process died."""

    def die(place: str) -> None:
        if place == "pause_opened":
            raise Died

    with failpoints(pair.hub, die), pytest.raises(Died):
        pair.one.graph.invoke({"log": []}, thread("t2"))  # its question is stored, and its marker never
    pair.two.graph.invoke({"log": []}, thread("t2"))
    pair.clock.move(HOUR / 2)

    assert [delivery.error for delivery in pair.two.recover()] in ([], [None])

    assert [event.thread_id for event in pair.two.pending()].count("t2") == 2  # of the second run
