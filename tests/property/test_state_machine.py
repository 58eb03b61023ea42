"""Random histories of threads against a simple model: whatever happens in between, an accepted answer counts exactly once.

A history asks, answers, delivers, revokes, reissues, sweeps, edits, gives new input, and dies at failpoints: from then on that
"process" writes nothing any more, neither in the store nor in the saver, and another one starts over the same data. After
every step the model says what must be open, listed and recorded; in the end every thread is driven to its end.
`SYMFONIC_LONG=1 pytest -s tests/property/test_state_machine.py` runs many more histories, random ones, and prints how many.
"""

from __future__ import annotations

import itertools
import operator
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from symfonic_interrupts import (
    FrameworkConfig,
    InterruptError,
    Interrupts,
    KeyRing,
    PauseSuperseded,
    ResponseInvalid,
    TokenConsumed,
    TokenExpired,
)
from symfonic_interrupts.testing import Failpoint, failpoints
from tests.harness import ACME, KEY, Decision, Refund, SetClock, thread

LONG = bool(os.environ.get("SYMFONIC_LONG"))
HISTORIES = 600 if LONG else 12
STEPS = 40 if LONG else 25
MINUTE = timedelta(minutes=1)
SHORT = 10 * MINUTE
LEASE = timedelta(seconds=30)
SKEW = timedelta(seconds=60)
DEFAULT = "default"
CONFIG = FrameworkConfig(
    experimental_interrupt=True, default_scope=ACME, lease_ttl=LEASE, lease_wait=timedelta(0), clock_skew=SKEW
)
KINDS = {
    "one": ["gate"],
    "pair": ["left", "right"],
    "twice": ["first", "second"],
    "sub": ["inner"],
    "timed": ["timed"],
    "brief": ["brief"],
    "over": [],
}
"""By what a thread was asked to do, the questions of it: side by side, but for `twice`."""
ENTRY = {"twice": ["twice"], "sub": ["sub"]}
POINTS: dict[str, dict[str, Any]] = {
    "asked": {"ttl": timedelta(days=1)},
    "timed": {"ttl": SHORT, "on_expire": Decision(approved=False, note=DEFAULT)},
    "brief": {"ttl": SHORT},
}


# -- the graph


class State(TypedDict, total=False):
    kind: str
    place: str
    log: Annotated[list[str], operator.add]


def build(interrupts: Interrupts) -> StateGraph[State]:
    """Each node that asks writes `question=answer` into the log, and the last one that the run has ended."""
    points = {
        name: interrupts.register_interrupt(name, payload_schema=Refund, response_schema=Decision, **options)
        for name, options in POINTS.items()
    }

    def ask(state: State, label: str) -> str:
        order = f"{state['place']}/{label}"
        return f"{order}={points.get(label, points['asked']).pause(Refund(order=order, amount=1)).note}"

    def asking(*labels: str) -> Any:
        return lambda state: {"log": [ask(state, label) for label in labels]}

    def end(state: State) -> State:
        return {"log": [f"{state['place']}/end"]}

    sub = StateGraph(State).add_node("inner", lambda s: {"log": [ask(s, "inner")], "kind": s["kind"]})
    builder = StateGraph(State).add_node("end", end).add_node("sub", within(sub.add_edge(START, "inner").compile()))
    for label in ("gate", "left", "right", "timed", "brief"):
        builder.add_node(label, asking(label))
    builder.add_node("twice", asking("first", "second"))
    for label in ("gate", "timed", "brief", "twice", "sub"):
        builder.add_edge(label, "end")
    builder.add_edge(["left", "right"], "end")
    nodes = ["gate", "left", "right", "timed", "brief", "twice", "sub"]
    return builder.add_conditional_edges(START, lambda s: ENTRY.get(s["kind"], KINDS[s["kind"]]), nodes)


def within(sub: Any) -> Any:
    """A node that runs a subgraph and adds what that wrote."""
    return lambda state: {"log": sub.invoke({**state, "log": []})["log"]}


# -- a process that may die


Death = tuple[str, int]
"""Where a process dies, and at which pass of that place."""


class Died(BaseException):
    """The process died at a failpoint."""


class Life:
    """Of one process. It ends at a failpoint, on the n-th time that it is reached."""

    def __init__(self) -> None:
        self.over = False
        self._at: Death | None = None

    def will_end(self, death: Death | None) -> None:
        self._at = death

    def reach(self, place: str) -> None:
        if self._at is not None and self._at[0] == place:
            self._at = (place, self._at[1] - 1)
            self.over = self.over or self._at[1] == 0
        self.check()

    def check(self) -> None:
        if self.over:
            raise Died


def mortal(kind: Any, life: Life, connection: Any) -> Any:
    """A saver that writes nothing after its process has died."""

    class Mortal(kind):  # type: ignore[misc]
        def put(self, *args: Any) -> Any:
            life.check()
            return super().put(*args)

        def put_writes(self, *args: Any) -> None:
            life.check()
            super().put_writes(*args)

    return Mortal(connection)


# -- the model


@dataclass
class Question:
    """What is known of one question.

    Attributes:
        status: `open`, `stored` (accepted, not delivered), `done` (delivered), `left` (accepted, then the thread went on),
            `superseded`, `revoked`, `expired`; or `unsure`: the process died around it, and the thread went on.
        tokens: with their expiry; the last one counts.
    """

    thread: str
    order: str
    interrupt_id: str
    tokens: list[tuple[str, datetime]]
    status: str = "open"
    note: str | None = None
    key: str | None = None
    receipt: Any = None


@dataclass
class Thread:
    """One thread: what it was last asked to do, and the questions of that run, by label.

    Attributes:
        died: the process died while it worked on this thread: `run` of the application, or `other`.
    """

    name: str
    kind: str = "over"
    run: int = 0
    questions: dict[str, Question] = field(default_factory=dict)
    died: str = ""

    @property
    def place(self) -> str:
        return f"{self.name}/{self.run}"

    @property
    def config(self) -> Any:
        return thread(self.name)

    @property
    def input(self) -> dict[str, Any]:
        return {"kind": self.kind, "place": self.place, "log": []}

    def asks(self) -> list[str]:
        """The labels that this run has reached."""
        labels = KINDS[self.kind]
        if self.kind == "twice" and not self.is_done("first"):
            return labels[:1]
        return labels

    def is_done(self, label: str) -> bool:
        return label in self.questions and self.questions[label].status == "done"

    def ended(self) -> bool:
        return all(self.is_done(label) for label in KINDS[self.kind])

    def go_on(self, kind: str) -> None:
        """The thread was given something else to do: its questions stand no more."""
        settled = self.ended()
        for question in self.questions.values():
            if self.died or (question.status == "done" and not settled):
                question.status = "unsure"  # LangGraph drops what a step that never ended had finished
            else:
                question.status = {"open": "superseded", "stored": "left"}.get(question.status, question.status)
        self.questions = {}
        self.kind = kind


STATES = {
    "open": {"pending"},
    "stored": {"answered"},
    "done": {"applied", "answered"},  # `answered` while its task asks the next question
    "left": {"answered", "unused"},
    "superseded": {"superseded"},
    "revoked": {"revoked"},
    "expired": {"expired"},
}
OUTCOMES = {
    "pending": {},
    "expired": {},
    "answered": {"interrupt_resolved": 1},
    "applied": {"interrupt_resolved": 1},
    "unused": {"interrupt_resolved": 1, "interrupt_unused": 1},
    "revoked": {"interrupt_revoked": 1},
    "superseded": {"interrupt_superseded": 1},
}
"""By the state of a row, the event rows that tell how its question ended."""
picked = st.integers(0, 30)
kinds = st.sampled_from(list(KINDS)[:-1])
durabilities = st.sampled_from(["sync", "async", "exit"])


def yes(note: str) -> dict[str, Any]:
    return {"approved": True, "note": note}


ASKING: tuple[Failpoint, ...] = ("pause_opened", "marker_written", "checkpoint_written", "event_emitted")
DRIVING: tuple[Failpoint, ...] = (
    "lease_taken",
    "resume_started",
    "answer_durable",
    "run_ended",
    "applied_marked",
    "lease_released",
    *ASKING,
)


def deaths(*places: Failpoint) -> Any:
    """Where the process dies in this step, at which pass of that place; or that it lives on."""
    return st.none() | st.tuples(st.sampled_from(places), st.integers(1, 3))


def has(*statuses: str) -> Callable[[Any], Any]:
    """Only where there is such a question, in a thread that is not in doubt."""
    return precondition(lambda self: self.pick(0, *statuses) is not None)


class History(RuleBasedStateMachine):
    """One history. Its threads' names and its graph's are its own, so all histories share a database."""

    store: ClassVar[str]
    saver_kind: ClassVar[Any]
    saver_connection: ClassVar[Any]
    observer: ClassVar[sa.Engine]
    counts: ClassVar[Counter[str]]
    numbers: ClassVar[Iterator[int]] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.number = next(self.numbers)
        self.graph_name = f"graph_{self.number}"
        self.on_sqlite = self.store.startswith("sqlite")
        self.clock = SetClock()
        self.threads: list[Thread] = []
        self.questions: list[Question] = []
        self.notes = itertools.count(1)
        self.stack = ExitStack()
        self.counts["histories"] += 1
        self.boot()

    # -- processes

    def boot(self) -> None:
        """A new process over the same data."""
        self.stack.close()
        self.life = Life()
        interrupts = self.stack.enter_context(
            Interrupts(
                self.store if self.on_sqlite else self.observer, keys=KeyRing([KEY]), config=CONFIG, clock=self.clock
            )
        )
        saver = mortal(self.saver_kind, self.life, self.saver_connection)
        self.graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver, graph=self.graph_name))
        self.adapter = interrupts.resume_adapter(self.graph)
        self.janitor = interrupts.janitor(self.adapter)
        self.hub = interrupts

    def attempt(self, call: Callable[[], Any], death: Death | None, *threads: Thread, own_run: bool = False) -> Any:
        """What a call returns or raises as `InterruptError`; None where the process died in it, and another was started."""

        def reach(place: str) -> None:
            try:
                self.life.reach(place)
            except Died:
                self.hub.close()  # a dead process commits nothing
                raise

        self.life.will_end(death)
        with failpoints(self.hub, reach):
            try:
                found = call()
            except InterruptError as error:
                found = error
            except BaseException:
                if not self.life.over:
                    raise
        self.life.will_end(None)
        if not self.life.over:
            return found
        self.counts["deaths"] += 1
        for at in threads:
            at.died = "run" if own_run or at.died == "run" else "other"
        if self.on_sqlite:
            self.clock.move(LEASE + timedelta(seconds=1))
        else:  # as much later as the lease lasts
            lapsed = "UPDATE interrupt_thread_leases SET expires_at = now() - interval '1 s' WHERE graph = :graph"
            with self.observer.begin() as connection:
                connection.execute(sa.text(lapsed), {"graph": self.graph_name})
        self.boot()
        return None

    def app(self, at: Thread, given: Any, durability: Any = "async") -> Callable[[], Any]:
        """A run that the application itself makes."""
        return lambda: self.graph.invoke(given, at.config, durability=durability)

    # -- what the store and the saver say

    def rows(self, statement: str) -> list[Any]:
        with self.observer.connect() as connection:
            return list(connection.execute(sa.text(statement), {"graph": self.graph_name}))

    def log(self, at: Thread) -> list[str]:
        found: list[str] = self.graph.get_state(at.config).values.get("log", [])
        return found

    def is_overdue(self, question: Question) -> bool:
        return question.tokens[-1][1] <= self.clock.now

    def sure(self) -> list[Thread]:
        return [at for at in self.threads if not at.died]

    def of_thread(self, question: Question) -> Thread:
        return next(at for at in self.threads if at.name == question.thread)

    # -- the model's moves

    def look(self, at: Thread) -> None:
        """Exactly the questions that the thread has reached are listed; take note of the new ones."""
        listed = {event.payload["order"].rsplit("/", 1)[1]: event for event in self.adapter.pending(thread_id=at.name)}
        for label in at.asks():
            if label not in at.questions:
                assert label in listed, f"{at.place}: {label} is not asked"
                event = listed[label]
                tokens = [(event.pause_token, event.expires_at)]
                at.questions[label] = Question(at.name, event.payload["order"], event.interrupt_id, tokens)
                self.questions.append(at.questions[label])
        due = {label: q for label, q in at.questions.items() if q.status == "open" and not self.is_overdue(q)}
        assert {
            label: (event.payload["order"], event.interrupt_id, event.pause_token) for label, event in listed.items()
        } == {label: (q.order, q.interrupt_id, q.tokens[-1][0]) for label, q in due.items()}

    def delivered(self, at: Thread) -> None:
        for question in at.questions.values():
            if question.status == "stored":
                question.status = "done"
        self.look(at)

    def expected(self, question: Question, which: int = -1) -> type[Exception] | None:
        """What a good answer with this token must raise. None: it is accepted."""
        _, expires_at = question.tokens[which]
        if self.clock.now >= expires_at + SKEW:
            return TokenExpired
        if which != -1:
            return TokenConsumed
        if question.status == "open":
            return TokenExpired if self.is_overdue(question) else None
        if question.status == "superseded":
            return PauseSuperseded
        return TokenExpired if question.status == "expired" or question.note == DEFAULT else TokenConsumed

    def revoked(self, question: Question) -> None:
        self.adapter.revoke(question.interrupt_id, reason="a mistake")
        question.status = "revoked"

    def reissued(self, question: Question) -> None:
        event = self.adapter.reissue(question.interrupt_id)
        assert event.interrupt_id == question.interrupt_id
        question.status = "open"
        question.tokens.append((event.pause_token, event.expires_at))

    def accept(self, question: Question, note: str, receipt: Any = None, key: str | None = None) -> None:
        question.status, question.note, question.receipt, question.key = "stored", note, receipt, key
        self.counts["answers"] += 1

    def was_stored(self, question: Question) -> bool:
        """Whether an answer was stored, where the process died before it could say so."""
        found = self.rows(
            "SELECT c.outcome FROM interrupt_pauses p JOIN interrupt_consumed_tokens c ON c.jti = p.jti"
            f" WHERE p.graph = :graph AND p.interrupt_id = '{question.interrupt_id}'"
        )
        return [outcome for (outcome,) in found] == ["answered"]

    def pick(self, number: int, *statuses: str) -> Question | None:
        """A question of a thread that is not in doubt."""
        sure = [q for q in self.questions if not self.of_thread(q).died and q.status != "unsure"]
        found = [q for q in sure if not statuses or q.status in statuses]
        return found[number % len(found)] if found else None

    def the(self, number: int, *statuses: str) -> Question:
        found = self.pick(number, *statuses)
        assert found is not None
        return found

    def note(self) -> str:
        return f"n{next(self.notes)}"

    # -- rules: the application

    @initialize(kinds=st.lists(kinds, min_size=2, max_size=3), durability=durabilities)
    def begin(self, kinds: list[str], durability: str) -> None:
        for kind in kinds:
            at = Thread(f"h{self.number}-{len(self.threads)}")
            self.threads.append(at)
            self.run(at, kind, durability, None)

    @rule(number=picked, kind=kinds, durability=durabilities, death=deaths(*ASKING))
    def give_new_input(self, number: int, kind: str, durability: str, death: Death | None) -> None:
        self.run(self.threads[number % len(self.threads)], kind, durability, death)

    def run(self, at: Thread, kind: str, durability: str, death: Death | None) -> None:
        at.go_on(kind)
        at.run += 1
        call = self.attempt(self.app(at, at.input, durability), death, at, own_run=True)
        if call is not None:
            if at.died:
                self.sort_out(at)
            self.look(at)

    @has("open", "stored")
    @rule(number=picked, death=deaths("checkpoint_written"))
    def edit_the_state(self, number: int, death: Death | None) -> None:
        at = self.of_thread(self.the(number, "open", "stored"))
        mark = f"{at.name}/edit-{self.note()}"
        self.attempt(lambda: self.graph.update_state(at.config, {"log": [mark]}, as_node="end"), death, at)
        if mark in self.log(at):
            at.go_on("over")
        if not at.died:
            self.look(at)

    @precondition(lambda self: self.sure())
    @rule(number=picked, death=deaths(*ASKING))
    def run_again_without_input(self, number: int, death: Death | None) -> None:
        at = self.sure()[number % len(self.sure())]
        if self.attempt(self.app(at, None), death, at, own_run=True) is not None:
            self.look(at)

    # -- rules: answers

    @has()
    @rule(number=picked, keyed=st.booleans(), death=deaths("claim_committed"))
    def answer(self, number: int, keyed: bool, death: Death | None) -> None:
        question, note = self.the(number), self.note()
        expected, token, key = self.expected(question), question.tokens[-1][0], f"key-{note}" if keyed else None
        at = self.of_thread(question)
        found = self.attempt(lambda: self.adapter.answer(token, yes(note), idempotency_key=key), death, at)
        if found is None:
            if expected is None and self.was_stored(question):
                self.accept(question, note)
        elif expected is not None:
            assert type(found) is expected
        else:
            assert found.interrupt_id == question.interrupt_id
            self.accept(question, note, found, key)

    @has("stored", "done", "left")
    @rule(number=picked)
    def repeat_with_the_same_key(self, number: int) -> None:
        question = self.the(number, "stored", "done", "left")
        if question.key is None or self.clock.now >= question.tokens[-1][1] + SKEW:
            return
        token = question.tokens[-1][0]
        same, other = Decision(approved=True, note=question.note or ""), Decision(approved=False, note="another")
        assert self.adapter.answer(token, same, idempotency_key=question.key) == question.receipt
        for key, response in ((question.key, other), ("another key", same), (None, same)):
            with pytest.raises(TokenConsumed):
                self.adapter.answer(token, response, idempotency_key=key)

    @precondition(lambda self: any(len(q.tokens) > 1 for q in self.questions))
    @rule(number=picked, which=st.integers(-4, -2))
    def answer_with_a_dead_token(self, number: int, which: int) -> None:
        reissued = [q for q in self.questions if len(q.tokens) >= -which and not self.of_thread(q).died]
        if reissued:
            question = reissued[number % len(reissued)]
            with pytest.raises(InterruptError) as refused:
                self.adapter.answer(question.tokens[which][0], Decision(approved=True))
            assert refused.type is self.expected(question, which)

    @has("open")
    @rule(number=picked, durability=durabilities, death=deaths("claim_committed", *DRIVING))
    def invoke(self, number: int, durability: str, death: Death | None) -> None:
        question, note = self.the(number, "open"), self.note()
        if self.expected(question) is not None:
            return
        at, token = self.of_thread(question), question.tokens[-1][0]
        found = self.attempt(lambda: self.adapter.invoke(token, yes(note), durability=durability), death, at)
        if found is not None:
            assert not isinstance(found, InterruptError), found
            self.accept(question, note)
            self.delivered(at)
        elif self.was_stored(question):
            self.accept(question, note)

    @has("open")
    @rule(
        numbers=st.lists(picked, min_size=1, max_size=4),
        spoiled=st.booleans(),
        death=deaths("claim_committed", *DRIVING),
    )
    def invoke_many(self, numbers: list[int], spoiled: bool, death: Death | None) -> None:
        chosen = {q.interrupt_id: q for n in numbers if (q := self.pick(n, "open")) and self.expected(q) is None}
        notes = [self.note() for _ in chosen]
        answers = [(q.tokens[-1][0], yes(note)) for q, note in zip(chosen.values(), notes, strict=True)]
        dead = self.pick(numbers[0], "stored", "done", "revoked", "superseded", "expired") if spoiled else None
        if not answers:
            return
        if dead is not None:
            with pytest.raises(InterruptError) as refused:
                self.adapter.invoke_many([*answers, (dead.tokens[-1][0], {"approved": True})])
            assert (refused.type, refused.value.index) == (self.expected(dead), len(answers))
            return
        threads = {q.thread: self.of_thread(q) for q in chosen.values()}
        found = self.attempt(lambda: self.adapter.invoke_many(answers), death, *threads.values())
        if found is None:
            stored = {self.was_stored(question) for question in chosen.values()}
            assert len(stored) == 1  # all or none
            if stored == {False}:
                return
        for question, note in zip(chosen.values(), notes, strict=True):
            self.accept(question, note)
        if found is not None:
            assert [(d.thread_id, d.error) for d in found] == [(name, None) for name in threads]
            for at in threads.values():
                self.delivered(at)

    # -- rules: workers and operators

    @has("stored", "left")
    @rule(number=picked, durability=durabilities, death=deaths(*DRIVING))
    def deliver(self, number: int, durability: str, death: Death | None) -> None:
        at = self.of_thread(self.the(number, "stored", "left"))
        found = self.attempt(lambda: self.adapter.deliver(at.name, durability=durability), death, at)
        if found is not None:
            assert not isinstance(found, InterruptError), found
            self.delivered(at)

    @precondition(lambda self: self.pick(0, "stored", "left") is not None or len(self.sure()) < len(self.threads))
    @rule(death=deaths(*DRIVING))
    def recover(self, death: Death | None) -> None:
        """What the application's own dead runs left is run again by it; the library finishes the rest."""
        for at in self.threads:
            if at.died == "run":
                again = None if self.graph.get_state(at.config).values.get("place") == at.place else at.input
                if self.attempt(self.app(at, again), death, at, own_run=True) is None:
                    return
        found = self.attempt(self.adapter.recover, death, *self.threads)
        if found is not None:
            assert [delivery.error for delivery in found] == [None] * len(found)
            for at in self.threads:
                if at.died:
                    self.sort_out(at)
                self.delivered(at)

    def sort_out(self, at: Thread) -> None:
        """After a death has been mended: which questions the run has now. It may have been begun anew.

        What was left behind just when the process died may still be listed; whoever answers it is told, and it is closed.
        Where its time is over it is not listed, and the thread's next delivery closes it.
        """
        at.died = ""
        stands = {interrupt.value["interrupt_id"] for interrupt in self.graph.get_state(at.config).interrupts}
        listed = {event.interrupt_id: event for event in self.adapter.pending(thread_id=at.name)}
        for interrupt_id, event in listed.items():
            if interrupt_id not in stands:
                with pytest.raises(PauseSuperseded):
                    self.adapter.answer(event.pause_token, yes("too late"))
        for interrupt_id in stands - listed.keys() - {q.interrupt_id for q in self.questions}:
            self.adapter.reissue(interrupt_id)  # its time was over before anybody saw it
        left = {q.interrupt_id for q in self.questions if (q.thread, q.status) == (at.name, "superseded")}
        pending = self.rows("SELECT interrupt_id FROM interrupt_pauses WHERE graph = :graph AND state = 'pending'")
        if not left.isdisjoint(row.interrupt_id for row in pending):
            self.adapter.deliver(at.name)
        rows = self.rows("SELECT interrupt_id, state FROM interrupt_pauses WHERE graph = :graph")
        states = {row.interrupt_id: row.state for row in rows}
        for label, question in list(at.questions.items()):
            state = states[question.interrupt_id]
            if state == "superseded":
                del at.questions[label]
            if question.status == "open" and state != "pending":
                assert state in ("superseded", "revoked", "expired"), state
                question.status = state

    @precondition(lambda self: len(self.sure()) == len(self.threads))
    @rule(death=deaths("sweep_claimed", "default_stored", *DRIVING))
    def sweep(self, death: Death | None) -> None:
        due = [q for q in self.questions if q.status == "open" and self.is_overdue(q)]
        found = self.attempt(self.janitor.sweep, death, *(self.of_thread(q) for q in due))
        if found is not None:
            assert sorted(e.interrupt_id for e in found.events) == sorted(q.interrupt_id for q in due)
            assert [delivery.error for delivery in found.deliveries] == [None] * len(found.deliveries)
        for question in due:
            at, has_default = self.of_thread(question), question.order.endswith("/timed")
            if found is not None and not has_default:
                question.status = "expired"
            elif self.was_stored(question):
                self.accept(question, DEFAULT)
            if found is not None and not at.died:
                self.delivered(at)

    @has()
    @rule(number=picked, revokes=st.sampled_from([False, False, True]))
    def reissue_or_revoke(self, number: int, revokes: bool) -> None:
        question = self.the(number)
        before, stands = question.status, question in self.of_thread(question).questions.values()
        operate = self.revoked if revokes else self.reissued
        if before == "open" or (before == "expired" and stands and not revokes):
            operate(question)
        else:
            over = ("superseded",) if revokes else ("superseded", "expired")
            with pytest.raises(PauseSuperseded if before in over else TokenConsumed):
                operate(question)

    # -- rules: time

    @precondition(lambda self: self.on_sqlite)
    @rule(minutes=st.sampled_from([1, 3, 8, 15]))
    def let_time_pass(self, minutes: int) -> None:
        self.clock.move(minutes * MINUTE)

    # -- what holds after every step

    @invariant()
    def no_answer_is_in_a_state_twice_or_in_another_question(self) -> None:
        given = {f"{q.order}={q.note}" for q in self.questions if q.note is not None}
        for at in self.threads:
            log = self.log(at)
            assert len(log) == len(set(log))
            unknown = {line for line in log if "=" in line} - given
            assert at.died or not unknown, unknown

    @invariant()
    def rows_and_events_tell_what_happened_once(self) -> None:
        rows = self.rows("SELECT interrupt_id, state FROM interrupt_pauses WHERE graph = :graph")
        states = {row.interrupt_id: row.state for row in rows}
        assert len(states) == len(rows)
        told: dict[str, Counter[str]] = {interrupt_id: Counter() for interrupt_id in states}
        for row in self.rows("SELECT interrupt_id, type FROM interrupt_events WHERE graph = :graph"):
            told[row.interrupt_id][row.type] += 1
        for interrupt_id, state in states.items():
            again = {"interrupt_reissued": told[interrupt_id].pop("interrupt_reissued", 0)}
            expired = told[interrupt_id].pop("interrupt_expired", 0)
            assert expired <= again["interrupt_reissued"] + 1
            assert told[interrupt_id] == Counter({"interrupt": 1, **OUTCOMES[state]}), (interrupt_id, state)
        for question in self.questions:
            if question.status in STATES and not self.of_thread(question).died:
                assert states[question.interrupt_id] in STATES[question.status], question

    @invariant()
    def what_is_open_is_listed_and_its_token_works(self) -> None:
        for at in self.sure():
            self.look(at)
        works = [q for q in self.questions if q.status == "open" and not self.of_thread(q).died]
        for question in works[-2:]:
            # what is checked last is refused here, so all the rest was in order
            with pytest.raises(InterruptError) as refused:
                self.adapter.answer(question.tokens[-1][0], {"approved": "perhaps"})
            assert refused.type is (TokenExpired if self.is_overdue(question) else ResponseInvalid)

    # -- the end

    def teardown(self) -> None:
        try:
            self.recover(None)
            for at in self.threads:
                self.finish(at)
            self.check_the_end()
        finally:
            self.stack.close()

    def finish(self, at: Thread) -> None:
        """Answer whatever the thread still asks; a question that was revoked needs new input."""
        for _ in range(3):
            if any(q.status == "revoked" for q in at.questions.values()):
                self.run(at, "one", "sync", None)
            for question in list(at.questions.values()):
                if question.status == "expired" or (question.status == "open" and self.is_overdue(question)):
                    self.reissued(question)
                if question.status == "open":
                    note = self.note()
                    self.adapter.invoke(question.tokens[-1][0], yes(note))
                    self.accept(question, note)
                    self.delivered(at)
        assert at.ended()

    def check_the_end(self) -> None:
        """Every thread has ended, and of every accepted answer it is known whether it counts."""
        assert self.adapter.recover() == []
        rows = self.rows("SELECT interrupt_id, state FROM interrupt_pauses WHERE graph = :graph")
        states = {row.interrupt_id: row.state for row in rows}
        for at in self.threads:
            state = self.graph.get_state(at.config)
            assert (state.next, state.tasks, state.interrupts) == ((), (), ())
            for question in (q for q in self.questions if q.thread == at.name and q.note is not None):
                times = state.values["log"].count(f"{question.order}={question.note}")
                if question.status == "unsure":
                    assert times <= (states[question.interrupt_id] == "applied")
                else:
                    wanted = {"done": (1, "applied"), "left": (0, "unused")}[question.status]
                    assert (times, states[question.interrupt_id]) == wanted, question
        assert set(states.values()).isdisjoint(("pending", "answered"))
        assert self.rows("SELECT 1 FROM interrupt_thread_leases WHERE graph = :graph") == []
        assert self.adapter.pending() == []


def test_in_any_history_an_accepted_answer_counts_exactly_once(store_url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        if store_url.startswith("sqlite"):
            kind: Any = SqliteSaver
            connection: Any = sqlite3.connect(tmp_path / "checkpoints.db", check_same_thread=False)
        else:
            kind = PostgresSaver
            url = store_url.replace("postgresql+psycopg://", "postgresql://", 1)
            connection = psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=psycopg.rows.dict_row)
        stack.callback(connection.close)
        kind(connection).setup()
        with Interrupts(store_url, keys=KeyRing([KEY]), config=CONFIG) as interrupts:
            interrupts.create_schema()
        observer = sa.create_engine(store_url)
        stack.callback(observer.dispose)
        counts: Counter[str] = Counter()
        shared = {"store": store_url, "saver_kind": kind, "saver_connection": connection, "observer": observer}
        machine = type("AnyHistory", (History,), {**shared, "counts": counts})

        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=HISTORIES,
                stateful_step_count=STEPS,
                derandomize=not LONG,
                database=None,
                deadline=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )

    assert counts["answers"] > HISTORIES
    if LONG:
        print(f"\n{dict(counts)}", end=" ")
