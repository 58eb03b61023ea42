"""The planner: each row of its table (docs: "rules of the engine"), over pure data.

Writes are what LangGraph's savers return as pending writes: `(task id, channel, value)`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from langgraph.types import Interrupt

from symfonic_interrupts.core.checkpoints import TaskState, is_marker, is_pending, read_tasks, waiting_in
from symfonic_interrupts.delivering.planner import Plan, is_durable, plan

INTERRUPT, RESUME, ERROR = "__interrupt__", "__resume__", "__error__"
NULL_TASK = "00000000-0000-0000-0000-000000000000"
USED = datetime(2026, 1, 2, tzinfo=UTC)


def marker(task: str = "leaf", **changed: Any) -> dict[str, Any]:
    """The value of an interrupt of one of our points."""
    return {"type": "interrupt", "name": "approval", "interrupt_id": "i-1", "task_id": task, "payload": {}, **changed}


def asks(id_: str, task: str = "leaf") -> Interrupt:
    return Interrupt(value=marker(task), id=id_)


def envelope(*jtis: str) -> dict[str, Any]:
    """What a RESUME write has for answers with receipts of these tokens."""
    return {"answers": [{"response": "{}", "receipt": {"jti": jti}} for jti in jtis]}


def row(jti: str = "j1", **changed: Any) -> dict[str, Any]:
    """An answered pause, asked by task `leaf` below the root's task `root`."""
    return {
        "jti": jti,
        "interrupt_id": f"i-{jti}",
        "state": "answered",
        "native": False,
        "langgraph_id": "L1",
        "slot": 0,
        "task_id": "root",
        "leaf_task_id": "leaf",
        "used_at": None,
        "skipped_at": None,
        **changed,
    }


def native_row(jti: str = "j1", **changed: Any) -> dict[str, Any]:
    return row(jti, native=True, **changed)


def next_step(
    answered: list[dict[str, Any]],
    head: list[tuple[str, str, Any]],
    leaf: list[tuple[str, str, Any]] | None = None,
    *,
    values: dict[str, Any] | None = None,
    tried: frozenset[str] = frozenset(),
    may_proceed: bool = True,
    crashed: bool = False,
    retry_failed: bool = True,
) -> Plan:
    """The next step, where all answered rows were asked by one task with these writes in its own checkpoint."""
    state = read_tasks(leaf).get("leaf", TaskState())
    return plan(
        read_tasks(head),
        {one["jti"]: state for one in answered},
        answered,
        values or {},
        tried=tried,
        may_proceed=may_proceed,
        crashed=crashed,
        retry_failed=retry_failed,
    )


def said(step: Plan) -> dict[str, Any]:
    """A step in short: only what there is to do, rows by their jti."""
    found: dict[str, Any] = {}
    if step.resume:
        found["resume"] = {id_: [one["jti"] for one in rows] for id_, rows in step.resume.items()}
    if step.proceed:
        found["proceed"] = True
    if step.applied:
        found["applied"] = [one["jti"] for one in step.applied]
    if step.unused:
        found["unused"] = [one["jti"] for one in step.unused]
    return found


WAITING = [("root", INTERRUPT, [asks("L1")])]
"""The root's task waits for the question that the row answers."""

ANSWERED = [("leaf", INTERRUPT, [asks("L1")]), ("leaf", RESUME, [envelope("j1")])]
"""The leaf's task has the row's answer in its writes."""


TABLE = {
    # answer durable, task finished
    "a used answer of a finished task is applied": (
        {
            "answered": [row(used_at=USED)],
            "head": [*WAITING, ("root", "log", ["done"])],
            "leaf": [*ANSWERED, ("leaf", "log", ["done"])],
            "may_proceed": False,
        },
        {"applied": ["j1"]},
    ),
    "an answer that a finished task did not use is unused": (
        {
            "answered": [row("j1", skipped_at=USED), row("j2")],
            "head": [*WAITING, ("root", "log", ["done"])],
            "leaf": [*ANSWERED, ("leaf", "log", ["done"])],
            "may_proceed": False,
        },
        {"unused": ["j1", "j2"]},
    ),
    "an answer in the RESUME write of a finished task was used": (
        {
            "answered": [row("j1")],
            "head": [*WAITING, ("root", "log", ["done"])],
            "leaf": [*ANSWERED, ("leaf", "log", ["done"])],
            "may_proceed": False,
        },
        {"applied": ["j1"]},
    ),
    "each answer of a finished task ends by whether it was used": (
        {
            "answered": [row("j1", used_at=USED), row("j2", skipped_at=USED), row("j3")],
            "head": [("root", "log", ["done"]), ("other", INTERRUPT, [asks("L9", "other")])],
            "leaf": [("leaf", RESUME, [envelope("j2", "j3")]), ("leaf", "log", ["done"])],
        },
        {"applied": ["j1", "j3"], "unused": ["j2"]},
    ),
    "a leaf that finished while its subgraph goes on ends its answer, and the subgraph goes on": (
        {
            "answered": [row(used_at=USED)],
            "head": [],
            "leaf": [*ANSWERED, ("leaf", "log", ["done"])],
            "crashed": True,
        },
        {"applied": ["j1"], "proceed": True},
    ),
    # answer durable, its task pauses again
    "an answer whose task asks another question is not sent again": (
        {
            "answered": [row(used_at=USED)],
            "head": [("root", INTERRUPT, [asks("L2")])],
            "leaf": [("leaf", RESUME, [envelope("j1")]), ("leaf", INTERRUPT, [asks("L2")])],
        },
        {},
    ),
    "an answer that is durable but not used is not sent again either": (
        {
            "answered": [row(used_at=None)],
            "head": [("root", INTERRUPT, [asks("L2")])],
            "leaf": [("leaf", RESUME, [envelope("j1")]), ("leaf", INTERRUPT, [asks("L2")])],
        },
        {},
    ),
    "a further answer of a task that has one is sent alone, in its own slot": (
        {
            "answered": [row("j1", used_at=USED), row("j2", langgraph_id="L2", slot=1)],
            "head": [("root", INTERRUPT, [asks("L2")])],
            "leaf": [("leaf", RESUME, [envelope("j1")]), ("leaf", INTERRUPT, [asks("L2")])],
        },
        {"resume": {"L2": ["j2"]}},
    ),
    # answer durable, task neither finished nor paused
    "a task that died after its answer is continued": (
        {"answered": [row(used_at=USED)], "head": WAITING, "leaf": ANSWERED},
        {"proceed": True},
    ),
    "a task that died after its answer is continued in recovery": (
        {"answered": [row()], "head": WAITING, "leaf": ANSWERED, "retry_failed": False},
        {"proceed": True},
    ),
    "a task that died after its answer is continued though the root does not show it": (
        {"answered": [row()], "head": [], "leaf": [("leaf", RESUME, [envelope("j1")])]},
        {"proceed": True},
    ),
    "a task that died is continued once in a delivery": (
        {"answered": [row()], "head": WAITING, "leaf": ANSWERED, "may_proceed": False},
        {},
    ),
    # its task pending, in whatever slot
    "an answer is sent to the question it was given to": (
        {"answered": [row()], "head": WAITING, "leaf": [("leaf", INTERRUPT, [asks("L1")])]},
        {"resume": {"L1": ["j1"]}},
    ),
    "an answer is sent to its task where the question moved to another slot": (
        {"answered": [row()], "head": [("root", INTERRUPT, [asks("L7")])], "leaf": [("leaf", INTERRUPT, [asks("L7")])]},
        {"resume": {"L7": ["j1"]}},
    ),
    "all answers of a task are sent together": (
        {"answered": [row("j1"), row("j2"), row("j3")], "head": WAITING, "leaf": WAITING},
        {"resume": {"L1": ["j1", "j2", "j3"]}},
    ),
    "answers of several tasks are sent in one step": (
        {
            "answered": [row("j1"), row("j2", leaf_task_id="leaf2", task_id="root2", langgraph_id="L2")],
            "head": [*WAITING, ("root2", INTERRUPT, [asks("L2", "leaf2")])],
        },
        {"resume": {"L1": ["j1"], "L2": ["j2"]}},
    ),
    "an answer is sent to its own task and not to that beside it": (
        {
            "answered": [row("j2", leaf_task_id="leaf2", task_id="root2", langgraph_id="L2")],
            "head": [*WAITING, ("root2", INTERRUPT, [asks("L2", "leaf2")])],
        },
        {"resume": {"L2": ["j2"]}},
    ),
    "an answer is found among several questions of one root task": (
        {"answered": [row()], "head": [("root", INTERRUPT, [asks("L2", "leaf2"), asks("L1")])]},
        {"resume": {"L1": ["j1"]}},
    ),
    "an answer of which another's envelope stands in the task is still sent": (
        {"answered": [row("j2")], "head": WAITING, "leaf": [("leaf", RESUME, [envelope("j1")])]},
        {"resume": {"L1": ["j2"]}},
    ),
    "sending goes before going on": (
        {"answered": [row()], "head": WAITING, "crashed": True},
        {"resume": {"L1": ["j1"]}},
    ),
    "sending is not forbidden by an earlier run": (
        {"answered": [row()], "head": WAITING, "may_proceed": False},
        {"resume": {"L1": ["j1"]}},
    ),
    # native answers
    "a native answer is sent to its interrupt": (
        {
            "answered": [native_row()],
            "head": [("root", INTERRUPT, [Interrupt(value="really?", id="L1")])],
            "values": {"j1": {"approved": True}},
        },
        {"resume": {"L1": ["j1"]}},
    ),
    "a native answer is not sent to another interrupt of its task": (
        {
            "answered": [native_row()],
            "head": [("root", INTERRUPT, [Interrupt(value="really?", id="L2")])],
            "leaf": [
                ("leaf", RESUME, [{"approved": True}]),
                ("leaf", INTERRUPT, [Interrupt(value="really?", id="L2")]),
            ],
            "values": {"j1": {"approved": True}},
        },
        {},
    ),
    "a native answer that stands in its slot, of a task that died, is not sent again": (
        {
            "answered": [native_row(slot=1)],
            "head": [("root", INTERRUPT, [Interrupt(value="really?", id="L1")])],
            "leaf": [("leaf", RESUME, ["first", {"approved": True}])],
            "values": {"j1": {"approved": True}},
        },
        {"proceed": True},
    ),
    "a native answer that stands in another slot is not there yet": (
        {
            "answered": [native_row(slot=1)],
            "head": [("root", INTERRUPT, [Interrupt(value="really?", id="L1")])],
            "leaf": [("leaf", RESUME, [{"approved": True}])],
            "values": {"j1": {"approved": True}},
        },
        {"resume": {"L1": ["j1"]}},
    ),
    "a used native answer of a finished task is applied": (
        {
            "answered": [native_row(used_at=USED)],
            "head": [("root", "log", ["done"]), ("other", INTERRUPT, [asks("L9", "other")])],
            "leaf": [("leaf", RESUME, [{"approved": True}]), ("leaf", "log", ["done"])],
            "values": {"j1": {"approved": True}},
        },
        {"applied": ["j1"]},
    ),
    "a native answer whose question was answered by something else is unused": (
        {
            "answered": [native_row()],
            "head": [("root", INTERRUPT, [Interrupt(value="and now?", id="L2")])],
            "leaf": [("leaf", RESUME, ["raw"]), ("leaf", INTERRUPT, [Interrupt(value="and now?", id="L2")])],
            "values": {"j1": {"approved": True}},
        },
        {"unused": ["j1"]},
    ),
    "a native answer whose question still stands is sent whatever its node choked on before": (
        {
            "answered": [native_row()],
            "head": [("root", INTERRUPT, [Interrupt(value="really?", id="L1")]), ("root", ERROR, "boom")],
            "leaf": [("leaf", RESUME, ["raw"]), ("leaf", ERROR, "boom")],
            "values": {"j1": {"approved": True}},
            "retry_failed": False,
        },
        {"resume": {"L1": ["j1"]}},
    ),
    "a native leaf that finished while its subgraph goes on ends its answer, and the subgraph goes on": (
        {
            "answered": [native_row(used_at=USED)],
            "head": [("root", INTERRUPT, [Interrupt(value="really?", id="L1")])],
            "leaf": [("leaf", RESUME, [{"approved": True}]), ("leaf", "log", ["done"])],
            "values": {"j1": {"approved": True}},
            "retry_failed": False,
        },
        {"applied": ["j1"], "proceed": True},
    ),
    "a subgraph that waits for another native question than the one that is over does not go on": (
        {
            "answered": [native_row(used_at=USED)],
            "head": [("root", INTERRUPT, [Interrupt(value="and now?", id="L2")])],
            "leaf": [("leaf", RESUME, [{"approved": True}]), ("leaf", "log", ["done"])],
            "values": {"j1": {"approved": True}},
        },
        {"applied": ["j1"]},
    ),
    # cut off by a timeout: LangGraph keeps no RESUME of what was taken
    "an answer that its node took before it ran out of time is left alone by recovery": (
        {
            "answered": [row(used_at=USED)],
            "head": [*WAITING, ("root", ERROR, "late")],
            "leaf": [("leaf", INTERRUPT, [asks("L1")]), ("leaf", ERROR, "late")],
            "retry_failed": False,
        },
        {},
    ),
    "an answer that its node took before it ran out of time is sent again by an explicit delivery": (
        {
            "answered": [row(used_at=USED)],
            "head": [*WAITING, ("root", ERROR, "late")],
            "leaf": [("leaf", INTERRUPT, [asks("L1")]), ("leaf", ERROR, "late")],
        },
        {"resume": {"L1": ["j1"]}},
    ),
    "an answer that was sent to a node that a raw resume had failed before is sent in recovery too": (
        {
            "answered": [row()],
            "head": [*WAITING, ("root", ERROR, "refused")],
            "leaf": [("leaf", INTERRUPT, [asks("L1")]), ("leaf", ERROR, "refused")],
            "retry_failed": False,
        },
        {"resume": {"L1": ["j1"]}},
    ),
    "a node that ran out of time and has an error handler goes on with that": (
        {
            "answered": [row(used_at=USED)],
            "head": [*WAITING, ("root", ERROR, "late"), ("root", "__error_source_node__", "node")],
            "leaf": [("leaf", INTERRUPT, [asks("L1")]), ("leaf", ERROR, "late")],
            "retry_failed": False,
        },
        {"proceed": True},
    ),
    # tried
    "an answer is sent once in a delivery": (
        {"answered": [row()], "head": WAITING, "tried": frozenset({"j1"}), "may_proceed": False},
        {},
    ),
    "an answer that was not tried is sent though another was": (
        {"answered": [row("j1"), row("j2")], "head": WAITING, "tried": frozenset({"j1"}), "may_proceed": False},
        {"resume": {"L1": ["j2"]}},
    ),
    "an answer that was tried and never came into its finished task is unused": (
        {
            "answered": [row()],
            "head": [*WAITING, ("root", "log", ["done"])],
            "leaf": [("leaf", INTERRUPT, [asks("L1")])],
            "tried": frozenset({"j1"}),
            "may_proceed": False,
        },
        {"unused": ["j1"]},
    ),
    "an answer that is not in its finished task is unused": (
        {"answered": [row()], "head": [*WAITING, ("root", "log", ["done"])], "may_proceed": False},
        {"unused": ["j1"]},
    ),
    # neither pending, nor durable, nor over: the run died before it asked again
    "an answer whose task has not come to its question again waits for it": (
        {"answered": [row()], "head": []},
        {"proceed": True},
    ),
    "an answer whose task has not come to its question again waits, once": (
        {"answered": [row()], "head": [], "may_proceed": False},
        {},
    ),
    # a node failed after its answer
    "a node that failed after its answer is tried again by an explicit delivery": (
        {
            "answered": [row(used_at=USED)],
            "head": [*WAITING, ("root", ERROR, "boom")],
            "leaf": [*ANSWERED, ("leaf", ERROR, "boom")],
        },
        {"proceed": True},
    ),
    "a node that failed after its answer is left alone by recovery": (
        {
            "answered": [row(used_at=USED)],
            "head": [*WAITING, ("root", ERROR, "boom")],
            "leaf": [*ANSWERED, ("leaf", ERROR, "boom")],
            "retry_failed": False,
        },
        {},
    ),
    "a node that failed again in this delivery is not tried a third time": (
        {
            "answered": [row(used_at=USED)],
            "head": [*WAITING, ("root", ERROR, "boom")],
            "leaf": [*ANSWERED, ("leaf", ERROR, "boom")],
            "may_proceed": False,
        },
        {},
    ),
    "a node that failed without an answer is tried again by an explicit delivery": (
        {"answered": [], "head": [("root", ERROR, "boom")]},
        {"proceed": True},
    ),
    "a node that failed without an answer is left alone by recovery": (
        {"answered": [], "head": [("root", ERROR, "boom")], "retry_failed": False},
        {},
    ),
    "a node that failed and then finished is not tried again": (
        {
            "answered": [],
            "head": [("root", ERROR, "boom"), ("root", "log", []), ("other", INTERRUPT, [asks("L2", "other")])],
        },
        {},
    ),
    # all tasks have output but the thread stands
    "a thread whose tasks have all finished, and which stands, goes on": (
        {"answered": [], "head": [("a", "log", ["a"]), ("b", "log", ["b"])], "retry_failed": False},
        {"proceed": True},
    ),
    "two siblings answered at once are applied, and the thread goes on": (
        {
            "answered": [row("j1", used_at=USED)],
            "head": [*WAITING, ("root", "log", ["a"]), ("other", "log", ["b"])],
            "leaf": [*ANSWERED, ("leaf", "log", ["a"])],
        },
        {"applied": ["j1"], "proceed": True},
    ),
    "a thread of which one task has finished and another waits stands": (
        {"answered": [], "head": [("a", "log", ["a"]), *WAITING]},
        {},
    ),
    "a thread of which one task has finished and another has written nothing but an error stands in recovery": (
        {"answered": [], "head": [("a", "log", ["a"]), ("b", ERROR, "boom")], "retry_failed": False},
        {},
    ),
    # lapsed lease
    "a thread whose run died goes on": (
        {"answered": [], "head": [], "crashed": True, "retry_failed": False},
        {"proceed": True},
    ),
    "a thread whose run died goes on once": (
        {"answered": [], "head": [], "crashed": True, "may_proceed": False},
        {},
    ),
    "a thread whose run died with a question open goes on": (
        {"answered": [], "head": WAITING, "crashed": True},
        {"proceed": True},
    ),
    # else
    "a thread that ended is done": ({"answered": [], "head": []}, {}),
    "a thread that waits for an answer is done": ({"answered": [], "head": WAITING}, {}),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_next_step_where(case: str) -> None:
    thread, step = TABLE[case]

    assert said(next_step(**thread)) == step


def test_planning_changes_nothing_it_was_given() -> None:
    answered = [row()]
    head = read_tasks(WAITING)

    plan(head, {}, answered, {}, tried=frozenset(), may_proceed=True, crashed=True, retry_failed=True)

    assert answered == [row()]
    assert head == read_tasks(WAITING)


@pytest.mark.parametrize("case", TABLE)
def test_a_delivery_ends_when_each_answer_was_sent_and_the_graph_was_continued_where(case: str) -> None:
    thread, _ = TABLE[case]
    tried: frozenset[str] = frozenset()
    may_proceed, steps = True, []
    for _ in range(3 + len(thread["answered"])):
        step = next_step(**{**thread, "tried": tried, "may_proceed": may_proceed})
        if not step.resume and not step.proceed:
            break
        tried |= {one["jti"] for rows in step.resume.values() for one in rows}
        may_proceed = False
        steps.append(said(step))

    assert len(steps) <= 1 + len(thread["answered"]), steps


# -- reading a checkpoint


def test_a_task_that_wrote_to_a_channel_of_the_graph_is_finished() -> None:
    tasks = read_tasks(
        [("a", "log", None), ("b", "branch:to:next", None), ("c", "__return__", 5), ("d", "__no_writes__", None)]
    )

    assert {id_: task.finished for id_, task in tasks.items()} == {"a": True, "b": True, "c": True, "d": True}


def test_what_happened_to_a_task_is_not_its_output() -> None:
    tasks = read_tasks(
        [
            ("a", INTERRUPT, [asks("L1", "a")]),
            ("b", RESUME, ["x"]),
            ("c", ERROR, "boom"),
            ("d", "__error_source_node__", "gate"),
        ]
    )

    assert [task.finished for task in tasks.values()] == [False] * 4
    assert [task.failed for task in tasks.values()] == [False, False, True, False]
    assert tasks["b"].resume == ["x"]


def test_the_null_task_is_no_task() -> None:
    assert read_tasks([(NULL_TASK, RESUME, "x"), (NULL_TASK, "log", 1)]) == {}


@pytest.mark.parametrize("writes", [None, [], ()])
def test_a_checkpoint_without_writes_has_no_tasks(writes: Any) -> None:
    assert read_tasks(writes) == {}


@pytest.mark.parametrize("value", [asks("L1"), [asks("L1")], (asks("L1"),)])
def test_an_interrupt_write_is_one_or_several(value: Any) -> None:
    assert read_tasks([("leaf", INTERRUPT, value)])["leaf"].pending == (asks("L1"),)


def test_a_finished_task_waits_for_nothing() -> None:
    task = read_tasks([("leaf", INTERRUPT, [asks("L1")]), ("leaf", "log", 1)])["leaf"]

    assert task.interrupts == (asks("L1"),)
    assert task.pending == ()


@pytest.mark.parametrize("kind", ["interrupt", "ask_user_question"])
def test_the_value_of_our_points_is_a_marker(kind: str) -> None:
    assert is_marker(marker(type=kind))
    assert is_marker(marker(type=kind, more=1))


@pytest.mark.parametrize(
    "value",
    [
        None,
        "really?",
        {},
        [marker()],
        marker(type="question"),
        marker(type=None),
        marker(type=["interrupt"]),
        *({name: value for name, value in marker().items() if name != missing} for missing in marker()),
    ],
)
def test_any_other_value_is_none(value: Any) -> None:
    assert not is_marker(value)


def test_a_question_is_found_by_its_id_or_in_another_slot_by_its_task() -> None:
    native = Interrupt(value="plain", id="L1")
    ours = asks("L2")
    head = read_tasks([("root", INTERRUPT, [native, ours])])

    assert is_pending(row(langgraph_id="L2"), waiting_in(head)) == ours
    assert is_pending(row(langgraph_id="L0"), waiting_in(head)) == ours
    assert is_pending(native_row(langgraph_id="L1"), waiting_in(head)) == native
    assert is_pending(row(langgraph_id="L0", leaf_task_id="other"), waiting_in(head)) is None
    assert is_pending(native_row(langgraph_id="L3"), waiting_in(head)) is None


def test_a_native_question_in_the_form_of_a_marker_is_never_taken_for_the_points() -> None:
    beside = read_tasks([("root2", INTERRUPT, [asks("L9")]), ("root", INTERRUPT, [asks("L1")])])
    within = read_tasks([("root", INTERRUPT, [asks("L9"), asks("L5")])])
    leaf = read_tasks([("leaf", INTERRUPT, [asks("L5")])])["leaf"]

    assert is_pending(row(langgraph_id="L1"), waiting_in(beside)) == asks("L1")
    assert is_pending(row(langgraph_id="L1", task_id="root3"), waiting_in(beside)) is None
    assert is_pending(row(langgraph_id="L1"), waiting_in(within), leaf) == asks("L5")


@pytest.mark.parametrize(
    ("resume", "expected"),
    [
        ([envelope("j1")], True),
        ([envelope("j0"), envelope("j2", "j1")], True),
        (envelope("j1"), True),
        ((), False),
        (None, False),
        ([envelope("j0")], False),
        ([{"j1": True}], False),
        (["j1"], False),
        ([{"answers": "j1"}], False),
        ([{"answers": ["j1", None, {"receipt": "j1"}, {"receipt": {}}, {}]}], False),
        ([{**envelope("j1"), "more": 1}], False),
    ],
)
def test_an_answer_is_durable_where_its_receipt_stands_in_the_tasks_writes(resume: Any, expected: bool) -> None:
    assert is_durable(row(), TaskState(resume=resume), None) is expected


@pytest.mark.parametrize(
    ("resume", "expected"),
    [
        (["a", {"n": None}], True),
        (("a", {"n": None}), True),
        (["a", {"n": None}, "b"], True),
        ([{"n": None}, "a"], False),
        (["a"], False),
        (["a", {"n": 0}], False),
        ([], False),
        ((), False),
        ({"n": None}, False),
        (None, False),
    ],
)
def test_a_native_answer_is_durable_where_its_value_stands_in_its_slot(resume: Any, expected: bool) -> None:
    assert is_durable(native_row(slot=1), TaskState(resume=resume), {"n": None}) is expected
