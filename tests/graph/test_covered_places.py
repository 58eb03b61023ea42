"""Which nodes a point covers: those it names, also below nodes whose graphs nobody can see; those of an agent's middleware."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import CachePolicy, interrupt

from symfonic_interrupts import RegistrationError
from symfonic_interrupts.contrib.langchain import register_hitl
from tests.graph.test_langchain_hitl import Scripted, mail, start
from tests.harness import Bench, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def asking(state: State) -> dict[str, Any]:
    return {"log": [interrupt({"order": "A", "amount": 1})["note"]]}


def quiet(state: State) -> dict[str, Any]:
    return {"log": []}


def around(name: str, node: Any, **options: Any) -> Any:
    return StateGraph(State).add_node(name, node, **options).add_edge(START, name)


# -- nodes by name


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_node_of_a_graph_that_only_a_nodes_closure_knows_is_covered(bench: Bench, when: str) -> None:
    hidden = {"graph": around("gate", asking).compile()}

    def runs(state: State) -> Any:
        return hidden["graph"].invoke(state)

    async def aruns(state: State) -> Any:
        return await hidden["graph"].ainvoke(state)

    if when == "before":
        bench.refunds(nodes=("runs:gate",))
    graph, adapter = bench.compile(around("runs", aruns if bench.mode == "async" else runs))
    if when == "after":
        bench.refunds(nodes=("runs:gate",))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    answer = {"approved": True, "note": "yes"}
    assert (await bench.call(adapter, "invoke", event.pause_token, answer))["log"] == ["yes"]


@pytest.mark.parametrize("entry", ["gaet", "gaet:gate", "default/gaet", "gate/gate:x"])
def test_only_a_first_part_that_does_not_exist_is_refused(bench: Bench, entry: str) -> None:
    bench.refunds(nodes=(entry,))
    graph = around("gate", quiet)
    if entry.startswith("gate/"):
        bench.compile(graph)  # of another graph
        return
    with pytest.raises(RegistrationError, match=r"approval: nodes names 'gaet.*it has \['gate'\]"):
        bench.compile(graph)


def test_a_node_that_a_compiled_subgraph_lacks_is_warned_of(bench: Bench) -> None:
    inner = StateGraph(State).add_node("deep", around("gate", quiet).compile()).add_node("runs", quiet)
    inner.add_edge(START, "deep").add_edge(START, "runs")
    builder = around("sub", inner.compile())
    bench.refunds(nodes=("sub:deep:gate", "sub:runs:whatever:else"))
    bench.compile(builder)

    bench.refunds("typing_error", nodes=("sub:deep:gaet",))
    with pytest.warns(UserWarning, match=r"'sub:deep:gaet'.*node 'sub:deep' .*it has \['sub:deep:gate'\]"):
        bench.compile(builder)


def test_a_refused_graph_is_not_remembered(bench: Bench) -> None:
    bench.refunds(nodes=("gaet",))
    with pytest.raises(RegistrationError):
        bench.compile(around("gate", quiet))

    bench.compile(around("gaet", quiet))  # without a warning of two graphs under one name


# -- agents, by their middleware


def agent(middleware: Any, done: list[str], who: str, **options: Any) -> Any:
    @tool
    def send_mail(to: str) -> str:
        """Send a mail."""
        done.append(who)
        return f"{who} sent"

    script = [AIMessage(content="", tool_calls=[mail()]), AIMessage(content=f"{who} done")]
    return create_agent(Scripted(responses=script), tools=[send_mail], middleware=[middleware], **options)


def gated(mode: str) -> Any:
    return HumanInTheLoopMiddleware({"send_mail": True}, interrupt_mode=mode)  # type: ignore[arg-type]


def approval(mode: str) -> dict[str, Any]:
    return {"type": "approve"} if mode == "per_call" else {"decisions": [{"type": "approve"}]}


@pytest.mark.parametrize("first", ["register", "adapter"])
@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_two_agents_on_one_interrupts_are_told_apart_by_their_middleware(
    bench: Bench, mode: str, first: str
) -> None:
    done: list[str] = []
    middlewares = {who: gated(mode) for who in ("sales", "support")}

    def register() -> None:
        for who, middleware in middlewares.items():
            register_hitl(bench.interrupts, middleware, name=f"{who}_tools")

    if first == "register":
        register()
    graphs, adapters = {}, {}
    for who, middleware in middlewares.items():
        saver = bench.interrupts.checkpointer(bench.saver, graph=who)
        graphs[who] = agent(middleware, done, who, checkpointer=saver)
        adapters[who] = bench.interrupts.resume_adapter(graphs[who])
    if first == "adapter":
        register()

    for who, graph in graphs.items():
        await bench.call(graph, "invoke", start(), thread(who))
        (event,) = await bench.call(adapters[who], "pending")
        assert event.name == f"{who}_tools"
        await bench.call(adapters[who], "invoke", event.pause_token, approval(mode))
    assert done == ["sales", "support"]
    assert bench.states() == ["applied", "applied"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_agents_of_one_graph_are_found_at_any_depth_and_one_middleware_in_two_of_them(
    bench: Bench, mode: str
) -> None:
    done: list[str] = []
    shared, own = gated(mode), gated(mode)
    register_hitl(bench.interrupts, shared, name="shared_tools")
    register_hitl(bench.interrupts, own, name="own_tools")
    deep = StateGraph(MessagesState).add_node("two", agent(shared, done, "two")).add_edge(START, "two").compile()
    builder = StateGraph(MessagesState)
    for name, node in (("one", agent(shared, done, "one")), ("deep", deep), ("three", agent(own, done, "three"))):
        builder.add_node(name, node).add_edge(START, name)
    graph, adapter = bench.compile(builder)

    await bench.call(graph, "invoke", start(), thread())

    events = await bench.call(adapter, "pending")
    assert sorted(event.name for event in events) == ["own_tools", "shared_tools", "shared_tools"]
    await bench.call(adapter, "invoke_many", [(event.pause_token, approval(mode)) for event in events])
    assert sorted(done) == ["one", "three", "two"]


async def test_a_graph_without_the_agent_may_share_the_interrupts_with_it(bench: Bench) -> None:
    register_hitl(bench.interrupts, gated("batched"))

    bench.compile(around("gate", quiet), graph="shipping")  # no error, no warning


def test_an_agent_with_another_middleware_of_the_kind_is_warned_of_where_nothing_carries_the_registered_one(
    bench: Bench,
) -> None:
    register_hitl(bench.interrupts, gated("batched"))
    graph = agent(gated("batched"), [], "x", checkpointer=bench.interrupts.checkpointer(InMemorySaver()))

    with pytest.warns(UserWarning, match="carries another HumanInTheLoopMiddleware than the one that is registered"):
        bench.interrupts.resume_adapter(graph)


def test_a_node_that_two_points_cover_is_refused(bench: Bench) -> None:
    middleware = gated("batched")
    register_hitl(bench.interrupts, middleware)
    builder = StateGraph(MessagesState).add_node("agent", agent(middleware, [], "x")).add_edge(START, "agent")
    bench.refunds(nodes=("agent:HumanInTheLoopMiddleware.after_model",))

    with pytest.raises(
        RegistrationError, match=r"'agent:HumanInTheLoop.*' of graph 'default' is covered by tool_approval"
    ):
        bench.compile(builder)


def test_one_middleware_is_registered_once(bench: Bench) -> None:
    middleware = gated("batched")
    register_hitl(bench.interrupts, middleware)

    with pytest.raises(RegistrationError, match="is covered by tool_approval already"):
        register_hitl(bench.interrupts, middleware, name="again")


def test_a_cached_agents_middleware_is_refused(bench: Bench) -> None:
    class Gate:
        def asks(self, state: State) -> dict[str, Any]:
            return asking(state)

    gate = Gate()
    bench.refunds(nodes=("gate",), nodes_of=gate)

    with pytest.raises(RegistrationError, match="CachePolicy"):
        bench.compile(around("gate", gate.asks, cache_policy=CachePolicy()), cache=InMemoryCache())
