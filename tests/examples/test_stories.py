"""The examples with agents, a fan-out and a checked gate run unattended, tell their story, and never print a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.scripts import EXAMPLES, TOKEN, run_script
from tests.examples.test_scripts import steps

STORIES = ["agent_ask_user.py", "checked_gate.py", "hitl_middleware.py", "reviewers_fan_out.py"]


def story(name: str, folder: Path) -> list[list[str]]:
    """The steps that an example prints. It says nothing else, and leaves nothing behind."""
    done = run_script(name, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert not TOKEN.search(done.stdout)
    assert list(folder.iterdir()) == []
    return steps(done.stdout)


def test_a_reviewer_edits_one_call_and_rejects_the_other_on_an_untouched_agent(tmp_path: Path) -> None:
    wanted, too_few, not_allowed, decided, again = story("hitl_middleware.py", tmp_path)

    assert wanted[1] == "   It wants send_mail with {'text': 'It is done.', 'to': 'everyone@example.org'}"
    assert wanted[2] == "   It wants delete_file with {'path': 'report.txt'}"
    assert too_few[1].startswith("   refused (response_invalid)")
    assert too_few[1].endswith("2 tool calls need 2 decisions in their order, not 1")
    assert not_allowed[1].endswith("decisions.1: delete_file allows approve, reject, not respond")
    assert decided[1] == "   [send_mail] to ann@example.org: It is done."
    assert sorted(decided[2:4]) == ["   call-1: success", "   call-2: error"]
    assert decided[4:] == ["   The agent: The mail went to Ann, and the report stays."]
    assert again[1:] == ["   refused (token_consumed): the token is spent: the pause is applied"]


def test_a_model_asks_two_questions_and_is_told_each_answer_under_its_call(tmp_path: Path) -> None:
    asked, refused, answered, told = story("agent_ask_user.py", tmp_path)

    assert asked[1] == "   call-1 asks: Which room? ['Lab', 'Hall', 'Garden']"
    assert asked[2] == "   call-2 asks: At what time? ['Nine', 'Noon']"
    assert refused[1:] == ["   refused (response_invalid), the question stays open"]
    assert answered[1:] == ["   call-2: Noon", "   call-1: Garden"]
    assert told[1:] == [
        '   call-1 is told {"answers": [{"question": "Which room?", "selections": ["Garden"]}]}',
        '   call-2 is told {"answers": [{"question": "At what time?", "selections": ["Noon"]}]}',
        "   The agent: The room is booked.",
    ]


def test_reviewers_answer_out_of_order_and_are_joined_once(tmp_path: Path) -> None:
    asked, first, recorded, delivered = story("reviewers_fan_out.py", tmp_path)

    assert asked[1:] == ["   waiting for finance, legal, security"]
    assert first[1:] == ["   [review] security is heard", "   waiting for finance, legal"]
    assert recorded[1:] == ["   waiting for nobody"]
    assert sorted(delivered[1:3]) == ["   [review] finance is heard", "   [review] legal is heard"]
    assert delivered[3:] == [
        "   [join]",
        "   finance accepts",
        "   legal objects: clause 4 is missing",
        "   security accepts",
        "   verdict: back to the author",
    ]


def test_money_leaves_only_with_the_approval_of_exactly_this_transfer(tmp_path: Path) -> None:
    honest, raised, around, stolen = story("checked_gate.py", tmp_path)

    assert honest[1:] == ["   50 paid to Ann"]
    assert [step[1:] for step in (raised, around, stolen)] == [["   not paid (receipt_invalid)"]] * 3


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_short_enough_to_read_and_says_what_it_needs(name: str) -> None:
    text = (EXAMPLES / name).read_text()

    assert len(text.splitlines()) <= 120
    for heading in ("What it shows:", "What it needs:", "How to run:", "What it prints:"):
        assert heading in text
