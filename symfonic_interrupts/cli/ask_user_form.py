"""Asks the questions of the built-in point `ask_user`: numbered options, and a free text where that is allowed.

The general form would ask for the ids of the questions; here they are taken from the payload. The adapter validates the answer.
"""

from __future__ import annotations

from typing import Any

from symfonic_interrupts.cli.forms import Ask, Say


def ask_user_answer(request: Any, ask: Ask, say: Say) -> dict[str, Any]:
    """Ask the questions of an `AskUserRequest`, and return the `AskUserResponse`. Both are JSON data."""
    return {"answers": [_answer(question, ask, say) for question in request["questions"]]}


def _answer(question: dict[str, Any], ask: Ask, say: Say) -> dict[str, Any]:
    header = f"{question['header']}: " if question["header"] else ""
    say(f"{header}{question['question']}")
    labels = [option["label"] for option in question["options"]]
    for number, option in enumerate(question["options"], 1):
        description = f" ({option['description']})" if option["description"] else ""
        say(f"  {number} {option['label']}{description}")
        if option["preview"]:
            say(f"    {option['preview']}")
    several, other = question["multi_select"], question["allow_other"]
    expected = "numbers, with commas" if several else f"1 to {len(labels)}"
    while True:
        typed = ask(f"answer ({expected}{', or a text' if other else ''}): ").strip()
        picked = _picked(typed, labels)
        if picked and (several or len(picked) == 1):
            return {"question_id": question["id"], "selections": picked, "other": None}
        if typed and picked is None and other:
            return {"question_id": question["id"], "selections": [], "other": typed}
        say("  " + (f"only one of 1 to {len(labels)}" if picked and not several else f"expected {expected}"))


def _picked(typed: str, labels: list[str]) -> list[str] | None:
    """The labels that the entry names, each by its number or its text; None if it says anything else."""
    if typed in labels:
        return [typed]
    picked: list[str] = []
    for part in typed.split(","):
        word = part.strip()
        if word in labels:
            picked.append(word)
        elif word.isascii() and word.isdecimal() and 1 <= int(word) <= len(labels):
            picked.append(labels[int(word) - 1])
        else:
            return None
    return list(dict.fromkeys(picked))
