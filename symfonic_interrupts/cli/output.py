"""Writes data to stdout and everything else to stderr, without control characters.

At a terminal data are tables; in a pipe they are lines of tab-separated values, or JSON if `--json` was passed. A payload is
text that somebody else wrote, so characters that could move the cursor, hide a line or end a field are escaped.
"""

from __future__ import annotations

import importlib
import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from symfonic_interrupts.invisible import STYLES, is_hidden, is_symbol

UNKNOWN = frozenset(("Co", "Cn"))
"""Unicode categories (UAX 44) that each terminal draws differently: private and unassigned characters."""

BLANKS = frozenset(" \u00a0\u202f\u3000")
"""The blanks that are shown as they are. Others are so narrow that nobody sees them."""


def printable(value: object, *, lines: bool = False) -> str:
    """The text with everything invisible escaped: controls, direction marks, fillers, unusual blanks.

    Args:
        lines: leave line ends as they are.
    """
    return _escaped(str(value), lambda character: character.encode("unicode_escape").decode("ascii"), lines=lines)


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON data (RFC 8259) for people. What `printable` would escape is escaped in JSON's way."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=None if indent else (", ", ": "))
    return _escaped(text, lambda character: json.dumps(character)[1:-1], lines=True)


def _escaped(text: str, escape: Callable[[str], str], *, lines: bool) -> str:
    return "".join(
        character
        if (lines and character == "\n") or _is_visible(character, text[index - 1 : index])
        else escape(character)
        for index, character in enumerate(text)
    )


def _is_visible(character: str, before: str) -> bool:
    if character.isascii():
        return character.isprintable()
    if character in STYLES:
        return is_symbol(before)
    category = unicodedata.category(character)
    return not (is_hidden(character) or category in UNKNOWN or (category == "Zs" and character not in BLANKS))


def say(text: str, *, lines: bool = False) -> None:
    """Write one line to stderr.

    Args:
        lines: leave line ends in the text as they are.
    """
    _write(sys.stderr, printable(text, lines=lines) + "\n")


def at_terminal() -> bool:
    """Whether stdout is a terminal."""
    return bool(sys.__stdout__ and sys.__stdout__.isatty())


def can_ask() -> bool:
    """Whether a person can be asked: stdin and stderr are a terminal."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())


def ask(prompt: str) -> str:
    """Show the prompt and return the line that is typed, without its line end. Raises EOFError on Ctrl-D."""
    if at_terminal():
        with suppress(ImportError):
            importlib.import_module("readline")  # lets input() edit the line
        with redirect_stdout(sys.__stdout__):
            return input(printable(prompt))
    _write(sys.stderr, printable(prompt))
    typed = sys.stdin.readline()
    if not typed:
        raise EOFError
    return typed.rstrip("\r\n")


def line(text: str) -> None:
    """Write one line of data."""
    _write(_data(), printable(text) + "\n")


def cells(values: Sequence[object]) -> None:
    """Write one row without aligning it to others: spaced at a terminal, tab-separated elsewhere."""
    _write(_data(), ("  " if at_terminal() else "\t").join(printable(value) for value in values) + "\n")


def document(value: Any) -> None:
    """Write one JSON document; indented at a terminal."""
    _write(_data(), json.dumps(value, indent=2 if at_terminal() else None, ensure_ascii=True) + "\n")


def json_line(value: Any) -> None:
    """Write one line of JSON Lines."""
    _write(_data(), json.dumps(value, ensure_ascii=True) + "\n")


def rows(columns: Sequence[str], data: Sequence[Sequence[object]]) -> None:
    """Write a table at a terminal, and tab-separated lines without a heading elsewhere."""
    if not at_terminal():
        for row in data:
            cells(row)
        return
    console = _console(_data())
    shown = [list(columns), *([printable(cell) for cell in row] for row in data)]
    widths = [max(cell_len(row[column]) for row in shown) for column in range(len(columns) - 1)]
    for row in shown if data else []:
        begin = "".join(set_cell_size(cell, width) + "  " for cell, width in zip(row, widths, strict=False))
        last = Text(row[-1])  # only this column is shortened: people copy from the others
        last.truncate(max(console.width - cell_len(begin), 20), overflow="ellipsis")
        console.print(Text(begin) + last, style="bold" if row is shown[0] else None, soft_wrap=True)


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Write named values, one a line. JSON data (lists, dicts) are indented at a terminal."""
    for name, value in pairs:
        is_json = isinstance(value, dict | list)
        if not at_terminal():
            cells([name, json_text(value) if is_json else value])
        elif is_json:
            _write(_data(), f"{printable(name)}:\n{json_text(value, indent=2)}\n")
        else:
            _write(_data(), f"{printable(name)}: {printable(value)}\n")


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show a moving bar and the time so far on stderr while the block runs; nothing if stderr is no terminal."""
    console = _console(sys.stderr)
    if not console.is_terminal:
        yield
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        bar.add_task(what, total=None)
        yield


def _data() -> TextIO:
    # While a command runs `sys.stdout` is redirected to stderr, so that what a graph prints is not taken for data.
    return sys.__stdout__ or sys.stdout


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()
