"""No change to a token, however small, gets through."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symfonic_interrupts import KeyRing, PauseToken, TokenInvalid
from tests.unit.by_hand import BEFORE_EXPIRY, CONTENT, KEY, OLDER_KEY, TOKEN, verify

RING = KeyRing([KEY, OLDER_KEY])
BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
OTHERS = "=.+/ \n\t\x00%,~é\u2028\ud800"
CONTENTS = [
    CONTENT,
    dataclasses.replace(CONTENT, name="a", jti="f" * 32),
    dataclasses.replace(CONTENT, name="n" * 64, interrupt_id="i-ffffffffffff", expires_at=CONTENT.expires_at + 1),
]
TOKENS = [CONTENTS[0].mint(RING), CONTENTS[1].mint(RING), CONTENTS[2].mint(RING, kid=RING.kids[1])]


def refused(token: str) -> bool:
    """Whether it is refused as invalid; any other exception fails the test."""
    try:
        verify(token, RING)
    except TokenInvalid:
        return True
    return False


def test_the_tokens_themselves_are_accepted() -> None:
    assert TOKENS[0] == TOKEN
    assert [verify(token, RING) for token in TOKENS] == CONTENTS


@pytest.mark.parametrize("token", TOKENS, ids=["first", "short", "long"])
def test_every_character_replaced_is_refused(token: str) -> None:
    first, last = token.index("."), token.rindex(".")
    kept = []
    for place, old in enumerate(token):
        # all of the alphabet where a decoder has freedom (the ends of the parts) and in the signature, a sample elsewhere
        edge = place > last or min(abs(place - first), abs(place - last)) <= 3 or place < 3
        new = BASE64URL + OTHERS if edge else BASE64URL[place % 8 :: 8] + OTHERS[place % 3 :: 3]
        kept += [(place, c) for c in new if c != old and not refused(token[:place] + c + token[place + 1 :])]

    assert kept == []


@pytest.mark.parametrize("token", TOKENS, ids=["first", "short", "long"])
def test_every_character_left_out_doubled_or_exchanged_with_the_next_is_refused(token: str) -> None:
    kept = []
    for place in range(len(token)):
        before, at, after = token[:place], token[place], token[place + 1 :]
        edits = [before + after, before + at + at + after, before + after[:1] + at + after[1:]]
        kept += [(place, edit) for edit in edits if edit != token and not refused(edit)]

    assert kept == []


@pytest.mark.parametrize("token", TOKENS, ids=["first", "short", "long"])
def test_every_character_put_in_is_refused(token: str) -> None:
    kept = []
    for place in range(len(token) + 1):
        new = "A=. \n" if 0 < place < len(token) else BASE64URL + OTHERS
        kept += [(place, c) for c in new if not refused(token[:place] + c + token[place:])]

    assert kept == []


def test_two_thousand_random_changes_are_refused() -> None:
    choice = random.Random(20_260_102)
    kept = []
    for _ in range(2000):
        token = choice.choice(TOKENS)
        text = list(token)
        for _ in range(choice.randint(1, 6)):
            place = choice.randrange(len(text))
            kind = choice.randrange(4)
            if kind == 0:
                text[place] = choice.choice(BASE64URL + OTHERS)
            elif kind == 1:
                text.insert(place, choice.choice(BASE64URL + OTHERS))
            elif kind == 2 and len(text) > 1:
                del text[place : place + choice.randint(1, 40)]
                text = text or ["A"]
            else:
                other = choice.choice(TOKENS)
                start = choice.randrange(len(other))
                text[place:place] = other[start : start + choice.randint(1, 60)]
        changed = "".join(text)
        if changed not in TOKENS and not refused(changed):
            kept.append(changed)

    assert kept == []


@settings(derandomize=True, database=None, deadline=None, max_examples=300)
@given(st.one_of(st.text(), st.text(BASE64URL + "."), st.binary().map(lambda data: data.decode("latin-1"))))
def test_any_text_is_refused(text: str) -> None:
    assert refused(text)


HASHES = st.text(BASE64URL, min_size=43, max_size=43)


@settings(derandomize=True, database=None, deadline=None, max_examples=150)
@given(
    issued_at=st.integers(0, 1_700_000_000),
    lifetime=st.integers(11, 10**9),
    jti=st.text("0123456789abcdef", min_size=32, max_size=32),
    name=st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", fullmatch=True),
    graph=st.text(min_size=1, max_size=64),
    hashes=st.tuples(HASHES, HASHES, HASHES),
)
def test_whatever_is_minted_verifies_to_the_same_claims(
    issued_at: int, lifetime: int, jti: str, name: str, graph: str, hashes: tuple[str, str, str]
) -> None:
    content = PauseToken(
        issuer="symfonic-interrupts",
        audience=f"symfonic-interrupts/{graph}",
        issued_at=issued_at,
        expires_at=1_700_000_000 + lifetime,
        jti=jti,
        name=name,
        interrupt_id="i-" + jti[:12],
        scope_hash=hashes[0],
        request_hash=hashes[1],
        checkpoint_hash=hashes[2],
    )

    token = content.mint(RING)

    assert verify(token, RING, audience=content.audience, now=BEFORE_EXPIRY) == content
    assert token.isascii()
