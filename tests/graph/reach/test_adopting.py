"""Questions that were asked before this library came get tokens, and no node runs for it."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from symfonic_interrupts import (
    FrameworkConfig,
    FrameworkTenantScope,
    Interrupts,
    KeyRing,
    PauseSuperseded,
    ResumeRefused,
    ScopeRequired,
    TokenConsumed,
    UsageError,
)
from symfonic_interrupts.adapter.adopting import Adoption, NotAdopted
from tests.harness import ACME, KEY, Bench, Decision, Refund, thread

GLOBEX = FrameworkTenantScope("globex")


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


class Shop:
    """A graph whose node `gate` asks natively, as it ran before the library came; and how often a node's body began."""

    def __init__(self, *, times: int = 1, value: Any = None) -> None:
        self.begun = 0
        self.times = times
        self.value = {"order": "A1", "amount": 5} if value is None else value

    def gate(self, state: State) -> dict[str, Any]:
        self.begun += 1
        return {"log": [interrupt(self.value) for _ in range(self.times)]}

    def builder(self) -> StateGraph[State]:
        return StateGraph(State).add_node("gate", self.gate).add_edge(START, "gate")

    def nested(self) -> StateGraph[State]:
        below = StateGraph(State).add_node("mid", self.builder().compile()).add_edge(START, "mid")
        return StateGraph(State).add_node("sub", below.compile()).add_edge(START, "sub")

    def with_memory(self) -> StateGraph[State]:
        below = self.builder().compile(checkpointer=True)
        return StateGraph(State).add_node("sub", below).add_edge(START, "sub")

    def in_a_function(self) -> StateGraph[State]:
        quiet = StateGraph(State).add_node("quiet", lambda _: {"log": []}).add_edge(START, "quiet").compile()
        below = self.builder().compile()

        def both(state: State) -> dict[str, Any]:
            quiet.invoke({"log": []})
            return {"log": below.invoke({"log": []})["log"]}

        async def aboth(state: State) -> dict[str, Any]:
            await quiet.ainvoke({"log": []})
            return {"log": (await below.ainvoke({"log": []}))["log"]}

        return StateGraph(State).add_node("sub", RunnableLambda(both, aboth)).add_edge(START, "sub")


def cover(bench: Bench, *nodes: str, interrupts: Interrupts | None = None) -> None:
    (interrupts or bench.interrupts).register_interrupt(
        "native", payload_schema=Refund, response_schema=Decision, nodes=nodes or ("gate",)
    )


async def ask_natively(bench: Bench, builder: Any, *configs: dict[str, Any]) -> Any:
    """The graph over the bare saver, with these threads standing at their questions."""
    plain = builder.compile(checkpointer=bench.saver)
    for config in configs or (thread(),):
        await bench.call(plain, "invoke", {"log": []}, config)
    return plain


async def test_a_question_from_before_gets_a_token_that_answers_it_once_and_its_node_has_not_run_for_it(
    bench: Bench,
) -> None:
    shop = Shop()
    await ask_natively(bench, shop.builder())
    cover(bench)
    graph, adapter = bench.compile(shop.builder())
    assert await bench.call(adapter, "pending") == []

    report = await bench.call(adapter, "adopt")

    (event,) = report.adopted
    assert (event.name, event.payload, event.thread_id, report.left) == (
        "native",
        {"order": "A1", "amount": 5},
        "t1",
        (),
    )
    assert shop.begun == 1
    assert await bench.call(adapter, "pending") == [event]
    with pytest.raises(ResumeRefused):
        await bench.call(graph, "invoke", Command(resume={"approved": True}), thread())
    assert bench.states() == ["pending"]
    output = await bench.call(adapter, "invoke", event.pause_token, {"approved": True})
    assert output == {"log": [{"approved": True}]}
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", event.pause_token, {"approved": True})
    assert bench.states() == ["applied"]


@pytest.mark.parametrize(
    ("shape", "covered"),
    [("nested", "sub:mid:gate"), ("with_memory", "sub:gate"), ("in_a_function", "sub:gate")],
)
async def test_a_question_below_is_adopted_where_it_was_asked(bench: Bench, shape: str, covered: str) -> None:
    shop = Shop()
    builder = getattr(shop, shape)()
    await ask_natively(bench, builder)
    cover(bench, covered)
    graph, adapter = bench.compile(builder)

    (event,) = (await bench.call(adapter, "adopt", ["t1"])).adopted

    assert shop.begun == 1
    with pytest.raises(ResumeRefused):
        await bench.call(graph, "invoke", Command(resume={"approved": True}), thread())
    assert (await bench.call(adapter, "invoke", event.pause_token, {"approved": True}))["log"] == [{"approved": True}]
    assert bench.states() == ["applied"]


async def test_questions_side_by_side_are_adopted_each_and_answered_each_by_its_own_token(bench: Bench) -> None:
    def review(state: dict[str, Any]) -> dict[str, Any]:
        answer = interrupt({"order": state["order"], "amount": 1})
        return {"log": [(state["order"], answer["approved"])]}

    builder = StateGraph(State).add_node("gate", review)
    builder.add_conditional_edges(START, lambda _: [Send("gate", {"order": order}) for order in "AB"], ["gate"])
    await ask_natively(bench, builder)
    cover(bench)
    _, adapter = bench.compile(builder)

    events = (await bench.call(adapter, "adopt")).adopted

    assert sorted(event.payload["order"] for event in events) == ["A", "B"]
    for event in events:
        await bench.call(adapter, "answer", event.pause_token, {"approved": event.payload["order"] == "A"})
    output = (await bench.call(adapter, "deliver", "t1")).output
    assert sorted(tuple(entry) for entry in output["log"]) == [("A", True), ("B", False)]


async def test_adopting_again_changes_nothing_and_an_ended_pause_is_told_of(bench: Bench) -> None:
    shop = Shop()
    await ask_natively(bench, shop.builder())
    cover(bench)
    _, adapter = bench.compile(shop.builder())
    (event,) = (await bench.call(adapter, "adopt")).adopted

    assert await bench.call(adapter, "adopt") == Adoption()
    await bench.call(adapter, "revoke", event.interrupt_id, reason="to see")
    (left,) = (await bench.call(adapter, "adopt")).left

    assert (left.code, left.node, event.interrupt_id in left.reason) == ("ended", "gate", True)
    assert bench.states() == ["revoked"]


async def test_of_adopters_side_by_side_one_opens_each_question(bench: Bench) -> None:
    shop = Shop()
    ids = [f"t{n}" for n in range(4)]
    await ask_natively(bench, shop.builder(), *map(thread, ids))
    cover(bench)
    graph, adapter = bench.compile(shop.builder())

    reports = await asyncio.gather(
        *(bench.call(adapter, "adopt", ids) for _ in range(3)), bench.call(graph, "invoke", None, thread("t0"))
    )

    adopted = [event.thread_id for report in reports[:3] for event in report.adopted]
    assert sorted({*adopted, "t0"}) == ids
    assert len(adopted) == len(set(adopted))
    assert bench.states() == ["pending"] * 4
    assert [report.left for report in reports[:3]] == [()] * 3


async def test_a_run_that_goes_on_closes_what_was_adopted_meanwhile(bench: Bench) -> None:
    shop = Shop()
    plain = await ask_natively(bench, shop.builder())
    cover(bench)
    _graph, adapter = bench.compile(shop.builder())
    (event,) = (await bench.call(adapter, "adopt")).adopted
    # a process that does not know the library yet
    await bench.call(plain, "invoke", Command(resume={"approved": False}), thread())

    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "answer", event.pause_token, {"approved": True})
    assert bench.states() == ["superseded"]


async def test_a_thread_that_goes_on_while_it_is_adopted_keeps_no_open_pause(bench: Bench) -> None:
    shop = Shop()
    plain = await ask_natively(bench, shop.builder())
    cover(bench)
    _, adapter = bench.compile(shop.builder())
    reads: list[Any] = []
    whole, awhole = bench.saver.get_tuple, bench.saver.aget_tuple
    answer = Command(resume={"approved": False})

    def read(config: Any) -> Any:
        reads.append(config)
        if len(reads) == 2:  # the pause is opened, and its thread not looked at again
            plain.invoke(answer, thread())
        return whole(config)

    async def aread(config: Any) -> Any:
        reads.append(config)
        if len(reads) == 2:
            await plain.ainvoke(answer, thread())
        return await awhole(config)

    setattr(bench.saver, "get_tuple", read)  # noqa: B010 - mypy forbids to assign a method
    setattr(bench.saver, "aget_tuple", aread)  # noqa: B010
    report = await bench.call(adapter, "adopt", ["t1"])

    assert (report.adopted, [left.code for left in report.left]) == ((), ["moved_on"])
    assert bench.states() == ["superseded"]


async def test_the_scope_is_the_one_that_the_thread_names_and_a_given_one_only_fills_in(bench: Bench) -> None:
    shop = Shop()
    bare: dict[str, Any] = {"configurable": {"thread_id": "none"}}
    await ask_natively(bench, shop.builder(), thread("acme"), thread("globex", tenant_id="globex"), bare)
    strict = FrameworkConfig(experimental_interrupt=True)
    with Interrupts(bench.store_url, keys=KeyRing([KEY]), config=strict, clock=bench.clock) as interrupts:
        cover(bench, interrupts=interrupts)
        adapter = interrupts.resume_adapter(shop.builder().compile(checkpointer=interrupts.checkpointer(bench.saver)))

        given = await bench.call(adapter, "adopt", ["globex", "none"], scope=ACME)
        assert [event.thread_id for event in given.adopted] == ["none"]
        assert [(left.thread_id, left.code) for left in given.left] == [("globex", "scope_mismatch")]
        found = await bench.call(adapter, "adopt")

        assert sorted(event.thread_id for event in found.adopted) == ["acme", "globex"]
        assert [e.thread_id for e in await bench.call(adapter, "pending", scope=GLOBEX)] == ["globex"]
        await ask_natively(bench, shop.builder(), {"configurable": {"thread_id": "late"}})
        left = (await bench.call(adapter, "adopt")).left
        assert [(one.thread_id, one.code, one.node) for one in left] == [("late", "scope_required", "gate")]
        with pytest.raises(ScopeRequired):
            await bench.call(adapter, "adopt", scope="acme")
        if bench.mode == "async":
            await interrupts.aclose()


async def test_a_resolver_finds_the_scope_in_what_the_thread_keeps(bench: Bench) -> None:
    def resolve(config: Any) -> FrameworkTenantScope | None:
        org = config["configurable"].get("org")
        return None if org is None else FrameworkTenantScope(org)

    shop = Shop()
    await ask_natively(bench, shop.builder(), {"configurable": {"thread_id": "t1", "org": "globex"}})
    config = FrameworkConfig(experimental_interrupt=True, scope_resolver=resolve)
    with Interrupts(bench.store_url, keys=KeyRing([KEY]), config=config, clock=bench.clock) as interrupts:
        cover(bench, interrupts=interrupts)
        adapter = interrupts.resume_adapter(shop.builder().compile(checkpointer=interrupts.checkpointer(bench.saver)))

        assert len((await bench.call(adapter, "adopt")).adopted) == 1
        assert len(await bench.call(adapter, "pending", scope=GLOBEX)) == 1
        if bench.mode == "async":
            await interrupts.aclose()


async def test_what_cannot_be_adopted_is_reported_and_nothing_is_opened(bench: Bench) -> None:
    free = StateGraph(State).add_node("free", Shop().gate).add_edge(START, "free")
    await ask_natively(bench, free)
    wrong = Shop(value={"order": "secret"})
    await ask_natively(bench, wrong.builder(), thread("t2"))
    twice = Shop(times=2)
    plain = await ask_natively(bench, twice.builder(), thread("t3"))
    await bench.call(plain, "invoke", Command(resume={"approved": True}), thread("t3"))
    builder = twice.builder().add_node("free", Shop().gate)
    cover(bench)
    graph, adapter = bench.compile(builder)

    report = await bench.call(adapter, "adopt", ["t1", "t2", "t3", "none"])

    assert report.adopted == ()
    assert [(left.thread_id, left.code, left.node) for left in report.left] == [
        ("t1", "uncovered", "free"),
        ("t2", "payload_invalid", "gate"),
        ("t3", "answered_before", None),
        ("none", "checkpoint_missing", None),
    ]
    assert isinstance(report.left[0], NotAdopted)
    assert "secret" not in repr(report)
    assert bench.states() == []
    # as the report says: run again, the questions of the third are asked anew
    await bench.call(graph, "invoke", None, thread("t3"))
    assert len(await bench.call(adapter, "pending", thread_id="t3")) == 1


async def test_one_threads_broken_checkpoint_does_not_hold_up_the_others(bench: Bench) -> None:
    shop = Shop()
    await ask_natively(bench, shop.builder(), thread("t1"), thread("t2"))
    cover(bench)
    _graph, adapter = bench.compile(shop.builder())
    read = "aget_tuple" if bench.mode == "async" else "get_tuple"
    whole = getattr(bench.saver, read)

    def broken(config: Any) -> Any:
        if config["configurable"]["thread_id"] == "t1":
            raise OSError("the disk")
        return whole(config)

    setattr(bench.saver, read, broken)

    report = await bench.call(adapter, "adopt", ["t1", "t2"])

    assert [event.thread_id for event in report.adopted] == ["t2"]
    assert [(left.thread_id, left.code) for left in report.left] == [("t1", "unreadable")]
    assert "disk" not in repr(report)


@pytest.mark.parametrize("bad", ["t1", b"t1", 5, {"t1": 1}, ["t1", ""], [None], [5]], ids=repr)
async def test_what_is_no_list_of_thread_ids_is_refused(bench: Bench, bad: Any) -> None:
    cover(bench)
    _, adapter = bench.compile(Shop().builder())

    with pytest.raises(UsageError, match="thread_ids"):
        await bench.call(adapter, "adopt", bad)
    assert await bench.call(adapter, "adopt", []) == Adoption()


async def test_no_thread_and_threads_that_wait_for_nothing_are_no_work(bench: Bench) -> None:
    cover(bench)
    _, adapter = bench.compile(Shop().builder())
    assert await bench.call(adapter, "adopt") == Adoption()

    done = StateGraph(State).add_node("gate", lambda _: {"log": [1]}).add_edge(START, "gate")
    await ask_natively(bench, done)
    assert await bench.call(adapter, "adopt") == Adoption()
