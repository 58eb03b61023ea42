"""`events`: the recorded events of a scope's pauses; with `--follow` also each later one."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Annotated

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import INTERRUPTED, Usage, with_exit_code
from symfonic_interrupts.cli.loading import Calls, opened
from symfonic_interrupts.cli.options import (
    AppDir,
    AsJson,
    Graph,
    Namespace,
    SubScopes,
    SubTenant,
    Tenant,
    interval,
    scope_of,
)
from symfonic_interrupts.cli.signals import Signals
from symfonic_interrupts.errors import StoreError, UsageError
from symfonic_interrupts.events import RecordedEvent
from symfonic_interrupts.scope import FrameworkTenantScope

PAGE = 500


class Reader:
    """Reads the events page by page."""

    def __init__(
        self, calls: Calls, scope: FrameworkTenantScope | None, sub_scopes: bool, thread: str | None, after: str | None
    ) -> None:
        self._calls = calls
        self._filter = {"scope": scope, "include_sub_scopes": sub_scopes, "thread_id": thread}
        self._after = after

    def page(self, most: int) -> list[RecordedEvent]:
        """The next events, at most `most`; an empty list if there are none yet."""
        limit = min(most, PAGE)
        try:
            page: list[RecordedEvent] = self._calls(
                self._calls.adapter, "events", after=self._after, limit=limit, **self._filter
            )
        except UsageError:
            raise Usage("--after takes the cursor of an event, as `events` shows it") from None
        if page:
            self._after = page[-1].cursor
        return page


@with_exit_code
def events(
    graph: Graph = None,
    app_dir: AppDir = None,
    tenant: Tenant = None,
    sub_tenant: SubTenant = None,
    namespace: Namespace = None,
    include_sub_scopes: SubScopes = False,
    thread: Annotated[str | None, typer.Option("--thread", help="Only of this thread.")] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="CURSOR", help="Begin after this event.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Leave out what is recorded already.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many. Else all.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C or SIGTERM.")] = False,
    every: Annotated[
        timedelta, typer.Option("--interval", parser=interval, metavar="DURATION", help="How often --follow looks.")
    ] = "1s",  # type: ignore[assignment]  # the parser reads it, and --help shows it
    as_json: AsJson = False,
) -> None:
    """Print what was recorded, oldest first; with --json one JSON document a line."""
    if new and after is not None:
        raise Usage("--new and --after are two places to begin at; pass one")
    scope = scope_of(tenant, sub_tenant, namespace)
    left = float("inf") if limit is None else limit
    with opened(graph, app_dir) as calls, Signals() as signals:
        if new:
            after = calls(calls.adapter, "event_cursor", scope=scope)
        reader = Reader(calls, scope, include_sub_scopes, thread, after)
        while left and signals.received is None:
            page = _page(reader, int(min(left, PAGE)), follow)
            for event in page:
                _print(event, as_json)
            left -= len(page)
            if page:
                continue
            if not follow:
                break
            signals.wait(every.total_seconds())
        if signals.received == signal.SIGINT:
            raise typer.Exit(INTERRUPTED)


def _page(reader: Reader, most: int, follow: bool) -> list[RecordedEvent]:
    """The next events. While following, a failure of the store that may pass is said, and there are none for now."""
    try:
        return reader.page(most)
    except StoreError as error:
        if not follow or not error.retryable:
            raise
        output.say(f"{error.code}: {error}; trying again")
        return []


def _print(event: RecordedEvent, as_json: bool) -> None:
    if as_json:
        output.json_line(event.model_dump(mode="json"))
        return
    at = f"{event.at:%Y-%m-%d %H:%M:%S}Z"
    output.cells(
        [event.cursor, at, event.type, event.name, event.interrupt_id, event.thread_id, output.json_text(event.body)]
    )
