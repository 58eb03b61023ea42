"""`keys`, `db upgrade` and `doctor`: what an operator does around the store, most of it without a graph."""

from __future__ import annotations

import json
import os
import re
import stat
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from symfonic_interrupts import KeyRing, StoreError
from symfonic_interrupts.cli.commands.doctor import within_skew
from symfonic_interrupts.cli.key_files import replace_key_file
from tests.cli.conftest import Shop

KEY = re.compile(r"[A-Za-z0-9_-]{43}")
ALONE: dict[str, str | None] = {"SYMFONIC_INTERRUPTS_GRAPH": None, "SYMFONIC_INTERRUPTS_KEYS": None}


def write(path: Path, *keys: str) -> Path:
    path.write_text("\n".join(keys) + "\n")
    path.chmod(0o600)
    return path


def checks(shop: Shop, *arguments: str, code: int = 0, **environment: str | None) -> dict[str, tuple[str, str]]:
    """What the doctor found: status and detail, by check."""
    done = shop.run("doctor", "--json", *arguments, **environment)
    assert done.returncode == code, done.stderr + done.stdout
    return {row["check"]: (row["status"], row["detail"]) for row in json.loads(done.stdout)}


def test_a_new_key_is_one_line_that_a_ring_takes(shop: Shop) -> None:
    first, second = (shop.run("keys", "new", **ALONE).stdout for _ in range(2))

    assert KEY.fullmatch(first.removesuffix("\n"))
    assert first != second
    assert len(KeyRing.from_text(first + second).kids) == 2


def test_a_rotation_of_a_variable_prints_its_value_step_by_step(shop: Shop) -> None:
    old = KeyRing.new_key()

    def rotate(step: str, keys: str, retired: str | None = None) -> dict[str, str]:
        environment = {"SYMFONIC_INTERRUPTS_KEYS": keys, "SYMFONIC_INTERRUPTS_RETIRED_KEYS": retired}
        done = shop.run("keys", "rotate", step, **environment)
        assert (done.returncode, done.stderr.startswith("next: ")) == (0, True)
        return dict(line.split("=") for line in done.stdout.splitlines())

    added = rotate("add", old)["SYMFONIC_INTERRUPTS_KEYS"]
    first, new = added.split(",")
    signing = rotate("sign", added)
    retired = rotate("retire", signing["SYMFONIC_INTERRUPTS_KEYS"])
    again = rotate("add", new, retired=old)

    assert first == old
    assert KEY.fullmatch(new)
    assert signing == {"SYMFONIC_INTERRUPTS_KEYS": f"{new},{old}"}
    assert retired == {"SYMFONIC_INTERRUPTS_KEYS": new, "SYMFONIC_INTERRUPTS_RETIRED_KEYS": old}
    assert again["SYMFONIC_INTERRUPTS_RETIRED_KEYS"] == old


def test_a_rotation_of_a_file_rewrites_it_for_its_owner_alone_and_prints_no_key(shop: Shop) -> None:
    old = KeyRing.new_key()
    file = write(shop.folder / "real", old)
    link = shop.folder / "keys"
    link.symlink_to(file)
    retired = shop.folder / "retired"
    files = ["--keys-file", str(link), "--retired-keys-file", str(retired)]

    shown = [shop.run("keys", "rotate", step, *files, **ALONE) for step in ("add", "sign", "retire")]

    (new,) = file.read_text().split()
    assert [done.returncode for done in shown] == [0, 0, 0]
    assert retired.read_text().split() == [old]
    assert new != old
    assert not any(key in done.stdout + done.stderr for key in (old, new) for done in shown)
    assert link.is_symlink()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, retired)] == [0o600, 0o600]
    assert {path.name for path in shop.folder.iterdir()} == {"real", "keys", "retired"}
    ring = KeyRing.from_text(new, retired=old)
    assert shop.run("keys", "rotate", "add", *files, "--json", **ALONE).stdout.startswith(
        f'{{"signing": "{ring.signing_kid}"'
    )


def test_a_file_that_cannot_be_replaced_is_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()

    with pytest.raises(Exception, match="cannot be written") as refused:
        replace_key_file(folder / "no-such-folder" / "keys", ["k"])

    assert type(refused.value).__name__ == "KeyRingError"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["rotate", "sign"], 2, "needs two keys or more; begin with `keys rotate add`"),
        (["rotate", "retire"], 2, "needs two keys or more; begin with `keys rotate add`"),
        (["rotate", "twice"], 2, ""),
        (["rotate", "add", "--keys-file", "no-such-file"], 3, "key_ring_error: key file no-such-file"),
        (["rotate", "add", "--retired-keys-file", "x"], 2, "--retired-keys-file goes with --keys-file"),
        (["check"], 2, "this command needs the pause store: pass --store URL"),
        (["check", "--store", "no-such-file.db"], 2, "there is no file no-such-file.db"),
        (["check", "--store", "mysql://x/y"], 3, "store_error: "),
        (["check", "--store", "a://b:c"], 2, "--store is neither"),
        (["check", "--store", "sqlite+aiosqlite:///x.db"], 2, "here the same store is sqlite://"),
    ],
)
def test_what_cannot_work_with_keys_is_refused_and_shows_none(
    shop: Shop, arguments: list[str], code: int, says: str
) -> None:
    done = shop.run("keys", *arguments)

    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert shop.environment["SYMFONIC_INTERRUPTS_KEYS"] not in done.stderr
    assert not Path("no-such-file.db").exists()


def test_a_key_file_that_others_can_read_is_refused(shop: Shop) -> None:
    file = write(shop.folder / "keys", KeyRing.new_key(), KeyRing.new_key())
    file.chmod(0o644)

    done = shop.run("keys", "rotate", "sign", "--keys-file", str(file), **ALONE)

    assert (done.returncode, done.stdout) == (3, "")
    assert "chmod 600" in done.stderr


def test_retiring_keys_of_a_file_needs_a_place_for_them(shop: Shop) -> None:
    keys = [KeyRing.new_key(), KeyRing.new_key()]
    file = write(shop.folder / "keys", *keys)

    done = shop.run("keys", "rotate", "retire", "--keys-file", str(file), **ALONE)

    assert done.returncode == 2
    assert file.read_text().split() == keys


def test_keys_in_use_are_counted_and_missing_ones_are_a_problem(any_shop: Shop) -> None:
    any_shop.ask()
    store = ["--store", any_shop.environment["SHOP_STORE"]]
    used = any_shop.environment["SYMFONIC_INTERRUPTS_KEYS"]
    spare, retired = KeyRing.new_key(), KeyRing.new_key()
    ring = KeyRing.from_text(f"{used},{spare}", retired=retired)
    environment = {"SYMFONIC_INTERRUPTS_KEYS": f"{used},{spare}", "SYMFONIC_INTERRUPTS_RETIRED_KEYS": retired}

    whole = any_shop.run("keys", "check", "--json", *store, SYMFONIC_INTERRUPTS_GRAPH=None, **environment)
    broken = any_shop.run("keys", "check", *store, SYMFONIC_INTERRUPTS_KEYS=spare)

    assert (whole.returncode, whole.stderr) == (0, "")
    assert [tuple(row.values()) for row in json.loads(whole.stdout)] == [
        (ring.kids[0], "signs", 1),
        (ring.kids[1], "verifies", 0),
        (ring.kids[2], "retired", 0),
    ]
    assert broken.returncode == 5
    assert broken.stdout == f"{ring.kids[1]}\tsigns\t0\n{ring.kids[0]}\tmissing\t1\n"
    assert "not in the ring" in broken.stderr


def test_a_new_store_is_made_by_db_upgrade_once_and_again(shop: Shop) -> None:
    path = shop.folder / "new.db"

    first, second = (shop.run("db", "upgrade", "--store", str(path), **ALONE) for _ in range(2))

    assert [(done.returncode, done.stdout) for done in (first, second)] == [(0, ""), (0, "")]
    engine = sa.create_engine(f"sqlite:///{path}")
    assert "interrupt_pauses" in sa.inspect(engine).get_table_names()
    engine.dispose()


@pytest.mark.postgres
def test_a_store_on_postgresql_is_made_by_db_upgrade_and_its_password_not_shown(
    postgres_shop: Shop, postgres_url: str
) -> None:
    url = sa.make_url(postgres_url).set(password="hunter2").render_as_string(hide_password=False)

    done = postgres_shop.run("db", "upgrade", SYMFONIC_INTERRUPTS_STORE=url, **ALONE)

    assert (done.returncode, done.stdout) == (0, "")
    assert "hunter2" not in done.stderr
    assert postgres_shop.rows("SELECT count(*) FROM interrupt_pauses") == [(0,)]


def test_the_doctor_finds_all_in_order(any_shop: Shop) -> None:
    any_shop.ask()

    found = checks(any_shop, "--store", any_shop.environment["SHOP_STORE"])

    assert {check: status for check, (status, _) in found.items()} == dict.fromkeys(
        ("keys", "database", "schema", "clock", "keys in use", "graph", "saver", "pauses"), "ok"
    )
    assert found["keys in use"][1] == "1 signatures, all with keys of the ring"


@pytest.mark.parametrize("graph", ["shop", "async_shop"])
def test_the_doctor_looks_at_the_keys_and_the_store_of_a_graph(any_shop: Shop, graph: str) -> None:
    any_shop.ask()
    ring = KeyRing.from_text(any_shop.environment["SYMFONIC_INTERRUPTS_KEYS"])
    kept = any_shop.folder / "kept.py"  # an application whose keys the command line does not know
    kept.write_text(
        f"import os\nos.environ['SYMFONIC_INTERRUPTS_KEYS'] = {any_shop.environment['SYMFONIC_INTERRUPTS_KEYS']!r}\n"
    )
    kept.write_text(kept.read_text() + "from tests.cli.applications import shop, async_shop\n")

    found = checks(
        any_shop, "--graph", f"kept:{graph}", "--app-dir", str(any_shop.folder), SYMFONIC_INTERRUPTS_KEYS=None
    )

    assert [(check, status) for check, (status, _) in found.items()] == [
        (check, "ok") for check in ("keys", "database", "schema", "clock", "keys in use", "graph", "saver", "pauses")
    ]
    assert found["keys"][1] == f"1 in the ring, {ring.signing_kid} signs"
    assert found["keys in use"][1] == "1 signatures, all with keys of the ring"
    assert found["schema"][1].startswith("version ")


def test_the_doctor_finds_through_a_graph_a_key_that_is_gone_and_a_column_too(shop: Shop) -> None:
    shop.ask()
    used = KeyRing.from_text(shop.environment["SYMFONIC_INTERRUPTS_KEYS"]).signing_kid
    shop.rows("ALTER TABLE interrupt_events DROP COLUMN seal")

    found = checks(shop, code=5, SYMFONIC_INTERRUPTS_KEYS=KeyRing.new_key())

    assert found["keys in use"] == ("problem", f"{used} needed by pauses, and not in the ring; put them back")
    assert found["schema"][0] == "problem"
    assert "interrupt_events.seal missing" in found["schema"][1]
    assert found["database"][0] == found["graph"][0] == "ok"


def test_the_doctor_says_what_it_did_not_look_at(shop: Shop) -> None:
    shop.ask()
    without = checks(shop, "--store", shop.environment["SHOP_STORE"], SYMFONIC_INTERRUPTS_GRAPH=None)
    broken = checks(shop, "--graph", "nowhere:adapter", code=5, SYMFONIC_INTERRUPTS_KEYS=None)

    assert {check for check, (status, _) in without.items() if status == "skipped"} == {"graph", "saver", "pauses"}
    assert without["graph"][1] == "no --graph"
    assert {check for check, (status, _) in broken.items() if status == "skipped"} == {
        "keys",
        "database",
        "schema",
        "clock",
        "keys in use",
        "saver",
        "pauses",
    }
    assert shop.run("doctor", **ALONE).returncode == 2


def test_the_doctor_names_what_is_missing_and_makes_nothing(shop: Shop) -> None:
    shop.ask()
    store = ["--store", shop.environment["SHOP_STORE"]]
    shop.rows("ALTER TABLE interrupt_events DROP COLUMN seal")
    shop.rows("DROP TABLE interrupt_thread_leases")

    found = checks(shop, *store, code=5, SYMFONIC_INTERRUPTS_GRAPH=None)

    assert found["schema"][0] == "problem"
    assert "interrupt_events.seal" in found["schema"][1]
    assert "interrupt_thread_leases" in found["schema"][1]
    assert "though it says version 0004" in found["schema"][1]
    assert found["keys in use"] == ("skipped", "the schema is incomplete")
    assert shop.rows("SELECT name FROM sqlite_master WHERE name = 'interrupt_thread_leases'") == []


def test_the_doctor_knows_a_database_without_a_store_and_one_of_a_newer_release(shop: Shop) -> None:
    shop.ask()
    shop.rows("UPDATE interrupt_alembic_version SET version_num = '9999'")
    empty = shop.folder / "empty.db"
    empty.touch()

    newer = checks(shop, "--store", shop.environment["SHOP_STORE"], code=5, SYMFONIC_INTERRUPTS_GRAPH=None)
    none = checks(shop, "--store", str(empty), code=5, SYMFONIC_INTERRUPTS_GRAPH=None)
    purged = shop.run("purge", "--older-than", "1d", "--store", str(empty), **ALONE)

    assert newer["schema"][0] == "problem"
    assert "install a newer release" in newer["schema"][1]
    assert none["schema"][0] == "problem"
    assert none["schema"][1].endswith("run `symfonic-interrupts db upgrade`")
    assert (purged.returncode, purged.stdout) == (3, "")
    assert "no pause store yet" in purged.stderr
    assert empty.read_bytes() == b""


def test_the_doctor_finds_a_key_that_is_gone(shop: Shop) -> None:
    shop.ask()
    store = ["--store", shop.environment["SHOP_STORE"]]
    used = KeyRing.from_text(shop.environment["SYMFONIC_INTERRUPTS_KEYS"]).signing_kid

    found = checks(shop, *store, code=5, SYMFONIC_INTERRUPTS_KEYS=KeyRing.new_key(), SYMFONIC_INTERRUPTS_GRAPH=None)

    assert found["keys in use"][0] == "problem"
    assert used in found["keys in use"][1]


@pytest.mark.parametrize(
    ("environment", "check", "detail"),
    [
        ({"SYMFONIC_INTERRUPTS_KEYS": "c2hvcnQ"}, "keys", "keys[0] has 5 bytes; at least 32 are needed"),
        ({"SYMFONIC_INTERRUPTS_STORE": "no-such-file.db"}, "database", "there is no file"),
        ({"SYMFONIC_INTERRUPTS_STORE": "postgresql+psycopg://a:hunter2@127.0.0.1:1/b"}, "database", "127.0.0.1"),
        ({"SYMFONIC_INTERRUPTS_GRAPH": "nowhere:adapter"}, "graph", "there is no module nowhere"),
        ({"SHOP_STORE": "sqlite:////no/such/folder/a.db"}, "graph", "the pause store failed"),
    ],
)
def test_the_doctor_finds_what_is_wrong_and_shows_no_secret(
    shop: Shop, environment: dict[str, str | None], check: str, detail: str
) -> None:
    found = checks(shop, code=5, **environment)

    assert found[check][0] == "problem"
    assert detail in found[check][1]
    assert "hunter2" not in str(found)


def test_the_doctor_finds_a_saver_that_fails(shop: Shop) -> None:
    (shop.folder / "broken.py").write_text(
        "from contextlib import contextmanager\nfrom tests.cli import applications\n"
        "@contextmanager\ndef shop():\n    with applications.shop() as adapter:\n"
        "        adapter.graph.checkpointer.inner.conn.close()\n        yield adapter\n"
    )

    found = checks(shop, "--graph", "broken:shop", code=5, PYTHONPATH=str(shop.folder))

    assert (found["saver"], found["pauses"][0]) == (("problem", "ProgrammingError"), "ok")


@pytest.mark.parametrize(("seconds", "told"), [(0.2, "0.2 s ahead"), (-59.0, "59.0 s behind")])
def test_clocks_that_are_a_little_apart_are_in_order(seconds: float, told: str) -> None:
    assert told in within_skew(timedelta(seconds=seconds), timedelta(seconds=60))


@pytest.mark.parametrize("seconds", [61, -3600])
def test_clocks_that_are_further_apart_than_tokens_allow_are_a_problem(seconds: int) -> None:
    with pytest.raises(StoreError, match=r"clock_skew allows 60 s$"):
        within_skew(timedelta(seconds=seconds), timedelta(seconds=60))


def test_no_store_is_made_where_one_is_looked_for(shop: Shop) -> None:
    before = set(os.listdir(shop.folder))
    path = shop.folder / "mistyped.db"
    for command in (["keys", "check"], ["purge", "--older-than", "1d"], ["doctor"]):
        assert shop.run(*command, "--store", str(path), SYMFONIC_INTERRUPTS_GRAPH=None).returncode in (2, 5)

    assert set(os.listdir(shop.folder)) == before
