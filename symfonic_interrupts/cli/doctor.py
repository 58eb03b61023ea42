"""`doctor`: looks at keys, database, schema, clocks, graph and saver, one after the other, and says what is wrong.

It changes nothing. Keys and store are those of the options or, where they name none, those of the graph. What cannot be
looked at, because it was not named or because something before it failed, is skipped and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.database import clock_ahead, looking, open_store, schema_version
from symfonic_interrupts.cli.ends import LoadFailed, Unsound, Usage, ending
from symfonic_interrupts.cli.loading import Calls, key_ring, opened, store_url
from symfonic_interrupts.cli.options import KEYS, AppDir, AsJson, Graph, KeysFile, RetiredKeysFile, Store
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.errors import InterruptError, StoreError
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.engines import shown_url
from symfonic_interrupts.tokens.keys import KeyRing

OK, PROBLEM, SKIPPED = "ok", "problem", "skipped"
KEY_CHECKS = ("keys",)
STORE_CHECKS = ("database", "schema", "clock", "keys in use")
NOBODY = "symfonic-interrupts doctor"
"""A thread and a tenant that nobody has: looked up to see whether looking up works."""


class Examination:
    """What was found so far."""

    def __init__(self) -> None:
        self.found: list[dict[str, str]] = []

    def note(self, check: str, status: str, detail: str) -> None:
        """Keep one finding."""
        self.found.append({"check": check, "status": status, "detail": detail})

    def look(self, check: str, work: Callable[[], str]) -> bool:
        """Note what the check says, or what it raised. Whether it went well."""
        try:
            self.note(check, OK, work())
        except (InterruptError, Usage, LoadFailed) as error:
            self.note(check, PROBLEM, str(error))
        except Exception as error:  # a saver's or a graph's own
            self.note(check, PROBLEM, type(error).__name__)
        return self.found[-1]["status"] == OK

    def skip(self, why: str, *checks: str) -> None:
        """Note checks that were not made."""
        for check in checks:
            self.note(check, SKIPPED, why)


@ending
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
    seen = Examination()
    own_keys = bool(keys_file or os.environ.get(KEYS) or store)
    if own_keys:
        has_keys = _keys(seen, keys_file, retired_keys_file)
    if store:
        _store(seen, store, keys_file, retired_keys_file, has_keys)
    _graph(seen, graph, app_dir, [*(() if own_keys else KEY_CHECKS), *(() if store else STORE_CHECKS)])
    if as_json:
        output.document(seen.found)
    else:
        output.rows(["check", "status", "detail"], [list(row.values()) for row in seen.found])
    if any(row["status"] == PROBLEM for row in seen.found):
        raise Unsound


def _keys(seen: Examination, keys_file: Path | None, retired_keys_file: Path | None) -> bool:
    return seen.look("keys", lambda: _ring(key_ring(keys_file, retired_keys_file)))


def _ring(ring: KeyRing) -> str:
    return f"{len(ring.kids)} in the ring, {ring.signing_kid} signs"


def _store(
    seen: Examination, store: str, keys_file: Path | None, retired_keys_file: Path | None, has_keys: bool
) -> None:
    later = STORE_CHECKS[1:]
    try:
        url = store_url(store)
        with looking(url) as connection:
            connection.execute(sa.text("SELECT 1"))
            seen.note("database", OK, shown_url(url))
            complete = seen.look("schema", lambda: schema_version(connection))
            seen.look("clock", lambda: _clock(clock_ahead(connection), FrameworkConfig().clock_skew))
    except (StoreError, Usage) as error:
        done = {row["check"] for row in seen.found}
        seen.note("database", PROBLEM, str(error))
        seen.skip("the database does not answer", *(check for check in later if check not in done))
        return
    if has_keys and complete:
        seen.look("keys in use", lambda: _in_use(store, keys_file, retired_keys_file))
    else:
        seen.skip("no keys" if complete else "the schema is incomplete", "keys in use")


def _clock(ahead: timedelta | None, allowed: timedelta) -> str:
    if ahead is None:
        return "this machine's; SQLite has none of its own"
    return within_skew(ahead, allowed)


def within_skew(ahead: timedelta, allowed: timedelta) -> str:
    """How far the database's clock is ahead, in words.

    Raises:
        StoreError: further than `allowed`.
    """
    told = f"the database's is {abs(ahead.total_seconds()):.1f} s {'ahead' if ahead >= timedelta(0) else 'behind'}"
    if abs(ahead) > allowed:
        raise StoreError(f"{told}; FrameworkConfig.clock_skew allows {allowed.total_seconds():.0f} s")
    return told


def _in_use(store: str, keys_file: Path | None, retired_keys_file: Path | None) -> str:
    ring = key_ring(keys_file, retired_keys_file)
    with open_store(store) as interrupts:
        return _all_there(ring, interrupts.keys_in_use())


def _all_there(ring: KeyRing, in_use: dict[str, int]) -> str:
    missing = [kid for kid in in_use if kid not in ring.kids]
    if missing:
        raise StoreError(f"{', '.join(missing)} needed by pauses, and not in the ring; put them back")
    return f"{sum(in_use.values())} signatures, all with keys of the ring"


def _graph(seen: Examination, graph: str | None, app_dir: Path | None, through_graph: list[str]) -> None:
    if not graph:
        seen.skip("neither named nor looked at through a graph", *through_graph)
        seen.skip("no --graph", "graph", "saver", "pauses")
        return
    try:
        with opened(graph, app_dir) as calls:
            if through_graph:
                _hub(seen, calls, through_graph)
            seen.note("graph", OK, calls.adapter.graph_name)
            seen.look("saver", lambda: _saver(calls))
            seen.look("pauses", lambda: _pauses(calls))
    except (InterruptError, Usage, LoadFailed) as error:
        seen.skip("there is no graph", *through_graph)
        seen.note("graph", PROBLEM, str(error))
        seen.skip("there is no graph", "saver", "pauses")


def _hub(seen: Examination, calls: Calls, checks: list[str]) -> None:
    """The keys and the store of the graph's own `Interrupts`, over the connections that it has."""
    hub = calls.adapter.graph.checkpointer.hub

    def in_store(body: Callable[[sa.Connection], Any]) -> Any:
        return calls(hub.database, "run", body)

    def in_use() -> str:
        return _all_there(hub.keys, in_store(hub.operations.upkeep.keys_in_use))

    looks: dict[str, Callable[[], str]] = {
        "keys": lambda: _ring(hub.keys),
        "database": lambda: in_store(lambda _: str(hub.database.target)),
        "schema": lambda: str(in_store(schema_version)),
        "clock": lambda: _clock(in_store(clock_ahead), hub.config.clock_skew),
        "keys in use": in_use,
    }
    for check in checks:
        seen.look(check, looks[check])


def _saver(calls: Calls) -> str:
    calls(calls.adapter.graph, "get_state", {"configurable": {"thread_id": NOBODY}})
    return "it answers"


def _pauses(calls: Calls) -> str:
    calls(calls.adapter, "pending", scope=FrameworkTenantScope(NOBODY), limit=1)
    failed = calls(calls.adapter, "failed")
    if failed:
        return f"the graph's own store answers; {len(failed)} threads whose node raised wait for `deliver`"
    return "the graph's own store answers"
