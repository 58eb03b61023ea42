"""A process is killed at any point; another one finishes what it left, with the same answer, asking nobody twice."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest

from symfonic_interrupts import PauseNotReady
from tests.crash.conftest import Record
from tests.crash.workers import Place, gate_graph, worker
from tests.harness import thread

STATES = "SELECT state FROM interrupt_pauses ORDER BY id"
LEASES = "SELECT thread_id FROM interrupt_thread_leases"
EVENTS = "SELECT type FROM interrupt_events ORDER BY id"
FINISHED = {"log": ["go", "after"]}


def pause(place: Place) -> str:
    """Run the graph to its gate. Returns the token."""
    with ExitStack() as stack:
        adapter = place.open_adapter(stack, gate_graph)
        adapter.graph.invoke({"log": []}, thread())
        (event,) = adapter.pending()
        return event.pause_token


def kill_and_recover(place: Place, task: str, *options: str, token: str = "", meanwhile: Any = None) -> dict[str, Any]:
    """Kill a process where it stops; then have another one, which has opened nothing before, recover. Returns its report."""
    with worker(place, "recover") as other:
        with worker(place, task, *options) as child:
            child.say(token)
            assert child.hear() == "stopped"
        if meanwhile is not None:
            meanwhile()
        other.say("now")
        report: dict[str, Any] = json.loads(other.hear())
        return report


def test_a_process_killed_right_after_its_answer_is_finished_by_another(place: Place, record: Record) -> None:
    def look() -> None:
        assert (record(STATES), place.noted()) == ([("answered",)], [])

    report = kill_and_recover(place, "answer_only", token=pause(place), meanwhile=look)

    assert report == {"deliveries": [["t1", FINISHED, 1, 0, "None"]], "again": 0}
    assert place.noted() == ["begun:go", "done:go", "after"]
    assert record(STATES) == [("applied",)]
    assert record(LEASES) == []
    assert record(EVENTS) == [("interrupt",), ("interrupt_resolved",)]


def test_a_process_killed_inside_the_body_has_its_node_run_again_with_the_same_answer(
    place: Place, record: Record
) -> None:
    def look() -> None:
        assert place.noted() == ["begun:go"]
        assert (record(STATES), record(LEASES)) == ([("answered",)], [("t1",)])

    report = kill_and_recover(place, "invoke", "body", token=pause(place), meanwhile=look)

    assert report == {"deliveries": [["t1", FINISHED, 1, 0, "None"]], "again": 0}
    assert place.noted() == ["begun:go", "begun:go", "done:go", "after"]
    assert record(STATES) == [("applied",)]
    assert record(LEASES) == []
    assert record(EVENTS) == [("interrupt",), ("interrupt_resolved",)]


@pytest.mark.parametrize(
    ("stop_at", "effects"),
    [
        ("answer", ["begun:go", "done:go", "begun:go", "done:go", "after"]),  # nothing of the body was stored
        ("checkpoint", ["begun:go", "done:go", "after"]),  # the body's writes were
        ("overtaken", ["begun:go", "done:go", "after"]),  # or the checkpoint before them, if it can
    ],
)
def test_a_process_killed_while_it_stores_the_answered_step_is_finished_by_another(
    place: Place, record: Record, stop_at: str, effects: list[str]
) -> None:
    report = kill_and_recover(place, "invoke", stop_at, token=pause(place))

    (delivered,) = report["deliveries"]
    assert delivered[:2] == ["t1", FINISHED]
    assert delivered[3:] == [0, "None"]
    assert report["again"] == 0
    assert place.noted() == effects
    assert record(STATES) == [("applied",)]
    assert record(LEASES) == []
    assert record(EVENTS) == [("interrupt",), ("interrupt_resolved",)]


def test_a_process_killed_while_it_stores_a_question_leaves_one_that_recovery_makes_whole(
    place: Place, record: Record
) -> None:
    tokens: list[str] = []

    def answer_too_early() -> None:
        with ExitStack() as stack:
            adapter = place.open_adapter(stack, gate_graph)
            tokens.extend(event.pause_token for event in adapter.pending())
            with pytest.raises(PauseNotReady):
                adapter.answer(tokens[0], {"approved": True, "note": "too early"})

    report = kill_and_recover(place, "start_run", "question", meanwhile=answer_too_early)

    (delivered,) = report["deliveries"]
    assert (delivered[0], delivered[3:]) == ("t1", [1, "None"])
    assert (record(STATES), record(LEASES), record(EVENTS)) == ([("pending",)], [], [("interrupt",)])
    with ExitStack() as stack:
        adapter = place.open_adapter(stack, gate_graph)
        assert adapter.invoke(tokens[0], {"approved": True, "note": "go"}) == FINISHED
    assert place.noted() == ["begun:go", "done:go", "after"]
