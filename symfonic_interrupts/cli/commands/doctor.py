"""`doctor`: checks keys, database, schema, clocks, graph and saver, one after the other, and says what is wrong.

It changes nothing. It checks the keys and the store of the options or, if none are passed, those of the graph. A check that
cannot be made, because nothing was named or an earlier check failed, is listed as skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import LoadFailed, Unsound, Usage, with_exit_code
from symfonic_interrupts.cli.key_files import key_ring
from symfonic_interrupts.cli.loading import Calls, opened
from symfonic_interrupts.cli.options import KEYS, AppDir, AsJson, Graph, KeysFile, RetiredKeysFile, Store
from symfonic_interrupts.cli.stores import clock_ahead, open_store, reading, schema_version, store_url
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.errors import InterruptError, StoreError
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.engines import shown_url
from symfonic_interrupts.tokens.keys import KeyRing

OK, PROBLEM, SKIPPED = "ok", "problem", "skipped"
KEY_CHECKS = ("keys",)
STORE_CHECKS = ("database", "schema", "clock", "keys in use")
NOBODY = "symfonic-interrupts doctor"
"""A thread id and a tenant that nobody has. They are looked up to see whether a look-up works."""


class Examination:
    """The results of the checks so far.

    Attributes:
        results: one per check, as JSON data: `check`, `status` and `detail`.
    """

    def __init__(self) -> None:
        self.results: list[dict[str, str]] = []

    def add(self, check: str, status: str, detail: str) -> None:
        """Add the result of one check."""
        self.results.append({"check": check, "status": status, "detail": detail})

    def run(self, check: str, work: Callable[[], str]) -> bool:
        """Run a check, and add what it returns or the error that it raises. Returns whether it succeeded."""
        try:
            self.add(check, OK, work())
        except (InterruptError, Usage, LoadFailed) as error:
            self.add(check, PROBLEM, str(error))
        except Exception as error:  # raised by a saver or a graph; its message may hold a payload
            self.add(check, PROBLEM, type(error).__name__)
        return self.results[-1]["status"] == OK

    def skip(self, reason: str, *checks: str) -> None:
        """Add checks that cannot be made."""
        for check in checks:
            self.add(check, SKIPPED, reason)


@with_exit_code
def doctor(
    graph: Graph = None,
    app_dir: AppDir = None,
    store: Store = None,
    keys_file: KeysFile = None,
    retired_keys_file: RetiredKeysFile = None,
    as_json: AsJson = False,
) -> None:
    """Look at keys, database, schema, clocks, graph and saver. Changes nothing; exits with 5 where something is wrong.

    What --store and --keys-file (or their variables) do not name is looked at as the graph has it.
    """
    if not graph and not store and not keys_file and not os.environ.get(KEYS):
        raise Usage("nothing to look at: pass --graph, --store or --keys-file, or set their variables")
    examination = Examination()
    own_keys = bool(keys_file or os.environ.get(KEYS) or store)
    if own_keys:
        has_keys = _check_keys(examination, keys_file, retired_keys_file)
    if store:
        _check_store(examination, store, keys_file, retired_keys_file, has_keys)
    _check_graph(examination, graph, app_dir, [*(() if own_keys else KEY_CHECKS), *(() if store else STORE_CHECKS)])
    if as_json:
        output.document(examination.results)
    else:
        output.rows(["check", "status", "detail"], [list(result.values()) for result in examination.results])
    if any(result["status"] == PROBLEM for result in examination.results):
        raise Unsound


def _check_keys(examination: Examination, keys_file: Path | None, retired_keys_file: Path | None) -> bool:
    return examination.run("keys", lambda: _ring_in_words(key_ring(keys_file, retired_keys_file)))


def _ring_in_words(ring: KeyRing) -> str:
    return f"{len(ring.kids)} in the ring, {ring.signing_kid} signs"


def _check_store(
    examination: Examination, store: str, keys_file: Path | None, retired_keys_file: Path | None, has_keys: bool
) -> None:
    try:
        url = store_url(store)
        with reading(url) as connection:
            connection.execute(sa.text("SELECT 1"))
            examination.add("database", OK, shown_url(url))
            complete = examination.run("schema", lambda: schema_version(connection))
            examination.run("clock", lambda: _clock_in_words(clock_ahead(connection), FrameworkConfig().clock_skew))
    except (StoreError, Usage) as error:
        done = {result["check"] for result in examination.results}
        examination.add("database", PROBLEM, str(error))
        examination.skip("the database does not answer", *(check for check in STORE_CHECKS[1:] if check not in done))
        return
    if has_keys and complete:
        examination.run("keys in use", lambda: _keys_in_use(store, keys_file, retired_keys_file))
    else:
        examination.skip("no keys" if complete else "the schema is incomplete", "keys in use")


def _clock_in_words(ahead: timedelta | None, allowed: timedelta) -> str:
    if ahead is None:
        return "this machine's; SQLite has none of its own"
    return within_skew(ahead, allowed)


def within_skew(ahead: timedelta, allowed: timedelta) -> str:
    """In words, how far the database's clock is ahead.

    Raises:
        StoreError: it differs by more than `allowed`.
    """
    difference = (
        f"the database's is {abs(ahead.total_seconds()):.1f} s {'ahead' if ahead >= timedelta(0) else 'behind'}"
    )
    if abs(ahead) > allowed:
        raise StoreError(f"{difference}; FrameworkConfig.clock_skew allows {allowed.total_seconds():.0f} s")
    return difference


def _keys_in_use(store: str, keys_file: Path | None, retired_keys_file: Path | None) -> str:
    ring = key_ring(keys_file, retired_keys_file)
    with open_store(store) as interrupts:
        return _all_present(ring, interrupts.keys_in_use())


def _all_present(ring: KeyRing, in_use: dict[str, int]) -> str:
    missing = [kid for kid in in_use if kid not in ring.kids]
    if missing:
        raise StoreError(f"{', '.join(missing)} needed by pauses, and not in the ring; put them back")
    return f"{sum(in_use.values())} signatures, all with keys of the ring"


def _check_graph(examination: Examination, graph: str | None, app_dir: Path | None, through_graph: list[str]) -> None:
    if not graph:
        examination.skip("neither named nor looked at through a graph", *through_graph)
        examination.skip("no --graph", "graph", "saver", "pauses")
        return
    try:
        with opened(graph, app_dir) as calls:
            if through_graph:
                _check_through_graph(examination, calls, through_graph)
            examination.add("graph", OK, calls.adapter.graph_name)
            examination.run("saver", lambda: _saver(calls))
            examination.run("pauses", lambda: _pauses(calls))
    except (InterruptError, Usage, LoadFailed) as error:
        examination.skip("there is no graph", *through_graph)
        examination.add("graph", PROBLEM, str(error))
        examination.skip("there is no graph", "saver", "pauses")


def _check_through_graph(examination: Examination, calls: Calls, checks: list[str]) -> None:
    """Check the keys and the store of the graph's own `Interrupts`, over its own connections."""
    hub = calls.adapter.hub

    def in_store(body: Callable[[sa.Connection], Any]) -> Any:
        return calls(hub.database, "run", body)

    def keys_in_use() -> str:
        return _all_present(hub.keys, in_store(hub.operations.upkeep.keys_in_use))

    works: dict[str, Callable[[], str]] = {
        "keys": lambda: _ring_in_words(hub.keys),
        "database": lambda: in_store(lambda _: str(hub.database.target)),
        "schema": lambda: str(in_store(schema_version)),
        "clock": lambda: _clock_in_words(in_store(clock_ahead), hub.config.clock_skew),
        "keys in use": keys_in_use,
    }
    for check in checks:
        examination.run(check, works[check])


def _saver(calls: Calls) -> str:
    calls(calls.adapter.graph, "get_state", {"configurable": {"thread_id": NOBODY}})
    return "it answers"


def _pauses(calls: Calls) -> str:
    calls(calls.adapter, "pending", scope=FrameworkTenantScope(NOBODY), limit=1)
    failed = calls(calls.adapter, "failed")
    if failed:
        return f"the graph's own store answers; {len(failed)} threads whose node raised wait for `deliver`"
    return "the graph's own store answers"
