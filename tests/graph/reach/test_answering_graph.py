"""A graph that takes `Command(resume=...)` as an answer: clients that know nothing of tokens, and every guarantee kept."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from symfonic_interrupts import FrameworkTenantScope, Identity
from symfonic_interrupts.errors import (
    PauseSuperseded,
    RegistrationError,
    ResponseInvalid,
    ScopeMismatch,
    TokenConsumed,
    UsageError,
)
from tests.harness import Bench, Refund, thread

YES = {"approved": True, "note": ""}
MODES: list[Any] = ["values", "updates", ["values", "updates"], ["values", "updates", "custom"]]


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


def asks(ask: Any, order: str) -> Any:
    def node(state: State) -> dict[str, Any]:
        return {"log": [f"{order}:{ask(order)}"]}

    return node


def two_questions(bench: Bench) -> StateGraph[State]:
    """A, and then B."""
    point = bench.refunds()

    def ask(order: str) -> bool:
        return bool(point.pause(Refund(order=order, amount=1)).approved)

    builder = StateGraph(State).add_node("a", asks(ask, "A")).add_node("b", asks(ask, "B"))
    return builder.add_edge(START, "a").add_edge("a", "b")


def side_by_side(bench: Bench) -> StateGraph[State]:
    """A and B at once."""
    point = bench.refunds()

    def ask(order: str) -> bool:
        return bool(point.pause(Refund(order=order, amount=1)).approved)

    builder = StateGraph(State).add_node("a", asks(ask, "A")).add_node("b", asks(ask, "B"))
    return builder.add_edge(START, "a").add_edge(START, "b")


def shown(output: Any) -> list[Any]:
    """What the questions show that a run's output ends with."""
    return [i.value["payload"]["order"] for i in output.get("__interrupt__", ())]


async def test_a_conversation_goes_as_langgraph_documents_it_say_and_each_answer_counts_once(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph()

    assert shown(await bench.call(served, "invoke", {"log": []}, thread())) == ["A"]
    output = await bench.call(served, "invoke", Command(resume=YES), thread())
    assert (output["log"], shown(output)) == (["A:True"], ["B"])
    (asked,) = (await bench.call(served, "get_state", thread())).interrupts
    output = await bench.call(served, "invoke", Command(resume={asked.id: {"approved": False}}), thread())
    assert output == {"log": ["A:True", "B:False"]}

    again = await bench.call(served, "invoke", Command(resume={asked.id: YES}), thread())
    assert again == {"log": ["A:True", "B:False"]}
    assert bench.states() == ["applied", "applied"]


@pytest.mark.parametrize("modes", MODES, ids=str)
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_stream_of_an_answer_is_the_stream_that_the_graph_gives_natively(
    bench: Bench, modes: Any, version: str
) -> None:
    def native(order: str) -> bool:
        return bool(interrupt({"order": order})["approved"])

    builder = StateGraph(State).add_node("a", asks(native, "A")).add_node("b", asks(native, "B"))
    plain = builder.add_edge(START, "a").add_edge("a", "b").compile(checkpointer=InMemorySaver())
    _, adapter = bench.compile(two_questions(bench))
    options = {"stream_mode": modes, "version": version}

    seen = []
    for graph in (plain, adapter.as_graph()):
        await bench.call(graph, "invoke", {"log": []}, thread())
        chunks = await bench.collect(graph, "stream", Command(resume=YES), thread(), **options)
        seen.append([outline(chunk) for chunk in chunks])

    # our own events come beside LangGraph's chunks, on `custom`
    assert [o for o in seen[1] if "custom" not in o] == seen[0]


def outline(chunk: Any) -> str:
    """A chunk without what differs from run to run: ids, and what a question shows."""
    if isinstance(chunk, tuple):
        return " ".join(outline(part) for part in chunk)
    if isinstance(chunk, dict):
        return str({k: "..." if k in ("__interrupt__", "interrupts") and v else outline(v) for k, v in chunk.items()})
    return str(chunk) if isinstance(chunk, str | list) else type(chunk).__name__


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol on Pregel is experimental")
async def test_a_run_of_events_streams_an_answer(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())

    if bench.mode == "sync":
        run: Any = await asyncio.to_thread(served.stream_events, Command(resume=YES), thread(), version="v3")
        assert run.output["log"] == ["A:True"]
        return
    events = [event async for event in served.astream_events(Command(resume=YES), thread(), version="v2")]
    assert events[-1]["data"]["output"]["log"] == ["A:True"]
    run = await served.astream_events(Command(resume=YES), thread(), version="v3")
    assert (await run.output())["log"] == ["A:True", "B:True"]


async def test_an_answer_that_does_not_fit_asks_again_with_the_reason_and_spends_nothing(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())

    output = await bench.call(served, "invoke", Command(resume={"approved": "secret"}), thread())
    (asked,) = output["__interrupt__"]
    assert asked.value["payload"]["order"] == "A"
    assert asked.value["refused"]["code"] == "response_invalid"
    assert asked.value["refused"]["errors"][0]["loc"] == ["approved"]
    assert "secret" not in str(output)

    chunks = await bench.collect(served, "stream", Command(resume=7), thread(), stream_mode=["custom", "values"])
    assert [mode for mode, _ in chunks] == ["custom", "values"]
    assert (chunks[0][1]["type"], chunks[0][1]["code"]) == ("answer_refused", "response_invalid")

    with pytest.raises(ResponseInvalid):
        await bench.call(adapter.as_graph(on_refused="raise"), "invoke", Command(resume=7), thread())
    assert bench.states() == ["pending"]
    assert (await bench.call(served, "invoke", Command(resume=YES), thread()))["log"] == ["A:True"]


async def test_of_several_questions_a_bare_answer_is_refused_and_ids_answer_them_in_one_go(bench: Bench) -> None:
    _, adapter = bench.compile(side_by_side(bench))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())

    with pytest.raises(UsageError, match="2 questions wait"):
        await bench.call(served, "invoke", Command(resume=YES), thread())
    first, second = sorted(
        (await bench.call(served, "get_state", thread())).interrupts, key=lambda i: i.value["payload"]["order"]
    )
    both = {first.id: YES, second.value["interrupt_id"]: {"approved": False}}
    output = await bench.call(served, "invoke", Command(resume=both), thread())
    assert sorted(output["log"]) == ["A:True", "B:False"]


async def test_one_bad_answer_of_several_spends_none(bench: Bench) -> None:
    _, adapter = bench.compile(side_by_side(bench))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())
    first, second = (await bench.call(served, "get_state", thread())).interrupts

    output = await bench.call(served, "invoke", Command(resume={first.id: YES, second.id: {}}), thread())
    assert len(output["__interrupt__"]) == 2
    assert bench.states() == ["pending", "pending"]


async def test_bare_answers_can_be_switched_off(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph(bare=False)
    await bench.call(served, "invoke", {"log": []}, thread())
    with pytest.raises(UsageError, match="bare"):
        await bench.call(served, "invoke", Command(resume=YES), thread())
    assert bench.states() == ["pending"]


@pytest.mark.parametrize(
    "command",
    [
        Command(resume=YES, update={"log": ["x"]}),
        Command(resume=YES, goto="b"),
        Command(resume=YES, graph=Command.PARENT),
    ],
    ids=["update", "goto", "graph"],
)
async def test_an_answer_comes_alone(bench: Bench, command: Any) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())
    with pytest.raises(UsageError, match="alone"):
        await bench.call(served, "invoke", command, thread())
    assert bench.states() == ["pending"]


async def test_an_old_checkpoint_takes_no_answer(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())
    old = (await bench.call(served, "get_state", thread())).config
    await bench.call(served, "invoke", Command(resume=YES), thread())
    with pytest.raises(UsageError, match="checkpoint_id"):
        await bench.call(served, "invoke", Command(resume=YES), old)
    assert bench.states() == ["applied", "pending"]


async def test_new_input_and_none_pass_as_they_are(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())
    assert shown(await bench.call(served, "invoke", None, thread())) == ["A"]
    assert shown(await bench.call(served, "invoke", {"log": ["new"]}, thread())) == ["A"]
    assert bench.states() == ["superseded", "pending"]


async def test_three_bare_answers_at_once_count_once(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())

    outputs = await asyncio.gather(*(bench.call(served, "invoke", Command(resume=YES), thread()) for _ in range(3)))

    assert bench.states() == ["applied", "pending"]
    state = await bench.call(served, "get_state", thread())
    assert state.values["log"] == ["A:True"]
    assert any(shown(output) == ["B"] and output["log"] == ["A:True"] for output in outputs)


async def test_an_id_of_a_question_that_is_over_is_refused(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph(on_refused="raise")
    await bench.call(served, "invoke", {"log": []}, thread())
    (old,) = (await bench.call(served, "get_state", thread())).interrupts
    await bench.call(served, "invoke", {"log": ["new"]}, thread())
    with pytest.raises(PauseSuperseded):
        await bench.call(served, "invoke", Command(resume={old.id: YES}), thread())
    assert bench.states() == ["superseded", "pending"]


async def test_an_answer_that_is_stored_and_not_delivered_refuses_another(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph(on_refused="raise")
    await bench.call(served, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    await bench.call(adapter, "answer", event.pause_token, YES)

    for resume in (YES, {event.interrupt_id: YES}):
        with pytest.raises(TokenConsumed):
            await bench.call(served, "invoke", Command(resume=resume), thread())
    await bench.call(adapter, "deliver", "t1")
    assert bench.states() == ["applied", "pending"]


def who(config: Mapping[str, Any]) -> Identity:
    user = config["configurable"]["user"]
    return Identity(FrameworkTenantScope(user["tenant"]), actor=user["name"])


async def test_the_scope_and_the_actor_are_those_that_identity_names(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph(identity=who)
    kim = thread(tenant_id="acme", user={"tenant": "acme", "name": "kim"})
    eve = thread(tenant_id="acme", user={"tenant": "globex", "name": "eve"})
    await bench.call(served, "invoke", {"log": []}, kim)

    (asked,) = (await bench.call(served, "get_state", thread())).interrupts
    for resume in (YES, {asked.id: YES}, {asked.value["interrupt_id"]: YES}):
        with pytest.raises(ScopeMismatch) as refused:
            await bench.call(served, "invoke", Command(resume=resume), eve)
        assert "approval" not in str(refused.value)
    assert bench.states() == ["pending"]
    assert (await bench.call(served, "invoke", Command(resume=YES), kim))["log"] == ["A:True"]
    assert bench.rows("SELECT actor FROM interrupt_consumed_tokens") == [("kim",)]


async def test_an_identity_that_is_none_is_refused_by_name(bench: Bench) -> None:
    _, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph(identity=lambda _: "kim")  # type: ignore[arg-type,return-value]
    await bench.call(served, "invoke", {"log": []}, thread())
    with pytest.raises(RegistrationError, match="identity must return an Identity"):
        await bench.call(served, "invoke", Command(resume=YES), thread())


async def test_copies_answer_through_themselves_and_a_saver_that_is_not_ours_is_refused(bench: Bench) -> None:
    graph, adapter = bench.compile(two_questions(bench))
    served = adapter.as_graph(identity=who)
    assert isinstance(served, CompiledStateGraph)
    copies = [
        served.copy(),
        served.with_config(tags=["t"]),
        served.copy({"checkpointer": bench.interrupts.checkpointer(bench.saver)}),
    ]
    for number, copy in enumerate(copies):
        config = thread(f"copy-{number}", user={"tenant": "acme", "name": f"kim-{number}"})
        await bench.call(copy, "invoke", {"log": []}, config)
        assert (await bench.call(copy, "invoke", Command(resume=YES), config))["log"] == ["A:True"]

    for other in (InMemorySaver(), None, bench.interrupts.checkpointer(bench.saver, graph="another")):
        with pytest.raises(RegistrationError, match="runs only over"):
            await bench.call(served.copy({"checkpointer": other}), "invoke", {"log": []}, thread())
    assert adapter.as_graph(checkpointer=False).checkpointer is None
    assert graph.get_graph().to_json() == served.get_graph().to_json()
    assert served.get_input_jsonschema() == graph.get_input_jsonschema()


async def test_native_questions_that_no_point_covers_go_on_as_in_langgraph(bench: Bench) -> None:
    def native(order: str) -> Any:
        return interrupt({"order": order})

    builder = StateGraph(State).add_node("a", asks(native, "A")).add_node("b", asks(native, "B"))
    _, adapter = bench.compile(builder.add_edge(START, "a").add_edge("a", "b"))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())
    assert (await bench.call(served, "invoke", Command(resume="x"), thread()))["log"] == ["A:x"]
    (asked,) = (await bench.call(served, "get_state", thread())).interrupts
    assert await bench.call(served, "invoke", Command(resume={asked.id: "y"}), thread()) == {"log": ["A:x", "B:y"]}


async def test_natively_covered_questions_are_answered_with_their_schema(bench: Bench) -> None:
    def native(order: str) -> Any:
        return interrupt({"order": order, "amount": 1})["approved"]

    bench.refunds(nodes=("a",))
    _, adapter = bench.compile(StateGraph(State).add_node("a", asks(native, "A")).add_edge(START, "a"))
    served = adapter.as_graph()
    await bench.call(served, "invoke", {"log": []}, thread())
    output = await bench.call(served, "invoke", Command(resume="no decision"), thread())
    assert output["__interrupt__"][0].value["refused"]["code"] == "response_invalid"
    assert await bench.call(served, "invoke", Command(resume=YES), thread()) == {"log": ["A:True"]}
