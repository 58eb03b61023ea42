"""Asking the questions of the built-in point `ask_user`: numbered options, and a free text where that is allowed.

The schema of its answer has ids that nobody should type; they come from the payload here. The adapter checks the answer.
"""

from __future__ import annotations

from typing import Any

from symfonic_interrupts.cli.forms import Ask, Tell


def answer_choices(request: Any, ask: Ask, tell: Tell) -> dict[str, Any]:
    """The answer to an `AskUserRequest`, given as JSON data; as JSON data."""
    return {"answers": [_answer(question, ask, tell) for question in request["questions"]]}


def _answer(question: dict[str, Any], ask: Ask, tell: Tell) -> dict[str, Any]:
    header = f"{question['header']}: " if question["header"] else ""
    tell(f"{header}{question['question']}")
    labels = [option["label"] for option in question["options"]]
    for place, option in enumerate(question["options"], 1):
        description = f" ({option['description']})" if option["description"] else ""
        tell(f"  {place} {option['label']}{description}")
        if option["preview"]:
            tell(f"    {option['preview']}")
    several, other = question["multi_select"], question["allow_other"]
    expected = "numbers, with commas" if several else f"1 to {len(labels)}"
    while True:
        typed = ask(f"answer ({expected}{', or a text' if other else ''}): ").strip()
        picked = _picked(typed, labels)
        if picked and (several or len(picked) == 1):
            return {"question_id": question["id"], "selections": picked, "other": None}
        if typed and picked is None and other:
            return {"question_id": question["id"], "selections": [], "other": typed}
        tell("  " + (f"only one of 1 to {len(labels)}" if picked and not several else f"expected {expected}"))


def _picked(typed: str, labels: list[str]) -> list[str] | None:
    """The labels that are meant, by number or by name; None where it is something else."""
    if typed in labels:
        return [typed]
    found: list[str] = []
    for part in typed.split(","):
        word = part.strip()
        if word in labels:
            found.append(word)
        elif word.isascii() and word.isdecimal() and 1 <= int(word) <= len(labels):
            found.append(labels[int(word) - 1])
        else:
            return None
    return list(dict.fromkeys(found))
