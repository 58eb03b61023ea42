"""`deliver`, `recover`, `sweep`, `worker` and `purge`: what runs without a person waiting for it.

They say what is left undone by their exit code. A worker that is told to end finishes its round first.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.database import open_store
from symfonic_interrupts.cli.ends import INTERRUPTED, Undone, Usage, ending
from symfonic_interrupts.cli.loading import Calls, opened
from symfonic_interrupts.cli.options import AppDir, AsJson, Graph, Store, duration, interval
from symfonic_interrupts.cli.reports import delivery_data, failure, sweep_data
from symfonic_interrupts.cli.signals import Signals
from symfonic_interrupts.delivering.failed_thread import log_failure
from symfonic_interrupts.errors import InterruptError
from symfonic_interrupts.upkeep.worker import Worker

if TYPE_CHECKING:
    from symfonic_interrupts.adapter.adapter import ResumeAdapter
    from symfonic_interrupts.delivering.progress import Delivery


@ending
def recover(
    graph: Graph = None,
    app_dir: AppDir = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many threads. Else all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Deliver stored answers, and finish what a crash left unfinished."""
    with opened(graph, app_dir, tracebacks=True) as calls, output.progress("recovering"):
        found = [delivery_data(delivery) for delivery in calls(calls.adapter, "recover", limit)]
        failed = calls(calls.adapter, "failed")
    if as_json:
        output.document(found)
    else:
        _show_deliveries(found)
        if not found:
            output.say("nothing was left unfinished")
    for thread in failed:
        where = f"node {output.printable(thread.node)}" if thread.node else "the run"
        told = f"{where} of {output.printable(thread.thread_id)} raised {output.printable(thread.error_type)}"
        output.say(f"{told} after its answer: `deliver` tries it again")
    _judge(found)


@ending
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
            done = delivery_data(calls(calls.adapter, "deliver", thread_id))
        except InterruptError:
            raise
        except Exception as error:  # the graph's own
            log_failure(thread_id, error)
            done = {"thread_id": thread_id, "applied": [], "unused": [], "open": [], "error": failure(error)}
    if as_json:
        output.document(done)
    else:
        _show_deliveries([done])
    _judge([done])


@ending
def sweep(graph: Graph = None, app_dir: AppDir = None, as_json: AsJson = False) -> None:
    """Close what nobody answered in time, and deliver default answers."""
    with opened(graph, app_dir, tracebacks=True) as calls, output.progress("sweeping"):
        done = sweep_data(calls(calls.adapter.janitor(), "sweep"))
    if as_json:
        output.document(done)
    else:
        rows = []
        for event in done["events"]:
            ended = "default answer" if event["interrupt_id"] in done["defaulted"] else "expired"
            rows.append([event["interrupt_id"], event.get("name", "ask_user"), event["thread_id"], ended])
        output.rows(["interrupt_id", "name", "thread", "ended"], rows)
        if not rows:
            output.say("nothing was overdue")
    left = [f"{id_}: its row was changed in the database" for id_ in done["refused"]]
    left += [f"{id_}: its point is not registered in this graph's application" for id_ in done["unknown"]]
    for line in left:
        output.say(line)
    _judge(done["deliveries"])
    if left:
        raise Undone


@ending
def worker(
    graph: Graph = None,
    app_dir: AppDir = None,
    every: Annotated[
        timedelta,
        typer.Option("--interval", parser=interval, metavar="DURATION", help="The wait between rounds, about."),
    ] = "5s",  # type: ignore[assignment]  # the parser reads it, and --help shows it
) -> None:
    """Recover and sweep in a loop, until SIGTERM or Ctrl-C; any number may run at once. Says each delivery on stderr.

    The round that is running is finished first. A second signal ends at once; another worker then finishes the thread, when the
    lease has lapsed.
    """
    with opened(graph, app_dir, tracebacks=True) as calls, Signals() as signals:
        running = _telling_worker(calls.adapter)
        failures: list[Exception] = []
        loop = threading.Thread(target=_loop, args=(calls, running, every, failures, signals), daemon=True)
        output.say(f"worker of graph {calls.adapter.graph_name}, process {os.getpid()}: started")
        loop.start()
        signals.wait()
        if signals.received is not None:
            signals.told()
        running.stop()
        loop.join()
        if failures:
            raise failures[0]
        output.say(f"worker of graph {calls.adapter.graph_name}, process {os.getpid()}: ended")
        if signals.received == signal.SIGINT:
            raise typer.Exit(INTERRUPTED)


@ending
def purge(
    older_than: Annotated[
        timedelta,
        typer.Option("--older-than", parser=duration, metavar="DURATION", help="Asked longer ago than this, as 30d."),
    ],
    with_events: Annotated[bool, typer.Option("--with-events", help="Delete the events of that time too.")] = False,
    graph: Graph = None,
    app_dir: AppDir = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Delete pauses of all graphs that have ended; their tokens stay refused.

    It needs the store alone: --store, without graph and keys. Or --graph, whose store is taken.
    """
    if not store and not graph:
        raise Usage(
            "this command needs the pause store: pass --store URL, or set SYMFONIC_INTERRUPTS_STORE; or pass --graph"
            " module:attribute, whose store is taken then"
        )
    with output.progress("purging"):
        if store:
            with open_store(store) as interrupts:
                counts = interrupts.purge(older_than, with_events=with_events)
        else:
            with opened(graph, app_dir, tracebacks=True) as calls:
                counts = calls(calls.adapter.janitor(), "purge", older_than, with_events=with_events)
    if as_json:
        output.document(counts)
    else:
        output.fields(list(counts.items()))


def _loop(calls: Calls, running: Any, every: timedelta, failures: list[Exception], signals: Signals) -> None:
    try:
        calls(running, "run", every)
    except Exception as error:
        failures.append(error)
    finally:
        signals.wake()


def _telling_worker(adapter: ResumeAdapter) -> Worker:
    """The adapter's worker, which says a line per delivery."""
    janitor = adapter.janitor()

    def recovered() -> None:
        _tell(adapter.recover())

    def swept() -> None:
        _tell(janitor.sweep().deliveries)

    async def arecovered() -> None:
        _tell(await adapter.arecover())

    async def aswept() -> None:
        _tell((await janitor.asweep()).deliveries)

    return Worker([recovered, swept], [arecovered, aswept])


def _tell(deliveries: Iterable[Delivery]) -> None:
    for delivery in map(delivery_data, deliveries):
        parts = [f"{what} {', '.join(delivery[what])}" for what in ("applied", "unused", "open") if delivery[what]]
        output.say(f"thread {delivery['thread_id']}: {_outcome(delivery)}" + "".join(f"; {part}" for part in parts))


def _show_deliveries(found: list[dict[str, Any]]) -> None:
    rows = []
    for delivery in found:
        rows.append([delivery["thread_id"], len(delivery["applied"]), len(delivery["unused"]), _outcome(delivery)])
    output.rows(["thread", "applied", "unused", "outcome"], rows)


def _outcome(delivery: dict[str, Any]) -> str:
    if delivery["error"] is not None:
        return f"failed: {delivery['error']['message']}"
    return "waits again" if delivery["open"] else "went on"


def _judge(deliveries: list[dict[str, Any]]) -> None:
    failed = [delivery["thread_id"] for delivery in deliveries if delivery["error"] is not None]
    if failed:
        raise Undone(f"{len(failed)} of {len(deliveries)} threads failed; their answers stay stored")
