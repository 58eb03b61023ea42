"""The command line `symfonic-interrupts`: what an operator does to pauses, workers, keys and the store.

Only `main` is public. Typer and rich are imported when it is called, so that the library never needs them. A command calls
the public adapter and the store, and must not decide anything about a pause by itself.
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
