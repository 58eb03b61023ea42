"""`failed`, `reissue` and `revoke`; where `--graph` is imported from; what a failed delivery says; what cannot be seen."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pexpect
import pytest

from symfonic_interrupts import FrameworkTenantScope, ResumeAdapter, TokenConsumed
from symfonic_interrupts.cli.output import json_text, printable
from symfonic_interrupts.cli.reports import failed_thread_data
from tests.cli.conftest import TOKEN, Shop

SCRIPT = [str(Path(sys.executable).with_name("symfonic-interrupts"))]


# -- failed, reissue, revoke


def test_threads_that_failed_after_an_answer_are_listed(any_shop: Shop) -> None:
    any_shop.json("answer", any_shop.ask(thread="t1"), "--json", '{"approved": true, "note": "fail"}')
    any_shop.ask(thread="t2")
    none = any_shop.run("failed")
    any_shop.json("recover", "--json", code=4)

    found = any_shop.json("failed", "--json")
    lines = any_shop.run("failed").stdout.splitlines()

    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no thread failed\n")
    assert [thread["thread_id"] for thread in found] == ["t1"]
    assert set(found[0]) == {"thread_id", "at", "node", "error_type", "message"}
    assert [(line.split("\t")[0], line.count("\t")) for line in lines] == [("t1", 3)]


def test_of_a_failed_thread_the_time_the_node_and_the_error_are_told() -> None:
    at = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    thread = SimpleNamespace(thread_id="t1", at=at, node="pay", error_type="ValueError", message="no money")

    assert failed_thread_data(thread) == {
        "thread_id": "t1",
        "at": "2026-03-04T05:06:07Z",
        "node": "pay",
        "error_type": "ValueError",
        "message": "no money",
    }


def test_a_reissued_token_is_printed_only_where_it_is_asked_for_and_kills_the_old_one(any_shop: Shop) -> None:
    interrupt_id = any_shop.ask()
    old = any_shop.json("show", interrupt_id, "--token", "--json")["pause_token"]

    quiet = any_shop.run("reissue", interrupt_id)
    event = any_shop.json("reissue", interrupt_id, "--ttl", "2h", "--json")
    lines = any_shop.run("reissue", interrupt_id, "--token").stdout.splitlines()
    new = any_shop.json("reissue", interrupt_id, "--token", "--json")["pause_token"]

    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert [line.split("\t")[0] for line in quiet.stdout.splitlines()] == ["interrupt_id", "name", "thread", "expires"]
    assert not TOKEN.search(quiet.stdout)
    assert "pause_token" not in event
    assert (
        timedelta(minutes=115) < datetime.fromisoformat(event["expires_at"]) - datetime.now(UTC) <= timedelta(hours=2)
    )
    assert lines[-1].startswith("pause_token\teyJ")
    scope = FrameworkTenantScope("acme")
    with any_shop.opened() as adapter:
        with pytest.raises(TokenConsumed, match="reissued"):
            adapter.inspect(old, scope=scope)
        assert adapter.invoke(new, {"approved": True}, scope=scope)["result"] == "paid"


def test_an_expired_pause_can_be_answered_again_after_a_reissue(shop: Shop) -> None:
    interrupt_id = shop.ask(ago=timedelta(days=2))

    refused = shop.run("answer", interrupt_id, "--json", '{"approved": true}')
    shop.json("reissue", interrupt_id, "--json")

    assert refused.stderr.startswith("token_expired")
    assert shop.json("answer", interrupt_id, "--json", '{"approved": true}')["interrupt_id"] == interrupt_id


def test_a_revoked_pause_is_not_answered_and_its_reason_is_recorded(any_shop: Shop) -> None:
    interrupt_id = any_shop.ask()

    done = any_shop.run("revoke", interrupt_id, "--reason", "asked in error")
    again = any_shop.run("revoke", interrupt_id, "--reason", "twice")
    answered = any_shop.run("answer", interrupt_id, "--json", '{"approved": true}')
    events = [json.loads(line) for line in any_shop.run("events", "--json").stdout.splitlines()]

    assert (done.returncode, done.stdout, done.stderr) == (0, f"revoked {interrupt_id}\n", "")
    assert any_shop.state(interrupt_id) == "revoked"
    assert [(end.returncode, end.stderr.split(":")[0]) for end in (again, answered)] == [(3, "token_consumed")] * 2
    assert events[-1]["body"]["reason"] == "asked in error"


@pytest.mark.parametrize("command", [["reissue"], ["revoke", "--reason", "none of yours"]], ids=["reissue", "revoke"])
def test_a_pause_of_another_tenant_is_neither_reissued_nor_revoked(shop: Shop, command: list[str]) -> None:
    theirs = shop.ask(tenant_id="globex")

    refused = shop.run(*command, theirs)
    allowed = shop.run(*command, theirs, "--tenant", "globex")

    assert (refused.returncode, refused.stdout, allowed.returncode) == (3, "", 0)


def test_a_revocation_without_a_reason_is_wrong_usage(shop: Shop) -> None:
    interrupt_id = shop.ask()

    codes = [shop.run("revoke", interrupt_id).returncode, shop.run("revoke", interrupt_id, "--reason", " ").returncode]

    assert codes == [2, 2]
    assert shop.state(interrupt_id) == "pending"


@pytest.mark.skipif(
    "thread_id" not in inspect.signature(ResumeAdapter.view).parameters, reason="this adapter names pauses by id alone"
)
def test_a_pause_can_be_named_by_its_thread_too(shop: Shop) -> None:
    interrupt_id = shop.ask(thread="t1")
    commands = [["show"], ["reissue"], ["answer", "--json", '{"approved": true}'], ["revoke", "--reason", "r"]]

    for command in commands:
        assert shop.run(*command, interrupt_id, "--thread", "t2").stderr.startswith("unknown_interrupt: ")
    codes = [shop.run(*command, interrupt_id, "--thread", "t1").returncode for command in commands]

    assert codes == [0, 0, 0, 3]


# -- what a delivery says


def test_a_failed_delivery_shows_its_traceback_through_logging(shop: Shop) -> None:
    (shop.folder / "logging_shop.py").write_text(
        "import logging\nfrom tests.cli.applications import shop as plain\n"
        "from contextlib import contextmanager\n"
        "@contextmanager\ndef shop():\n    with plain() as adapter:\n"
        "        try:\n            raise LookupError('no \\x1b[2J \\u202e such order')\n"
        "        except LookupError:\n            failure = __import__('sys').exc_info()\n"
        "        class Graph(type(adapter)):\n            def deliver(self, thread_id):\n"
        "                log = logging.getLogger('symfonic_interrupts.delivery')\n"
        "                log.error('thread failed', exc_info=failure)\n"
        "                return super().deliver(thread_id)\n"
        "        adapter.__class__ = Graph\n        yield adapter\n"
    )
    interrupt_id = shop.ask()
    graph = ["--graph", "logging_shop:shop", "--app-dir", str(shop.folder)]
    text = '{"approved": true, "note": "fail"}'
    answered = shop.run("answer", interrupt_id, "--json", text, "--deliver", *graph)

    done = shop.run("deliver", "t1", *graph)

    assert (done.returncode, done.stdout) == (4, "t1\t0\t0\tfailed: the graph raised RuntimeError\n")
    assert " ERROR symfonic_interrupts.delivery: thread failed\nTraceback (most recent call last):\n" in done.stderr
    assert r"LookupError: no \x1b[2J \u202e such order" in done.stderr
    assert "ERROR symfonic_interrupts.delivery: thread failed\n" in answered.stderr
    assert "LookupError" not in answered.stderr


def test_purge_names_all_that_it_can_work_with(shop: Shop) -> None:
    done = shop.run("purge", "--older-than", "30d", SYMFONIC_INTERRUPTS_GRAPH=None)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: this command needs the pause store: pass --store URL, or set")
    assert "or pass --graph" in done.stderr


# -- where code comes from


@pytest.mark.parametrize("way", ["module", "script"])
def test_nothing_is_imported_from_the_current_directory_unless_it_is_named(shop: Shop, way: str) -> None:
    ran = shop.folder / "ran"
    for name in ("here", "typer", "rich", "sqlalchemy"):
        (shop.folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r} + ' ')\nraise SystemExit(9)\n")
    command = {"command": SCRIPT} if way == "script" else {}

    refused = shop.run("pending", "--graph", "here:shop", cwd=shop.folder, **command)  # type: ignore[arg-type]

    assert refused.returncode == 2
    assert "there is no module here; install it, or name the folder it is in: --app-dir ." in refused.stderr
    assert not ran.exists()


@pytest.mark.parametrize("folder", [".", "inner"])
def test_an_app_dir_is_imported_from(shop: Shop, folder: str) -> None:
    (shop.folder / "inner").mkdir()
    (shop.folder / folder / "here.py").write_text("from tests.cli.applications import shop\n")
    interrupt_id = shop.ask()

    done = shop.run("pending", "--graph", "here:shop", "--app-dir", folder, cwd=shop.folder)
    missing = shop.run("pending", "--graph", "here:shop", "--app-dir", "nowhere", cwd=shop.folder)

    assert (done.returncode, done.stdout.split("\t")[0]) == (0, interrupt_id)
    assert (missing.returncode, missing.stderr) == (2, "usage: --app-dir nowhere: there is no such folder\n")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["answer", "--help"], ["keys", "new"]])
def test_what_needs_no_graph_imports_no_langgraph(arguments: list[str]) -> None:
    script = (
        "import sys, atexit; sys.argv[1:] = sys.argv[1:]\n"
        "from symfonic_interrupts.cli import main\n"
        "try: main()\n"
        "finally: print(sorted({'langgraph', 'langchain_core'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout


# -- what cannot be seen

HIDDEN = "a\u202eb\u200bc\u3164d\u2066e\u00adf\u2028g\u2800h\U000e0041i\ufe0fj\u200ak"
ESCAPED = r"a\u202eb\u200bc\u3164d\u2066e\xadf\u2028g\u2800h\U000e0041i\ufe0fj\u200ak"


def test_what_cannot_be_seen_is_escaped_and_json_stays_json() -> None:
    assert printable(HIDDEN) == ESCAPED
    assert (
        printable("caf\u00e9 90\u00a0\u20ac \u65e5\u672c\u3000\u26a0\ufe0f")
        == "caf\u00e9 90\u00a0\u20ac \u65e5\u672c\u3000\u26a0\ufe0f"
    )
    for indent in (None, 2):
        text = json_text({"caf\u00e9": [HIDDEN, "\x9b\x1b"]}, indent)
        assert json.loads(text) == {"caf\u00e9": [HIDDEN, "\x9b\x1b"]}
        assert printable(text, lines=True) == text
        assert "caf\u00e9" in text


def test_a_thread_an_actor_and_a_payload_with_what_cannot_be_seen_are_shown_escaped(shop: Shop) -> None:
    interrupt_id = shop.ask(order=HIDDEN, thread=HIDDEN)
    shown = shop.run("show", interrupt_id)
    listed = shop.run("pending")
    told = shop.run("answer", interrupt_id, "--json", '{"approved": true}', "--actor", "k\u3164m")
    events = shop.run("events")
    failed = shop.run("deliver", HIDDEN + "!")

    lines = dict(line.split("\t") for line in shown.stdout.splitlines())
    assert lines["thread"] == ESCAPED
    assert json.loads(lines["payload"]) == {"amount": 90, "order": HIDDEN}
    assert listed.stdout.split("\t")[2] == ESCAPED
    assert json.loads(told.stdout)["actor"] == "k\u3164m"
    for done in (shown, listed, told, events, failed):
        assert not set(done.stdout + done.stderr) & set(
            "\u202e\u200b\u3164\u2066\u00ad\u2028\u2800\U000e0041\ufe0f\u200a"
        )


def test_what_cannot_be_seen_is_escaped_at_a_terminal_in_tables_and_prompts(shop: Shop) -> None:
    interrupt_id = shop.ask(order="A\u3164\u202e17", thread="t\u200b1")
    seen = ""
    for arguments in (["pending"], ["show", interrupt_id]):
        terminal = shop.terminal(*arguments)
        terminal.expect(pexpect.EOF)
        terminal.close()
        seen += terminal.before or ""
    terminal = shop.terminal("answer", interrupt_id)
    terminal.expect_exact("approved")
    seen += terminal.before or ""
    terminal.sendcontrol("c")
    terminal.expect(pexpect.EOF)
    terminal.close()

    assert not set(seen) & set("\u202e\u200b\u3164")
    assert seen.count(r"t\u200b1") == 3
    assert seen.count(r"A\u3164\u202e17") == 3
