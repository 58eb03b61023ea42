"""Which tests a run takes: `--selection=quick`, `rest` (what quick leaves), `small` (what quick runs on SQLite and sync; for a
second LangGraph), or `all`, which is also what a plain run takes.

Quick is for between two changes: everything but the crash, conformance and compat suites, on fewer combinations of database and
mode. It goes by a test's parameters, so a new test needs no mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NOT_QUICK = ("crash", "conformance", "compat")

BOTH_ONCE = {("sqlite", "sync"), ("postgres", "async")}
ON_POSTGRES = {("postgres", "sync"), ("postgres", "async")}
ON_SQLITE = {("sqlite", "sync"), ("sqlite", "async")}
SMALL = {("sqlite", "sync")}

QUICK = {"graph": BOTH_ONCE, "contract": ON_POSTGRES}
"""Database and mode by folder: graphs on both databases, and the store where rows are locked one by one. The others:
`ON_SQLITE`."""


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--selection", choices=("all", "quick", "rest", "small"), default="all", help="see tests/selection.py"
    )


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what the option `--selection` says, and report the others as deselected."""
    wanted = config.getoption("--selection")
    if wanted == "all":
        return
    kept, left = [], []
    for item in items:
        (kept if _is_wanted(item, wanted) else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def _is_wanted(item: pytest.Item, wanted: str) -> bool:
    if wanted == "small":
        return is_quick(item) and _runs_on(item, SMALL)
    return is_quick(item) == (wanted == "quick")


def is_quick(item: pytest.Item) -> bool:
    """Whether a test with these parameters, in its folder, is one of the quick ones."""
    folder = item.path.relative_to(TESTS).parts[0]
    if folder in NOT_QUICK or item.get_closest_marker("slow"):
        return False
    return _runs_on(item, QUICK.get(folder, ON_SQLITE))


def _runs_on(item: pytest.Item, pairs: set[tuple[str, str]]) -> bool:
    """Whether a test runs on one of these pairs of database and mode, as far as it has either."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    database = parameters.get("store_url", parameters.get("any_shop"))
    mode = parameters.get("mode")
    return any(database in (None, one) and mode in (None, other) for one, other in pairs)


def summary(config: pytest.Config) -> Iterator[str]:
    """What the end of a run says about what it left."""
    wanted = config.getoption("--selection")
    if wanted != "all":
        others = {"quick": "rest", "rest": "quick", "small": "all"}[wanted]
        yield f"--selection={wanted}: the deselected tests are run by --selection={others}"
