"""Processes that are cheap to start and can be killed: forked from one that has everything imported and has opened nothing.

`python -m tests.crash.forking` is that process. It takes orders on stdin and answers on stdout, one JSON line each, and has no
thread of its own. `Forker` is the test's side of it. It must never signal a process that it did not fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 90.0
"""The longest that anything here waits for a process."""

KILLED = -signal.SIGKILL
TASKS = {
    "deliver_and_die": "tests.crash.deliverers",
    "live": "tests.crash.lives",
    "mend": "tests.crash.lives",
    "mend_early": "tests.crash.lives",
    "start_threads": "tests.crash.roles",
    "answer_pauses": "tests.crash.roles",
    "work": "tests.crash.roles",
}
"""By task, the module that has a function of its name: `task(ready, **arguments)`, which calls `ready()` when it begins."""

Task = Callable[..., None]


class Nursery:
    """The forked processes, in the process that forks them."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def fork(self, task: Task, errors: str, arguments: dict[str, Any]) -> int:
        """Begin a task in a process of its own; returns its id when the task says that it is ready, or has ended."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _run(task, writing, errors, arguments)
        os.close(writing)
        self._ends[pid] = reading
        if not self._heard(reading, SECONDS):
            raise TimeoutError("a process does not begin")
        os.read(reading, 1)
        return pid

    def end(self, pid: int, seconds: float) -> int | None:
        """How the process ended (its exit status, or minus the signal), or None where it still runs after so long."""
        if not self._heard(self._ends[pid], seconds):  # the end of the pipe is the end of the process
            return None
        os.close(self._ends.pop(pid))
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    def kill(self, pid: int) -> int:
        """Kill the process (SIGKILL) where it still runs. Returns how it ended."""
        os.kill(pid, signal.SIGKILL)
        ended = self.end(pid, SECONDS)
        assert ended is not None
        return ended

    def kill_all(self) -> None:
        for pid in list(self._ends):
            self.kill(pid)

    @staticmethod
    def _heard(reading: int, seconds: float) -> bool:
        return bool(select.select([reading], [], [], seconds)[0])


def _run(task: Task, writing: int, errors: str, arguments: dict[str, Any]) -> None:
    status = 1
    try:
        to = os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(to, 1)
        os.dup2(to, 2)
        task(lambda: os.write(writing, b"."), **arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Obey the orders on stdin until it ends; nothing that was forked outlives this."""
    tasks: dict[str, Task] = {name: getattr(import_module(module), name) for name, module in TASKS.items()}
    nursery = Nursery()
    try:
        for line in sys.stdin:
            what, arguments = json.loads(line)
            if what == "fork":
                answer: Any = nursery.fork(tasks[arguments.pop("task")], arguments.pop("errors"), arguments)
            elif what == "end":
                answer = nursery.end(**arguments)
            else:
                answer = nursery.kill(**arguments)
            os.write(1, (json.dumps(answer) + "\n").encode())
    finally:
        nursery.kill_all()


class Forker:
    """Orders processes. The arguments of a task must be JSON.

    Attributes:
        errors: the file to which they write what they have to complain about.
    """

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self.errors = errors

    def fork(self, task: str, **arguments: Any) -> int:
        """Begin a task; returns the process id once it is under way."""
        return int(self._ask("fork", task=task, errors=str(self.errors), **arguments))

    def end(self, pid: int, seconds: float = SECONDS) -> int | None:
        """The exit status (or minus the signal), or None where the process still runs after so long."""
        found = self._ask("end", pid=pid, seconds=seconds)
        return None if found is None else int(found)

    def kill(self, pid: int) -> int:
        """Kill it (SIGKILL); returns how it ended, which may have been before."""
        return int(self._ask("kill", pid=pid))

    def complaints(self) -> str:
        """What the processes wrote to stderr."""
        return self.errors.read_text() if self.errors.exists() else ""

    def _ask(self, what: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the forking process has ended: {self.complaints()[-2000:]}"
        return json.loads(answer)


@contextmanager
def forker(directory: Path) -> Iterator[Forker]:
    """A process that forks others; it and they are gone when the block ends."""
    errors = directory / "errors"
    with (
        errors.open("ab") as complaints,
        subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forking"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        ) as process,
    ):
        try:
            yield Forker(process, errors)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    serve()
