"""Edits of genuine tokens, by the ten thousand: none is accepted, and no exception but ours comes out.

`SYMFONIC_TOKEN_MUTATIONS=1000000 pytest tests/property/test_tokens_under_attack.py` is the long form.
"""

from __future__ import annotations

import base64
import json
import os
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from symfonic_interrupts import KeyRing, PauseToken, TokenInvalid
from tests.harness import KEY

MUTATIONS = int(os.environ.get("SYMFONIC_TOKEN_MUTATIONS", "20000"))
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
KEYS = KeyRing([KEY])
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ISSUED = int(NOW.timestamp())
AUDIENCE = "symfonic-interrupts/default"
GENUINE = PauseToken(
    issuer="symfonic-interrupts",
    audience=AUDIENCE,
    issued_at=ISSUED,
    expires_at=ISSUED + 3600,
    jti="0" * 32,
    name="approval",
    interrupt_id="i-0123456789ab",
    scope_hash="s" * 43,
    request_hash="r" * 43,
    checkpoint_hash="c" * 43,
)
TOKENS = [replace(GENUINE, jti=f"{n:032x}", name=f"point_{n}").mint(KEYS) for n in range(50)]


def accepted(token: Any) -> bool:
    """Whether a token passes. Any exception but TokenInvalid fails the test."""
    try:
        PauseToken.verify(token, KEYS, issuer="symfonic-interrupts", audience=AUDIENCE, now=NOW)
    except TokenInvalid:
        return False
    return True


def test_the_genuine_tokens_pass() -> None:
    assert [accepted(token) for token in TOKENS] == [True] * 50
    assert len(set(TOKENS)) == 50


def test_every_single_character_edit_of_fifty_tokens_is_refused() -> None:
    dice = random.Random(50)
    passed = []
    for token in TOKENS:
        for place, character in enumerate(token):
            other = dice.choice([c for c in ALPHABET + ".=+/ " if c != character])
            edits = [token[:place] + other + token[place + 1 :], token[:place] + token[place + 1 :]]
            passed += [edit for edit in edits if accepted(edit)]
    assert passed == []


def mutated(dice: random.Random) -> str:
    """A token that a clever or a clumsy attacker might send."""
    token = dice.choice(TOKENS)
    header, claims, signature = token.split(".")
    match dice.randrange(8):
        case 0:  # several characters at once
            characters = list(token)
            for _ in range(dice.randint(2, 20)):
                characters[dice.randrange(len(characters))] = dice.choice(ALPHABET)
            return "".join(characters)
        case 1:  # parts of different tokens
            other = dice.choice([t for t in TOKENS if t != token]).split(".")
            parts = [dice.choice(pair) for pair in zip((header, claims, signature), other, strict=True)]
            mixed = ".".join(parts)
            return mixed + "A" if mixed in TOKENS else mixed
        case 2:  # cut or repeated
            cut = dice.randrange(len(token))
            return token[:cut] if dice.random() < 0.5 else token[:cut] + token[cut - 7 :]
        case 3:  # another claim
            found = json.loads(decoded(claims))
            name = dice.choice(list(found))
            found[name] = dice.choice([None, True, 0, -1, 1.5, 1e300, "", "x", [], {}, found[name] * 2, [found[name]]])
            return ".".join([header, encoded(found), signature])
        case 4:  # another header
            found = json.loads(decoded(header))
            found[dice.choice(["alg", "kid", "typ", "crit", "jku", "b64"])] = dice.choice(
                [None, "none", "HS512", 1, [], "x"]
            )
            return ".".join([encoded(found), claims, signature])
        case 5:  # white space, padding and other alphabets, anywhere
            place = dice.randrange(len(token) + 1)
            return (
                token[:place]
                + dice.choice(["=", "==", " ", "\n", "\t", "+", "/", "\u200b", "é", "%3D"])
                + token[place:]
            )
        case 6:  # the same claims in other words
            return ".".join([header, encoded(json.loads(decoded(claims)), spaced=True), signature])
        case _:  # no token at all
            return "".join(dice.choice(ALPHABET + ".") for _ in range(dice.randint(0, 900)))


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def encoded(value: Any, *, spaced: bool = False) -> str:
    text = json.dumps(value, separators=(", ", ": ") if spaced else (",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("seed", range(4))
def test_no_mutation_is_accepted_and_none_raises_anything_but_our_error(seed: int) -> None:
    dice = random.Random(seed)
    genuine = set(TOKENS)
    passed = []
    for _ in range(MUTATIONS // 4):
        token = mutated(dice)
        if token not in genuine and accepted(token):
            passed.append(token)
    assert passed == []
