"""Whether the installed LangGraph is as this library takes it to be.

Each check is a function whose docstring says what must hold. It judges by the same functions that the library uses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.runtime import Runtime

from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.langgraph_internals import builders as build
from symfonic_interrupts.langgraph_internals import compiled_graph as graphs
from symfonic_interrupts.langgraph_internals import namespaces
from symfonic_interrupts.langgraph_internals import running_task as task
from symfonic_interrupts.langgraph_internals import written as w
from symfonic_interrupts.langgraph_internals.probe import EVENT, FIRST, SECOND, Marked, Seen, Written, look

OLDEST, NEWEST = "1.2.20", "1.2.24"
"""The versions of LangGraph between which the tests have passed."""

Check = Callable[[Seen], bool]


def verify(look: Callable[[], Seen] = look) -> None:
    """Look whether the installed LangGraph has what this library relies on and LangGraph does not promise. Takes some
    hundredths of a second, needs no event loop, and touches nothing of the application's.

    Raises:
        RegistrationError: it has not; the message says what differs, and in which version.
    """
    try:
        seen = look()
    except Exception as error:
        raise RegistrationError(_refusal([f"a tiny graph fails with {type(error).__name__}: {error}"])) from error
    if differing := [str(check.__doc__) for check in CHECKS if not _holds(check, seen)]:
        raise RegistrationError(_refusal(differing))


@cache
def verify_once() -> None:
    """`verify`, once in a process; again where it failed."""
    verify()


def _refusal(differing: list[str]) -> str:
    return (
        f"langgraph {version('langgraph')} (langchain-core {version('langchain-core')}) is not as this version of"
        f" symfonic-interrupts needs it, and answers might count twice or not at all; install langgraph from {OLDEST} to"
        f" {NEWEST}, which are known to work. What does not hold: " + "; ".join(differing)
    )


def _holds(check: Check, seen: Seen) -> bool:
    try:
        return check(seen)
    except Exception:  # what it looks at is not there, or of another shape
        return False


# -- what a task is handed


def runtime(seen: Seen) -> bool:
    """configurable['__pregel_runtime'] is the run's Runtime, one for all writes of a run, and absent in update_state"""
    runs = [task.run_of(written.configurable) for written in _at_root(seen, "bare")]
    outside = [task.is_a_run(written.configurable) for written in seen.writes["update_state"]]
    return isinstance(runs[0], Runtime) and all(run is runs[0] for run in runs) and outside == [False]


def execution_info(seen: Seen) -> bool:
    """the Runtime's execution_info is one object in each pass of a task, and says where the task runs"""
    keys = {task.execution_key(one.info) for one in seen.asking}
    for one in seen.asking:
        if one.info is not one.info_again or one.info is not task.execution_info(one.configurable):
            return False
        if (one.info.thread_id, one.info.run_id, one.info.node_attempt) != ("t", None, 1):
            return False
    return len(keys) == len(seen.asking) == 3


def checkpointer(seen: Seen) -> bool:
    """configurable['__pregel_checkpointer'] is the saver of the task's graph"""
    return all(task.checkpointer_of(one.configurable) is seen.saver for one in seen.asking)


def task_id(seen: Seen) -> bool:
    """configurable['__pregel_task_id'] is the id under which a task's writes are stored, also in an error handler"""
    (handler,) = seen.handler
    own = task.running_task_id(handler.configurable, "")
    asks = [task.running_task_id(one.configurable, "") for one in seen.asking]
    return own == seen.handled[-1].task_id != handler.info.task_id and asks == [_leaf(seen, "asks").task_id] * 3


def task_namespace(seen: Seen) -> bool:
    """configurable['checkpoint_ns'] and execution_info.checkpoint_ns of a task are 'sub:<task id>|ask:<task id>'"""
    leaf, root = _leaf(seen, "asks"), _at_root(seen, "asks")[-1]
    above = namespaces.task_ns("", "sub", root.task_id)
    own = namespaces.task_ns(above, "ask", leaf.task_id)
    return all(one.configurable[task.TASK_NS] == own == one.info.checkpoint_ns for one in seen.asking)


def checkpoint_map(seen: Seen) -> bool:
    """configurable['checkpoint_map'] has the checkpoints of a task's graph and of those above it, by namespace"""
    one, leaf, root = seen.asking[0], _leaf(seen, "asks").configurable, _at_root(seen, "asks")[-1].configurable
    at = one.info.checkpoint_id
    return (task.root_checkpoint_id(one.configurable, ""), task.writes_ns(one.configurable, at), at) == (
        root["checkpoint_id"],
        leaf["checkpoint_ns"],
        leaf["checkpoint_id"],
    )


def stored_answers(seen: Seen) -> bool:
    """configurable['__pregel_scratchpad'].resume is the very list that the saver returned for the task, or a new one"""
    found = [task.brought(one.configurable) for one in seen.asking]
    kept = [isinstance(answers, Marked) for answers in found]
    return found == [[], [FIRST], [FIRST]] and kept == [False, False, True]


def bare_resume(seen: Seen) -> bool:
    """a bare Command(resume=...) is written under the task id of zeros, and handed out by the scratchpad's get_null_resume"""
    written = [one.writes for one in _at_root(seen, "bare") if one.task_id == w.NULL_TASK_ID]
    return written == [((RESUME, SECOND),)] and [one.bare for one in seen.asking] == [False, False, True]


def interrupt_counter(seen: Seen) -> bool:
    """the scratchpad's interrupt_counter counts the calls of interrupt()"""
    return seen.times == [1]


def send(seen: Seen) -> bool:
    """configurable['__pregel_send'] is a method of the task's writes"""
    outputs = [[c for c, _ in task.writes_of_task(p.configurable) if c not in w.CONTROL_CHANNELS] for p in seen.asking]
    return outputs == [[], [], ["log"]]


def loop(seen: Seen) -> bool:
    """configurable['__pregel_call'] leads to the loop, whose tasks have a name, a config and a cache_key"""
    return seen.cached == ["sub"] * 3 and [one.cached for one in (*seen.asking, *seen.handler)] == [None] * 4


def strict_resume(seen: Seen) -> bool:
    """with configurable['__pregel_strict_resume'] an unknown interrupt id is refused before anything is written"""
    return seen.strict is not None and "strict" not in seen.writes


# -- what is written


def control_channels(seen: Seen) -> bool:
    """a task that asks writes '__interrupt__' and '__resume__' alone, and one that ends some other channel"""
    asked, answered, ended = (_channels(_leaf(seen, run)) for run in ("asks", "answered", "bare"))
    return (asked, answered) == ({INTERRUPT}, {INTERRUPT, RESUME}) and bool(ended - w.CONTROL_CHANNELS)


def error_channels(seen: Seen) -> bool:
    """a task whose error goes to a handler writes '__error__' and '__error_source_node__' alone"""
    return {ERROR, w.ERROR_HANDLED} in [_channels(one) for one in seen.handled]


def interrupts(seen: Seen) -> bool:
    """a question is an Interrupt in a tuple, in '__interrupt__' writes and as the first argument of GraphInterrupt"""
    written = [w.interrupts_in(dict(_leaf(seen, run).writes)[INTERRUPT]) for run in ("asks", "answered")]
    return [len(asked) for asked in written] == [1, 1] and [w.interrupts_of(error) for error in seen.raised] == written


def interrupt_id(seen: Seen) -> bool:
    """an interrupt's id follows from its task's namespace and the number of answers that the task had"""
    for answers, run in enumerate(("asks", "answered")):
        leaf = _leaf(seen, run)
        (asked,) = w.interrupts_in(dict(leaf.writes)[INTERRUPT])
        ns = leaf.configurable["checkpoint_ns"]
        if asked.id != namespaces.interrupt_id(ns, "ask", leaf.task_id, answers):
            return False
    return True


def output(seen: Seen) -> bool:
    """invoke returns a thread's questions under '__interrupt__'"""
    asked = w.interrupts_in(seen.output[INTERRUPT])
    values = w.without_interrupts(seen.output)
    return bool(asked) and values == {"log": []} and w.with_interrupts(values, asked) == seen.output


def order_of_checkpoints(seen: Seen) -> bool:
    """checkpoint ids grow as text, over all namespaces of a thread"""
    return len(seen.ids) >= 6 and all(w.came_before(one, other) for one, other in pairwise(seen.ids))


def custom_stream(seen: Seen) -> bool:
    """a saver can stream by a config context with a namespace of its own"""
    return seen.chunks == [EVENT]


# -- what a compiled graph is made of


def guards(seen: Seen) -> bool:
    """a compiled node runs the bound and the writers that it is given, once what it keeps of them is dropped"""
    return seen.around == ["body", "body", "body", "writes"]


def parts(seen: Seen) -> bool:
    """a compiled node has bound and writers, a sequence has steps, and a function is its func"""
    (part,) = graphs.parts_of(seen.plain)
    steps = graphs.parts_of(seen.sequence)
    made = [len(graphs.functions_of(step)) for step in steps]
    return graphs.functions_of(part)[0] is seen.function and made == [1, 1] and len(graphs.writers_of(seen.plain)) > 0


def cache_policies(seen: Seen) -> bool:
    """cache_policy of compiled nodes and graphs says what goes into a cache"""
    nodes = seen.graph.nodes
    found = graphs.is_cached(nodes["sub"]), graphs.is_cached(nodes["never"]), graphs.is_cached(seen.graph)
    return found == (True, False, False) and hasattr(seen.graph, "cache_policy")


def names_of_nodes(seen: Seen) -> bool:
    """LangGraph's own nodes begin with '__', and get_subgraphs(recurse=True) yields paths with '|'"""
    paths = {namespaces.path_of_subgraph(path) for path, _ in seen.graph.get_subgraphs(recurse=True)}
    return {name for name, _ in graphs.nodes_of(seen.graph)} == {"sub", "never"} and paths == {"sub", "sub:deep"}


def breakpoints(seen: Seen) -> bool:
    """a compiled graph has interrupt_before_nodes, interrupt_after_nodes and stream_mode"""
    before, after = graphs.breakpoints_before(seen.graph), graphs.breakpoints_after(seen.graph)
    return list(before) == list(after) == ["never"] and hasattr(seen.graph, "stream_mode")


def builders(seen: Seen) -> bool:
    """a StateGraph has nodes with runnable and ends, edges, waiting_edges, branches with path, and channels; and runs them"""
    builder = build.builder_of(seen.waited)
    paths = [branch.path for branch in build.branches_of(builder, "one").values()]
    edges = build.edges_from(builder, "one"), build.joins_from(builder, "one"), build.goes_to(builder, "two")
    build.channel_in(builder, "log").copy().update([[1], [2]])
    return len(paths) == 1 and hasattr(paths[0], "invoke") and edges == (set(), [(("one", "two"), "three")], ("three",))


def changed_builder(seen: Seen) -> bool:
    """what is put in place of a node's runnable and of a branch's path is what a compiled StateGraph runs"""
    return seen.put_in_place == ["body", "path"]


def sent(seen: Seen) -> bool:
    """metadata['langgraph_path'] of a task that Send made begins with '__pregel_push', and of no other"""
    return sorted(seen.sent) == [("one", False), ("two", True)]


def copies(seen: Seen) -> bool:
    """stream and astream of a copied graph can be replaced, and the graph stays as it is"""

    def stream(*_: Any, **__: Any) -> None: ...

    graph = graphs.with_streams(seen.graph, stream, stream)
    return (graph.stream, graph.astream, graph.checkpointer) == (stream, stream, False) and (
        seen.graph.stream != stream and seen.graph.checkpointer is seen.saver
    )


CHECKS: tuple[Check, ...] = (
    runtime,
    execution_info,
    checkpointer,
    task_id,
    task_namespace,
    checkpoint_map,
    stored_answers,
    bare_resume,
    interrupt_counter,
    send,
    loop,
    strict_resume,
    control_channels,
    error_channels,
    interrupts,
    interrupt_id,
    output,
    order_of_checkpoints,
    custom_stream,
    guards,
    parts,
    cache_policies,
    names_of_nodes,
    breakpoints,
    builders,
    changed_builder,
    sent,
    copies,
)


def _at_root(seen: Seen, run: str) -> list[Written]:
    return [written for written in seen.writes[run] if not written.configurable["checkpoint_ns"]]


def _leaf(seen: Seen, run: str) -> Written:
    return [written for written in seen.writes[run] if written.configurable["checkpoint_ns"]][-1]


def _channels(written: Written) -> set[str]:
    return {channel for channel, _ in written.writes}
