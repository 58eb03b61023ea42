"""A MariaDB server for tests: the one of `SYMFONIC_TEST_MYSQL_URL`, or one that is started where MariaDB is installed."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql

DATABASE = "symfonic_compat"
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


class NotInstalled(Exception):
    """There is no MariaDB; says what would help."""


@contextmanager
def running_mysql() -> Iterator[str]:
    """The URL (`mysql://...`) of a database; a server that was started for it ends here, and its files are removed.

    Raises:
        NotInstalled: no server is given, and none is installed.
    """
    given = os.environ.get("SYMFONIC_TEST_MYSQL_URL")
    if given:
        yield given
        return
    install, server = (shutil.which(name, path=SEARCHED) for name in ("mariadb-install-db", "mariadbd"))
    if install is None or server is None:
        raise NotInstalled("no MariaDB: install mariadb-server, or set SYMFONIC_TEST_MYSQL_URL")
    with (
        tempfile.TemporaryDirectory(prefix="symfonic-mysql-", ignore_cleanup_errors=True) as home,
        _started(install, server, Path(home)) as port,
    ):
        yield f"mysql://root@127.0.0.1:{port}/{DATABASE}"


@contextmanager
def _started(install: str, server: str, home: Path) -> Iterator[int]:
    who = f"--user={getpass.getuser()}"
    data = f"--datadir={home / 'data'}"
    made = [install, "--no-defaults", data, who, "--auth-root-authentication-method=normal"]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    port = _free_port()
    where = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={home / 's'}", f"--pid-file={home / 'pid'}"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen([server, "--no-defaults", data, who, *where], stdout=log, stderr=log)
    try:
        _create_database(process, port, home / "log")
        yield port
    finally:
        process.terminate()
        process.wait(60)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _create_database(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """As soon as the server takes connections."""
    until = time.monotonic() + 60
    while True:
        try:
            connection = pymysql.connect(host="127.0.0.1", port=port, user="root")
        except pymysql.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"MariaDB did not start:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.05)
            continue
        with connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
        return
