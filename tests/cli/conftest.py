"""A shop with a store of its own, and the command line as a process: in a pipe, or at a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pexpect
import pytest
import sqlalchemy as sa

from symfonic_interrupts import KeyRing, ResumeAdapter
from tests.cli import applications
from tests.cli.preloaded import preloaded

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "symfonic_interrupts.cli"]
TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]+\.eyJ")
SECONDS = 60


@dataclass
class Shop:
    """The shop's places, and the commands run on it.

    Attributes:
        folder: a folder of the test's own; the current directory is the project's root, which is on PYTHONPATH too.
        environment: of all processes.
        python: what runs a module.
    """

    folder: Path
    environment: dict[str, str]
    python: list[str]

    @contextmanager
    def opened(self, ago: timedelta = timedelta(0)) -> Iterator[ResumeAdapter]:
        """The shop's adapter in this process, whose clock is behind by `ago`."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            with applications.shop(clock=lambda: datetime.now(UTC) - ago) as adapter:
                yield adapter

    def ask(
        self,
        ask: str = "refund",
        order: str = "A-17",
        *,
        ago: timedelta = timedelta(0),
        thread: str = "t1",
        **scope: str,
    ) -> str:
        """Run the graph until it waits; the pause's id."""
        with self.opened(ago) as adapter:
            config = {"configurable": {"thread_id": thread, "tenant_id": "acme", **scope}}
            adapter.graph.invoke({"ask": ask, "order": order}, config)
        ((interrupt_id,),) = self.rows("SELECT interrupt_id FROM interrupt_pauses ORDER BY id DESC LIMIT 1")
        return str(interrupt_id)

    def result(self, thread: str = "t1") -> Any:
        """What the thread came to."""
        with self.opened() as adapter:
            return adapter.graph.get_state({"configurable": {"thread_id": thread}}).values.get("result")

    def state(self, interrupt_id: str) -> str:
        """The pause's state, as it is stored."""
        ((state,),) = self.rows(f"SELECT state FROM interrupt_pauses WHERE interrupt_id = '{interrupt_id}'")
        return str(state)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """What a statement finds or changes in the store."""
        engine = sa.create_engine(self.environment["SHOP_STORE"])
        try:
            with engine.begin() as connection:
                found = connection.exec_driver_sql(statement)
                return [tuple(row) for row in found] if found.returns_rows else []
        finally:
            engine.dispose()

    def run(
        self,
        *arguments: str,
        stdin: str | None = None,
        cwd: Path = ROOT,
        command: list[str] | None = None,
        **environment: str | None,
    ) -> subprocess.CompletedProcess[str]:
        """A command in a pipe. A variable that is None is not set."""
        return subprocess.run(
            [*(command or [*self.python, "-m", "symfonic_interrupts.cli"]), *arguments],
            cwd=cwd,
            env=self._environment(environment),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def json(self, *arguments: str, code: int = 0, stdin: str = "") -> Any:
        """The one JSON document that a command printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def start(self, *arguments: str, **environment: str | None) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on; killed at the end, or when it takes too long."""
        pipe = subprocess.PIPE
        command = [*COMMAND, *arguments]
        given = self._environment(environment)
        with subprocess.Popen(command, cwd=ROOT, env=given, stdout=pipe, stderr=pipe, text=True) as process:
            watchdog = threading.Timer(2 * SECONDS, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                watchdog.cancel()
                process.kill()

    def terminal(self, *arguments: str, **environment: str | None) -> pexpect.spawn[str]:
        """A command at a terminal of 200 columns."""
        return pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], *arguments],
            cwd=str(ROOT),
            env=self._environment({"TERM": "xterm", **environment}),
            encoding="utf-8",
            timeout=SECONDS,
            dimensions=(50, 200),
        )

    def _environment(self, changes: dict[str, str | None]) -> dict[str, str]:
        ours = ("SYMFONIC_INTERRUPTS", "COLUMNS", "LINES")  # a terminal's size is the terminal's
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        found = {**inherited, "PYTHONWARNINGS": "error", **self.environment, **changes}
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (found.get("PYTHONPATH"), str(ROOT))))
        return {name: value for name, value in found.items() if value is not None}


def make_shop(folder: Path, store: str, checkpoints: str, python: list[str]) -> Shop:
    return Shop(
        folder,
        {
            "SHOP_STORE": store,
            "SHOP_CHECKPOINTS": checkpoints,
            "SYMFONIC_INTERRUPTS_GRAPH": "tests.cli.applications:shop",
            "SYMFONIC_INTERRUPTS_KEYS": KeyRing.new_key(),
            "LOGNAME": "kim",
        },
        python,
    )


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Whoever is started in the background has SIGINT ignored, and so would all commands that the tests start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def python() -> Iterator[list[str]]:
    """What runs a module with the libraries loaded; the interpreter itself where `SYMFONIC_TEST_EXEC` is set."""
    if os.environ.get("SYMFONIC_TEST_EXEC"):
        yield [sys.executable]
        return
    with preloaded() as found:
        yield found


@pytest.fixture
def shop(tmp_path: Path, sqlite_url: str, python: list[str]) -> Shop:
    """The shop on SQLite."""
    return make_shop(tmp_path, sqlite_url, str(tmp_path / "checkpoints.db"), python)


@pytest.fixture
def postgres_shop(tmp_path: Path, postgres_url: str, python: list[str]) -> Shop:
    """The shop on PostgreSQL."""
    checkpoints = postgres_url.replace("postgresql+psycopg://", "postgresql://", 1)
    return make_shop(tmp_path, postgres_url, checkpoints, python)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def any_shop(request: pytest.FixtureRequest) -> Shop:
    """The shop on SQLite and on PostgreSQL."""
    found: Shop = request.getfixturevalue("shop" if request.param == "sqlite" else "postgres_shop")
    return found
