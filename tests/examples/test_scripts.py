"""The example scripts run unattended, tell their story, and never print a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.scripts import EXAMPLES, TOKEN, run_script


def test_the_quickstart_pauses_and_pays(tmp_path: Path) -> None:
    done = run_script("quickstart.py", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "asked:  {'amount': 90, 'order': 'A-17'}\nresult: paid\n"


def test_the_quickstart_runs_again_in_the_same_folder(tmp_path: Path) -> None:
    run_script("quickstart.py", cwd=tmp_path)

    assert run_script("quickstart.py", cwd=tmp_path).stdout.endswith("result: paid\n")


@pytest.mark.parametrize(
    ("arguments", "answer", "opposite", "result"),
    [
        ((), "yes", "no", "paid, approved"),
        (("--answer", "yes"), "yes", "no", "paid, approved"),
        (("--answer", "no"), "no", "yes", "not paid, declined"),
    ],
    ids=["nobody at the terminal", "yes", "no"],
)
def test_the_demo_tells_its_story(
    tmp_path: Path, arguments: tuple[str, ...], answer: str, opposite: str, result: str
) -> None:
    done = run_script("refund_approval.py", *arguments, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    small, large, answered, again, unanswered = steps(done.stdout)
    assert small[1] == "   result: paid without asking"
    assert large[1].startswith("   The graph waits: refund approval (i-")
    assert large[2] == "   order A-17, amount 90"
    assert answered[1].endswith(f"] {answer}: accepted, the graph went on. result: {result}")
    assert again[1].endswith(f"] {opposite}: refused, this token was spent before (token_consumed)")
    assert unanswered[-1] == "   expired, default answer applied. result: voucher not sent, nobody answered in time"
    processes = [answered[0].split("this one is ")[1].rstrip(".")]
    processes += [line.split("[process ")[1].split("]")[0] for line in (answered[1], again[1])]
    assert len(set(processes)) == 3
    assert not TOKEN.search(done.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["quickstart.py", "refund_approval.py"])
def test_an_example_is_short_enough_to_read(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) <= 170


def steps(transcript: str) -> list[list[str]]:
    """The transcript's lines, by its numbered steps."""
    found: list[list[str]] = []
    for line in transcript.splitlines():
        if line[0].isdigit():
            found.append([])
        found[-1].append(line)
    return found
