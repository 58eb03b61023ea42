"""Two gates side by side, answered by two processes at the same moment."""

from __future__ import annotations

from contextlib import ExitStack

from tests.crash.conftest import Record
from tests.crash.workers import LONG_LEASE, Place, siblings_graph, worker
from tests.harness import thread

ROUNDS = 5


def test_siblings_answered_by_two_processes_at_once_join_once_and_run_once(place: Place, record: Record) -> None:
    with ExitStack() as stack:
        adapter = place.open_adapter(stack, siblings_graph, config=LONG_LEASE)
        left = stack.enter_context(worker(place, "invoke_siblings"))
        right = stack.enter_context(worker(place, "invoke_siblings"))
        assert (left.hear(), right.hear()) == ("ready", "ready")
        for number in range(ROUNDS):
            thread_id = f"round-{number}"
            adapter.graph.invoke({"log": []}, thread(thread_id))
            tokens = {event.payload["order"]: event.pause_token for event in adapter.pending(thread_id=thread_id)}

            left.say(tokens["left"])
            right.say(tokens["right"])

            assert (left.hear(), right.hear()) == ("ok", "ok")
            state = adapter.graph.get_state(thread(thread_id))
            assert (state.next, state.tasks, state.interrupts) == ((), (), ())
            assert sorted(state.values["log"]) == ["join", "left", "right"]
            assert sorted(place.noted()) == sorted(["left:go", "right:go", "join:left+right"] * (number + 1))

        assert adapter.recover() == []
    assert record("SELECT state FROM interrupt_pauses") == [("applied",)] * 2 * ROUNDS
    assert record("SELECT * FROM interrupt_thread_leases") == []
