"""Real processes for the contract suite: `python -m tests.contract.workers TASK COUNT URL [CHECKPOINTS]`.

The program imports everything, then splits into COUNT processes before it has opened anything (imports would cost each of
them a second). Each opens its own connections, waits at a barrier until all are ready, does its task and prints a word.
What the task is about (a token) comes on stdin.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from symfonic_interrupts import InterruptError, Interrupts, KeyRing
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Operations
from tests.contract.graphs import gate_graph, open_saver
from tests.contract.stores import answer_claim, told
from tests.harness import CONFIG, KEY

ROOT = Path(__file__).parents[2]
SECONDS = 60


def run_workers(task: str, count: int, *arguments: str, stdin: str = "") -> list[str]:
    """The words that COUNT processes print. They are gone when this returns."""
    command = [sys.executable, "-W", "error", "-m", "tests.contract.workers", task, str(count), *arguments]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(stdin, timeout=SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own session: the workers that are left
        process.wait(timeout=SECONDS)
    assert process.returncode == 0, err
    return out.split()


def schema(barrier: Any, number: int, text: str, url: str) -> str:
    """Make the tables."""
    database = Database(url, clock=system_clock)
    try:
        barrier.wait(SECONDS)
        database.create_schema()
    finally:
        database.close()
    return "made"


def claim(barrier: Any, number: int, text: str, url: str) -> str:
    """Store an answer to the pause whose jti is `text`."""
    database = Database(url, clock=system_clock)
    operations = Operations(system_clock)
    try:
        row, _ = database.run(operations.reading.load_pause, text)
        barrier.wait(SECONDS)
        at = database.run(operations.claiming.answer, row, answer_claim(f'{{"by":{number}}}'), told("answered"))
    finally:
        database.close()
    return "lost" if at is None else "won"


def redeem(barrier: Any, number: int, text: str, url: str, checkpoints: str) -> str:
    """Answer with the token `text`."""
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(url, keys=KeyRing([KEY]), config=CONFIG))
        graph = gate_graph(interrupts).compile(checkpointer=interrupts.checkpointer(open_saver(stack, checkpoints)))
        adapter = interrupts.resume_adapter(graph)
        barrier.wait(SECONDS)
        try:
            receipt = adapter.answer(text, {"approved": True, "note": f"from {number}"})
        except InterruptError as error:
            return type(error).__name__
        return type(receipt).__name__


TASKS = {"schema": schema, "claim": claim, "redeem": redeem}


def _work(task: str, barrier: Any, number: int, text: str, arguments: list[str]) -> None:
    word = TASKS[task](barrier, number, text, *arguments)
    os.write(1, f"{word}\n".encode())  # one write: lines of several processes do not mix


def main(task: str, count: str, *arguments: str) -> int:
    text = sys.stdin.read().strip()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(int(count))
    processes = [
        context.Process(target=_work, args=(task, barrier, number, text, list(arguments)))
        for number in range(int(count))
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    return max(abs(process.exitcode or 0) if process.exitcode is not None else 1 for process in processes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
