"""A PgBouncer that gives each transaction another session, in turn, and what is left in those sessions afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import sqlalchemy as sa

SESSIONS = 4
"""Of the server; clients share them."""

_SETTINGS = """
[databases]
pooled = {database}

[pgbouncer]
pool_mode = transaction
server_round_robin = 1
default_pool_size = {sessions}
auth_type = any
unix_socket_dir = {folder}
listen_port = 6432
logfile = {folder}/log
"""

_LEFT = """
SELECT
    (SELECT count(*) FROM pg_prepared_statements),
    (SELECT count(*) FROM pg_listening_channels()),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    pg_my_temp_schema() <> 0,
    ARRAY(SELECT name || '=' || setting FROM pg_settings WHERE source = 'session' AND name <> ALL (%s) ORDER BY name)
"""
_OF_PGBOUNCER = [
    "search_path",
    "application_name",
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
]
"""Settings that it makes itself: the first by its `connect_query`, the others it keeps for each client."""

NOTHING: tuple[object, ...] = (0, 0, 0, False, [])


def find_program() -> str | None:
    """Where PgBouncer is. Debian has it where the search path of most users does not lead."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


@contextmanager
def running_pgbouncer(program: str, target: str) -> Iterator[str]:
    """The URL (`postgresql://...`) of a new PgBouncer in front of a test's schema; it ends with this process at the latest.

    Args:
        target: the SQLAlchemy URL of the schema.
    """
    url = sa.make_url(target)
    host = str(url.query.get("host") or url.host)
    schema = str(url.query["options"]).removeprefix("-csearch_path=")
    parts = {
        "host": host,
        "port": url.port or 5432,
        "dbname": url.database,
        "user": url.username,
        "password": url.password,
        "connect_query": f"'SET search_path TO {schema}'",
    }
    database = " ".join(f"{name}={value}" for name, value in parts.items() if value)
    folder = Path(tempfile.mkdtemp(prefix="symfonic-pool-"))  # a short path: it holds the socket
    settings = folder / "pgbouncer.ini"
    settings.write_text(_SETTINGS.format(database=database, sessions=SESSIONS, folder=folder))
    user = None
    if os.geteuid() == 0:  # it does not run as root: then as the server does, whose socket it must reach
        user = Path(host).stat().st_uid if host.startswith("/") else "nobody"
        for path in (folder, settings):
            shutil.chown(path, user)
    # the shell's input ends with this process, and PgBouncer with it
    script = '"$@" & read -r _; kill $!; wait'
    process = subprocess.Popen(
        ["sh", "-c", script, "sh", program, str(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
    )
    found = f"postgresql://{url.username}@/pooled?host={folder}&port=6432"
    try:
        _wait_for(found, folder / "log")
        yield found
    finally:
        process.communicate()
        shutil.rmtree(folder)


def _wait_for(url: str, log: Path) -> None:
    give_up = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            said = log.read_text() if log.exists() else ""
            assert "FATAL" not in said, said
            assert time.monotonic() < give_up, said
            time.sleep(0.02)


def left_in_sessions(url: str) -> list[tuple[object, ...]]:
    """What each session of the server holds that no transaction ends: prepared statements, channels, advisory locks, whether
    temporary tables, and settings. One session for each transaction that is open at the same time, so all are seen."""
    with ExitStack() as stack:
        open_together = [stack.enter_context(psycopg.connect(url, prepare_threshold=None)) for _ in range(SESSIONS)]
        pids = {each.execute("SELECT pg_backend_pid()").fetchall()[0][0] for each in open_together}
        assert len(pids) == SESSIONS
        return [each.execute(_LEFT, [_OF_PGBOUNCER]).fetchall()[0] for each in open_together]
