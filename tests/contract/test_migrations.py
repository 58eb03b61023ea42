"""The schema and its versions: two ways to make it that agree, several processes at once, stores frozen at a release."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine

from symfonic_interrupts import (
    FrameworkTenantScope,
    KeyRing,
    PauseSuperseded,
    PauseToken,
    ResumeAdapter,
    StoreError,
    TokenConsumed,
)
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store import migrations
from symfonic_interrupts.store.database import Database
from symfonic_interrupts.store.operations import Operations
from symfonic_interrupts.store.row_mac import row_is_authentic
from symfonic_interrupts.store.schema import metadata, pauses
from symfonic_interrupts.tokens.receipt import Receipt
from tests.contract.frozen.make import FOLDER, KEY, open_frozen
from tests.contract.graphs import open_saver
from tests.contract.stores import answer_claim, pause_row, told, wait_until_blocked
from tests.contract.workers import ROOT
from tests.harness import SetClock, thread

HEAD = "0004"
STAMP = "SELECT version_num FROM interrupt_alembic_version"
MIGRATIONS = str(Path(migrations.__file__).parent)


class Look:
    """A database seen from outside."""

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url)

    def __call__(self, statement: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    def change(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(statement)

    def schema(self) -> dict[str, Any]:
        """Everything that the database itself says of its tables."""
        if self.engine.dialect.name == "sqlite":
            words = self("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
            return {f"{kind} {name} of {table}": _parts(sql or "") for kind, name, table, sql in words}
        here = "WHERE {} = current_schema()"
        columns = "table_name, column_name, data_type, is_nullable, column_default, ordinal_position"
        constraints = "conrelid::regclass::text, conname, pg_get_constraintdef(oid)"
        named = "connamespace::regnamespace::text"
        schema = "current_schema()"
        return {
            "columns": self(
                f"SELECT {columns} FROM information_schema.columns {here.format('table_schema')}"
                " ORDER BY table_name, ordinal_position"
            ),
            "indexes": self(
                f"SELECT tablename, indexname, replace(indexdef, {schema}, '') FROM pg_indexes"
                f" {here.format('schemaname')} ORDER BY indexname"
            ),
            "constraints": self(f"SELECT {constraints} FROM pg_constraint {here.format(named)} ORDER BY 1, 2"),
        }


def _parts(sql: str) -> list[str]:
    """The words of a statement that SQLite keeps, a column or constraint each: an added column stands behind the others."""
    head, bracket, body = " ".join(sql.split()).partition(" (")
    return [head, *sorted(part.strip() for part in re.split(r",(?![^(]*\))", body.removesuffix(")"))), bracket]


@pytest.fixture
def look(store_url: str) -> Iterator[Look]:
    """The test's database, seen from outside."""
    found = Look(store_url)
    yield found
    found.engine.dispose()


@pytest.fixture
def database(store_url: str) -> Iterator[Database]:
    """A store over the test's database, without tables."""
    found = Database(store_url, clock=system_clock)
    yield found
    found.close()


def read(database: Database) -> Any:
    return database.run(Operations(system_clock).reading.load_thread, "default", "t1")


# -- two ways to the same schema


def test_create_schema_and_upgrade_make_the_same_schema(database: Database, look: Look, store_url: str) -> None:
    assert migrations.upgrade(store_url) == HEAD
    upgraded = look.schema()
    for table in ("interrupt_alembic_version", *(table.name for table in metadata.sorted_tables)):
        look.change(f"DROP TABLE {table}")
    nothing_left = look.schema()

    database.create_schema()

    created = look.schema()
    assert created == upgraded
    assert created != nothing_left
    assert "interrupt_pauses_one_asked_per_task" in str(created)
    assert look(STAMP) == [(HEAD,)]


@pytest.mark.parametrize("way", ["create_schema", "upgrade"])
def test_alembic_itself_finds_no_difference_to_the_tables_that_the_code_knows(
    database: Database, look: Look, store_url: str, way: str
) -> None:
    if way == "upgrade":
        migrations.upgrade(store_url)
    else:
        database.create_schema()

    with look.engine.connect() as connection:
        options = {
            "version_table": "interrupt_alembic_version",
            "compare_type": True,
            "compare_server_default": True,
        }
        context = MigrationContext.configure(connection, opts=options)
        assert context.get_current_revision() == HEAD
        assert compare_metadata(context, metadata) == []


def test_alembic_finds_a_column_that_the_code_knows_and_no_migration_makes(look: Look, store_url: str) -> None:
    migrations.upgrade(store_url)
    grown = sa.MetaData()
    for table in metadata.sorted_tables:
        table.to_metadata(grown)
    grown.tables["interrupt_pauses"].append_column(sa.Column("mood", sa.Text))

    with look.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "interrupt_alembic_version"})
        differences: list[Any] = compare_metadata(context, grown)

    assert [(kind, table, column.name) for kind, _, table, column in differences] == [
        ("add_column", "interrupt_pauses", "mood")
    ]


def test_the_version_that_the_code_stamps_is_the_newest_migration_that_is_shipped() -> None:
    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", MIGRATIONS)

    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]
    assert migrations.head() == HEAD


# -- upgrading


def test_current_says_where_a_store_stands_and_changes_nothing(look: Look, store_url: str) -> None:
    before = look.schema()
    assert migrations.current(store_url) is None
    assert look.schema() == before

    migrations.upgrade(store_url)

    assert migrations.current(store_url) == HEAD
    assert migrations.current(look.engine) == HEAD


def test_upgrade_can_be_called_again_and_keeps_what_is_there(database: Database, look: Look, store_url: str) -> None:
    migrations.upgrade(store_url)
    row = pause_row()
    database.run(Operations(system_clock).opening.open_pauses, [(row, ("interrupt", {}))], lambda row: row)

    assert migrations.upgrade(store_url) == HEAD
    assert migrations.upgrade(look.engine) == HEAD
    database.create_schema()

    assert look("SELECT jti, state FROM interrupt_pauses") == [(row["jti"], "pending")]
    assert look(STAMP) == [(HEAD,)]


def test_a_store_that_create_schema_made_needs_no_upgrade(database: Database, look: Look, store_url: str) -> None:
    database.create_schema()
    before = look.schema()

    assert migrations.upgrade(store_url) == HEAD

    assert look.schema() == before
    assert look(STAMP) == [(HEAD,)]


AT_ONCE = """
import multiprocessing, sys
import alembic.command, alembic.config
from symfonic_interrupts.clock import system_clock
from symfonic_interrupts.store import migrations
from symfonic_interrupts.store.database import Database

def work(barrier, way):
    barrier.wait(60)
    if way == "upgrade":
        migrations.upgrade(sys.argv[1])
        return
    store = Database(sys.argv[1], clock=system_clock)
    store.create_schema()
    store.close()

context = multiprocessing.get_context("fork")
barrier = context.Barrier(6)
processes = [context.Process(target=work, args=(barrier, way)) for way in ["upgrade", "create_schema"] * 3]
for process in processes:
    process.start()
for process in processes:
    process.join(60)
print([process.exitcode for process in processes])
"""


def test_processes_that_make_and_upgrade_a_store_at_once_take_turns(store_url: str, look: Look) -> None:
    program = [sys.executable, "-W", "error", "-c", AT_ONCE, store_url]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert (done.stdout, done.stderr) == ("[0, 0, 0, 0, 0, 0]\n", "")
    assert look(STAMP) == [(HEAD,)]


def test_an_upgrade_waits_for_whoever_makes_or_changes_the_schema(look: Look, store_url: str) -> None:
    """SQLite: the file's write lock, taken before anything is read. PostgreSQL: an advisory lock."""
    impatient = {"timeout": 0} if look.engine.dialect.name == "sqlite" else {"options": "-clock_timeout=50ms"}
    hold = "BEGIN IMMEDIATE" if look.engine.dialect.name == "sqlite" else "SELECT pg_advisory_xact_lock(1937337702)"
    before = look.schema()
    engine = sa.create_engine(store_url, connect_args=impatient)
    with look.engine.connect() as other:
        other.exec_driver_sql(hold)

        with pytest.raises(StoreError) as failed:
            migrations.upgrade(engine)

    engine.dispose()
    assert failed.value.retryable is True
    assert look.schema() == before
    assert migrations.upgrade(store_url) == HEAD


@pytest.mark.postgres
def test_an_upgrade_and_a_worker_in_the_middle_of_an_answer_do_not_wait_for_each_other(postgres_url: str) -> None:
    """The worker has read the pauses and is about to change one; the upgrade wants the table."""
    operations, row = Operations(system_clock), pause_row()
    worker = sa.create_engine(postgres_url)
    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", MIGRATIONS)
    with worker.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    with worker.begin() as connection:
        operations.opening.open_pauses(connection, [(row, ("interrupt", {}))], lambda found: found)

    def upgrade_now(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO interrupt_consumed_tokens") and not upgrading:
            upgrading.append(pool.submit(migrations.upgrade, postgres_url))
            wait_until_blocked(postgres_url, upgrading[0], "%INDEX%")

    upgrading: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        sa.event.listen(worker, "after_cursor_execute", upgrade_now)
        with worker.begin() as connection:
            answered = operations.claiming.answer(connection, row, answer_claim(), told("answered"))
        version = upgrading[0].result(20)
    worker.dispose()

    assert answered is not None
    assert version == HEAD


def test_an_upgrade_that_fails_leaves_nothing_behind(look: Look, store_url: str) -> None:
    look.change("CREATE TABLE interrupt_thread_leases (somebody_elses text)")  # the last that the migration makes
    before = look.schema()

    for target in (store_url, look.engine):
        with pytest.raises(StoreError) as failed:
            migrations.upgrade(target)
        assert failed.value.retryable is False

    assert look.schema() == before


async def test_a_url_with_an_async_driver_is_upgraded_with_the_sync_one(look: Look, store_url: str) -> None:
    url = store_url.replace("sqlite:", "sqlite+aiosqlite:", 1).replace("+psycopg:", "+psycopg_async:", 1)

    assert migrations.upgrade(url) == HEAD
    assert migrations.current(url) == HEAD

    engine = create_async_engine(url)
    target: Any = engine
    with pytest.raises(StoreError, match="for an AsyncEngine give its URL"):
        migrations.upgrade(target)
    database = Database(engine, clock=system_clock)
    assert await database.arun(Operations(system_clock).reading.load_thread, "default", "t1") == []
    await database.aclose()
    await engine.dispose()


@pytest.mark.parametrize("target", ["mysql+pymysql://ann:hunter2@db/x", "sqlite://", "not a url", 7])
def test_what_cannot_be_a_store_cannot_be_upgraded(target: Any) -> None:
    for call in (migrations.upgrade, migrations.current):
        with pytest.raises(StoreError) as refused:
            call(target)
        assert "hunter2" not in str(refused.value)


def test_it_lives_beside_the_applications_own_alembic(look: Look, store_url: str, tmp_path: Path) -> None:
    (tmp_path / "app" / "versions").mkdir(parents=True)
    (tmp_path / "app" / "env.py").write_text(
        "from alembic import context\n"
        "with context.config.attributes['engine'].begin() as connection:\n"
        "    context.configure(connection=connection)\n"
        "    with context.begin_transaction():\n"
        "        context.run_migrations()\n"
    )
    for number, before in (("0001", None), ("0002", "0001")):
        (tmp_path / "app" / "versions" / f"{number}.py").write_text(
            f"import sqlalchemy as sa\nfrom alembic import op\nrevision = {number!r}\ndown_revision = {before!r}\n"
            f"def upgrade():\n    op.create_table('app_{number}', sa.Column('id', sa.Integer, primary_key=True))\n"
            f"def downgrade():\n    op.drop_table('app_{number}')\n"
        )
    own = Config()
    own.set_main_option("path_separator", "os")
    own.set_main_option("script_location", str(tmp_path / "app"))
    own.attributes["engine"] = look.engine

    command.upgrade(own, "0001")
    migrations.upgrade(store_url)
    command.upgrade(own, "head")

    assert look("SELECT version_num FROM alembic_version") == [("0002",)]
    assert look(STAMP) == [(HEAD,)]
    command.downgrade(own, "base")
    assert migrations.current(store_url) == HEAD
    assert look("SELECT count(*) FROM interrupt_pauses") == [(0,)]


def test_without_alembic_everything_but_an_upgrade_works_and_that_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['alembic'] = None\n"
        "from symfonic_interrupts import Interrupts, KeyRing, StoreError\n"
        "from symfonic_interrupts.store import migrations\n"
        "with Interrupts('sqlite:///a.db', keys=KeyRing([b'a test key of thirty-two bytes..'])) as interrupts:\n"
        "    interrupts.create_schema()\n"
        "print(migrations.current('sqlite:///a.db'), migrations.head())\n"
        "try: migrations.upgrade('sqlite:///a.db')\n"
        "except StoreError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert done.stdout.splitlines() == [
        "0004 0004",
        "upgrading needs Alembic; pip install 'symfonic-interrupts[migrations]'",
    ], done.stderr


# -- another version than the code knows


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0000", "needs 0004: run `symfonic-interrupts db upgrade`"),
        ("0002", "needs 0004: run `symfonic-interrupts db upgrade`"),
        ("0005", "knows 0004: install a newer release .`symfonic-interrupts db upgrade`"),
        ("1a2b", "knows 0004: install a newer release"),
    ],
)
def test_a_store_of_another_version_is_refused_at_first_use_and_not_touched(
    look: Look, store_url: str, version: str, said: str
) -> None:
    migrations.upgrade(store_url)
    look.change(f"UPDATE interrupt_alembic_version SET version_num = '{version}'")
    look.change("DROP TABLE interrupt_thread_leases")  # what an old one may not have, and nobody may add in passing
    before = look.schema()

    for call in (read, Database.create_schema):
        database = Database(store_url, clock=system_clock)
        with pytest.raises(StoreError, match=said) as refused:
            call(database)
        assert refused.value.retryable is False
        database.close()

    assert look.schema() == before


async def test_a_store_of_another_version_is_refused_to_coroutines(look: Look, store_url: str) -> None:
    migrations.upgrade(store_url)
    look.change("UPDATE interrupt_alembic_version SET version_num = '0000'")
    engine = create_async_engine(store_url.replace("sqlite:", "sqlite+aiosqlite:", 1))
    for target in (store_url, engine):
        database = Database(target, clock=system_clock)
        with pytest.raises(StoreError, match="db upgrade"):
            await database.arun(Operations(system_clock).reading.load_thread, "default", "t1")
        with pytest.raises(StoreError, match="db upgrade"):
            await database.acreate_schema()
        await database.aclose()
    await engine.dispose()


def test_a_newer_store_is_not_brought_back(look: Look, store_url: str) -> None:
    migrations.upgrade(store_url)
    look.change("UPDATE interrupt_alembic_version SET version_num = '0005'")

    with pytest.raises(StoreError, match="install a newer release"):
        migrations.upgrade(store_url)

    assert look(STAMP) == [("0005",)]


def test_a_store_refused_once_is_used_as_soon_as_it_is_upgraded(look: Look, store_url: str, database: Database) -> None:
    migrations.upgrade(store_url)
    look.change("UPDATE interrupt_alembic_version SET version_num = '0000'")
    with pytest.raises(StoreError, match="db upgrade"):
        read(database)

    look.change(f"UPDATE interrupt_alembic_version SET version_num = '{HEAD}'")

    assert read(database) == []


def test_the_version_is_looked_at_once_and_costs_no_statement_after(
    look: Look, store_url: str, database: Database
) -> None:
    migrations.upgrade(store_url)
    statements: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", hear)
    try:
        read(database)
        first = [s for s in statements if not s.startswith("BEGIN")]
        statements.clear()
        read(database)
        second = [s for s in statements if not s.startswith("BEGIN")]
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", hear)

    assert len(second) == 1
    assert any("interrupt_alembic_version" in statement for statement in first)
    assert not any("interrupt_alembic_version" in statement for statement in second)


@pytest.mark.parametrize("kept", ["interrupt_pauses", "interrupt_consumed_tokens"])
def test_tables_that_a_process_left_when_it_died_are_completed_and_stamped(
    look: Look, store_url: str, database: Database, kept: str
) -> None:
    migrations.upgrade(store_url)
    whole = look.schema()
    for table in metadata.sorted_tables:
        if table.name != kept:
            look.change(f"DROP TABLE {table.name}")
    look.change("DROP TABLE interrupt_alembic_version")

    database.create_schema()

    assert look.schema() == whole
    assert look(STAMP) == [(HEAD,)]


def test_tables_of_an_unreleased_version_are_refused_by_both_ways(look: Look, store_url: str) -> None:
    migrations.upgrade(store_url)
    look.change("DROP TABLE interrupt_alembic_version")
    look.change("DROP INDEX interrupt_events_in_order")
    look.change("ALTER TABLE interrupt_events DROP COLUMN xid")
    before = look.schema()

    database = Database(store_url, clock=system_clock)
    with pytest.raises(StoreError, match=r"unreleased version \(it has no xid\); start with an empty pause store"):
        database.create_schema()
    with pytest.raises(StoreError, match="unreleased version"):
        migrations.upgrade(store_url)
    database.close()

    assert look.schema() == before


# -- stores frozen at a release


VERSIONS = {"v1": "0001", "v2": "0002"}
STATES = {
    ("pending", "approval"): "pending",
    ("elsewhere", "approval"): "pending",
    ("answered", "approval"): "answered",
    ("crashed", "approval"): "answered",
    ("applied", "approval"): "applied",
    ("twice", "approval"): "applied",
    ("twice", "second"): "pending",
    ("unused", "approval"): "unused",
    ("superseded", "approval"): "superseded",
    ("revoked", "approval"): "revoked",
    ("reissued", "approval"): "pending",
    ("expired", "brief"): "expired",
    ("defaulted", "defaulted"): "applied",
}
DEAD = {
    "answered": (TokenConsumed, "answered"),
    "crashed": (TokenConsumed, "answered"),
    "applied": (TokenConsumed, "applied"),
    "unused": (TokenConsumed, "unused"),
    "superseded": (PauseSuperseded, None),
    "revoked": (TokenConsumed, "revoked"),
    "reissued": (TokenConsumed, "reissued"),
}


class Frozen:
    """A copy of a frozen store, upgraded.

    Attributes:
        version: its name among the frozen ones.
        tokens: those that went out then, by what became of them.
    """

    def __init__(self, stack: ExitStack, version: str, look: Look, store_url: str, folder: Path) -> None:
        self.version = version
        kind = "sqlite" if store_url.startswith("sqlite") else "postgres"
        self.tokens: dict[str, str] = json.loads((FOLDER / f"{version}.json").read_text())[kind]
        checkpoints = store_url
        if kind == "sqlite":
            checkpoints = str(folder / "checkpoints.db")
            shutil.copyfile(FOLDER / f"{version}.sqlite", folder / "interrupts.db")
            shutil.copyfile(FOLDER / f"{version}_checkpoints.sqlite", checkpoints)
        else:
            plain = store_url.replace("postgresql+psycopg://", "postgresql://", 1)
            with psycopg.connect(plain) as connection:
                connection.execute((FOLDER / f"{version}.sql").read_bytes())
        self.before = look(STAMP)
        migrations.upgrade(store_url)
        self.clock = SetClock()
        self.saver = open_saver(stack, checkpoints)
        self.interrupts, self.adapter = open_frozen(stack, store_url, self.saver, self.clock)

    def log(self, thread_id: str) -> list[str]:
        found: list[str] = self.adapter.graph.get_state(thread(thread_id)).values["log"]
        return found


@pytest.fixture(params=VERSIONS)
def frozen(request: pytest.FixtureRequest, look: Look, store_url: str, tmp_path: Path) -> Iterator[Frozen]:
    """A store that the release of that schema left, upgraded to today's."""
    with ExitStack() as stack:
        yield Frozen(stack, request.param, look, store_url, tmp_path)


def test_a_frozen_store_is_upgraded_to_todays_schema(frozen: Frozen, look: Look, store_url: str) -> None:
    assert frozen.before == [(VERSIONS[frozen.version],)]
    assert look(STAMP) == [(HEAD,)]
    with look.engine.connect() as connection:
        options = {"version_table": "interrupt_alembic_version", "include_object": _ours}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
    rows = look("SELECT thread_id, name, state FROM interrupt_pauses")
    assert {(thread_id, name): state for thread_id, name, state in rows} == STATES
    assert len(rows) == len(STATES)


def _ours(_object: Any, name: str | None, kind: str, *_: Any) -> bool:
    return kind != "table" or str(name).startswith("interrupt_")  # the saver's tables stand beside them


def test_every_token_receipt_and_row_of_a_frozen_store_still_verifies(frozen: Frozen, look: Look) -> None:
    keys = KeyRing([KEY])
    claims = {
        name: PauseToken.verify(
            token, keys, issuer="symfonic-interrupts", audience="symfonic-interrupts/default", now=frozen.clock()
        )
        for name, token in frozen.tokens.items()
    }
    assert len(claims) == 11
    assert claims["elsewhere"].scope_hash == FrameworkTenantScope("acme", "north", "b").scope_hash
    for name, view in ((n, frozen.adapter.inspect(frozen.tokens[n])) for n in ("pending", "twice", "renewed")):
        assert (view.state, view.payload["order"]) == ("pending", "A1"), name

    with look.engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(sa.select(pauses)).mappings()]
    assert [row["thread_id"] for row in rows if not row_is_authentic(row, keys)] == []
    answers = look("SELECT response, receipt FROM interrupt_consumed_tokens WHERE response IS NOT NULL")
    assert len(answers) == 6
    for response, receipt in answers:
        assert Receipt.unseal(json.loads(receipt), keys).covers(response)


def test_a_pending_pause_of_a_frozen_store_is_answered_and_delivered_once(frozen: Frozen) -> None:
    answer = {"approved": True, "note": "at last"}

    assert frozen.adapter.invoke(frozen.tokens["pending"], answer)["log"] == ["gate:at last", "paid:at last"]
    assert frozen.adapter.invoke(frozen.tokens["renewed"], answer)["log"] == ["gate:at last", "paid:at last"]
    scope = FrameworkTenantScope("acme", "north", "b")
    frozen.adapter.answer(frozen.tokens["elsewhere"], answer, scope=scope)
    assert frozen.adapter.deliver("elsewhere").output["log"] == ["gate:at last", "paid:at last"]

    for name in ("pending", "renewed"):
        with pytest.raises(TokenConsumed):
            frozen.adapter.answer(frozen.tokens[name], answer)


def test_an_approval_that_was_given_before_the_upgrade_is_still_good_for_the_node_that_checks_it(
    frozen: Frozen,
) -> None:
    output = frozen.adapter.invoke(frozen.tokens["twice"], {"approved": True, "note": "the second"})

    assert output["log"] == ["gate:the first of two", "confirm:the second", "paid:the first of two"]


def test_what_a_crash_left_in_a_frozen_store_is_recovered(frozen: Frozen, look: Look) -> None:
    assert look("SELECT thread_id FROM interrupt_thread_leases") == [("crashed",)]

    deliveries = frozen.adapter.recover()

    assert {d.thread_id: (len(d.applied), d.error) for d in deliveries} == {"answered": (1, None), "crashed": (1, None)}
    assert frozen.log("answered") == ["gate:not delivered", "paid:not delivered"]
    assert frozen.log("crashed") == ["gate:delivery died", "paid:delivery died"]
    assert look("SELECT thread_id FROM interrupt_thread_leases") == []
    assert frozen.adapter.recover() == []


@pytest.mark.parametrize("name", DEAD)
def test_a_spent_token_of_a_frozen_store_stays_spent_and_says_why(frozen: Frozen, name: str) -> None:
    error, state = DEAD[name]

    with pytest.raises(error) as refused:
        frozen.adapter.answer(frozen.tokens[name], {"approved": True})

    assert getattr(refused.value, "state", None) == state


def test_an_idempotency_key_of_a_frozen_store_still_gives_the_same_receipt(frozen: Frozen) -> None:
    answer = {"approved": True, "note": "delivered"}

    again = frozen.adapter.answer(frozen.tokens["applied"], answer, actor="zoë", idempotency_key="key of delivered")

    assert (again.thread_id, again.actor) == ("applied", "zoë")
    with pytest.raises(TokenConsumed):
        frozen.adapter.answer(frozen.tokens["applied"], answer, idempotency_key="another key")


def test_the_history_of_a_frozen_store_is_kept(frozen: Frozen, look: Look) -> None:
    kinds = dict(look("SELECT type, count(*) FROM interrupt_events GROUP BY type"))

    assert kinds == {
        "interrupt": 13,
        "interrupt_resolved": 6,
        "interrupt_expired": 2,
        "interrupt_unused": 1,
        "interrupt_superseded": 1,
        "interrupt_revoked": 1,
        "interrupt_reissued": 1,
    }
    assert len(_pending(frozen.adapter)) == 3


def _pending(adapter: ResumeAdapter) -> list[str]:
    return sorted(event.thread_id for event in adapter.pending())
