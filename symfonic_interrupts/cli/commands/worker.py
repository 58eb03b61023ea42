"""`worker`: recovers and sweeps in a loop until a signal ends it. The round that is running is finished first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import INTERRUPTED, with_exit_code
from symfonic_interrupts.cli.loading import Calls, opened
from symfonic_interrupts.cli.options import AppDir, Graph, interval
from symfonic_interrupts.cli.reports import delivery_data, outcome
from symfonic_interrupts.cli.signals import Signals
from symfonic_interrupts.upkeep.worker import Worker

if TYPE_CHECKING:
    from symfonic_interrupts.adapter.adapter import ResumeAdapter
    from symfonic_interrupts.delivering.progress import Delivery


@with_exit_code
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
        background = _reporting_worker(calls.adapter)
        failures: list[Exception] = []
        loop = threading.Thread(target=_run, args=(calls, background, every, failures, signals), daemon=True)
        name = f"worker of graph {calls.adapter.graph_name}, process {os.getpid()}"
        output.say(f"{name}: started")
        loop.start()
        signals.wait()
        if signals.received is not None:
            output.say("ending after what is running; once more ends at once")
        background.stop()
        loop.join()
        if failures:
            raise failures[0]
        output.say(f"{name}: ended")
        if signals.received == signal.SIGINT:
            raise typer.Exit(INTERRUPTED)


def _run(calls: Calls, background: Worker, every: timedelta, failures: list[Exception], signals: Signals) -> None:
    """What the loop's thread does: run the worker, and wake the main thread when it ends or fails."""
    try:
        calls(background, "run", every)
    except Exception as error:
        failures.append(error)
    finally:
        signals.wake()


def _reporting_worker(adapter: ResumeAdapter) -> Worker:
    """The adapter's worker, which also writes a line to stderr for each delivery."""
    janitor = adapter.janitor()

    def recover() -> None:
        _report(adapter.recover())

    def sweep() -> None:
        _report(janitor.sweep().deliveries)

    async def arecover() -> None:
        _report(await adapter.arecover())

    async def asweep() -> None:
        _report((await janitor.asweep()).deliveries)

    return Worker([recover, sweep], [arecover, asweep])


def _report(deliveries: Iterable[Delivery]) -> None:
    for delivery in map(delivery_data, deliveries):
        parts = [f"; {kind} {', '.join(delivery[kind])}" for kind in ("applied", "unused", "open") if delivery[kind]]
        output.say(f"thread {delivery['thread_id']}: {outcome(delivery)}{''.join(parts)}")
