"""The commands at a real terminal: questions field by field, tables, and nothing in a payload that a terminal would obey."""

from __future__ import annotations

import json
import re

import pexpect
import pytest

from tests.cli.conftest import TOKEN, Shop

COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\]8;[^\x1b]*\x1b\\")


def type_in(terminal: pexpect.spawn[str], *entries: tuple[str, str]) -> str:
    """Type each entry when its prompt is there. Returns all that was shown until then."""
    seen = ""
    for prompt, entry in entries:
        terminal.expect_exact(prompt)
        seen += (terminal.before or "") + prompt
        terminal.sendline(entry)
    return seen


def end(terminal: pexpect.spawn[str]) -> tuple[int | None, str]:
    """The exit code, and what was shown last, without colours."""
    terminal.expect(pexpect.EOF)
    terminal.close()
    return terminal.exitstatus, COLOURS.sub("", terminal.before or "").replace("\r\n", "\n")


def test_an_answer_is_asked_field_by_field_and_a_wrong_entry_again(shop: Shop) -> None:
    interrupt_id = shop.ask()
    terminal = shop.terminal("answer", interrupt_id, "--actor", "the board")

    seen = type_in(
        terminal,
        ("approved (yes/no): ", "perhaps"),
        ("approved (yes/no): ", "no"),
        ('note (text) [""]: ', ""),
        ("send it? (yes/no [yes]) ", ""),
        # the point's own validator wants a note; what was typed is the default now
        ("approved (yes/no) [no]: ", ""),
        ('note (text) [""]: ', "not \u00e0 la carte"),
        ("send it? (yes/no [yes]) ", "n"),
        ("approved (yes/no) [no]: ", ""),
        ("note (text) [not \u00e0 la carte]: ", ""),
        ("send it? (yes/no [yes]) ", "y"),
    )
    code, last = end(terminal)

    assert code == 0
    assert '"order": "A-17"' in seen
    assert "  yes or no" in seen
    assert "refused: refund_approval: validate_response refused the answer: a refusal needs a note" in seen
    assert f"answered refund_approval {interrupt_id} of thread t1" in last
    assert not TOKEN.search(seen + last)
    ((response, actor),) = shop.rows("SELECT response, actor FROM interrupt_consumed_tokens")
    assert (json.loads(response), actor) == ({"approved": False, "note": "not \u00e0 la carte"}, "the board")


def test_an_answer_at_a_terminal_can_move_the_graph_on(shop: Shop) -> None:
    interrupt_id = shop.ask()
    terminal = shop.terminal("answer", interrupt_id, "--deliver")

    type_in(terminal, ("approved", "y"), ("note", ""), ("send it?", ""))
    code, last = end(terminal)

    assert code == 0
    assert "the graph went on" in last
    assert shop.result() == "paid"


def test_a_long_form_is_asked_part_by_part(shop: Shop) -> None:
    interrupt_id = shop.ask("interview")
    terminal = shop.terminal("answer", interrupt_id, "--deliver")

    seen = type_in(
        terminal,
        ("name (text): ", "K"),
        ("name (text): ", "Kim"),
        ("age (whole number >= 18 <= 120): ", "17"),
        ("age (whole number >= 18 <= 120): ", "44"),
        ("height (number / null) [null]: ", ""),
        ("speed (slow / fast) [slow]: ", "2"),
        ("since (date / null) [null]: ", "2026-02-03"),
        ("tags is []; change it? (yes/no [no]) ", "y"),
        ("tags[1] (text; Enter ends): ", "red"),
        ("tags[2] (text; Enter ends): ", ""),
        ("address.street (text): ", "Main St"),
        ("address.number (whole number / null) [null]: ", "12"),
        ("former: fill it in? (yes/no [no]) ", ""),
        ("which (1 to 2): ", "1"),
        ("pay.digits (text): ", "123"),
        ("pay.digits (text): ", "1234"),
        ("extra is {}; change it? (yes/no [no]) ", "y"),
        ("extra (JSON): ", '{"k": '),
        ("extra (JSON): ", '{"k": [1]}'),
        ("send it?", ""),
    )
    code, _ = end(terminal)

    assert code == 0
    assert "age: in years" in seen
    assert json.loads(shop.result()) == {
        "name": "Kim",
        "age": 44,
        "height": None,
        "speed": "fast",
        "since": "2026-02-03",
        "tags": ["red"],
        "address": {"street": "Main St", "number": 12},
        "former": None,
        "pay": {"kind": "card", "digits": "1234"},
        "extra": {"k": [1]},
    }


def test_questions_to_the_user_are_shown_with_their_options(shop: Shop) -> None:
    interrupt_id = shop.ask("carrier")
    terminal = shop.terminal("answer", interrupt_id, "--deliver")

    seen = type_in(
        terminal,
        ("answer (1 to 2): ", "1,2"),
        ("answer (1 to 2): ", "2"),
        ("answer (numbers, with commas, or a text): ", "a ribbon"),
        ("send it?", ""),
    )
    code, _ = end(terminal)

    assert code == 0
    assert "Which carrier?" in seen
    assert "  2 Courier (by bike)" in seen
    answers = json.loads(shop.result())["answers"]
    assert [(answer["selections"], answer["other"]) for answer in answers] == [(["Courier"], None), ([], "a ribbon")]


@pytest.mark.parametrize("key", ["c", "d"])
def test_ctrl_c_and_ctrl_d_at_a_question_answer_nothing(shop: Shop, key: str) -> None:
    interrupt_id = shop.ask()
    terminal = shop.terminal("answer", interrupt_id)
    terminal.expect_exact("approved (yes/no): ")

    terminal.sendcontrol(key)
    code, last = end(terminal)

    assert code == 130
    assert "Traceback" not in last
    assert shop.state(interrupt_id) == "pending"


def test_a_refusal_at_a_terminal_comes_before_any_question(shop: Shop) -> None:
    interrupt_id = shop.ask()
    shop.json("answer", interrupt_id, "--json", '{"approved": true}')

    code, last = end(shop.terminal("answer", interrupt_id))

    assert (code, last) == (3, "token_consumed: the pause is answered\n")


def test_what_waits_is_a_table_whose_ids_are_whole_in_a_narrow_window(shop: Shop) -> None:
    interrupt_id = shop.ask(order="x" * 300, thread="a-rather-long-thread-id-0123456789")
    terminal = shop.terminal("pending", COLUMNS="80")

    code, shown = end(terminal)

    heading, row = shown.splitlines()
    assert code == 0
    assert heading.split("  ")[0] == "interrupt_id"
    assert row.startswith(f"{interrupt_id}  refund_approval  a-rather-long-thread-id-0123456789  ")
    assert row.endswith("\u2026")
    assert "\t" not in row


def test_a_payload_cannot_steer_the_terminal(shop: Shop) -> None:
    interrupt_id = shop.ask(order="A\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\rB")
    for command in (["pending"], ["show", interrupt_id], ["events"], ["pending", "--json"]):
        terminal = shop.terminal(*command)
        terminal.expect(pexpect.EOF)
        terminal.close()
        raw = terminal.before or ""
        assert not set(raw) & set("\x07\x9b\u202e"), command
        assert "\x1b]0" not in raw
        assert "\x1b[2J" not in raw
        assert r"\u001b]0;owned" in raw
    terminal = shop.terminal("answer", interrupt_id)
    terminal.expect_exact("approved")
    assert r"\u001b]0;owned" in (terminal.before or "")
    assert "\x1b]0" not in (terminal.before or "")
    terminal.sendcontrol("c")
    end(terminal)


def test_a_pause_is_laid_out_for_reading(shop: Shop) -> None:
    interrupt_id = shop.ask()

    code, shown = end(shop.terminal("show", interrupt_id))

    assert code == 0
    assert f"interrupt_id: {interrupt_id}\n" in shown
    assert 'payload:\n{\n  "amount": 90,\n  "order": "A-17"\n}\n' in shown


def test_long_work_shows_that_it_runs_at_a_terminal_only(shop: Shop) -> None:
    shop.json("answer", shop.ask(), "--json", '{"approved": true}')
    terminal = shop.terminal("recover")
    terminal.expect_exact("recovering")
    code, shown = end(terminal)

    assert code == 0
    assert "t1      1        0       went on" in shown
    assert "recovering" not in shop.run("recover").stderr
