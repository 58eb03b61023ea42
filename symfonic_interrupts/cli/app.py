"""Gives every command its name, and holds the help of the whole program."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Annotated

import typer

from symfonic_interrupts.cli.commands import (
    adopting,
    background,
    database,
    doctor,
    events,
    keys,
    operating,
    pauses,
    worker,
)
from symfonic_interrupts.cli.exits import EXIT_CODES

NAME = "symfonic-interrupts"

app = typer.Typer(
    name=NAME,
    help="Pauses of LangGraph graphs that wait for a person: see them, answer them, run what answers and expiry need.",
    epilog=EXIT_CODES.replace("\n", "\n\n"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
keys_app = typer.Typer(name="keys", help="The signing keys.", no_args_is_help=True)
db_app = typer.Typer(name="db", help="The pause store.", no_args_is_help=True)

app.command()(pauses.pending)
app.command()(pauses.show)
app.command()(pauses.answer)
app.command()(operating.reissue)
app.command()(operating.revoke)
app.command()(adopting.adopt)
app.command()(events.events)
app.command()(operating.failed)
app.command()(background.deliver)
app.command()(background.recover)
app.command()(background.sweep)
app.command()(worker.worker)
app.command()(database.purge)
app.command()(doctor.doctor)
keys_app.command()(keys.new)
keys_app.command()(keys.rotate)
keys_app.command()(keys.check)
db_app.command()(database.upgrade)
app.add_typer(keys_app)
app.add_typer(db_app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{NAME} {importlib.metadata.version(NAME)}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command that `sys.argv` names. A character that the terminal's encoding lacks is escaped; it is no error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name=NAME)
