"""Ways in which an accepted answer was once lost, doubled or misplaced. Each test says what must hold."""

from __future__ import annotations

import asyncio
import itertools
import operator
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel, Field

from symfonic_interrupts import Interrupts, KeyRing, PayloadInvalid, ResponseInvalid, UsageError
from tests.harness import CONFIG, KEY, Bench, Refund, pauses, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def test_an_answer_that_comes_while_its_task_runs_is_not_asked_for_again(bench: Bench) -> None:
    point = bench.refunds()
    meanwhile: list[Callable[[], Any]] = []
    armed, accepted = threading.Event(), threading.Event()

    @tool
    def refund(order: str) -> str:
        """Refund an order."""
        if order == "A" and meanwhile:
            meanwhile.pop()()
            accepted.set()
        elif armed.is_set():
            accepted.wait(30)  # B and C do not end the pass before the answer has come
        return f"{order}: {point.pause(Refund(order=order, amount=1)).note}"

    builder = StateGraph(MessagesState).add_node("tools", ToolNode([refund])).add_edge(START, "tools")
    graph, adapter = bench.compile(builder)
    calls = [{"name": "refund", "args": {"order": o}, "id": o, "type": "tool_call"} for o in "ABC"]
    await bench.call(graph, "invoke", {"messages": [AIMessage("", tool_calls=calls)]}, thread())
    for _ in range(20):  # a call that was slower than the task's write asks in the next pass
        asked = {event.payload["order"]: event for event in await bench.call(adapter, "pending")}
        if len(asked) == 3:
            break
        await bench.call(graph, "invoke", None, thread())
    answers = {order: {"approved": True, "note": f"first {order}"} for order in "ABC"}
    loop = asyncio.get_running_loop()

    def answer_c() -> None:  # from within the run that the answer to B has started
        if bench.mode == "sync":
            adapter.answer(asked["C"].pause_token, answers["C"])
        else:
            asyncio.run_coroutine_threadsafe(adapter.aanswer(asked["C"].pause_token, answers["C"]), loop).result(30)

    meanwhile.append(answer_c)
    armed.set()
    await bench.call(adapter, "invoke", asked["B"].pause_token, answers["B"])

    assert [event.payload["order"] for event in await bench.call(adapter, "pending")] == ["A"]
    (last,) = await bench.call(adapter, "pending")
    result = await bench.call(adapter, "invoke", last.pause_token, answers["A"])
    assert [m.content for m in result["messages"][1:]] == ["A: first A", "B: first B", "C: first C"]
    assert sorted(bench.states()) == ["applied"] * 3


async def test_two_graphs_with_one_thread_id_keep_their_questions_apart(bench: Bench) -> None:
    point = bench.refunds()
    asked, go_on = threading.Event(), threading.Event()

    def slow(state: State) -> dict[str, Any]:
        try:
            return {"log": [point.pause(Refund(order="A", amount=1)).note]}
        finally:
            asked.set()
            go_on.wait(30)

    one, adapter = bench.compile(StateGraph(State).add_node("slow", slow).add_edge(START, "slow"), graph="one")
    other_saver = InMemorySaver()
    builder = StateGraph(State).add_node("quick", lambda state: {"log": ["quick"]}).add_edge(START, "quick")
    other = builder.compile(checkpointer=bench.interrupts.checkpointer(other_saver, graph="other"))

    run = asyncio.create_task(bench.call(one, "invoke", {"log": []}, thread()))
    await asyncio.to_thread(asked.wait, 30)
    assert await bench.call(other, "invoke", {"log": []}, thread()) == {"log": ["quick"]}
    go_on.set()
    await run

    (event,) = await bench.call(adapter, "pending")
    assert (await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "ok"}))["log"] == ["ok"]


ASK_ONCE = """
import sys
from pydantic import BaseModel
from symfonic_interrupts.errors import PayloadInvalid
from symfonic_interrupts.registration import InterruptRegistration
class Tags(BaseModel):
    tags: set[str] | list[str]
point = InterruptRegistration(name="tags", payload_schema=Tags, response_schema=Tags)
try:
    print(point.payload_text(Tags(tags={"a", "b", "c", "d", "e"})))
except PayloadInvalid as error:
    print("refused" if "set has no order" in str(error) else error)
"""


def test_a_payload_whose_json_differs_between_processes_is_refused() -> None:
    found = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", ASK_ONCE], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        found.add(run.stdout.strip())
    assert found == {"refused"}


async def test_an_answer_used_in_a_subgraph_under_durability_exit_is_applied_by_whoever_finishes(bench: Bench) -> None:
    def build(interrupts: Interrupts) -> tuple[Any, Any]:
        point = interrupts.register_interrupt("gates", payload_schema=Refund, response_schema=Answer)

        def gate(order: str) -> Any:
            return lambda state: {"log": [point.pause(Refund(order=order, amount=1)).note]}

        child = StateGraph(State).add_node("g1", gate("one")).add_node("g2", gate("two"))
        child.add_edge(START, "g1").add_edge("g1", "g2")
        builder = StateGraph(State).add_node("sub", child.compile()).add_edge(START, "sub")
        graph = builder.compile(checkpointer=interrupts.checkpointer(bench.saver))
        return graph, interrupts.resume_adapter(graph)

    graph, adapter = build(bench.interrupts)
    await bench.call(graph, "invoke", {"log": []}, thread(), durability="exit")
    (first,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "invoke", first.pause_token, {"note": "1"}, durability="exit")
    assert await bench.call(adapter, "recover") == []
    fresh = Interrupts(bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=bench.clock)
    _, later = build(fresh)
    (second,) = await bench.call(later, "pending")

    result = await bench.call(later, "invoke", second.pause_token, {"note": "2"}, durability="exit")

    assert result["log"] == ["1", "2"]
    assert bench.states() == ["applied", "applied"]
    fresh.close()


class Answer(BaseModel):
    note: str = ""


NUMBERS = itertools.count()


class Numbered(BaseModel):
    ok: bool
    number: int = Field(default_factory=lambda: next(NUMBERS))


async def test_a_default_made_anew_at_each_reading_is_made_once_for_an_answer(bench: Bench) -> None:
    point = bench.interrupts.register_interrupt("numbered", payload_schema=Refund, response_schema=Numbered)
    seen: list[int] = []

    def node(state: State) -> dict[str, Any]:
        approval = point.ask(Refund(order="A", amount=1))
        seen.append(approval.response.number)
        seen.append(point.require(approval.model_dump(mode="json"), Refund(order="A", amount=1)).number)
        point.pause(Refund(order="B", amount=1))
        return {"log": []}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    for _ in range(2):
        (event,) = await bench.call(adapter, "pending")
        await bench.call(adapter, "invoke", event.pause_token, {"ok": True})

    assert len(seen) == 4
    assert len(set(seen)) == 1


async def test_a_later_node_that_fails_leaves_the_answer_before_it_applied(bench: Bench) -> None:
    point = bench.refunds()
    fails = [True]

    def later(state: State) -> dict[str, Any]:
        if fails[0]:
            raise LookupError("away")
        return {"log": ["later"]}

    builder = StateGraph(State).add_node("gate", lambda s: {"log": [point.pause(Refund(order="A", amount=1)).note]})
    graph, adapter = bench.compile(builder.add_node("later", later).add_edge(START, "gate").add_edge("gate", "later"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(LookupError):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "kept"})
    assert bench.states() == ["applied"]

    fails[0] = False
    assert (await bench.call(adapter, "deliver", "t1")).output["log"] == ["kept", "later"]


async def test_an_answer_that_the_finishing_pass_did_without_is_unused(bench: Bench) -> None:
    point = bench.refunds()
    mood = ["ask and fail"]

    def node(state: State) -> dict[str, Any]:
        if mood[0] == "do not ask":
            return {"log": ["no need"]}
        decision = point.pause(Refund(order="A", amount=1))
        raise LookupError(decision.note)

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(LookupError):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True})
    mood[0] = "do not ask"

    delivery = await bench.call(adapter, "deliver", "t1")

    assert delivery.output["log"] == ["no need"]
    assert (delivery.applied, delivery.unused) == ((), (event.interrupt_id,))
    assert bench.states() == ["unused"]


class Number(BaseModel):
    n: int


async def test_an_integer_that_no_checkpoint_can_hold_is_refused_before_the_pause_is_opened(bench: Bench) -> None:
    point = bench.interrupts.register_interrupt("number", payload_schema=Number, response_schema=Number)
    builder = StateGraph(State).add_node("node", lambda s: {"log": [str(point.pause(Number(n=2**64)).n)]})
    graph, _ = bench.compile(builder.add_edge(START, "node"))

    with pytest.raises(PayloadInvalid, match="64 bit"):
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert bench.states() == []


async def test_a_wrong_thread_in_the_config_is_refused_before_the_token_is_spent(bench: Bench) -> None:
    point = bench.refunds()
    builder = StateGraph(State).add_node("gate", lambda s: {"log": [point.pause(Refund(order="A", amount=1)).note]})
    graph, adapter = bench.compile(builder.add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    wrong = {"configurable": {"thread_id": "other"}}
    with pytest.raises(UsageError, match="another thread"):
        await bench.call(adapter, "invoke", event.pause_token, {"approved": True}, config=wrong)

    assert bench.states() == ["pending"]
    assert bench.rows("SELECT * FROM interrupt_thread_leases") == []


async def test_a_run_of_another_tenant_on_the_thread_is_not_told_the_token(bench: Bench) -> None:
    point = bench.refunds()
    builder = StateGraph(State).add_node("gate", lambda s: {"log": [point.pause(Refund(order="A", amount=1)).note]})
    graph, _ = bench.compile(builder.add_edge(START, "gate"))
    assert len(pauses(await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode="custom"))) == 1

    chunks = await bench.collect(graph, "stream", None, thread(tenant_id="globex"), stream_mode="custom")

    assert pauses(chunks) == []
    assert bench.states() == ["pending"]


async def test_a_lease_made_up_by_a_client_counts_for_nothing(bench: Bench) -> None:
    point = bench.refunds()
    builder = StateGraph(State).add_node("gate", lambda s: {"log": [point.pause(Refund(order="A", amount=1)).note]})
    graph, adapter = bench.compile(builder.add_edge(START, "gate"))

    await bench.call(
        graph, "invoke", {"log": []}, thread(__symfonic_lease="x", __symfonic_scope={"tenant_id": "globex"})
    )

    (event,) = await bench.call(adapter, "pending")
    assert (await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "ok"}))["log"] == ["ok"]


@pytest.mark.parametrize("field", ["actor", "idempotency_key"])
@pytest.mark.parametrize("text", ["", "a\x00b", "a\ud800", "x" * 256, 7])
async def test_an_actor_or_key_that_no_database_can_hold_spends_nothing(bench: Bench, field: str, text: Any) -> None:
    point = bench.refunds()
    builder = StateGraph(State).add_node("gate", lambda s: {"log": [point.pause(Refund(order="A", amount=1)).note]})
    graph, adapter = bench.compile(builder.add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    with pytest.raises(UsageError, match=field):
        await bench.call(adapter, "answer", event.pause_token, {"approved": True}, **{field: text})
    assert bench.states() == ["pending"]


async def test_what_was_sent_is_in_no_traceback_of_a_refused_answer_and_in_no_repr(bench: Bench) -> None:
    point = bench.refunds()
    builder = StateGraph(State).add_node(
        "gate", lambda s: {"log": [point.pause(Refund(order="PAYSECRET", amount=1)).note]}
    )
    graph, adapter = bench.compile(builder.add_edge(START, "gate"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    with pytest.raises(ResponseInvalid) as refused:
        await bench.call(adapter, "answer", event.pause_token, {"approved": "RESPSECRET"})

    chain: BaseException | None = refused.value
    told = ""
    while chain is not None:
        told += str(chain) + repr(chain) + "".join(traceback.format_exception_only(chain))
        chain = chain.__context__ or chain.__cause__
    told += repr(event) + repr(await bench.call(adapter, "inspect", event.pause_token))
    told += repr(await bench.call(adapter, "deliver", "t1"))
    assert "RESPSECRET" not in told
    assert "PAYSECRET" not in told


CHILD = Path(__file__).with_name("killed_in_a_subgraph.py")


def test_a_process_killed_in_a_subgraph_after_the_answered_node_is_finished_by_recovery(tmp_path: Path) -> None:
    store, saver = str(tmp_path / "i.db"), str(tmp_path / "c.db")
    for part, code in (("ask", 0), ("answer and die", -9)):
        run = subprocess.run(
            [sys.executable, str(CHILD), part, store, saver], capture_output=True, text=True, timeout=60
        )
        assert run.returncode == code, run.stderr
    run = subprocess.run(
        [sys.executable, str(CHILD), "recover", store, saver], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["yes,next,last", "applied", "0"]
