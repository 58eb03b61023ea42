"""What a run raises after an answer is kept, listed and told, and nothing tries it again by itself.

Also where no node raised in LangGraph's sense: timeouts, which take the answer's own trace with them, and the recursion limit.
At the end: breakpoints that a recovery must not run past, and a step that new input leaves out.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import operator
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.errors import GraphRecursionError, NodeError, NodeTimeoutError
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import RootModel

from symfonic_interrupts import AnswerUnused, FailedThread, FrameworkTenantScope, PauseSuperseded, PayloadInvalid
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.testing import failpoints
from tests.harness import ACME, Bench, Refund, open_bench, thread

YES = {"approved": True, "note": "yes"}
FAILED = "SELECT interrupt_id, body FROM interrupt_events WHERE type = 'delivery_failed' ORDER BY id"
LEASES = "SELECT thread_id FROM interrupt_thread_leases"


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def gate(point: Any, order: str = "gate") -> Any:
    def node(state: State) -> dict[str, Any]:
        return {"log": [f"{order}={point.pause(Refund(order=order, amount=1)).note}"]}

    return node


def row_of(*nodes: tuple[str, Any]) -> StateGraph[State]:
    return StateGraph(State).add_sequence(list(nodes)).add_edge(START, nodes[0][0])


async def ask(bench: Bench, graph: Any, adapter: Any) -> Any:
    await bench.call(graph, "invoke", {"log": []}, thread())
    return (await bench.call(adapter, "pending"))[0]


class Bank:
    """Away so many times."""

    def __init__(self, away: int, message: str = "the bank is away") -> None:
        self.away = away
        self.message = message
        self.calls = 0

    def __call__(self, state: State) -> dict[str, Any]:
        self.calls += 1
        if self.calls <= self.away:
            raise ConnectionError(self.message)
        return {"log": ["paid"]}


@pytest.mark.parametrize("below", [False, True], ids=["in the graph", "in a subgraph"])
async def test_a_later_node_that_raises_is_listed_with_its_error_until_a_delivery_goes_on(
    bench: Bench, below: bool
) -> None:
    bank = Bank(away=2)
    pay: Any = row_of(("pay", bank)).compile() if below else bank
    graph, adapter = bench.compile(row_of(("gate", gate(bench.refunds())), ("money", pay)))
    event = await ask(bench, graph, adapter)
    await bench.call(adapter, "answer", event.pause_token, YES)

    (delivery,) = await bench.call(adapter, "recover")

    (failed,) = await bench.call(adapter, "failed")
    assert failed == "t1"
    assert (failed.thread_id, failed.node, failed.error_type) == (
        "t1",
        "money:pay" if below else "money",
        "ConnectionError",
    )
    assert (failed.message, failed.interrupt_ids) == ("the bank is away", (event.interrupt_id,))
    assert failed.at.utcoffset() == timedelta(0)
    assert (delivery.failure, str(delivery.error)) == (failed, "the bank is away")
    assert delivery.failure.at == failed.at
    assert await bench.call(adapter, "recover") == []
    assert bank.calls == 1
    assert [f.thread_id for f in await bench.call(adapter, "failed", scope=ACME)] == ["t1"]
    assert await bench.call(adapter, "failed", scope=FrameworkTenantScope("other")) == []

    with pytest.raises(ConnectionError):
        await bench.call(adapter, "deliver", "t1")
    assert [f.thread_id for f in await bench.call(adapter, "failed")] == ["t1"]
    told = [(id_, json.loads(body)) for id_, body in bench.rows(FAILED)]
    once = {"node": failed.node, "error_type": "ConnectionError", "message": "the bank is away"}
    assert told == [(event.interrupt_id, once)] * 2  # once for each failure

    assert (await bench.call(adapter, "deliver", "t1")).output["log"][-1] == "paid"
    assert await bench.call(adapter, "failed") == []
    assert bench.rows(LEASES) == []


async def test_a_run_of_the_applications_own_that_goes_on_takes_the_thread_off_the_list(bench: Bench) -> None:
    graph, adapter = bench.compile(row_of(("gate", gate(bench.refunds())), ("pay", Bank(away=1))))
    event = await ask(bench, graph, adapter)
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", event.pause_token, YES)
    assert [f.thread_id for f in await bench.call(adapter, "failed")] == ["t1"]

    await bench.call(graph, "invoke", None, thread())

    assert await bench.call(adapter, "failed") == []
    assert bench.rows(LEASES) == []


async def test_an_error_is_kept_as_its_first_500_characters_in_a_form_that_any_database_stores(bench: Bench) -> None:
    bank = Bank(away=1, message="\0\ud800" + "x" * 9000)
    graph, adapter = bench.compile(row_of(("gate", gate(bench.refunds())), ("pay", bank)))
    event = await ask(bench, graph, adapter)
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", event.pause_token, YES)

    (failed,) = await bench.call(adapter, "failed")

    assert failed.message == "?" + "x" * 498 + "…"
    assert "xxx" not in repr(failed)


def test_a_failed_thread_is_its_id_also_as_a_copy() -> None:
    failed = FailedThread("t1", at=None, node="pay", error_type="ValueError", message="no")  # type: ignore[arg-type]

    assert json.dumps([failed]) == '["t1"]'
    assert {failed: 1}["t1"] == 1
    assert repr(failed) == (
        "FailedThread(thread_id='t1', at=None, node='pay', error_type='ValueError', interrupt_ids=())"
    )
    for again in (copy.copy(failed), pickle.loads(pickle.dumps(failed))):
        assert (again, again.node, again.message) == ("t1", "pay", "no")


async def test_who_drives_a_failed_thread_takes_it_off_the_list_meanwhile(bench: Bench) -> None:
    seen: list[Any] = []
    bank = Bank(away=1)

    def pay(state: State) -> dict[str, Any]:
        if bank.calls:
            database = Database(bench.store_url, clock=bench.clock)
            seen.append(database.run(bench.interrupts._hub.operations.reading.list_failed, "default")[0])
            database.close()
        return bank(state)

    graph, adapter = bench.compile(row_of(("gate", gate(bench.refunds())), ("pay", pay)))
    event = await ask(bench, graph, adapter)
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", event.pause_token, YES)

    await bench.call(adapter, "deliver", "t1")

    assert seen == [[]]


async def test_a_default_answer_of_a_sibling_does_not_try_a_failed_node_again(bench: Bench) -> None:
    bank = Bank(away=1)
    point = bench.refunds()
    late = bench.refunds("late", ttl=timedelta(hours=1), on_expire={"approved": False, "note": "late"})

    def pay(state: State) -> dict[str, Any]:
        point.pause(Refund(order="pay", amount=1))
        return bank(state)

    builder = StateGraph(State).add_node("pay", pay).add_node("late", gate(late, "late"))
    graph, adapter = bench.compile(builder.add_edge(START, "pay").add_edge(START, "late"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending", name="approval")
    with pytest.raises(ConnectionError):
        await bench.call(adapter, "invoke", event.pause_token, YES)
    if bench.store_url.startswith("postgres"):  # it goes by its own clock
        await bench.call(adapter, "answer", (await bench.call(adapter, "pending", name="late"))[0].pause_token, YES)
    else:
        bench.clock.move(timedelta(hours=2))
        report = await bench.call(bench.interrupts.janitor(adapter), "sweep")
        assert [d.ran for d in report.deliveries] == [False]

    assert await bench.call(adapter, "recover") == []
    assert bank.calls == 1
    assert [f.thread_id for f in await bench.call(adapter, "failed")] == ["t1"]

    await bench.call(adapter, "deliver", "t1")
    assert (bank.calls, bench.states()) == (2, ["applied", "applied"])


# -- what is told in the log


async def test_a_worker_logs_the_traceback_of_what_failed_and_a_line_for_what_went_well(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "symfonic_interrupts")
    graph, adapter = bench.compile(row_of(("gate", gate(bench.refunds())), ("pay", Bank(away=1))))
    event = await ask(bench, graph, adapter)
    await bench.call(adapter, "answer", event.pause_token, {"approved": True, "note": "SECRET"})

    await bench.call(adapter, "recover")
    await bench.call(bench.interrupts.resume_adapter(graph), "recover")
    (failed,) = [record for record in caplog.records if record.name == "symfonic_interrupts.delivery"]
    assert failed.getMessage() == "the delivery of thread 't1' failed: ConnectionError"
    assert failed.exc_info is not None
    assert "the bank is away" in str(failed.exc_info[1])

    await bench.call(graph, "invoke", {"log": []}, thread("t2"))
    (second,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "answer", second.pause_token, {"approved": True, "note": "SECRET"})
    await bench.call(adapter, "recover")

    ours = [record.getMessage() for record in caplog.records if record.name.startswith("symfonic_interrupts")]
    assert f"delivered thread 't2': applied {second.interrupt_id}, unused none, now open none" in ours
    assert "SECRET" not in caplog.text
    assert second.pause_token not in caplog.text


# -- the recursion limit


async def test_a_thread_that_stopped_at_the_recursion_limit_is_listed_and_a_higher_one_goes_on(bench: Bench) -> None:
    builder = StateGraph(State).add_node("gate", gate(bench.refunds())).add_node("work", lambda state: {"log": ["w"]})
    builder.add_edge(START, "gate").add_edge("gate", "work")
    builder.add_conditional_edges("work", lambda state: END if len(state["log"]) > 20 else "work", [END, "work"])
    graph, adapter = bench.compile(builder)
    event = await ask(bench, graph, adapter)
    low = {"config": {"recursion_limit": 3}}
    for _ in range(2):  # the second finds the answer stored under its key, and is no result either
        with pytest.raises(GraphRecursionError):
            await bench.call(adapter, "invoke", event.pause_token, YES, idempotency_key="k", **low)
        (failed,) = await bench.call(adapter, "failed")
        assert (failed.node, failed.error_type) == (None, "GraphRecursionError")
        assert await bench.call(adapter, "recover") == []

    result = await bench.call(
        adapter, "invoke", event.pause_token, YES, idempotency_key="k", config={"recursion_limit": 50}
    )

    assert result["log"] == ["gate=yes", *["w"] * 20]
    assert await bench.call(adapter, "failed") == []


# -- timeouts: LangGraph keeps no trace of what was taken


def hangs_once(point: Any, entries: list[str], *, native: bool = False) -> Any:
    async def node(state: State) -> dict[str, Any]:
        note = interrupt("go?") if native else point.pause(Refund(order="node", amount=1)).note
        entries.append(note)
        if len(entries) == 1:
            await asyncio.Event().wait()
        return {"log": [note]}

    return node


WHERE = ("node", "below", "task", "step over a subgraph", "step")
WHERE_NATIVE = (
    "node",
    "below",
    "step over a subgraph",
    "step",
)  # a task's native question is known by its entrypoint alone


def timing_out(node: Any, where: str) -> Any:
    """A graph in which the node runs out of time: by its own timeout, its task's, or that of a step."""
    if where == "task":
        inner = task(timeout=0.3)(node)

        @entrypoint()
        async def flow(state: State) -> dict[str, Any]:
            return await inner(state)

        return StateGraph(State).add_node("flow", flow).add_edge(START, "flow")
    options: dict[str, Any] = {"timeout": 0.3} if where in ("node", "below") else {}
    builder = StateGraph(State).add_node("node", node, **options).add_edge(START, "node")
    if where in ("below", "step over a subgraph"):
        return StateGraph(State).add_node("sub", builder.compile()).add_edge(START, "sub")
    return builder


@pytest.mark.parametrize(
    ("native", "where"), [(False, where) for where in WHERE] + [(True, where) for where in WHERE_NATIVE]
)
async def test_a_node_that_runs_out_of_time_keeps_its_answer_and_is_not_tried_again_by_itself(
    store_url: str, tmp_path: Path, where: str, native: bool
) -> None:
    async with open_bench("async", store_url, tmp_path) as bench:
        entries: list[str] = []
        nodes = ("sub:node",) if where in ("below", "step over a subgraph") else ("node",)
        if native:
            text = RootModel[str]
            bench.interrupts.register_interrupt("text", payload_schema=text, response_schema=text, nodes=nodes)
        point = None if native else bench.refunds()
        builder = timing_out(hangs_once(point, entries, native=native), where)
        graph, adapter = bench.compile(builder)
        if where.startswith("step"):
            graph.step_timeout = 0.5
        event = await ask(bench, graph, adapter)
        await adapter.aanswer(event.pause_token, "yes" if native else YES)

        for _ in range(3):
            await adapter.arecover()

        assert entries == ["yes"]
        (failed,) = await adapter.afailed()
        assert failed.error_type == (NodeTimeoutError.__name__ if not where.startswith("step") else "TimeoutError")
        assert (bench.states(), await adapter.apending()) == (["answered"], [])

        delivery = await adapter.adeliver("t1")

        assert (entries, delivery.output["log"]) == (["yes", "yes"], ["yes"])
        assert (bench.states(), await adapter.afailed()) == (["applied"], [])


@pytest.mark.parametrize("native", [False, True], ids=["point", "native"])
async def test_where_an_error_handler_goes_on_after_a_timeout_the_answer_is_applied(
    store_url: str, tmp_path: Path, native: bool
) -> None:
    async with open_bench("async", store_url, tmp_path) as bench:
        entries: list[str] = []
        if native:
            text = RootModel[str]
            bench.interrupts.register_interrupt("text", payload_schema=text, response_schema=text, nodes=("node",))
        node = hangs_once(None if native else bench.refunds(), entries, native=native)

        def handler(state: State, error: NodeError) -> dict[str, Any]:
            return {"log": ["handled"]}

        builder = StateGraph(State).add_node("node", node, timeout=0.3, error_handler=handler)
        graph, adapter = bench.compile(builder.add_edge(START, "node"))
        event = await ask(bench, graph, adapter)

        result = await adapter.ainvoke(event.pause_token, "yes" if native else YES)

        assert result["log"] == ["handled"]
        assert (bench.states(), await adapter.afailed()) == (["applied"], [])


# -- breakpoints


@pytest.mark.parametrize(
    "level", ["root", "per run", "per delivery", "subgraph", "two levels", "checkpointer=True", "after"]
)
@pytest.mark.filterwarnings("ignore:.*has plain breakpoints")
async def test_where_a_delivery_died_at_a_breakpoint_neither_recover_nor_deliver_runs_past_it(
    bench: Bench, level: str
) -> None:
    paid: list[str] = []

    def pay(state: State) -> dict[str, Any]:
        paid.append("paid")
        return {"log": ["paid"]}

    stop = {"interrupt_after": ["gate"]} if level == "after" else {"interrupt_before": ["pay"]}
    builder = row_of(("gate", gate(bench.refunds())), ("pay", pay))
    if level not in ("root", "per run", "per delivery"):
        keeps: Any = {"checkpointer": True} if level == "checkpointer=True" else {}
        builder = row_of(("sub", builder.compile(**stop, **keeps)), ("end", lambda state: {"log": ["end"]}))
    if level == "two levels":
        builder = row_of(("outer", builder.compile()))
    graph, adapter = bench.compile(builder, **(stop if level == "root" else {}))
    event = await ask(bench, graph, adapter)

    def die(place: str) -> None:
        if place == "run_ended":
            raise KeyboardInterrupt

    call: tuple[Any, ...] = ("invoke", event.pause_token, YES)
    if level == "per delivery":
        await bench.call(adapter, "answer", event.pause_token, YES)
        call = ("deliver", "t1")
    with failpoints(bench.interrupts, die), pytest.raises(KeyboardInterrupt):
        await bench.call(adapter, *call, **(stop if level.startswith("per") else {}))
    assert bench.rows(LEASES) == [("t1",)]

    await bench.call(adapter, "recover")
    assert paid == []
    assert bench.states() == ["applied"]
    await bench.call(adapter, "deliver", "t1")
    assert (paid, bench.rows(LEASES)) == ([], [])

    await bench.call(graph, "invoke", None, thread())
    assert paid == ["paid"]


# -- answers that LangGraph leaves behind


async def test_an_applied_answer_whose_step_new_input_leaves_out_ends_as_unused_and_says_so(bench: Bench) -> None:
    builder = StateGraph(State)
    point = bench.refunds()
    for name in ("left", "right"):
        builder.add_node(name, gate(point, name)).add_edge(START, name)
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", {"log": ["one"]}, thread())
    left = next(event for event in await bench.call(adapter, "pending") if event.payload["order"] == "left")
    await bench.call(adapter, "invoke", left.pause_token, YES, idempotency_key="k")
    assert (await bench.call(adapter, "view", left.interrupt_id)).state == "applied"

    await bench.call(graph, "invoke", {"log": ["two"]}, thread())

    assert (await bench.call(graph, "get_state", thread())).values["log"] == ["one", "two"]
    assert (await bench.call(adapter, "view", left.interrupt_id)).state == "unused"
    told = "SELECT body FROM interrupt_events WHERE type = 'interrupt_unused'"
    assert bench.rows(told) == [('{"dropped":true,"name":"approval"}',)]
    with pytest.raises(AnswerUnused):
        await bench.call(adapter, "invoke", left.pause_token, YES, idempotency_key="k")


async def test_an_applied_answer_of_a_step_that_was_complete_stays_applied_whatever_comes(bench: Bench) -> None:
    graph, adapter = bench.compile(row_of(("gate", gate(bench.refunds())), ("after", lambda state: {"log": ["after"]})))
    event = await ask(bench, graph, adapter)
    await bench.call(adapter, "invoke", event.pause_token, YES)

    await bench.call(graph, "invoke", {"log": ["more"]}, thread())

    assert (await bench.call(adapter, "view", event.interrupt_id)).state == "applied"


@pytest.mark.parametrize("below", [False, True], ids=["in the graph", "in a subgraph"])
async def test_a_native_question_that_was_answered_past_its_token_is_superseded(bench: Bench, below: bool) -> None:
    text = RootModel[str]
    where = "sub:node" if below else "node"
    point = bench.interrupts.register_interrupt("text", payload_schema=text, response_schema=text, nodes=(where,))

    def node(state: State) -> dict[str, Any]:
        return {"log": [interrupt("first?"), interrupt("second?")]}

    builder = row_of(("node", node))
    graph, adapter = bench.compile(row_of(("sub", builder.compile())) if below else builder)
    first = await ask(bench, graph, adapter)
    assert (first.payload, point.name) == ("first?", "text")
    # as a graph compiled without the adapter would: nothing looks at what a raw resume brings
    bare = (row_of(("sub", builder.compile())) if below else builder).compile(checkpointer=bench.saver)
    await bench.call(bare, "invoke", Command(resume="raw"), thread())

    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "answer", first.pause_token, "by token")


# -- payloads that differ at every pass


async def test_a_payload_that_differs_at_every_pass_is_told_at_once_and_refused_after_three_answers(
    bench: Bench,
) -> None:
    point = bench.refunds()
    passes = iter(range(100))

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order=f"SECRET{next(passes)}", amount=1)).note]}

    graph, adapter = bench.compile(row_of(("node", node)))
    event = await ask(bench, graph, adapter)
    for _ in range(2):
        with pytest.warns(
            UserWarning, match="approval: an answer did not fit what was asked next, which differs in: order;"
        ):
            await bench.call(adapter, "invoke", event.pause_token, YES)
        (event,) = await bench.call(adapter, "pending")
    with pytest.raises(PayloadInvalid, match="the payload must be computed the same way at every pass") as refused:
        await bench.call(adapter, "invoke", event.pause_token, YES)

    assert "SECRET" not in str(refused.value)
    bodies = "SELECT body FROM interrupt_events WHERE type = 'interrupt_drifted' ORDER BY id"
    told = [json.loads(body) for (body,) in bench.rows(bodies)]
    assert [(body["fields"], body["times"]) for body in told] == [(["order"], n) for n in (1, 2, 3)]
    assert await bench.call(adapter, "pending") == []
    assert [(f.thread_id, f.error_type) for f in await bench.call(adapter, "failed")] == [("t1", "PayloadInvalid")]
    assert await bench.call(adapter, "recover") == []


async def test_a_node_that_was_mended_after_three_answers_that_did_not_fit_asks_again(bench: Bench) -> None:
    point = bench.refunds()
    orders = ["a", "b", "c", "d", *["mended"] * 9]

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order=orders.pop(0), amount=1)).note]}

    graph, adapter = bench.compile(row_of(("node", node)))
    event = await ask(bench, graph, adapter)
    for _ in range(2):
        with pytest.warns(UserWarning, match="did not fit"):
            await bench.call(adapter, "invoke", event.pause_token, YES)
        (event,) = await bench.call(adapter, "pending")
    with pytest.raises(PayloadInvalid):
        await bench.call(adapter, "invoke", event.pause_token, YES)

    with pytest.warns(UserWarning, match="did not fit"):
        await bench.call(adapter, "deliver", "t1")
    (event,) = await bench.call(adapter, "pending")
    result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "at last"})

    assert (event.payload["order"], result["log"]) == ("mended", ["at last"])
    assert await bench.call(adapter, "failed") == []


async def test_a_second_question_after_an_answer_that_fits_is_no_drift(bench: Bench) -> None:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order=order, amount=1)).note for order in ("a", "b", "c", "d", "e")]}

    graph, adapter = bench.compile(row_of(("node", node)))
    event = await ask(bench, graph, adapter)
    for _ in range(4):
        await bench.call(adapter, "invoke", event.pause_token, YES)
        (event,) = await bench.call(adapter, "pending")

    result = await bench.call(adapter, "invoke", event.pause_token, YES)
    assert result["log"] == ["yes"] * 5
    assert bench.rows("SELECT type FROM interrupt_events WHERE type = 'interrupt_drifted'") == []
