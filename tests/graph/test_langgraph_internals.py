"""The names of LangGraph that it does not export, and that `langgraph_internals` relies on: which one broke?"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.errors import UnknownInterruptError
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import CachePolicy, Command, Interrupt, RetryPolicy, interrupt

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


def test_every_name_has_a_test_here() -> None:
    here = inspect.getsource(sys.modules[__name__])
    defined = [
        name
        for name, value in vars(names).items()
        if not name.startswith("_")
        and (name.isupper() or getattr(value, "__module__", None) == names.__name__)
        and name not in ("ERROR", "INTERRUPT", "RESUME")  # these are exported
    ]
    assert [name for name in defined if f"names.{name}" not in here] == []


def seen_by(look: Callable[[dict[str, Any]], Any], **options: Any) -> list[Any]:
    """What `look` finds in the `configurable` of a root node and then of a node in a subgraph."""
    found: list[Any] = []

    def node(state: State) -> dict[str, Any]:
        found.append(look(get_config()["configurable"]))
        return {"log": []}

    child = StateGraph(State).add_node("below", node).add_edge(START, "below").compile()
    builder = StateGraph(State).add_node("above", node, **options).add_node("sub", child)
    graph = builder.add_edge(START, "above").add_edge("above", "sub").compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, {"configurable": {"thread_id": "t"}})
    return found


def test_a_tasks_configurable_has_these_keys() -> None:
    keys = {
        names.RUNTIME,
        names.CHECKPOINTER,
        names.TASK_ID,
        names.TASK_NS,
        names.SCRATCHPAD,
        names.SEND,
        names.CALL,
        names.CHECKPOINT_MAP,
    }
    missing = seen_by(lambda place: keys - {names.CHECKPOINT_MAP} - place.keys())
    assert missing == [set(), set()]
    assert names.CHECKPOINT_MAP in seen_by(lambda place: set(place))[1]


def test_a_namespace_is_made_of_nodes_and_their_tasks() -> None:
    def look(place: dict[str, Any]) -> Any:
        return place[names.TASK_NS], names.running_task_id(place, "?")

    (above, above_task), (below, below_task) = seen_by(look)
    assert above == f"above{names.NS_END}{above_task}" == names.task_ns("", "above", above_task)
    first, second = below.split(names.NS_SEPARATOR)
    assert first.split(names.NS_END)[0] == "sub"
    assert below == names.task_ns(first, "below", below_task)
    assert (names.node_path(above), names.node_path(below)) == ("above", "sub:below")
    assert second == f"below{names.NS_END}{below_task}"
    assert (names.is_below(below, first), names.is_below(first, first)) == (True, True)
    assert (names.is_below(first, below), names.is_below(above, first)) == (False, False)


def test_a_task_and_a_second_graph_in_one_node_run_below_it_and_a_bare_number_in_their_namespace_is_no_node() -> None:
    found: list[str] = []

    def look() -> None:
        found.append(get_config()["configurable"][names.TASK_NS])

    @task
    def work() -> None:
        look()

    def below(state: State) -> dict[str, Any]:
        look()
        return {"log": []}

    child = StateGraph(State).add_node("below", below).add_edge(START, "below").compile()

    def node(state: State) -> dict[str, Any]:
        look()
        work().result()
        child.invoke({"log": []})
        child.invoke({"log": []})
        return {"log": []}

    paused(node)
    node_ns, *others = found
    assert all(names.is_below(ns, node_ns) for ns in others)
    assert [names.node_path(ns) for ns in found] == ["gate", "gate:work", "gate:below", "gate:below"]
    assert any(part.isdigit() for part in others[-1].split(names.NS_SEPARATOR))


def test_a_graph_that_keeps_its_own_checkpoints_has_no_task_ids_in_its_namespace_and_is_below_its_node_all_the_same() -> (
    None
):
    found: list[str] = []

    def look(state: State) -> dict[str, Any]:
        found.append(get_config()["configurable"][names.TASK_NS])
        return {"log": []}

    child = StateGraph(State).add_node("below", look).add_edge(START, "below").compile(checkpointer=True)

    def gate(state: State) -> dict[str, Any]:
        look(state)
        child.invoke({"log": []})
        return {"log": []}

    paused(gate)
    gate_ns, below_ns = found
    assert below_ns.startswith("gate|below:")
    assert names.is_below(below_ns, gate_ns)


def test_one_execution_info_is_all_that_runs_in_an_execution_and_a_retry_is_another() -> None:
    infos: list[Any] = []

    @task
    def work() -> Any:
        return names.execution_info(get_config()["configurable"])

    def node(state: State) -> dict[str, Any]:
        info = names.execution_info(get_config()["configurable"])
        infos.append(info)
        assert info is get_runtime().execution_info
        assert work().result() is not info
        if len(infos) == 1:
            raise ConnectionError("away")
        return {"log": []}

    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    builder = StateGraph(State).add_node("gate", node, retry_policy=policy).add_edge(START, "gate")
    builder.compile(checkpointer=InMemorySaver()).invoke({"log": []}, {"configurable": {"thread_id": "t"}})
    assert infos[0] is not infos[1]
    assert infos[0].checkpoint_ns == infos[1].checkpoint_ns
    assert names.execution_info({}) is None


def test_a_task_finds_what_it_was_resumed_with_in_the_very_list_that_the_saver_gave() -> None:
    class Giving(Watching):
        def get_tuple(self, config: Any) -> Any:
            found = super().get_tuple(config)
            if found is None:
                return None
            writes = [
                (t, c, Own(v) if c == "__resume__" and t != names.NULL_TASK_ID else v) for t, c, v in found[4] or ()
            ]
            return found._replace(pending_writes=writes)

    class Own(list[Any]):
        pass

    seen: list[Any] = []

    def node(state: State) -> dict[str, Any]:
        brought = names.brought(get_config()["configurable"])
        assert brought is not None
        seen.append((type(brought), list(brought)))
        return {"log": [interrupt("q1"), interrupt("q2"), interrupt("q3")]}

    graph = StateGraph(State).add_node("gate", node).add_edge(START, "gate").compile(checkpointer=Giving())
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"log": []}, config)
    for answer in ("a1", "a2"):
        (asked,) = graph.get_state(config).interrupts
        graph.invoke(Command(resume={asked.id: answer}), config)
    assert seen == [(list, []), (list, ["a1"]), (Own, ["a1", "a2"])]
    assert names.brought({}) is None


def test_a_bare_resume_lies_ready_once_and_is_taken_by_looking() -> None:
    taken: list[bool] = []

    def node(state: State) -> dict[str, Any]:
        place = get_config()["configurable"]
        taken.extend((names.take_bare_resume(place), names.take_bare_resume(place)))
        return {"log": [interrupt("q")]}

    graph, _, config = paused(node)
    assert taken == [False, False]
    shown = graph.invoke(Command(resume="raw"), config)
    assert taken == [False, False, True, False]
    assert [i.value for i in shown["__interrupt__"]] == ["q"]
    assert names.take_bare_resume({}) is False


def test_a_task_is_told_how_often_it_has_asked_also_where_that_was_swallowed() -> None:
    counts: list[int] = []

    def node(state: State) -> dict[str, Any]:
        for _ in range(2):
            try:
                interrupt("q")
            except Exception:
                continue
        counts.append(names.times_asked(get_config()["configurable"]))
        return {"log": []}

    paused(node)
    assert counts == [2]
    assert names.times_asked({}) == 0


def test_the_writes_of_a_task_are_seen_as_they_come_by_what_its_send_is_bound_to() -> None:
    found: list[Any] = []

    def node(state: State) -> dict[str, Any]:
        found.append(names.writes_of_task(get_config()["configurable"]))
        assert list(found[0]) == []
        return {"log": ["done"]}

    paused(node)
    assert ("log", ["done"]) in list(found[0])
    assert names.writes_of_task({}) is None


@pytest.mark.parametrize("inside", [False, True], ids=["the task", "a task around it"])
def test_the_loop_that_runs_a_task_tells_that_its_result_goes_into_a_cache(inside: bool) -> None:
    found: list[Any] = []

    @task(cache_policy=None if inside else CachePolicy())
    def inner() -> None:
        found.append(names.cached_task(get_config()["configurable"]))

    @task(cache_policy=CachePolicy() if inside else None)
    def outer() -> None:
        inner().result()

    @entrypoint(checkpointer=InMemorySaver(), cache=InMemoryCache())
    def flow(_: Any) -> None:
        found.append(names.cached_task(get_config()["configurable"]))
        outer().result()

    flow.invoke("go", {"configurable": {"thread_id": "t"}})
    assert found == [None, "outer" if inside else "inner"]


async def test_the_loop_is_also_found_where_a_node_has_a_timeout() -> None:
    found: list[Any] = []

    async def node(state: State) -> dict[str, Any]:
        found.append(names.cached_task(get_config()["configurable"]))
        return {"log": []}

    builder = StateGraph(State).add_node("gate", node, timeout=30, cache_policy=CachePolicy()).add_edge(START, "gate")
    graph = builder.compile(checkpointer=InMemorySaver(), cache=InMemoryCache())
    await graph.ainvoke({"log": []}, {"configurable": {"thread_id": "t"}})
    assert found == ["gate"]


def test_a_graph_takes_its_cache_from_the_config_where_that_has_one_and_its_tasks_see_it() -> None:
    ran: list[Any] = []

    def node(state: State) -> dict[str, Any]:
        ran.append(get_config()["configurable"].get(names.CACHE))
        return {"log": []}

    builder = StateGraph(State).add_node("gate", node, cache_policy=CachePolicy()).add_edge(START, "gate")
    graph, cache = builder.compile(), InMemoryCache[Any]()
    for _ in range(2):
        graph.invoke({"log": []}, {"configurable": {names.CACHE: cache}})
    assert ran == [cache]


def test_an_error_that_goes_to_a_handler_is_written_to_this_channel() -> None:
    def fail(state: State) -> dict[str, Any]:
        raise ValueError("no")

    saver = Watching()
    builder = StateGraph(State).add_node("gate", fail, error_handler=lambda state: {"log": []}).add_edge(START, "gate")
    builder.compile(checkpointer=saver).invoke({"log": []}, {"configurable": {"thread_id": "t"}})
    assert names.ERROR_HANDLED in [channel for _, writes, _ in saver.written for channel, _ in writes]


def test_what_is_put_around_a_node_runs_though_langgraph_has_put_the_node_together_already() -> None:
    graph = StateGraph(State).add_node("gate", lambda state: {"log": ["old"]}).add_edge(START, "gate").compile()
    other = StateGraph(State).add_node("gate", lambda state: {"log": ["new"]}).add_edge(START, "gate").compile()
    assert graph.invoke({"log": []}) == {"log": ["old"]}

    before_writes = other.nodes["gate"].writers[0]
    names.put_around(graph.nodes["gate"], lambda _, is_first: other.nodes["gate"].bound, before_writes)

    assert graph.invoke({"log": []}) == {"log": ["new", "new"]}


def test_a_compiled_graph_is_all_in_its_attributes_and_gives_back_its_output_channels() -> None:
    class Output(TypedDict):
        log: list[str]

    builder = StateGraph(State, output_schema=Output).add_node("gate", lambda state: {"log": ["ran"]})
    graph = builder.add_edge(START, "gate").compile()
    made = names.graph_as(type(graph), graph, {"name": "another"})
    assert (made.name, graph.name) == ("another", "LangGraph")
    assert made.invoke({"log": []}) == {"log": ["ran"]}
    assert names.output_of(graph, {"log": ["ran"], "hidden": 1}) == {"log": ["ran"]}
    assert names.output_of(graph, {"log": ["ran"], "hidden": 1}, "hidden") == 1
