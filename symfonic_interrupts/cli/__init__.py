"""The command line `symfonic-interrupts`: what an operator does to pauses, workers, keys and the store.

`commands/` has one module per group of commands; the modules beside it serve them:

* `app` names the commands; `exits` turns errors into exit codes; `options` reads what is passed.
* `loading` finds the adapter of `--graph`, `stores` opens the store of `--store`, `key_files` reads and writes keys.
* `forms` and `ask_user_form` ask a person for an answer; `json_schema` reads the schema that they ask by.
* `output` writes to stdout and stderr; `reports` describes deliveries and sweeps; `logs` shows the library's log.
* `signals` and `event_loop` are for commands that run long or call async applications.

Only `main` is public. It imports typer and rich when it is called, so the library works without them. A command calls the
public adapter and the store; it decides nothing about a pause itself.
"""

from __future__ import annotations

import sys

EXTRA = ("typer", "rich")


def main() -> None:
    """Run the command that `sys.argv` names, and end the process with its exit code (see `--help`)."""
    try:
        from symfonic_interrupts.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.stderr.write(
            "symfonic-interrupts: not installed with its command line; pip install 'symfonic-interrupts[cli]'\n"
        )
        sys.exit(1)
    run()
