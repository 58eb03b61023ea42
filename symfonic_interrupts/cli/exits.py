"""How a command ends: its exit code, and the one line on stderr that says why.

Every command is decorated with `with_exit_code`. An `InterruptError` is never shown as a traceback. Of an unexpected error only
the type and the line of code are shown, because its message may hold a payload or an answer.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import ParamSpec

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.errors import InterruptError, ResponseInvalid, ScopeRequired, UsageError

P = ParamSpec("P")

UNEXPECTED, USAGE, REFUSED, UNDONE, UNSOUND = 1, 2, 3, 4, 5
INTERRUPTED, READER_GONE = 130, 141
TRACEBACK = "SYMFONIC_INTERRUPTS_TRACEBACK"

EXIT_CODES = f"""Exit codes: 0 done, also a worker ended by SIGTERM.
{UNEXPECTED} an unexpected error; with {TRACEBACK}=1 its traceback is shown, which may hold payloads.
{USAGE} wrong usage.
{REFUSED} refused; the error's code is on stderr.
{UNDONE} something was left undone.
{UNSOUND} a check found a problem.
{INTERRUPTED} ended with Ctrl-C or, at a question, Ctrl-D.
{READER_GONE} whoever read the output has gone."""


class Usage(Exception):
    """The command cannot run as it was called. The message says what to pass."""


class LoadFailed(Exception):
    """The application that `--graph` names raised an error while it was loaded."""


class Undone(Exception):
    """The command ran, and part of what was asked for is not done. The message says what; it may be empty."""


class Unsound(Exception):
    """A check ran and found a problem, and has already shown it."""


def with_exit_code(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command: its errors become exit codes, and what the application prints goes to stderr."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with redirect_stdout(sys.stderr):  # stdout is for the command's data; a graph may print
                command(*args, **kwargs)
        except typer.Exit:
            raise
        except Exception as error:
            code = _report(error)
        except KeyboardInterrupt:
            code = INTERRUPTED
        else:
            return
        raise typer.Exit(code)

    return run


def _report(error: Exception) -> int:
    """Say on stderr why the command failed, and return its exit code."""
    if isinstance(error, BrokenPipeError):
        # The interpreter flushes stdout again when it ends; that must not fail and print another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return READER_GONE
    if isinstance(error, EOFError):
        output.say("ended; nothing was answered")
        return INTERRUPTED
    if isinstance(error, Undone):
        if str(error):
            output.say(str(error))
        return UNDONE
    if isinstance(error, Unsound):
        return UNSOUND
    if isinstance(error, Usage | UsageError):
        output.say(f"usage: {error}")
        return USAGE
    if isinstance(error, InterruptError):
        output.say(f"{error.code}: {error}{_remedy(error)}")
        return REFUSED
    if os.environ.get(TRACEBACK):
        output.say("".join(traceback.format_exception(error)).rstrip(), lines=True)
    elif isinstance(error, LoadFailed):
        output.say(f"unexpected: {error}")
    else:
        output.say(f"unexpected: {type(error).__name__} in {_line_of(error)}; {TRACEBACK}=1 shows more")
    return UNEXPECTED


def _remedy(error: InterruptError) -> str:
    if isinstance(error, ScopeRequired):
        return ". Here: --tenant, or SYMFONIC_INTERRUPTS_TENANT"
    if isinstance(error, ResponseInvalid):
        return ". The token is not spent"
    return ""


def _line_of(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "an unknown place"
