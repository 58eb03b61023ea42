"""The commands as scripts run them: data alone on stdout, a code for how it ended, and no token unless it was asked for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ROOT, TOKEN, Shop

HOUR = timedelta(hours=1)


def test_what_waits_is_listed_newest_first_as_lines_and_as_json(shop: Shop) -> None:
    first = shop.ask(thread="t1")
    second = shop.ask("timed", "B-2", thread="t2")

    lines = [line.split("\t") for line in shop.run("pending").stdout.splitlines()]
    found = shop.json("pending", "--json")

    assert [[line[0], line[1], line[2], line[4]] for line in lines] == [
        [second, "timed", "t2", '{"amount": 1, "order": "B-2"}'],
        [first, "refund_approval", "t1", '{"amount": 90, "order": "A-17"}'],
    ]
    assert [(event["interrupt_id"], event["payload"]["order"]) for event in found] == [(second, "B-2"), (first, "A-17")]
    assert all("pause_token" not in event for event in found)


def test_a_list_is_narrowed_by_point_thread_and_page(shop: Shop) -> None:
    first = shop.ask(thread="t1")
    second = shop.ask("timed", thread="t2")

    asked = [("--name", "timed"), ("--thread", "t1"), ("--limit", "1"), ("--after", second)]
    found = [[event["interrupt_id"] for event in shop.json("pending", "--json", *options)] for options in asked]

    assert found == [[second], [first], [second], [first]]


def test_nothing_that_waits_is_no_data(shop: Shop) -> None:
    done = shop.run("pending")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "nothing waits\n")
    assert shop.json("pending", "--json") == []


def test_a_tenant_sees_its_own_alone(shop: Shop) -> None:
    mine = shop.ask(thread="t1")
    theirs = shop.ask(thread="t2", tenant_id="globex", sub_tenant_id="eu", namespace="n")
    scope = ["--tenant", "globex", "--sub-tenant", "eu", "--namespace", "n"]

    assert [event["interrupt_id"] for event in shop.json("pending", "--json")] == [mine]
    assert [event["interrupt_id"] for event in shop.json("pending", "--json", *scope)] == [theirs]
    variables = {"SYMFONIC_INTERRUPTS_TENANT": "globex", "SYMFONIC_INTERRUPTS_SUB_TENANT": "eu"}
    done = shop.run("pending", "--json", SYMFONIC_INTERRUPTS_NAMESPACE="n", **variables)
    assert [event["interrupt_id"] for event in json.loads(done.stdout)] == [theirs]
    for command in (["show", theirs], ["answer", theirs, "--json", '{"approved": true}']):
        done = shop.run(*command)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("unknown_interrupt: ")


def test_where_no_scope_is_the_default_the_option_is_named(shop: Shop) -> None:
    interrupt_id = shop.ask()
    strict = ["--graph", "tests.cli.applications:strict_shop"]
    done = shop.run("pending", *strict)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("scope_required: ")
    assert "--tenant" in done.stderr
    assert shop.json("pending", "--json", "--tenant", "acme", *strict)[0]["interrupt_id"] == interrupt_id
    assert shop.run("pending", "--namespace", "n", *strict).returncode == 2


def test_a_pause_is_shown_with_the_schema_of_its_answer(shop: Shop) -> None:
    interrupt_id = shop.ask()

    shown = shop.json("show", interrupt_id, "--json")
    lines = dict(line.split("\t") for line in shop.run("show", interrupt_id).stdout.splitlines())

    assert (shown["name"], shown["thread_id"], shown["state"]) == ("refund_approval", "t1", "pending")
    assert shown["payload"] == {"amount": 90, "order": "A-17"}
    assert shown["response_schema"]["required"] == ["approved"]
    assert 86_000 < shown["seconds_left"] <= 86_400
    assert lines["payload"] == '{"amount": 90, "order": "A-17"}'
    assert lines["state"] == "pending"
    assert json.loads(lines["answer_schema"]) == shown["response_schema"]


def test_tokens_are_printed_only_where_they_are_asked_for(shop: Shop) -> None:
    interrupt_id = shop.ask()
    without = [
        ["pending"],
        ["pending", "--json"],
        ["show", interrupt_id],
        ["show", interrupt_id, "--json"],
        ["events"],
        ["events", "--json"],
        ["doctor", "--store", shop.environment["SHOP_STORE"]],
    ]
    for command in without:
        done = shop.run(*command)
        assert done.returncode == 0
        assert not TOKEN.search(done.stdout + done.stderr), command
    for command in (["pending", "--tokens"], ["pending", "--tokens", "--json"], ["show", interrupt_id, "--token"]):
        assert len(TOKEN.findall(shop.run(*command).stdout)) == 1, command
    with shop.opened() as adapter:
        token = shop.json("show", interrupt_id, "--token", "--json")["pause_token"]
        assert adapter.invoke(token, {"approved": True})["result"] == "paid"


def test_a_pause_that_is_over_has_no_token(shop: Shop) -> None:
    interrupt_id = shop.ask(ago=timedelta(days=2))

    done = shop.run("show", interrupt_id, "--token")

    assert done.returncode == 4
    assert done.stderr == "there is no token: this pause is expired\n"
    assert "expired" in done.stdout


@pytest.mark.parametrize("way", ["text", "stdin", "file"])
def test_an_answer_is_stored_and_named_and_runs_no_graph(shop: Shop, way: str) -> None:
    interrupt_id = shop.ask()
    text = '{"approved": true, "note": "fine"}'
    file = shop.folder / "answer.json"
    file.write_text(text)
    given = {"text": text, "stdin": "-", "file": f"@{file}"}[way]

    receipt = shop.json("answer", interrupt_id, "--json", given, stdin=text)

    assert (receipt["interrupt_id"], receipt["thread_id"], receipt["actor"]) == (interrupt_id, "t1", "kim")
    assert "delivery" not in receipt
    assert (shop.state(interrupt_id), shop.result()) == ("answered", None)


def test_who_answers_can_be_named(shop: Shop) -> None:
    interrupt_id = shop.ask()

    receipt = shop.json("answer", interrupt_id, "--json", '{"approved": true}', "--actor", "the board")

    assert receipt["actor"] == "the board"
    assert shop.rows("SELECT actor FROM interrupt_consumed_tokens") == [("the board",)]


def test_an_answer_with_deliver_moves_the_graph_on(any_shop: Shop) -> None:
    interrupt_id = any_shop.ask()

    done = any_shop.run("answer", interrupt_id, "--json", '{"approved": true}', "--deliver")

    assert done.returncode == 0
    assert json.loads(done.stdout)["delivery"] == {
        "thread_id": "t1",
        "applied": [interrupt_id],
        "unused": [],
        "open": [],
        "error": None,
    }
    assert "a node prints" in done.stderr  # what a graph prints is no data
    assert any_shop.result() == "paid"


def test_an_answer_whose_graph_fails_is_stored_and_the_code_says_so(shop: Shop) -> None:
    interrupt_id = shop.ask()

    done = shop.run("answer", interrupt_id, "--json", '{"approved": true, "note": "fail"}', "--deliver")

    assert done.returncode == 4
    assert json.loads(done.stdout)["delivery"]["error"]["type"] == "RuntimeError"
    assert "the answer is stored" in done.stderr
    assert "secret of the order" not in done.stdout + done.stderr
    assert shop.state(interrupt_id) == "answered"


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ('{"approved": false}', 3, "response_invalid: "),
        ('{"approved": "perhaps"}', 3, "response_invalid: "),
        ("{", 2, "usage: --json: not JSON"),
        ('{"approved": NaN}', 2, "usage: --json: not JSON"),
        ("@no-such-file", 2, "usage: --json @no-such-file: FileNotFoundError"),
    ],
)
def test_a_bad_answer_is_refused_and_spends_nothing(shop: Shop, text: str, code: int, says: str) -> None:
    interrupt_id = shop.ask()

    done = shop.run("answer", interrupt_id, "--json", text)

    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(says)
    assert len(done.stderr.splitlines()) == 1
    assert shop.state(interrupt_id) == "pending"


def test_an_answer_counts_once(shop: Shop) -> None:
    interrupt_id = shop.ask()
    shop.json("answer", interrupt_id, "--json", '{"approved": true}')

    done = shop.run("answer", interrupt_id, "--json", '{"approved": false, "note": "no"}')

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "token_consumed: the pause is answered\n"


def test_a_question_whose_time_is_over_or_that_was_left_behind_is_refused(shop: Shop) -> None:
    late = shop.ask(ago=timedelta(days=2), thread="t1")
    behind = shop.ask(thread="t2")
    shop.ask(order="another", thread="t2")

    codes = [shop.run("answer", id_, "--json", '{"approved": true}').stderr.split(":")[0] for id_ in (late, behind)]

    assert codes == ["token_expired", "pause_superseded"]


def test_without_a_terminal_an_answer_is_not_asked_for(shop: Shop) -> None:
    interrupt_id = shop.ask()

    done = shop.run("answer", interrupt_id)

    assert (done.returncode, done.stdout) == (2, "")
    assert "--json" in done.stderr


def test_recover_delivers_and_says_what_is_left_undone(any_shop: Shop) -> None:
    good, bad = any_shop.ask(thread="t1"), any_shop.ask(thread="t2")
    any_shop.json("answer", good, "--json", '{"approved": true}')
    any_shop.json("answer", bad, "--json", '{"approved": true, "note": "fail"}')

    found = any_shop.json("recover", "--json", code=4)

    assert {delivery["thread_id"]: delivery["applied"] for delivery in found} == {"t1": [good], "t2": []}
    assert any_shop.result("t1") == "paid"
    again = any_shop.run("recover")
    assert (again.returncode, again.stdout.strip()) == (0, "")
    assert "`deliver` tries it again" in again.stderr  # it raised after its answer, so recover leaves it alone
    assert any_shop.json("deliver", "t2", "--json", code=4)["error"]["type"] == "RuntimeError"


def test_deliver_runs_one_thread_with_its_stored_answer(shop: Shop) -> None:
    interrupt_id = shop.ask(thread="t1")
    shop.json("answer", interrupt_id, "--json", '{"approved": true}')

    done = shop.json("deliver", "t1", "--json")

    assert (done["applied"], done["error"]) == ([interrupt_id], None)
    assert shop.result("t1") == "paid"
    missing = shop.run("deliver", "no-such-thread")
    assert (missing.returncode, missing.stderr.split(":")[0]) == (3, "checkpoint_missing")


def test_recover_can_be_limited(shop: Shop) -> None:
    for thread in ("t1", "t2"):
        shop.json("answer", shop.ask(thread=thread), "--json", '{"approved": true}')

    lines = shop.run("recover", "--limit", "1").stdout.splitlines()

    assert lines == ["t1\t1\t0\twent on"]
    assert [shop.result("t1"), shop.result("t2")] == ["paid", None]


def test_sweep_closes_what_is_overdue_and_delivers_defaults(any_shop: Shop) -> None:
    silent = any_shop.ask(ago=timedelta(days=2), thread="t1")
    timed = any_shop.ask("timed", ago=HOUR, thread="t2")

    done = any_shop.json("sweep", "--json")

    assert [event["interrupt_id"] for event in done["events"]] == [silent, timed]
    assert (done["defaulted"], done["deliveries"][0]["applied"]) == ([timed], [timed])
    assert any_shop.result("t2") == "too late"
    assert any_shop.run("sweep").stderr == "nothing was overdue\n"


def test_sweep_says_what_it_had_to_leave(shop: Shop) -> None:
    interrupt_id = shop.ask("timed", ago=HOUR)
    shop.rows("UPDATE interrupt_pauses SET payload = '{}'")

    done = shop.run("sweep")

    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines()[-1] == f"{interrupt_id}: its row was changed in the database"


def test_events_are_printed_oldest_first_and_go_on_from_a_cursor(shop: Shop) -> None:
    interrupt_id = shop.ask()
    shop.json("answer", interrupt_id, "--json", '{"approved": true}')
    shop.ask(thread="t2")

    found = [json.loads(line) for line in shop.run("events", "--json").stdout.splitlines()]
    lines = [line.split("\t") for line in shop.run("events").stdout.splitlines()]
    later = shop.run("events", "--after", found[0]["cursor"], "--limit", "1", "--json").stdout.splitlines()
    of_thread = shop.run("events", "--thread", "t2").stdout.splitlines()

    assert [event["type"] for event in found] == ["interrupt", "interrupt_resolved", "interrupt"]
    assert [line[2] for line in lines] == ["interrupt", "interrupt_resolved", "interrupt"]
    assert found[1]["body"]["response"] == {"approved": True}
    assert [json.loads(line)["cursor"] for line in later] == [found[1]["cursor"]]
    assert len(of_thread) == 1


@pytest.mark.parametrize("options", [["--after", "yesterday"], ["--new", "--after", "0-1"], ["--interval", "0s"]])
def test_events_refuse_options_that_cannot_work(shop: Shop, options: list[str]) -> None:
    shop.ask()

    done = shop.run("events", *options)

    assert (done.returncode, done.stdout) == (2, "")


def test_a_reader_that_goes_away_ends_the_command_quietly(shop: Shop) -> None:
    with shop.opened() as adapter:
        for number in range(300):
            config = {"configurable": {"thread_id": f"t{number}"}}
            adapter.graph.invoke({"ask": "refund", "order": "x" * 1000}, config)
    with shop.start("events", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == ""
        assert process.wait(60) == 141


def test_purge_needs_only_the_store_and_takes_what_has_ended(any_shop: Shop) -> None:
    any_shop.ask("timed", ago=timedelta(days=40), thread="t1")
    any_shop.json("sweep", "--json")
    any_shop.ask(thread="t2")
    alone: dict[str, str | None] = {"SYMFONIC_INTERRUPTS_GRAPH": None, "SYMFONIC_INTERRUPTS_KEYS": None}
    alone["SYMFONIC_INTERRUPTS_STORE"] = any_shop.environment["SHOP_STORE"]

    kept = any_shop.run("purge", "--older-than", "60d", "--json", **alone)
    done = any_shop.run("purge", "--older-than", "30d", **alone)

    assert json.loads(kept.stdout) == {"pauses": 0, "tokens": 0, "events": 0}
    assert (done.returncode, done.stdout) == (0, "pauses\t1\ntokens\t0\nevents\t0\n")
    assert any_shop.rows("SELECT thread_id FROM interrupt_pauses") == [("t2",)]


def test_purge_through_a_graph_can_take_the_events_too(shop: Shop) -> None:
    shop.ask("timed", ago=timedelta(days=40))
    shop.json("sweep", "--json")

    counts = shop.json("purge", "--older-than", "1h", "--with-events", "--json")

    # the token was spent just now, by the sweep; so were the events of that
    assert counts == {"pauses": 1, "tokens": 0, "events": 1}


@pytest.mark.parametrize("text", ["30", "-1d", "d", "1y", "999999999w", "1d2h"])
def test_a_duration_that_is_none_is_refused(shop: Shop, text: str) -> None:
    done = shop.run("purge", "--older-than", text)

    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("reference", "code", "says"),
    [
        (None, 2, "this command needs a graph: pass --graph module:attribute"),
        ("shop", 2, "it has the form module:attribute"),
        ("no_such_module:shop", 2, "there is no module no_such_module"),
        ("tests.cli.no_such_module:shop", 2, "there is no module tests.cli.no_such_module"),
        ("tests.cli.applications:no_such_name", 2, "tests.cli.applications has no no_such_name"),
        ("tests.cli.applications:nothing", 2, "is of type int; it names a ResumeAdapter, or a function without"),
        ("tests.cli.applications:needs_an_argument", 2, "must be a function without arguments"),
        ("tests.cli.applications:refuses", 3, "key_ring_error: NO_SUCH_VARIABLE is not set"),
        ("tests.cli.applications:breaks", 1, "LookupError: the config has no section [shop]"),
    ],
)
def test_a_graph_that_cannot_be_loaded_is_explained_in_a_line(
    shop: Shop, reference: str | None, code: int, says: str
) -> None:
    done = shop.run("pending", SYMFONIC_INTERRUPTS_GRAPH=reference)

    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_module_that_misses_another_one_names_that_one(shop: Shop) -> None:
    (shop.folder / "halfway.py").write_text("import no_such_dependency\n")

    done = subprocess.run(
        [*COMMAND, "pending", "--graph", "halfway:x", "--app-dir", "."], cwd=shop.folder, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert done.stderr == (
        "unexpected: halfway:x could not be loaded: ModuleNotFoundError: No module named 'no_such_dependency'\n"
    )


def test_a_call_that_the_application_makes_wrongly_is_no_wrong_usage_of_the_command(shop: Shop) -> None:
    (shop.folder / "misused.py").write_text(
        "from datetime import timedelta\n"
        "import tests.cli.applications as a\n"
        "manager = a.shop()\n"
        "adapter = manager.__enter__()\n"
        "adapter.janitor().purge(timedelta(days=-1))\n"
    )

    done = shop.run("pending", "--graph", "misused:adapter", "--app-dir", str(shop.folder))

    assert done.returncode == 1
    assert done.stderr.startswith("unexpected: misused:adapter could not be loaded: UsageError: older_than must be")


def test_an_adapter_in_the_app_dir_is_found_and_a_traceback_is_shown_on_demand(shop: Shop) -> None:
    (shop.folder / "here.py").write_text(
        "import tests.cli.applications as a\nprint('loading')\nmanager = a.shop()\nadapter = manager.__enter__()\n"
        "def broken():\n    raise LookupError\n"
    )
    environment = {**shop.environment, "PYTHONPATH": str(ROOT), "PATH": "", "SYMFONIC_INTERRUPTS_TRACEBACK": "1"}
    script = "import sys; sys.path.pop(0); from symfonic_interrupts.cli import main; main()"

    def run(reference: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, "pending", "--json", "--app-dir", ".", "--graph", reference]
        return subprocess.run(command, cwd=shop.folder, env=environment, capture_output=True, text=True)

    found, broken = run("here:adapter"), run("here:broken")

    assert (found.returncode, found.stdout, found.stderr) == (0, "[]\n", "loading\n")
    assert broken.returncode == 1
    assert broken.stderr.splitlines()[1] == "Traceback (most recent call last):"


def test_an_async_application_is_called_through_its_async_twins(any_shop: Shop) -> None:
    graph = ["--graph", "tests.cli.applications:async_shop"]
    first, second = any_shop.ask(thread="t1"), any_shop.ask(thread="t2")

    listed = any_shop.json("pending", "--json", *graph)
    any_shop.json("answer", first, "--json", '{"approved": true}', "--deliver", *graph)
    any_shop.json("answer", second, "--json", '{"approved": true}', *graph)
    recovered = any_shop.json("recover", "--json", *graph)
    swept = any_shop.run("sweep", *graph)
    events = any_shop.run("events", *graph).stdout.splitlines()
    doctor = any_shop.json("doctor", "--json", *graph)

    assert [event["interrupt_id"] for event in listed] == [second, first]
    assert [delivery["applied"] for delivery in recovered] == [[second]]
    assert (swept.returncode, swept.stderr) == (0, "nothing was overdue\n")
    assert len(events) == 4
    assert {row["check"]: row["status"] for row in doctor}["saver"] == "ok"
    assert [any_shop.result("t1"), any_shop.result("t2")] == ["paid", "paid"]


def test_a_store_that_fails_is_told_without_a_traceback_or_a_password(shop: Shop) -> None:
    url = "postgresql+psycopg://someone:hunter2@127.0.0.1:1/nowhere"

    done = shop.run("pending", SHOP_STORE=url)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("store_error: ")
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr


def test_an_unexpected_error_shows_its_type_and_place_but_not_its_message(shop: Shop) -> None:
    shop.ask()
    shop.rows("UPDATE interrupt_events SET body = 'secret'")

    done = shop.run("events")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("unexpected: JSONDecodeError in decoder.py, line ")
    assert "secret" not in done.stderr


def test_control_characters_of_a_payload_reach_no_terminal_through_a_pipe(shop: Shop) -> None:
    nasty = "A\x1b]0;owned\x07\x1b[2J\x9b31m\u202eend\ttab\nline\x7f"
    interrupt_id = shop.ask(order=nasty)
    for command in (["pending"], ["pending", "--json"], ["show", interrupt_id], ["show", interrupt_id, "--json"]):
        shown = shop.run(*command).stdout
        assert not set(shown) & set("\x1b\x07\x9b\u202e"), command
        assert "owned" in shown
    assert shop.json("pending", "--json")[0]["payload"]["order"] == nasty


def test_ctrl_c_ends_a_command_without_a_traceback(shop: Shop) -> None:
    (shop.folder / "slow.py").write_text(
        "import sys, time\ndef adapter():\n    print('here', file=sys.stderr, flush=True)\n    time.sleep(60)\n"
    )
    command = [*COMMAND, "pending", "--graph", "slow:adapter", "--app-dir", "."]
    with subprocess.Popen(command, cwd=shop.folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)

        assert process.stderr.read() == ""
        assert process.wait(60) == 130


def test_every_command_has_help_and_the_exit_codes_are_in_it(shop: Shop) -> None:
    done = shop.run("--help")

    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    for part in (
        "0 done",
        "1 an unexpected",
        "2 wrong usage",
        "3 refused",
        "4 something",
        "5 a check",
        "130 ended",
        "141",
    ):
        assert part in text
    for command in (
        "pending",
        "show",
        "answer",
        "events",
        "deliver",
        "recover",
        "sweep",
        "worker",
        "purge",
        "doctor",
        "keys",
        "db",
    ):
        assert f" {command} " in done.stdout


def test_a_command_that_is_none_is_wrong_usage(shop: Shop) -> None:
    assert shop.run("pendign").returncode == 2
    assert shop.run("--version").stdout.startswith("symfonic-interrupts ")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_names_it(tmp_path: Path, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from symfonic_interrupts.cli import main; main()"

    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'symfonic-interrupts[cli]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_library_imports_neither_the_command_line_nor_typer() -> None:
    code = (
        "import sys, symfonic_interrupts; print([n for n in sys.modules if n in ('typer', 'symfonic_interrupts.cli')])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
