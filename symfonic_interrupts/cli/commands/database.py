"""`db upgrade` and `purge`: the schema of the pause store, and deleting what is old."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import Usage, with_exit_code
from symfonic_interrupts.cli.loading import opened
from symfonic_interrupts.cli.options import AppDir, AsJson, Graph, Store, duration
from symfonic_interrupts.cli.stores import open_store, store_url
from symfonic_interrupts.store import migrations
from symfonic_interrupts.store.engines import shown_url


@with_exit_code
def upgrade(store: Store = None) -> None:
    """Bring the pause store to this version's schema; makes the tables of a new one. Safe when several do it at once."""
    url = store_url(store, may_be_new=True)
    with output.progress("upgrading"):
        migrations.upgrade(url)
    output.say(f"{shown_url(url)} has this version's schema")


@with_exit_code
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
