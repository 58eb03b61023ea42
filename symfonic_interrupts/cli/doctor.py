"""`doctor`: looks at keys, database, schema, clocks, graph and saver, one after the other, and says what is wrong.

It changes nothing. What cannot be looked at, because it was not named or because something before it failed, is skipped and
says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.database import clock_ahead, looking, open_store, schema_version
from symfonic_interrupts.cli.ends import LoadFailed, Unsound, Usage, ending
from symfonic_interrupts.cli.loading import Calls, key_ring, opened, store_url
from symfonic_interrupts.cli.options import KEYS, AsJson, Graph, KeysFile, RetiredKeysFile, Store
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.errors import InterruptError, StoreError
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.engines import shown_url

OK, PROBLEM, SKIPPED = "ok", "problem", "skipped"
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
    store: Store = None,
    keys_file: KeysFile = None,
    retired_keys_file: RetiredKeysFile = None,
    as_json: AsJson = False,
) -> None:
    """Look at keys, database, schema, clocks, graph and saver. Changes nothing; exits with 5 where something is wrong."""
    if not graph and not store and not keys_file and not os.environ.get(KEYS):
        raise Usage("nothing to look at: pass --graph, --store or --keys-file, or set their variables")
    seen = Examination()
    has_keys = _keys(seen, keys_file, retired_keys_file, needed=bool(store))
    _store(seen, store, keys_file, retired_keys_file, has_keys)
    _graph(seen, graph)
    if as_json:
        output.document(seen.found)
    else:
        output.rows(["check", "status", "detail"], [list(row.values()) for row in seen.found])
    if any(row["status"] == PROBLEM for row in seen.found):
        raise Unsound


def _keys(seen: Examination, keys_file: Path | None, retired_keys_file: Path | None, *, needed: bool) -> bool:
    if keys_file is None and not os.environ.get(KEYS) and not needed:
        seen.skip(f"neither {KEYS} nor --keys-file", "keys")
        return False

    def look() -> str:
        ring = key_ring(keys_file, retired_keys_file)
        return f"{len(ring.kids)} in the ring, {ring.signing_kid} signs"

    return seen.look("keys", look)


def _store(
    seen: Examination, store: str | None, keys_file: Path | None, retired_keys_file: Path | None, has_keys: bool
) -> None:
    later = ("schema", "clock", "keys in use")
    if not store:
        seen.skip("no --store", "database", *later)
        return
    try:
        url = store_url(store)
        with looking(url) as connection:
            connection.execute(sa.text("SELECT 1"))
            seen.note("database", OK, shown_url(url))
            complete = seen.look("schema", lambda: schema_version(connection))
            seen.look("clock", lambda: _clock(connection))
    except (StoreError, Usage) as error:
        done = {row["check"] for row in seen.found}
        seen.note("database", PROBLEM, str(error))
        seen.skip("the database does not answer", *(check for check in later if check not in done))
        return
    if has_keys and complete:
        seen.look("keys in use", lambda: _in_use(store, keys_file, retired_keys_file))
    else:
        seen.skip("no keys" if complete else "the schema is incomplete", "keys in use")


def _clock(connection: sa.Connection) -> str:
    ahead = clock_ahead(connection)
    if ahead is None:
        return "this machine's; SQLite has none of its own"
    return within_skew(ahead, FrameworkConfig().clock_skew)


def within_skew(ahead: timedelta, allowed: timedelta) -> str:
    """How far the database's clock is ahead, in words.

    Raises:
        StoreError: further than the clocks of an `Interrupts` may be apart by default.
    """
    told = f"the database's is {abs(ahead.total_seconds()):.1f} s {'ahead' if ahead >= timedelta(0) else 'behind'}"
    if abs(ahead) > allowed:
        raise StoreError(f"{told}; FrameworkConfig.clock_skew allows {allowed.total_seconds():.0f} s by default")
    return told


def _in_use(store: str, keys_file: Path | None, retired_keys_file: Path | None) -> str:
    ring = key_ring(keys_file, retired_keys_file)
    with open_store(store) as interrupts:
        in_use = interrupts.keys_in_use()
    missing = [kid for kid in in_use if kid not in ring.kids]
    if missing:
        raise StoreError(f"{', '.join(missing)} needed by pauses, and not in the ring; put them back")
    return f"{sum(in_use.values())} signatures, all with keys of the ring"


def _graph(seen: Examination, graph: str | None) -> None:
    later = ("saver", "pauses")
    if not graph:
        seen.skip("no --graph", "graph", *later)
        return
    try:
        with opened(graph) as calls:
            seen.note("graph", OK, calls.adapter.graph_name)
            seen.look("saver", lambda: _saver(calls))
            seen.look("pauses", lambda: _pauses(calls))
    except (InterruptError, Usage, LoadFailed) as error:
        seen.note("graph", PROBLEM, str(error))
        seen.skip("there is no graph", *later)


def _saver(calls: Calls) -> str:
    calls(calls.adapter.graph, "get_state", {"configurable": {"thread_id": NOBODY}})
    return "it answers"


def _pauses(calls: Calls) -> str:
    calls(calls.adapter, "pending", scope=FrameworkTenantScope(NOBODY), limit=1)
    failed = calls(calls.adapter, "failed")
    if failed:
        return f"the graph's own store answers; {len(failed)} threads whose node raised wait for `deliver`"
    return "the graph's own store answers"
