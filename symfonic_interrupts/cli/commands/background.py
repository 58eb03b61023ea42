"""`recover`, `deliver` and `sweep`: one round of what a worker does, by hand.

Their exit code tells whether anything is left undone.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import Undone, with_exit_code
from symfonic_interrupts.cli.loading import opened
from symfonic_interrupts.cli.options import AppDir, AsJson, Graph
from symfonic_interrupts.cli.reports import delivery_data, failed_delivery_data, failures_of, outcome, sweep_data
from symfonic_interrupts.delivering.failed_thread import log_failure
from symfonic_interrupts.errors import InterruptError


@with_exit_code
def recover(
    graph: Graph = None,
    app_dir: AppDir = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many threads. Else all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Deliver stored answers, and finish what a crash left unfinished."""
    with opened(graph, app_dir, tracebacks=True) as calls, output.progress("recovering"):
        deliveries = [delivery_data(delivery) for delivery in calls(calls.adapter, "recover", limit)]
        failed = calls(calls.adapter, "failed")
    if as_json:
        output.document(deliveries)
    else:
        _show(deliveries)
        if not deliveries:
            output.say("nothing was left unfinished")
    for thread in failed:
        where = f"node {thread.node}" if thread.node else "the run"
        output.say(
            f"{where} of {thread.thread_id} raised {thread.error_type} after its answer: `deliver` tries it again"
        )
    _fail_if_any_failed(deliveries)


@with_exit_code
def deliver(
    thread_id: Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id, as in `pending`.")],
    graph: Graph = None,
    app_dir: AppDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a thread with its stored answers, also where a node raised after its answer, which `recover` leaves alone."""
    with (
        opened(graph, app_dir, tracebacks=True) as calls,
        output.progress(f"running thread {output.printable(thread_id)}"),
    ):
        try:
            delivery = delivery_data(calls(calls.adapter, "deliver", thread_id))
        except InterruptError:
            raise
        except Exception as error:  # raised by the graph itself
            log_failure(thread_id, error)
            delivery = failed_delivery_data(thread_id, error)
    if as_json:
        output.document(delivery)
    else:
        _show([delivery])
    _fail_if_any_failed([delivery])


@with_exit_code
def sweep(graph: Graph = None, app_dir: AppDir = None, as_json: AsJson = False) -> None:
    """Close what nobody answered in time, and deliver default answers."""
    with opened(graph, app_dir, tracebacks=True) as calls, output.progress("sweeping"):
        swept = sweep_data(calls(calls.adapter.janitor(), "sweep"))
    if as_json:
        output.document(swept)
    else:
        rows = []
        for event in swept["events"]:
            ended = "default answer" if event["interrupt_id"] in swept["defaulted"] else "expired"
            rows.append([event["interrupt_id"], event.get("name", "ask_user"), event["thread_id"], ended])
        output.rows(["interrupt_id", "name", "thread", "ended"], rows)
        if not rows:
            output.say("nothing was overdue")
    problems = [f"{id_}: its row was changed in the database" for id_ in swept["refused"]]
    problems += [f"{id_}: its point is not registered in this graph's application" for id_ in swept["unknown"]]
    for problem in problems:
        output.say(problem)
    _fail_if_any_failed(swept["deliveries"])
    if problems:
        raise Undone


def _show(deliveries: list[dict[str, Any]]) -> None:
    rows = []
    for delivery in deliveries:
        rows.append([delivery["thread_id"], len(delivery["applied"]), len(delivery["unused"]), outcome(delivery)])
    output.rows(["thread", "applied", "unused", "outcome"], rows)


def _fail_if_any_failed(deliveries: list[dict[str, Any]]) -> None:
    if message := failures_of(deliveries):
        raise Undone(message)
