"""`python -m MODULE ...` without the second that its imports take: forked from a process that has the libraries loaded.

    python -m tests.cli.preloaded SOCKET                      # that process; it has nothing of ours, and ends with its parent
    python -S -E preloaded.py SOCKET -m MODULE ARGUMENT...    # a command: hands over its files, directory and environment

The command's own process only waits for the forked one, and takes it along when it is killed. Ctrl-C does not reach the forked
one: what is about signals or a terminal is started as users start it.
"""

import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBRARIES = (
    "alembic.command",
    "jwt",
    "langgraph.checkpoint.postgres",
    "langgraph.checkpoint.sqlite",
    "langgraph.graph",
    "langgraph.prebuilt",
    "psycopg",
    "rich.console",
    "rich.table",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "sqlalchemy.ext.asyncio",
)


@contextmanager
def preloaded() -> Iterator[list[str]]:
    """What stands in front of `-m MODULE` in place of `python`, while this lasts."""
    import subprocess

    here = Path(__file__)
    with tempfile.TemporaryDirectory(prefix="symfonic-") as folder:
        path = f"{folder}/socket"
        with subprocess.Popen(
            [sys.executable, "-m", "tests.cli.preloaded", path], cwd=here.parents[2], stdout=subprocess.PIPE
        ) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline(), "it does not start"
                yield [sys.executable, "-S", "-E", str(here), path]
            finally:
                server.kill()


def serve(path: str) -> None:
    """Load the libraries, then fork a process for everyone who calls, until the parent is gone."""
    from importlib import import_module

    parent = os.getppid()
    for library in LIBRARIES:
        import_module(library)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for the commands
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(16)
        print("ready", flush=True)
        while os.getppid() == parent:
            if not select.select([listening], [], [], 0.5)[0]:
                continue
            caller, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                attend(caller)
            caller.close()


def attend(caller: socket.socket) -> None:
    """Fork the command, and tell the caller how it ended; kill it where the caller is gone. Does not return."""
    import json

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, files, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    wanted = json.loads(message)
    running, ended = os.pipe()
    pid = os.fork()
    if pid == 0:
        caller.close()
        os.close(running)
        os.set_inheritable(ended, False)
        become(files, **wanted)
    os.close(ended)
    told, _, _ = select.select([running, caller], [], [])  # the end of the pipe is the end of the process
    if running not in told:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if running in told:
        caller.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(files: list[int], directory: str, environment: dict[str, str], arguments: list[str]) -> None:
    """Be the command, as far as it can tell. Does not return."""
    import runpy
    import traceback
    import warnings

    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False, encoding="utf-8") for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    sys.stderr.reconfigure(errors="backslashreplace", line_buffering=True)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:1] = [directory, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    if "PYTHONWARNINGS" in environment:
        warnings.simplefilter(environment["PYTHONWARNINGS"])  # type: ignore[arg-type]
    sys.argv = ["", *arguments[2:]]
    status = 1
    try:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def call(path: str, arguments: list[str]) -> int:
    """Have a command forked and wait for it; its exit code (a signal as 128 and its number)."""
    import json

    wanted = {"directory": os.getcwd(), "environment": dict(os.environ), "arguments": arguments}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [json.dumps(wanted).encode()], [0, 1, 2])
        ended = server.recv(16)
    code = int(ended) if ended else 1
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        sys.exit(call(sys.argv[1], sys.argv[2:]))
