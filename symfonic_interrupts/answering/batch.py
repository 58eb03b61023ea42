"""Many answers at once: all are stored in one transaction, or none is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from symfonic_interrupts.answering.redeem import Offer, OnRow, Redeemer
from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.errors import InterruptError, UsageError
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.operations import ClaimLost

Answers = Iterable[tuple[str, Any]]
"""Pairs of (token, response)."""


def answer_many(
    hub: Hub,
    redeemer: Redeemer,
    answers: Answers,
    scope: FrameworkTenantScope | None,
    actor: str | None,
    on_row: OnRow,
) -> Effects[list[str]]:
    """Store all answers, or none. Returns their threads, each once, in the order of the answers.

    Args:
        on_row: called with each row before any token is spent; may raise.

    Raises:
        InterruptError: what refuses one of them; its `index` and its message say which.
    """
    heads: dict[str, Any] = {}
    offers: list[Offer] = []
    seen: set[str] = set()
    for index, given in enumerate(list(answers)):
        with _at(index):
            token, response = _pair(given)
            offer = yield from redeemer.offer(token, response, scope, actor, on_row=on_row, heads=heads)
            if offer.claims.jti in seen:
                raise UsageError("this token stands in the list twice; a pause has one answer")
            seen.add(offer.claims.jti)
            offers.append(offer)
    try:
        stored = [(offer.row, offer.claim, offer.describe) for offer in offers]
        times = yield from transact(hub.operations.claiming.answer_all, stored)
    except ClaimLost as lost:
        with _at(lost.index):
            yield from redeemer.lost(offers[lost.index])
        raise
    for offer, at in zip(offers, times, strict=True):
        redeemer.accepted(offer, at)
    return list(dict.fromkeys(offer.row["thread_id"] for offer in offers))


def _pair(given: Any) -> tuple[str, Any]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise UsageError("each answer is a pair of (token, response)")
    return given[0], given[1]


@contextmanager
def _at(index: int) -> Iterator[None]:
    """A context in which an InterruptError gets this index, in its `index` and its message."""
    try:
        yield
    except InterruptError as error:
        error.index = index
        error.args = (f"answers[{index}]: {error}", *error.args[1:])
        raise
