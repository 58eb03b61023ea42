"""Parallel tool calls in one ToolNode, 200 drawn runs: every answer reaches the call it was given to.

Each run is drawn from its seed alone: 2 to 8 calls of three tools, with identical ones among them, each a little late; sync
functions, functions in threads or coroutines; wrapped calls; tool errors handled; a node that is tried again; a raw resume
in between; payloads that change between two passes; and answers given all at once, some, or one at a time. An answer names the
question it was given to, and a tool's result says what it asked. This module must not decide which pass a slow call falls into:
it counts the rounds and prints them. `SYMFONIC_TOOL_RUNS=2000 pytest -s <this file>` is a longer form.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.errors import GraphInterrupt
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import get_runtime
from langgraph.types import Command, RetryPolicy

from symfonic_interrupts import InterruptSaver, ResumeRefused
from tests.harness import Bench, Refund, thread

POINT_OF = {"refund": "approval", "cancel": "approval", "audit": "audit"}
LATEST = 0.003  # seconds
MOST_ROUNDS = 60


@dataclass(frozen=True)
class Call:
    """One tool call; `late` in seconds, `asks` questions one after the other."""

    tool: str
    order: str
    late: float
    asks: int


@dataclass(frozen=True)
class Plan:
    """One run, as its seed says. Rounds are counted from 1."""

    seed: int
    calls: tuple[Call, ...]
    kind: str  # of the tools: functions, or coroutines
    wrapped: str  # no, sync, async
    errors_handled: bool
    retried: bool
    raw_at: int | None
    drift_at: int | None
    answering: str  # all, some, one

    @classmethod
    def drawn(cls, seed: int, mode: str) -> Plan:
        dice = random.Random(seed)
        kinds = [("refund", dice.choice("AB")), ("refund", "A"), ("cancel", "A"), ("audit", dice.choice("AC"))]
        pool = kinds[: dice.randint(1, 4)]  # small, so that calls are often identical
        asynchronous = mode == "async"
        kind = dice.choice(["function", "coroutine"]) if asynchronous else "function"
        return cls(
            seed=seed,
            calls=tuple(
                Call(*dice.choice(pool), late=dice.uniform(0, LATEST), asks=1 + (dice.random() < 0.1))
                for _ in range(dice.randint(2, 8))
            ),
            kind=kind,
            wrapped=dice.choice(["no", "sync" if kind == "function" else "async", "async" if asynchronous else "sync"]),
            errors_handled=dice.random() < 0.5,
            retried=dice.random() < 0.3,
            raw_at=dice.randint(1, 2) if dice.random() < 0.3 else None,
            drift_at=dice.randint(1, 2) if dice.random() < 0.25 else None,
            answering=dice.choices(["all", "some", "one"], [70, 20, 10])[0],
        )


@dataclass
class Run:
    """What happened. `passes` are the executions of the node, each with the questions that it has asked in vain."""

    plan: Plan
    points: dict[str, Any]
    revisions: Counter[tuple[str, str]] = field(default_factory=Counter)
    passes: list[tuple[Any, set[str]]] = field(default_factory=list)
    stood: set[str] = field(default_factory=set)  # asked in vain before the last write of an interrupt
    failures: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    wrapper_calls: int = 0

    def asked(self) -> set[str]:
        """The questions of the pass to which the running call belongs."""
        info = get_runtime().execution_info
        for known, asked in list(self.passes):
            if known is info:
                return asked
        self.passes.append((info, set()))
        return self.passes[-1][1]

    def work(self, call_id: str) -> str:
        """The tool: what was asked and what was answered, question by question."""
        call = self.plan.calls[int(call_id)]
        told = []
        for part in range(call.asks):
            shown = Refund(order=f"{call.tool}:{call.order}:{part}", amount=self.revisions[call.tool, call.order])
            try:
                decision = self.points[POINT_OF[call.tool]].pause(shown)
            except GraphInterrupt as interrupt:
                self.asked().add(interrupt.args[0][0].value["interrupt_id"])
                raise
            told.append([POINT_OF[call.tool], shown.order, shown.amount, decision.note])
        if self.plan.retried and not self.plan.errors_handled and self.failures == 0:
            self.failures += 1
            raise ConnectionError("away, once")
        self.effects[call_id] += 1
        return json.dumps(told)

    def tools(self) -> list[StructuredTool]:
        def function(order: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
            self.asked()
            time.sleep(self.plan.calls[int(call_id)].late)
            return self.work(call_id)

        async def coroutine(order: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
            self.asked()
            await asyncio.sleep(self.plan.calls[int(call_id)].late)
            return self.work(call_id)

        as_what: dict[str, Any] = {"coroutine": coroutine} if self.plan.kind == "coroutine" else {"func": function}
        return [StructuredTool.from_function(name=name, description=name, **as_what) for name in POINT_OF]

    def node(self) -> ToolNode:
        def wrap(request: Any, execute: Any) -> Any:
            self.wrapper_calls += 1
            return execute(request)

        async def awrap(request: Any, execute: Any) -> Any:
            self.wrapper_calls += 1
            return await execute(request)

        wrappers: dict[str, Any] = {"no": {}, "sync": {"wrap_tool_call": wrap}, "async": {"awrap_tool_call": awrap}}
        handled: dict[str, Any] = {"handle_tool_errors": True} if self.plan.errors_handled else {}
        return ToolNode(self.tools(), **wrappers[self.plan.wrapped], **handled)

    def note_write(self, task_id: str, writes: Sequence[tuple[str, Any]]) -> None:
        if any(channel == INTERRUPT for channel, _ in writes):
            self.stood = next((set(asked) for info, asked in reversed(self.passes) if info.task_id == task_id), set())


class Watched(InterruptSaver):
    """The wrapper around the saver, told apart in one thing: it notes what was asked before a write begins."""

    run: Run

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.run.note_write(task_id, writes)
        super().put_writes(config, writes, task_id, task_path)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.run.note_write(task_id, writes)
        await super().aput_writes(config, writes, task_id, task_path)


def compiled(bench: Bench, run: Run) -> tuple[Any, Any]:
    engine = bench.interrupts.checkpointer(bench.saver).hub
    saver = Watched(bench.saver, engine, graph="tools")
    saver.run = run
    retry = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False) if run.plan.retried else None
    builder = StateGraph(MessagesState).add_node("tools", run.node(), retry_policy=retry).add_edge(START, "tools")
    graph = builder.compile(checkpointer=saver)
    return graph, bench.interrupts.resume_adapter(graph)


async def raw_resume_is_refused(bench: Bench, graph: Any, place: Any, dice: random.Random) -> None:
    (interrupt,) = (await bench.call(graph, "get_state", place)).interrupts
    forged: Any = {"approved": True, "note": "raw"}
    resume = {interrupt.id: forged} if dice.random() < 0.5 else forged
    with pytest.raises(ResumeRefused):
        await bench.call(graph, "invoke", Command(resume=resume), place)


async def played(bench: Bench, plan: Plan, points: dict[str, Any]) -> tuple[Run, int]:
    """Run a plan to its end; what happened, and in how many rounds of questions."""
    run = Run(plan, points)
    graph, adapter = compiled(bench, run)
    dice = random.Random(plan.seed + 1_000_000)
    thread_id = f"run-{plan.seed}"
    calls = [
        {"name": call.tool, "args": {"order": call.order}, "id": str(n), "type": "tool_call"}
        for n, call in enumerate(plan.calls)
    ]
    await bench.call(graph, "invoke", {"messages": [AIMessage("", tool_calls=calls)]}, thread(thread_id))
    answered: set[str] = set()
    rounds = 0
    output: Any = None
    while open_ := await bench.call(adapter, "pending", thread_id=thread_id):
        ids = {event.interrupt_id for event in open_}
        assert run.stood <= ids, f"{plan}: asked before the write, and not out with it"
        assert not ids & answered, f"{plan}: asked again for what was answered"
        rounds += 1
        assert rounds < MOST_ROUNDS, f"{plan}: does not end"
        if rounds == plan.raw_at:
            await raw_resume_is_refused(bench, graph, thread(thread_id), dice)
            after = await bench.call(adapter, "pending", thread_id=thread_id)
            assert {event.interrupt_id for event in after} == ids, f"{plan}: a raw resume changed what is open"
        if rounds == plan.drift_at:
            drifting = dice.choice(plan.calls)
            run.revisions[drifting.tool, drifting.order] += 1
        dice.shuffle(open_)
        many = {"all": len(open_), "some": dice.randint(1, len(open_)), "one": 1}[plan.answering]
        for event in open_[:many]:
            answered.add(event.interrupt_id)
            note = f"{event.name}|{event.payload['order']}|{event.payload['amount']}|{event.interrupt_id}"
            await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": note})
        output = (await bench.call(adapter, "deliver", thread_id)).output
    check_results(bench, run, thread_id, output)
    return run, rounds


def check_results(bench: Bench, run: Run, thread_id: str, output: Any) -> None:
    plan = run.plan
    messages = output["messages"][1:]
    assert [message.tool_call_id for message in messages] == [str(n) for n in range(len(plan.calls))], plan
    notes = []
    for call, message in zip(plan.calls, messages, strict=True):
        assert message.status == "success", plan
        told = json.loads(message.content)
        assert len(told) == call.asks, plan
        for part, (name, order, amount, note) in enumerate(told):
            assert (name, order) == (POINT_OF[call.tool], f"{call.tool}:{call.order}:{part}"), plan
            assert note.split("|")[:3] == [name, order, str(amount)], f"{plan}: a wrong answer"
            notes.append(note)
    assert len(set(notes)) == len(notes), f"{plan}: two calls got one answer"
    rows = bench.rows(f"SELECT state, count(*) FROM interrupt_pauses WHERE thread_id = '{thread_id}' GROUP BY state")
    states = dict(rows)
    assert states.keys() <= ({"applied"} if plan.drift_at is None else {"applied", "unused", "superseded"}), plan
    if plan.drift_at is None:
        assert states == {"applied": len(notes)}, plan
    assert run.failures == (plan.retried and not plan.errors_handled), plan
    assert (run.wrapper_calls > 0) == (plan.wrapped != "no"), plan
    assert min(run.effects[str(n)] for n in range(len(plan.calls))) >= 1, plan


RUNS = int(os.environ.get("SYMFONIC_TOOL_RUNS", "200"))
"""In all; a quarter for each of sync and async on SQLite and PostgreSQL."""
PORTION = 10


@pytest.mark.filterwarnings("ignore:.*an answer did not fit:UserWarning")  # some plans drift on purpose
@pytest.mark.parametrize("portion", range(RUNS // 4 // PORTION))
async def test_no_answer_reaches_another_call_and_everything_asked_in_a_pass_is_out_at_its_end(
    bench: Bench, portion: int, record_property: Any
) -> None:
    points = {name: bench.refunds(name) for name in ("approval", "audit")}
    quarter = 2 * (bench.mode == "async") + bench.store_url.startswith("postgres")
    first = RUNS // 4 * quarter + PORTION * portion
    found: Counter[tuple[str, str, int]] = Counter()
    once = 0
    for seed in range(first, first + PORTION):
        plan = Plan.drawn(seed, bench.mode)
        run, rounds = await played(bench, plan, points)
        straight = plan.answering == "all" and plan.drift_at is None and all(call.asks == 1 for call in plan.calls)
        found[plan.kind if bench.mode == "async" else "sync", "straight" if straight else "mixed", rounds] += 1
        once += straight and set(run.effects.values()) == {1}
    for key, runs in sorted(found.items()):
        record_property("rounds", [*key, runs])
    print("rounds", json.dumps([[*key, runs] for key, runs in sorted(found.items())]), "once", once)
