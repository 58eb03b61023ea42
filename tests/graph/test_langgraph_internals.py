"""The names of LangGraph that it does not export, and that `langgraph_internals` relies on: which one broke?"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.errors import UnknownInterruptError
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Command, Interrupt, interrupt

from symfonic_interrupts import langgraph_internals as names


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


class Watching(InMemorySaver):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[Any, Any, str]] = []

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.written.append((config, writes, task_id))
        super().put_writes(config, writes, task_id, task_path)


def paused(node: Any) -> tuple[Any, Watching, dict[str, Any]]:
    saver = Watching()
    graph = StateGraph(State).add_node("gate", node).add_edge(START, "gate").compile(checkpointer=saver)
    config: dict[str, Any] = {"configurable": {"thread_id": "t"}}
    graph.invoke({"log": []}, config)
    return graph, saver, config


def ask(state: State) -> dict[str, Any]:
    return {"log": [interrupt("q1"), interrupt("q2")]}


def test_a_run_hands_its_runtime_to_the_saver() -> None:
    _, saver, _ = paused(ask)
    config, _, _ = saver.written[-1]
    assert isinstance(config["configurable"][names.RUNTIME], Runtime)


def test_a_task_sees_its_graphs_saver_and_the_checkpoints_above_it() -> None:
    seen: list[Any] = []

    def look(state: State) -> dict[str, Any]:
        place = get_config()["configurable"]
        info = get_runtime().execution_info
        assert info is not None
        seen.append(
            (
                names.checkpointer_of(place),
                names.root_checkpoint_id(place, "?"),
                names.writes_ns(place, info.checkpoint_id),
            )
        )
        return {"log": []}

    child = StateGraph(State).add_node("look", look).add_edge(START, "look").compile()
    saver = InMemorySaver()
    builder = (
        StateGraph(State).add_node("look", look).add_node("sub", child).add_edge(START, "look").add_edge("look", "sub")
    )
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"log": []}, config)

    assert [found[0] for found in seen] == [saver, saver]
    history = list(graph.get_state_history(config))
    ids = {state.next: state.config["configurable"]["checkpoint_id"] for state in history}
    assert [found[1] for found in seen] == [ids[("look",)], ids[("sub",)]]
    assert seen[0][2] == ""
    assert seen[1][2].startswith("sub:")


def test_strict_resume_refuses_an_unknown_id_before_anything_is_written() -> None:
    graph, saver, config = paused(ask)
    count = len(saver.written)
    strict = {"configurable": {**config["configurable"], names.STRICT_RESUME: True}}
    with pytest.raises(UnknownInterruptError):
        graph.invoke(Command(resume={"0" * 32: "x"}), strict)
    assert len(saver.written) == count


def test_a_bare_resume_is_written_under_the_null_task() -> None:
    graph, saver, config = paused(ask)
    graph.invoke(Command(resume="x"), config)
    assert (names.NULL_TASK_ID, [("__resume__", "x")]) in [(task, list(writes)) for _, writes, task in saver.written]


def test_the_control_channels_are_those_that_langgraph_does_not_count_as_output() -> None:
    from langgraph.pregel import _task_status

    assert names.CONTROL_CHANNELS == _task_status.CONTROL_WRITES


def test_an_interrupts_id_follows_from_the_tasks_namespace_and_its_answers() -> None:
    graph, saver, config = paused(ask)
    for answers in (0, 1):
        (found,) = graph.get_state(config).interrupts
        _, _, task_id = saver.written[-1]
        assert Interrupt.from_ns(None, names.task_ns("", "gate", task_id, answers)).id == found.id
        graph.invoke(Command(resume={found.id: "x"}), config)


def test_a_task_sees_its_own_id_also_in_an_error_handler_whose_execution_info_names_the_node_that_failed() -> None:
    seen: list[tuple[str, str, str]] = []

    def look(where: str) -> None:
        info = get_runtime().execution_info
        assert info is not None
        seen.append((where, names.running_task_id(get_config()["configurable"], "?"), info.task_id))

    def fail(state: State) -> dict[str, Any]:
        look("node")
        raise ValueError("no")

    def handle(state: State) -> dict[str, Any]:
        look("handler")
        return {"log": []}

    builder = StateGraph(State).add_node("gate", fail, error_handler=handle).add_edge(START, "gate")
    builder.compile(checkpointer=InMemorySaver()).invoke({"log": []}, {"configurable": {"thread_id": "t"}})

    (_, node, told), (_, handler, told_too) = seen
    assert node == told == told_too
    assert handler not in (node, "?")
