"""How a token is checked and spent: every check in its order, and the one transaction that decides.

Nothing before that transaction changes the pause, so a bad answer never spends a token; forged tokens touch no database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.canonical import canonical_json, sha256
from symfonic_interrupts.core.checkpoints import TaskState, is_pending, read_tasks, waiting_in, was_answered_past
from symfonic_interrupts.core.effects import Compute, Effects, GetTuple, transact
from symfonic_interrupts.core.hub import Hub, audit_log
from symfonic_interrupts.core.lease import Held, LeaseKeeper, given_back_if_cancelled, new_owner
from symfonic_interrupts.core.refusals import record_refusal
from symfonic_interrupts.core.results import AnswerReceipt, PauseView, receipt_of, view_of
from symfonic_interrupts.core.rows import answer_record, check_authentic, new_receipt, token_of
from symfonic_interrupts.errors import (
    CheckpointMissing,
    PauseNotReady,
    PauseSuperseded,
    ScopeMismatch,
    StoreError,
    TokenConsumed,
    TokenExpired,
    TokenInvalid,
    UsageError,
)
from symfonic_interrupts.registration import InterruptRegistration
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.operations import Claim, Event
from symfonic_interrupts.store.rows import PauseRow, PauseWithAnswer
from symfonic_interrupts.tokens.pause_token import PauseToken

MOST_ACTOR_CHARACTERS = 255

ANSWERED = frozenset(("answered", "applied", "unused"))
"""The states of a pause whose token was spent on an answer."""

OnRow = Callable[[PauseRow], Any]


@dataclass(frozen=True, slots=True)
class Offer:
    """An answer that has passed every check, on its way into the store.

    Attributes:
        claims: what the token says.
        row: the pause, as it was read.
        text: canonical JSON of the answer.
        claim: what the transaction stores.
        cross_scope: what the audit log says of an answer from another scope; None for one from the pause's own.
        repeated: the receipt of the same answer, where it was stored before under the same idempotency key.
    """

    hub: Hub = field(repr=False)
    claims: PauseToken
    row: PauseWithAnswer
    text: str = field(repr=False)
    claim: Claim = field(repr=False)
    cross_scope: Mapping[str, Any] | None = None
    repeated: AnswerReceipt | None = None

    def describe(self, at: datetime) -> list[Event]:
        """The event rows of the answer."""
        events = [answer_record(self.hub, self.row, self.text, at, actor=self.claim.actor, defaulted=False)]
        return events if self.cross_scope is None else [*events, ("interrupt_cross_scope", self.cross_scope)]


class Redeemer:
    """Checks and spends the tokens of one graph."""

    def __init__(self, hub: Hub, graph: str) -> None:
        self._hub = hub
        self._graph = graph

    def inspect(self, token: str, scope: FrameworkTenantScope | None) -> Effects[PauseView]:
        """What the token is about. Changes nothing."""
        claims, registration, _ = yield from self._admit(token, scope, actor=None)
        row = yield from self._rehydrate(claims)
        return view_of(row, registration, self._hub.now())

    def answer(
        self,
        token: str,
        response: Any,
        scope: FrameworkTenantScope | None,
        actor: str | None,
        idempotency_key: str | None,
        *,
        hold: bool = False,
        breakpoints: str | None = None,
        on_row: OnRow | None = None,
    ) -> Effects[tuple[AnswerReceipt, PauseWithAnswer, Held | None]]:
        """Spend the token on this answer. Returns its receipt, and the row as it was read.

        Args:
            hold: take the thread's lease in the same transaction, if nobody has it; also returned.
            breakpoints: with the lease, those of the run to come, as canonical JSON.
            on_row: called with the row before the token is spent; may raise.
        """
        offer = yield from self.offer(token, response, scope, actor, idempotency_key, on_row=on_row)
        if offer.repeated is not None:
            return offer.repeated, offer.row, None
        held: Held | None = None
        if hold:
            since, ttl = time.monotonic(), self._hub.config.lease_ttl
            body, owner = self._hub.operations.claiming.answer_and_hold, new_owner()
            take = transact(body, offer.row, offer.claim, offer.describe, owner, ttl, breakpoints)
            thread_id = offer.row["thread_id"]
            at, taken = yield from given_back_if_cancelled(self._hub, self._graph, thread_id, owner, take)
            if taken is not None:
                held = LeaseKeeper(self._hub, taken[0], since + ttl.total_seconds()), taken[1]
        else:
            at = yield from transact(self._hub.operations.claiming.answer, offer.row, offer.claim, offer.describe)
        if at is None:
            repeated = yield from self.lost(offer, idempotency_key)
            return repeated, offer.row, None
        return self.accepted(offer, at), offer.row, held

    def offer(
        self,
        token: str,
        response: Any,
        scope: FrameworkTenantScope | None,
        actor: str | None,
        idempotency_key: str | None = None,
        *,
        on_row: OnRow | None = None,
        heads: dict[str, Any] | None = None,
    ) -> Effects[Offer]:
        """Every check of an answer, before anything is spent.

        Args:
            heads: by thread id, checkpoints that were read before, so that each is read once; others are added.
        """
        for word, value in (("actor", actor), ("idempotency_key", idempotency_key)):
            if value is None:
                continue
            if not isinstance(value, str) or not 0 < len(value) <= MOST_ACTOR_CHARACTERS or not value.isprintable():
                raise UsageError(f"{word} must be 1 to {MOST_ACTOR_CHARACTERS} printable characters, or None")
        claims, registration, crossing = yield from self._admit(token, scope, actor)
        row = yield from self._rehydrate(claims)
        if on_row is not None:
            on_row(row)
        limit = self._hub.config.max_response_bytes
        if row["state"] in ANSWERED and idempotency_key is not None:
            read = partial(
                registration.response_text, response, payload_text=row["payload"], limit=limit, accepted=True
            )
            text = yield from Compute(self._hub.checks, read)
            claim = Claim("answered", "answered", actor=actor, scope_hash=crossing or row["scope_hash"])
            return Offer(self._hub, claims, row, text, claim, repeated=_repeated(row, text, claim, idempotency_key))
        _refuse_state(row)
        try:
            yield from self.check_head(row, heads)
        except (PauseNotReady, PauseSuperseded):
            _refuse_state((yield from self._rehydrate(claims)))  # meanwhile it may have been answered, and a run begun
            raise
        check = partial(registration.response_text, response, payload_text=row["payload"], limit=limit)
        text = yield from Compute(self._hub.checks, check)
        claim = self.claim(row, text, actor=actor, scope_hash=crossing or row["scope_hash"], key=idempotency_key)
        cross_scope = None if crossing is None else _audit_facts(row, crossing, actor)
        return Offer(self._hub, claims, row, text, claim, cross_scope)

    def accepted(self, offer: Offer, at: datetime) -> AnswerReceipt:
        """The receipt of an offer that was stored."""
        self._hub.failpoint("claim_committed")
        if offer.cross_scope is not None:
            audit_log.warning("interrupt_cross_scope %s", canonical_json(offer.cross_scope))
        return receipt_of(offer.row, at, offer.claim.actor, sha256(offer.text))

    def lost(self, offer: Offer, idempotency_key: str | None = None) -> Effects[AnswerReceipt]:
        """Another caller was first: raise what the row's new state says, unless it was the same answer."""
        row = yield from self._rehydrate(offer.claims)
        if row["state"] in ANSWERED and idempotency_key is not None:
            return _repeated(row, offer.text, offer.claim, idempotency_key)
        _refuse_state(row)
        raise StoreError("the answer was not stored; try again", retryable=True)

    def claim(
        self,
        row: PauseRow,
        text: str,
        *,
        actor: str | None,
        scope_hash: str | None,
        key: str | None = None,
        defaulted: bool = False,
    ) -> Claim:
        """The claim that stores an answer, with its signed receipt."""
        receipt = new_receipt(row, text, self._hub.now(), actor=actor, defaulted=defaulted)
        return Claim(
            outcome="answered",
            state="answered",
            response=text,
            response_hash=receipt.response_hash,
            receipt=canonical_json(receipt.seal(self._hub.keys)),
            actor=actor,
            scope_hash=scope_hash,
            defaulted=defaulted,
            idempotency_key=key,
        )

    # -- the checks, in their order

    def _admit(
        self, token: str, scope: FrameworkTenantScope | None, actor: str | None
    ) -> Effects[tuple[PauseToken, InterruptRegistration, str | None]]:
        """Check token, registration and scope. Gives the token's claims, the registration, and the hash of the answering scope
        where that is not the pause's own.
        """
        hub = self._hub
        hub.database.check_open()
        claims = self.verify(token)
        given = hub.require_scope(scope, "pass scope=FrameworkTenantScope(...)").scope_hash
        if given == claims.scope_hash:
            return claims, hub.registry.named(claims.name), None
        # another scope does not learn whether the point is registered here
        registration = hub.registry.get(claims.name)
        if registration is not None and registration.cross_scope_allowed:
            return claims, registration, given
        row, _ = yield from transact(hub.operations.reading.load_pause, claims.jti)
        if row is not None:
            yield from record_refusal(self._hub, row, ScopeMismatch.code, _audit_facts(row, given, actor), given)
        raise ScopeMismatch(f"{claims.name}: this pause belongs to another scope; answer it from there")

    def verify(self, token: str) -> PauseToken:
        """The claims of a genuine token, without the database. Raises TokenInvalid, TokenExpired."""
        hub = self._hub
        return PauseToken.verify(
            token,
            hub.keys,
            issuer=hub.config.issuer,
            audience=hub.audience(self._graph),
            now=hub.now(),
            clock_skew=hub.config.clock_skew,
            max_bytes=hub.config.max_token_bytes,
        )

    def _rehydrate(self, claims: PauseToken) -> Effects[PauseWithAnswer]:
        """The authentic row of a token's pause. Raises TokenConsumed, TokenInvalid, StoreError."""
        row, outcome = yield from transact(self._hub.operations.reading.load_pause, claims.jti)
        if row is None:
            if outcome is not None:
                raise TokenConsumed(f"the token was {outcome} before", state=outcome)
            raise TokenInvalid("the token's pause is not in this store")
        try:
            check_authentic(self._hub, row)
        except StoreError:
            yield from record_refusal(self._hub, row, "row_altered", {})
            raise
        if token_of(self._hub, row) != claims:
            raise TokenInvalid("the token does not fit its pause")
        return row

    def check_head(self, row: PauseRow, heads: dict[str, Any] | None = None) -> Effects[None]:
        """Check that the interrupt is pending at the thread's newest checkpoint.

        Raises:
            CheckpointMissing, PauseSuperseded, PauseNotReady
        """
        heads = {} if heads is None else heads
        root = {"thread_id": row["thread_id"], "checkpoint_ns": ""}
        if row["thread_id"] not in heads:
            head = yield from GetTuple({"configurable": root})
            tasks = read_tasks(head.pending_writes if head is not None else ())
            heads[row["thread_id"]] = head, tasks, waiting_in(tasks)
        head, tasks, waiting = heads[row["thread_id"]]
        if head is None:
            raise CheckpointMissing(
                "the thread has no checkpoint in this graph's saver: it was deleted, or this is not the saver that asked"
            )
        head_id = head.config["configurable"]["checkpoint_id"]
        if names.came_before(row["checkpoint_id"], head_id):
            yield from transact(
                self._hub.operations.settling.advance, self._graph, row["thread_id"], head_id, settle=False
            )
            raise PauseSuperseded("the thread went on without this pause; its question no longer stands")
        if head_id == row["checkpoint_id"] and is_pending(row, waiting) is not None:
            return
        task = tasks.get(row["task_id"])
        if head_id == row["checkpoint_id"] and task is not None and task.finished:
            event = ("interrupt_superseded", {"name": row["name"]})
            yield from transact(self._hub.operations.claiming.close, row, Claim("superseded", "superseded"), event)
            raise PauseSuperseded("the node finished without this pause; its question no longer stands")
        if head_id == row["checkpoint_id"] and (yield from self._was_passed(row)):
            event = ("interrupt_superseded", {"name": row["name"]})
            yield from transact(self._hub.operations.claiming.close, row, Claim("superseded", "superseded"), event)
            raise PauseSuperseded("the question was answered without its token; it no longer stands")
        raise PauseNotReady("the pause is not stored in its checkpoint yet; try again in a moment")

    def _was_passed(self, row: PauseRow) -> Effects[bool]:
        """Whether a native question was answered without its token, so that its node goes on."""
        if not row["native"]:
            return False
        position = {"checkpoint_ns": row["leaf_ns"], "checkpoint_id": row["leaf_checkpoint_id"]}
        checkpoint = yield from GetTuple({"configurable": {"thread_id": row["thread_id"], **position}})
        leaf = read_tasks(checkpoint.pending_writes if checkpoint is not None else ()).get(
            row["leaf_task_id"], TaskState()
        )
        return leaf.finished or was_answered_past(row, leaf)


def _refuse_state(row: PauseWithAnswer) -> None:
    """Raise what a pause in this state answers to its token; nothing for one that is open."""
    state = row["state"]
    if state == "superseded":
        raise PauseSuperseded("the thread went on without this pause; its question no longer stands")
    if row["answer_defaulted"]:
        raise TokenExpired("the time to answer is over; the default answer was taken", expired_at=row["expires_at"])
    if state == "expired" or (state == "pending" and row["overdue"]):
        raise TokenExpired("the time to answer is over", expired_at=row["expires_at"])
    if state != "pending":
        raise TokenConsumed(f"the token is spent: the pause is {state}", state=state)


def _repeated(row: PauseWithAnswer, text: str, claim: Claim, idempotency_key: str) -> AnswerReceipt:
    """The receipt of an answer that was stored before under this key. Raises TokenConsumed unless answer, actor and scope are
    the same, too."""
    given = (idempotency_key, sha256(text), claim.actor, claim.scope_hash)
    of_answer = (row["answer_response_hash"], row["answer_actor"], row["answer_scope_hash"])
    if given == (row["answer_idempotency_key"], *of_answer) and row["answer_at"] is not None:
        return receipt_of(row, row["answer_at"], claim.actor, sha256(text))
    raise TokenConsumed(f"the token is spent: the pause is {row['state']}", state=row["state"])


def _audit_facts(row: PauseRow, answering_scope_hash: str, actor: str | None) -> Mapping[str, Any]:
    return {
        "name": row["name"],
        "interrupt_id": row["interrupt_id"],
        "scope_hash": row["scope_hash"],
        "answering_scope_hash": answering_scope_hash,
        "actor": actor,
    }
