"""Counting what work costs, each thing where it happens: statements, transactions, round trips on the wire, synced commits.

Every count is exact and repeatable: nothing here measures time.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

CHANGES = ("INSERT", "UPDATE", "DELETE")


@dataclass
class Statements:
    """What this process sends to its databases, by SQLAlchemy's own events.

    Attributes:
        statements: all but BEGIN and COMMIT.
        writing, reading: transactions that were committed: those that took the write lock or changed something, and others.
    """

    statements: int = 0
    writing: int = 0
    reading: int = 0
    _wrote: set[int] = field(default_factory=set)

    def _on_statement(self, connection: sa.Connection, _cursor: Any, statement: str, *_: Any) -> None:
        word = statement.split(None, 1)[0].upper()
        self.statements += word not in ("BEGIN", "COMMIT", "ROLLBACK")
        if word in CHANGES or statement == "BEGIN IMMEDIATE":
            self._wrote.add(id(connection))

    def _on_commit(self, connection: sa.Connection) -> None:
        wrote = id(connection) in self._wrote
        self._wrote.discard(id(connection))
        self.writing += wrote
        self.reading += not wrote

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Hear every engine of this process: the one of an `Interrupts` is its own."""
        with heard("before_cursor_execute", self._on_statement), heard("commit", self._on_commit):
            yield


@contextmanager
def heard(event: str, hears: Any) -> Iterator[None]:
    """Have a function called at an event of every engine of this process."""
    sa.event.listen(sa.Engine, event, hears)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, event, hears)


# -- what must reach a disk

WAL_HEADER, FRAME_HEADER = 32, 24  # bytes, see https://www.sqlite.org/fileformat2.html#walformat


def synced_commits(path: Path) -> int:
    """How many transactions stand in the write-ahead log of an SQLite file, from the log itself.

    With `synchronous=FULL` SQLite syncs the log once for each of them, before COMMIT returns.
    """
    log = path.with_name(path.name + "-wal").read_bytes()
    (page_size,) = struct.unpack_from(">I", log, 8)
    salts = log[16:24]
    commits = 0
    for start in range(WAL_HEADER, len(log), FRAME_HEADER + page_size):
        (pages_after_commit,) = struct.unpack_from(">I", log, start + 4)  # 0 in a frame that does not end a transaction
        if log[start + 8 : start + 16] != salts:
            break  # left over from before the log was begun anew
        commits += pages_after_commit > 0
    return commits


@dataclass
class DurableCommits:
    """Transactions that PostgreSQL gave an id. At its default `synchronous_commit` each waits for one flush of the log.

    The server is asked right before COMMIT, on the same connection: `pg_stat_wal` would count other sessions' flushes too, and
    one flush for several commits that come at once.
    """

    commits: int = 0

    def _on_commit(self, connection: sa.Connection) -> None:
        cursor = connection.connection.cursor()
        cursor.execute("SELECT pg_current_xact_id_if_assigned()")
        (assigned,) = cursor.fetchone() or (None,)
        cursor.close()
        self.commits += assigned is not None

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Ask at every commit of this process."""
        with heard("commit", self._on_commit):
            yield


# -- what goes over the wire


class Wire:
    """A loopback proxy in front of a PostgreSQL server, which counts round trips: a client that waited for the server speaks
    again. Bytes are passed on as they are.

    Args:
        url: of the server; a `host` that is a folder is that of its socket.
    """

    def __init__(self, url: str) -> None:
        there = sa.make_url(url)
        host = str(there.query.get("host") or there.host or "localhost")
        self._server = (host, there.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = (
            there.difference_update_query(["host"])
            .set(host="127.0.0.1", port=port)
            .render_as_string(hide_password=False)
        )
        self.round_trips = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Wire:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for each in self._open:
                with suppress(OSError):  # it is closed on the other side
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
        for thread in list(self._threads):
            thread.join()

    def _start(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                server = self._connect()
                with self._lock:
                    self._open += [client, server]
                said = Said()
                self._start(self._pass_on, client, server, said, "client")
                self._start(self._pass_on, server, client, said, "server")

    def _connect(self) -> socket.socket:
        host, port = self._server
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        found = socket.socket(socket.AF_UNIX)
        found.connect(f"{host}/.s.PGSQL.{port}")
        return found

    def _pass_on(self, source: socket.socket, target: socket.socket, said: Said, who: str) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    self.round_trips += who == "client" and said.last == "server"
                    said.last = who
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@dataclass
class Said:
    """Who has said something last on a connection. A new one waits for its client."""

    last: str = "server"
