"""Static breakpoints that are points: proceed, change the state, or go elsewhere; and plain ones are warned of."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send
from pydantic import BaseModel
from typing_extensions import TypedDict

from symfonic_interrupts import Interrupts, RegistrationError, ResponseInvalid, TokenConsumed
from symfonic_interrupts.asking.breakpoint_nodes import BreakpointAnswer
from tests.harness import Bench, pauses, thread


@pytest.fixture
def interrupts(tmp_path: Path) -> Iterator[Interrupts]:
    """Without a graph."""
    with Interrupts.local(tmp_path / "i.db") as made:
        yield made


class State(TypedDict, total=False):
    amount: int
    log: Annotated[list[Any], operator.add]


INPUT = {"amount": 5, "log": []}


def writes(word: str) -> Any:
    def node(state: State) -> dict[str, Any]:
        return {"log": [f"{word} {state['amount']}"]}

    return node


def shop() -> StateGraph[State]:
    """`check`, then `pay`, then `send`; `stop` is where nobody is led."""
    builder = StateGraph(State)
    for name in ("check", "pay", "send", "stop"):
        builder.add_node(name, writes(name))
    return builder.add_edge(START, "check").add_edge("check", "pay").add_edge("pay", "send")


def show(state: State) -> dict[str, Any]:
    return {"amount": state["amount"]}


async def asked(bench: Bench, builder: Any, given: Any = None, **options: Any) -> tuple[Any, Any, Any]:
    """The graph, its adapter, and the one question at which it stops."""
    graph, adapter = bench.compile(builder, **options)
    stream = {"stream_mode": ["updates", "custom"]}
    (event,) = pauses(await bench.collect(graph, "stream", given or INPUT, thread(), **stream))
    return graph, adapter, event


def proceed(**more: Any) -> dict[str, Any]:
    return {"proceed": True, **more}


@pytest.mark.parametrize(
    ("when", "before_it"), [("before", ["check 5"]), ("after", ["check 5", "pay 5"])], ids=["before", "after"]
)
async def test_a_graph_stops_at_a_breakpoint_and_goes_on_with_an_answer_once(
    bench: Bench, when: Any, before_it: list[str]
) -> None:
    builder = shop()
    bench.interrupts.breakpoint(builder, **{when: ["pay"]}, show=show)
    graph, adapter, event = await asked(bench, builder)
    assert (event.name, event.payload) == ("breakpoint", {"node": "pay", "when": when, "shown": {"amount": 5}})
    assert (await bench.call(graph, "get_state", thread())).values["log"] == before_it

    await bench.call(graph, "invoke", None, thread())
    assert (await bench.call(graph, "get_state", thread())).values["log"] == before_it
    output = await bench.call(adapter, "invoke", event.pause_token, proceed())

    assert output == {"amount": 5, "log": ["check 5", "pay 5", "send 5"]}
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", event.pause_token, proceed())
    assert bench.states() == ["applied"]


async def test_a_change_of_the_state_is_what_the_node_sees_and_stays_in_the_state(bench: Bench) -> None:
    builder = shop()
    bench.interrupts.breakpoint(builder, before=["pay"], after=["send"], show=show, may_change=["amount", "log"])
    _graph, adapter, event = await asked(bench, builder)

    answer = proceed(update={"amount": 7, "log": ["changed"]})
    output = await bench.call(adapter, "invoke", event.pause_token, answer)
    assert output["log"] == ["check 5", "changed", "pay 7", "send 7"]
    (after,) = await bench.call(adapter, "pending")
    output = await bench.call(adapter, "invoke", after.pause_token, proceed(update={"amount": 9}))

    assert output == {"amount": 9, "log": ["check 5", "changed", "pay 7", "send 7"]}


async def test_a_node_sees_a_change_as_the_reducer_of_its_key_makes_it(bench: Bench) -> None:
    def count(state: State) -> dict[str, Any]:
        return {"log": [f"saw {state['log']}"]}

    builder = StateGraph(State).add_node("pay", count).add_edge(START, "pay")
    bench.interrupts.breakpoint(builder, before=["pay"], may_change=["log"])
    _, adapter, event = await asked(bench, builder, {"amount": 5, "log": ["given"]})

    output = await bench.call(adapter, "invoke", event.pause_token, proceed(update={"log": ["changed"]}))

    assert output["log"] == ["given", "changed", "saw ['given', 'changed']"]


async def test_what_a_node_returns_itself_comes_after_the_change(bench: Bench) -> None:
    def double(state: State) -> Command[Literal["send"]]:
        return Command(update={"amount": state["amount"] * 2, "log": ["doubled"]}, goto="send")

    builder = StateGraph(State).add_node("pay", double).add_node("send", writes("send")).add_edge(START, "pay")
    bench.interrupts.breakpoint(builder, before=["pay"], may_change=["amount", "log"])
    _, adapter, event = await asked(bench, builder)

    output = await bench.call(adapter, "invoke", event.pause_token, proceed(update={"amount": 7, "log": ["changed"]}))

    assert output == {"amount": 14, "log": ["changed", "doubled", "send 14"]}


class Model(BaseModel):
    amount: int = 0
    log: Annotated[list[Any], operator.add] = []


@dataclass
class Record:
    amount: int
    log: Annotated[list[Any], operator.add]


@pytest.mark.parametrize("schema", [Model, Record])
async def test_a_state_of_another_kind_is_changed_too(bench: Bench, schema: Any) -> None:
    def node(state: Any) -> dict[str, Any]:
        assert isinstance(state, schema)
        return {"log": [f"pay {state.amount}"]}

    builder = StateGraph(schema).add_node("pay", node).add_edge(START, "pay")
    bench.interrupts.breakpoint(builder, before=["pay"], show=lambda state: {"amount": state.amount})
    _, adapter, event = await asked(bench, builder)

    output = await bench.call(adapter, "invoke", event.pause_token, proceed(update={"amount": 7}))

    assert output == {"amount": 7, "log": ["pay 7"]}


def by_function(state: State, answer: BreakpointAnswer) -> Any:
    return Command(update={"log": [f"refused: {answer.note}"]}, goto="stop")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("otherwise", "end"),
    [("stop", ["stop 6"]), (END, []), (by_function, ["refused: no", "stop 6"])],
    ids=["node", "end", "function"],
)
async def test_who_does_not_proceed_goes_elsewhere_and_not_along_the_edges(
    bench: Bench, when: Any, otherwise: Any, end: list[str]
) -> None:
    builder = shop()
    bench.interrupts.breakpoint(builder, **{when: ["pay"]}, show=show, otherwise=otherwise)
    _, adapter, event = await asked(bench, builder)

    answer = {"proceed": False, "note": "no", "update": {"amount": 6}}
    output = await bench.call(adapter, "invoke", event.pause_token, answer)

    assert output["log"] == ["check 5", *(["pay 5"] if when == "after" else []), *end]
    assert output["amount"] == 6


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("goes_on", "end"), [(True, ["send 5"]), (False, ["stop 5"])], ids=["proceed", "elsewhere"])
async def test_conditional_edges_are_followed_only_by_who_proceeds(
    bench: Bench, when: Any, goes_on: bool, end: list[str]
) -> None:
    builder = StateGraph(State)
    for name in ("pay", "send", "stop"):
        builder.add_node(name, writes(name))
    builder.add_edge(START, "pay")
    builder.add_conditional_edges("pay", lambda state: "send" if state["log"] else "stop", ["send", "stop"])
    bench.interrupts.breakpoint(builder, **{when: ["pay"]}, otherwise="stop")
    _, adapter, event = await asked(bench, builder)

    output = await bench.call(adapter, "invoke", event.pause_token, {"proceed": goes_on})

    assert output["log"][-1:] == end
    assert len(output["log"]) == (2 if when == "after" or goes_on else 1)


async def test_what_a_send_gave_a_node_is_shown_and_changed_for_that_task_alone(bench: Bench) -> None:
    builder = StateGraph(State).add_node("pay", writes("pay"))
    builder.add_conditional_edges(START, lambda _: [Send("pay", {"amount": n}) for n in (1, 2)], ["pay"])
    bench.interrupts.breakpoint(builder, before=["pay"], show=show, otherwise=END)
    graph, adapter = bench.compile(builder)
    await bench.call(graph, "invoke", INPUT, thread())
    events = sorted(await bench.call(adapter, "pending"), key=lambda event: str(event.payload))
    assert [event.payload["shown"] for event in events] == [{"amount": 1}, {"amount": 2}]

    for event, amount in zip(events, (10, 20), strict=True):
        await bench.call(adapter, "answer", event.pause_token, proceed(update={"amount": amount}))
    output = (await bench.call(adapter, "deliver", "t1")).output

    assert output == {"amount": 5, "log": ["pay 10", "pay 20"]}


async def test_a_command_that_leads_to_a_node_leads_to_its_breakpoint(bench: Bench) -> None:
    def route(state: State) -> Command[Literal["pay"]]:
        return Command(goto="pay")

    builder = StateGraph(State).add_node("route", route).add_node("pay", writes("pay")).add_edge(START, "route")
    bench.interrupts.breakpoint(builder, before=["pay"])
    graph, adapter, event = await asked(bench, builder)

    assert (await bench.call(graph, "get_state", thread())).values["log"] == []
    assert (await bench.call(adapter, "invoke", event.pause_token, proceed()))["log"] == ["pay 5"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_subgraph_stops_and_breakpoints_within_one_do(bench: Bench, when: Any) -> None:
    below = StateGraph(State).add_node("pay", writes("pay")).add_edge(START, "pay")
    bench.interrupts.breakpoint(below, **{when: ["pay"]}, name="within")
    builder = StateGraph(State).add_node("sub", below.compile()).add_edge(START, "sub")
    bench.interrupts.breakpoint(builder, **{when: ["sub"]}, name="around")
    graph, adapter, event = await asked(bench, builder)

    seen = []
    for _ in range(2):
        (event,) = await bench.call(adapter, "pending")
        seen.append(event.name)
        output = await bench.call(adapter, "invoke", event.pause_token, proceed())

    assert seen == (["around", "within"] if when == "before" else ["within", "around"])
    assert output["log"] == ["pay 5"]
    assert [path for path, _ in graph.get_subgraphs()] == ["sub"]
    assert bench.states() == ["applied", "applied"]


async def test_a_join_still_waits_for_all(bench: Bench) -> None:
    builder = shop().add_node("other", writes("other")).add_node("join", writes("join")).add_edge(START, "other")
    builder.add_edge(["send", "other"], "join")
    bench.interrupts.breakpoint(builder, after=["send"])
    graph, adapter, event = await asked(bench, builder)
    assert "join 5" not in (await bench.call(graph, "get_state", thread())).values["log"]

    output = await bench.call(adapter, "invoke", event.pause_token, proceed())

    assert output["log"].count("join 5") == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"proceed": False}, "no way elsewhere"),
        (proceed(update={"log": []}), "'log' cannot be changed"),
        (proceed(update={"nothing": 1}), "'nothing' cannot be changed"),
        (proceed(update={"amount": "secret"}), "'amount' does not fit the state"),
        (proceed(goto="send"), "goto"),
        ({}, "proceed"),
    ],
    ids=str,
)
async def test_an_answer_that_cannot_be_followed_is_refused_before_the_token_is_spent(
    bench: Bench, answer: Any, message: str
) -> None:
    builder = shop()
    bench.interrupts.breakpoint(builder, before=["pay"], show=show)
    _, adapter, event = await asked(bench, builder)

    with pytest.raises(ResponseInvalid, match=message) as refused:
        await bench.call(adapter, "answer", event.pause_token, answer)
    assert "secret" not in str(refused.value)
    assert bench.states() == ["pending"]


def joined() -> StateGraph[State]:
    builder = shop().add_node("join", writes("join"))
    return builder.add_edge(["pay", "stop"], "join")


def commanding() -> StateGraph[State]:
    def go(state: State) -> Command[Literal["pay"]]:
        return Command(goto="pay")

    return StateGraph(State).add_node("go", go).add_node("pay", writes("pay")).add_edge(START, "go")


async def _async(*_: Any) -> str:
    return "stop"


@pytest.mark.parametrize(
    ("builder", "options", "message"),
    [
        (lambda: shop().compile(), {"before": ["pay"]}, "needs the StateGraph"),
        (lambda: None, {"before": ["pay"]}, "needs the StateGraph"),
        (shop, {}, "name a node"),
        (shop, {"before": "pay"}, "list of names"),
        (shop, {"after": [1]}, "list of names"),
        (shop, {"before": ["pya"]}, "no node 'pya'"),
        (shop, {"before": ["pay"], "otherwise": "pya"}, "no such node"),
        (shop, {"before": ["pay"], "otherwise": 1}, "otherwise="),
        (shop, {"before": ["pay"], "otherwise": _async}, "must not be async"),
        (shop, {"before": ["pay"], "show": _async}, "must not be async"),
        (shop, {"before": ["pay"], "show": "amount"}, "show="),
        (shop, {"before": ["pay"], "may_change": ["amuont"]}, "no key 'amuont'"),
        (shop, {"before": ["pay"], "on_expire": BreakpointAnswer(proceed=False)}, "on_expire"),
        (joined, {"before": ["pay"], "otherwise": END}, "waits for 'pay' and others"),
        (joined, {"after": ["pay"], "otherwise": END}, "waits for 'pay' and others"),
        (commanding, {"after": ["go"]}, "goes on by Command"),
    ],
)
def test_what_cannot_be_a_breakpoint_is_refused_and_the_graph_stays_as_it_is(
    interrupts: Interrupts, builder: Any, options: Any, message: str
) -> None:
    made = builder()
    before = (dict(made.nodes), set(made.edges)) if isinstance(made, StateGraph) else None

    with pytest.raises(RegistrationError, match=message):
        interrupts.breakpoint(made, **options)
    assert "breakpoint" not in interrupts.registrations
    assert before is None or before == (made.nodes, made.edges)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_second_breakpoint_at_the_same_place_and_a_name_that_is_taken_are_refused(
    bench: Bench, when: Any
) -> None:
    builder = shop()
    bench.interrupts.breakpoint(builder, **{when: ["pay"]})
    with pytest.raises(RegistrationError, match="already"):
        bench.interrupts.breakpoint(builder, **{when: ["pay"]}, name="again")
    with pytest.raises(RegistrationError, match="breakpoint"):
        bench.interrupts.breakpoint(builder, before=["send"])
    assert sorted(bench.interrupts.registrations) == ["ask_user", "breakpoint"]


async def test_breakpoints_after_and_before_a_node_have_points_of_their_own_in_this_order(bench: Bench) -> None:
    builder, other = shop(), shop()
    bench.interrupts.breakpoint(builder, after=["pay"], name="second")
    bench.interrupts.breakpoint(builder, before=["pay"], otherwise="stop", name="first")
    _, adapter, event = await asked(bench, builder)
    assert event.name == "first"
    await bench.call(adapter, "invoke", event.pause_token, proceed())
    (event,) = await bench.call(adapter, "pending")
    assert event.name == "second"
    output = await bench.call(adapter, "invoke", event.pause_token, proceed())
    assert output["log"] == ["check 5", "pay 5", "send 5"]

    bench.interrupts.breakpoint(other, before=["pay"], name="before_other")
    with pytest.raises(RegistrationError, match="set the one after it first"):
        bench.interrupts.breakpoint(other, after=["pay"], name="after_other")


@pytest.mark.parametrize(
    "add",
    [
        lambda builder: builder.add_edge("pay", "stop"),
        lambda builder: builder.add_edge(["pay", "check"], "stop"),
        lambda builder: builder.add_conditional_edges("pay", lambda _: "stop", ["stop"]),
    ],
    ids=["edge", "join", "conditional"],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_edge_that_is_added_later_and_leads_past_is_refused_when_the_adapter_is_made(
    bench: Bench, when: Any, add: Any
) -> None:
    builder = shop()
    bench.interrupts.breakpoint(builder, **{when: ["pay"]}, otherwise=END)
    add(builder)

    with pytest.raises(RegistrationError, match="leads past it"):
        bench.compile(builder)


async def test_a_node_that_goes_past_its_breakpoint_by_an_undeclared_command_fails(bench: Bench) -> None:
    builder = StateGraph(State).add_node("pay", lambda _: Command(goto="send")).add_node("send", writes("send"))
    builder.add_edge(START, "pay").add_edge("pay", "send")
    bench.interrupts.breakpoint(builder, after=["pay"])
    graph, _ = bench.compile(builder)

    with pytest.raises(RegistrationError, match="went on by Command"):
        await bench.call(graph, "invoke", INPUT, thread())
    assert bench.states() == []


@pytest.mark.parametrize("word", ["before", "after"])
async def test_an_adapter_warns_of_plain_breakpoints_of_the_graph_and_of_those_below(bench: Bench, word: Any) -> None:
    option: dict[str, Any] = {f"interrupt_{word}": ["pay"]}
    with pytest.warns(UserWarning, match=rf"graph 'default' has plain breakpoints \(interrupt_{word}=\['pay'\]\)"):
        bench.compile(shop(), **option)
    builder = StateGraph(State).add_node("sub", shop().compile(**option)).add_edge(START, "sub")
    with pytest.warns(UserWarning, match=r"below 'sub', has plain breakpoints"):
        bench.compile(builder, graph="around")
    with pytest.warns(UserWarning, match=rf"interrupt_{word}='\*'"):
        bench.compile(shop(), graph="all", **{f"interrupt_{word}": "*"})
