"""`verify` refuses a LangGraph that is not as this library needs it: each check, given what such a LangGraph would do."""

from __future__ import annotations

import asyncio
import copy
import threading
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.drift import tool_nodes
from symfonic_interrupts.asking.guards import guard_node
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.langgraph_internals import verifying as checks
from symfonic_interrupts.langgraph_internals.probe import Pass, Seen, State, Written, look

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen() -> Seen:
    """What the installed LangGraph does."""
    return look()


# -- what a LangGraph would have done that differs in one thing


def renamed(place: dict[str, Any], key: str) -> dict[str, Any]:
    """A `configurable` in which a value stands under another key."""
    return {("renamed" if k == key else k): value for k, value in place.items()}


def passes_with(change: Callable[[Pass], Pass]) -> Callable[[Seen], Seen]:
    return lambda seen: replace(
        seen, asking=[change(one) for one in seen.asking], handler=list(map(change, seen.handler))
    )


def key_of_tasks(key: str) -> Callable[[Seen], Seen]:
    return passes_with(lambda one: replace(one, configurable=renamed(one.configurable, key)))


def writes_with(change: Callable[[Written], Written]) -> Callable[[Seen], Seen]:
    return lambda seen: replace(seen, writes={run: list(map(change, writes)) for run, writes in seen.writes.items()})


def channel_renamed(channel: str) -> Callable[[Written], Written]:
    return lambda one: replace(one, writes=tuple((c.replace(channel, "__renamed__"), value) for c, value in one.writes))


def without_output(one: Written) -> Written:
    """A task that ends and writes nothing, where LangGraph would at least write that it wrote nothing."""
    return replace(one, writes=tuple((c, value) for c, value in one.writes if c in names.CONTROL_CHANNELS))


def scratchpad_with_a_copy(one: Pass) -> Pass:
    answers = list(names.brought(one.configurable) or ())
    return replace(one, configurable={**one.configurable, names.SCRATCHPAD: SimpleNamespace(resume=answers)})


def null_task_renamed(one: Written) -> Written:
    return replace(one, task_id="f" * 8 if one.task_id == names.NULL_TASK_ID else one.task_id)


def interrupts_alone(one: Written) -> Written:
    """A question in a dict, and no longer an `Interrupt` in a tuple."""
    return replace(one, writes=tuple((c, {"asked": v} if c == checks.INTERRUPT else v) for c, v in one.writes))


def other_ids(one: Written) -> Written:
    def asked(value: Any) -> Any:
        return tuple(replace(i, id="0" * 32) for i in value)

    return replace(one, writes=tuple((c, asked(v) if c == checks.INTERRUPT else v) for c, v in one.writes))


def without_attribute(thing: Any, name: str) -> Any:
    """A copy of a node or graph whose attribute has another name."""
    return SimpleNamespace(**{(k if k != name else "renamed"): value for k, value in vars(thing).items()})


def graph_with(**changes: Any) -> Callable[[Seen], Seen]:
    def change(seen: Seen) -> Seen:
        graph = copy.copy(seen.graph)
        vars(graph).update(changes)
        return replace(seen, graph=graph)

    return change


def graph_without(name: str) -> Callable[[Seen], Seen]:
    return lambda seen: replace(seen, graph=without_attribute(seen.graph, name))


def nodes_without_policy(seen: Seen) -> Seen:
    nodes = {name: without_attribute(node, "cache_policy") for name, node in seen.graph.nodes.items()}
    return graph_with(nodes=nodes)(seen)


def other_paths(recurse: bool = False) -> list[tuple[str, Any]]:
    return [("sub", None), ("sub/deep", None)]


def builder_without(name: str) -> Callable[[Seen], Seen]:
    def change(seen: Seen) -> Seen:
        graph = copy.copy(seen.waited)
        graph.builder = without_attribute(graph.builder, name)
        return replace(seen, waited=graph)

    return change


def node_without(name: str) -> Callable[[Seen], Seen]:
    return lambda seen: replace(seen, plain=without_attribute(seen.plain, name))


def body_without_func(seen: Seen) -> Seen:
    node = copy.copy(seen.plain)
    node.bound = without_attribute(node.bound, "func")
    return replace(seen, plain=node)


def sequence_without_steps(seen: Seen) -> Seen:
    node = copy.copy(seen.sequence)
    node.bound = RunnableLambda(lambda _: None)
    return replace(seen, sequence=node)


def graph_that_forbids_replacing(seen: Seen) -> Seen:
    kind = type(seen.graph)
    fixed = {name: property(lambda self, name=name: getattr(kind, name)) for name in ("stream", "astream")}
    graph = copy.copy(seen.graph)
    graph.__class__ = type("Fixed", (kind,), fixed)
    return replace(seen, graph=graph)


BROKEN: list[tuple[checks.Check, Callable[[Seen], Seen]]] = [
    (checks.runtime, writes_with(lambda one: replace(one, configurable=renamed(one.configurable, names.RUNTIME)))),
    (checks.runtime, lambda seen: replace(seen, writes={**seen.writes, "update_state": seen.writes["bare"]})),
    (
        checks.runtime,
        writes_with(
            lambda one: replace(
                one,
                configurable={**one.configurable, names.RUNTIME: copy.copy(one.configurable.get(names.RUNTIME))},
            )
        ),
    ),
    (checks.execution_info, key_of_tasks(names.RUNTIME)),
    (checks.execution_info, passes_with(lambda one: replace(one, info_again=copy.copy(one.info)))),
    (checks.execution_info, lambda seen: replace(seen, asking=[seen.asking[0]] * 3)),
    (checks.checkpointer, key_of_tasks(names.CHECKPOINTER)),
    (checks.task_id, key_of_tasks(names.TASK_ID)),
    (checks.task_namespace, key_of_tasks(names.TASK_NS)),
    (
        checks.task_namespace,
        passes_with(
            lambda one: replace(
                one, configurable={**one.configurable, names.TASK_NS: one.info.checkpoint_ns.replace("|", "/")}
            )
        ),
    ),
    (checks.checkpoint_map, key_of_tasks(names.CHECKPOINT_MAP)),
    (checks.stored_answers, key_of_tasks(names.SCRATCHPAD)),
    (checks.stored_answers, passes_with(scratchpad_with_a_copy)),
    (checks.bare_resume, writes_with(null_task_renamed)),
    (checks.bare_resume, passes_with(lambda one: replace(one, bare=False))),
    (checks.interrupt_counter, lambda seen: replace(seen, times=[0])),
    (checks.send, key_of_tasks(names.SEND)),
    (checks.loop, lambda seen: replace(seen, cached=[None] * len(seen.cached))),
    (checks.loop, passes_with(lambda one: replace(one, cached="this task"))),
    (checks.strict_resume, lambda seen: replace(seen, strict=None)),
    (checks.strict_resume, lambda seen: replace(seen, writes={**seen.writes, "strict": []})),
    (checks.control_channels, writes_with(lambda one: replace(one, writes=(*one.writes, ("__new__", 1))))),
    (checks.control_channels, writes_with(without_output)),
    (checks.error_channels, lambda seen: replace(seen, handled=list(map(channel_renamed("__error__"), seen.handled)))),
    (
        checks.error_channels,
        lambda seen: replace(seen, handled=list(map(channel_renamed(names.ERROR_HANDLED), seen.handled))),
    ),
    (checks.interrupts, writes_with(interrupts_alone)),
    (checks.interrupts, lambda seen: replace(seen, raised=[type(error)() for error in seen.raised])),
    (checks.interrupt_id, writes_with(other_ids)),
    (checks.output, lambda seen: replace(seen, output=renamed(seen.output, "__interrupt__"))),
    (checks.order_of_checkpoints, lambda seen: replace(seen, ids=[id_[::-1] for id_ in seen.ids])),
    (checks.custom_stream, lambda seen: replace(seen, chunks=[])),
    (checks.guards, lambda seen: replace(seen, around=["body"] * 3)),
    (checks.guards, lambda seen: replace(seen, around=["writes"])),
    (checks.parts, node_without("bound")),
    (checks.parts, node_without("writers")),
    (checks.parts, body_without_func),
    (checks.parts, sequence_without_steps),
    (checks.cache_policies, nodes_without_policy),
    (checks.cache_policies, graph_without("cache_policy")),
    (checks.names_of_nodes, graph_with(get_subgraphs=other_paths)),
    (checks.names_of_nodes, lambda seen: graph_with(nodes={**seen.graph.nodes, "own": None})(seen)),
    (checks.breakpoints, graph_without("interrupt_before_nodes")),
    (checks.breakpoints, graph_without("interrupt_after_nodes")),
    (checks.breakpoints, graph_without("stream_mode")),
    (checks.builders, lambda seen: replace(seen, waited=without_attribute(seen.waited, "builder"))),
    (checks.builders, builder_without("waiting_edges")),
    (checks.builders, builder_without("branches")),
    (checks.builders, builder_without("channels")),
    (checks.changed_builder, lambda seen: replace(seen, put_in_place=["path"])),
    (checks.changed_builder, lambda seen: replace(seen, put_in_place=["body"])),
    (checks.sent, lambda seen: replace(seen, sent=[("one", False), ("two", False)])),
    (checks.copies, graph_that_forbids_replacing),
]


@pytest.mark.parametrize(
    ("check", "broken"), BROKEN, ids=[f"{check.__name__}-{n}" for n, (check, _) in enumerate(BROKEN)]
)
def test_each_check_refuses_what_it_is_for(check: checks.Check, broken: Callable[[Seen], Seen], seen: Seen) -> None:
    with pytest.raises(RegistrationError) as raised:
        names.verify(lambda: broken(seen))
    assert str(check.__doc__) in str(raised.value)


def test_each_check_is_seen_to_refuse_something() -> None:
    assert {check for check, _ in BROKEN} == set(checks.CHECKS)


def test_the_installed_langgraph_passes(seen: Seen) -> None:
    assert [check.__doc__ for check in checks.CHECKS if not check(seen)] == []


def test_the_message_names_the_version_those_that_are_known_to_work_and_only_what_differs(seen: Seen) -> None:
    with pytest.raises(RegistrationError) as raised:
        names.verify(lambda: replace(seen, chunks=[], times=[]))
    assert str(raised.value) == (
        f"langgraph {version('langgraph')} (langchain-core {version('langchain-core')}) is not as this version of"
        " symfonic-interrupts needs it, and answers might count twice or not at all; install langgraph from 1.2.20 to"
        f" {checks.NEWEST}, which are known to work. What does not hold: {checks.interrupt_counter.__doc__};"
        f" {checks.custom_stream.__doc__}"
    )


def test_a_langgraph_on_which_the_tiny_graph_fails_is_refused() -> None:
    def fail() -> Seen:
        raise TypeError("compile() got an unexpected keyword")

    with pytest.raises(RegistrationError, match=r"a tiny graph fails with TypeError: compile\(\) got an unexpected"):
        names.verify(fail)


def test_the_oldest_version_is_the_one_that_the_package_asks_for() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"langgraph>={checks.OLDEST},<2" in wanted


# -- it is nobody else's business


def test_it_warns_of_nothing_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        names.verify()
    assert [str(warning.message) for warning in warned] == []
    assert set(threading.enumerate()) <= before


async def test_it_runs_inside_an_event_loop_and_inside_a_node_and_writes_nothing_to_that_graphs_saver() -> None:
    def check(state: State) -> dict[str, Any]:
        before = dict(get_config()["configurable"])
        names.verify()
        assert dict(get_config()["configurable"]) == before
        return {"log": ["checked"]}

    saver = InMemorySaver()
    graph: Any = StateGraph(State).add_node("check", check).add_edge(START, "check").compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "mine"}}
    names.verify()
    assert (await graph.ainvoke({"log": []}, config)) == {"log": ["checked"]}
    assert asyncio.get_running_loop().is_running()
    assert list(saver.storage) == ["mine"]
    assert list(saver.storage["mine"]) == [""]


def test_the_first_adapter_of_a_process_verifies(tmp_path: Path) -> None:
    checks.verify_once.cache_clear()
    make_adapter(tmp_path)
    make_adapter(tmp_path)
    assert (checks.verify_once.cache_info().misses, checks.verify_once.cache_info().hits) == (1, 1)


def make_adapter(folder: Path) -> Any:
    from symfonic_interrupts import Interrupts

    with Interrupts.local(folder / "pauses.db") as interrupts:
        saver = interrupts.checkpointer(InMemorySaver())
        builder = StateGraph(MessagesState).add_node("tools", ToolNode([tool(lookup)])).add_edge(START, "tools")
        return interrupts.resume_adapter(builder.compile(checkpointer=saver))


def lookup(key: str) -> str:
    """Look something up."""
    return key


# -- guards must not hide what a node is


def test_a_tool_node_is_found_behind_its_guard() -> None:
    builder = StateGraph(MessagesState).add_node("tools", ToolNode([tool(lookup)])).add_edge(START, "tools")
    graph = builder.compile()
    for node in graph.nodes.values():
        guard_node(node)
    assert tool_nodes(graph) == {"tools"}


def test_a_copy_with_other_streams_cannot_run_a_thread_by_itself() -> None:
    saver = InMemorySaver()
    builder = StateGraph(State).add_node("node", lambda state: {"log": [1]}).add_edge(START, "node")
    graph: Any = builder.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "t"}}
    graph.invoke({"log": []}, config)
    replaced = names.with_streams(graph, graph.stream, graph.astream)
    del replaced.stream, replaced.astream  # a LangGraph that does not call them
    with pytest.raises(Exception, match="no input"):
        replaced.invoke(None, config)
    assert graph.get_state(config).values == {"log": [1]}
