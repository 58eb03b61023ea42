"""What an operator does to a pause: a new token for an old one, or no token at all."""

from __future__ import annotations

import secrets
from datetime import timedelta

from symfonic_interrupts.answering.redeem import Redeemer
from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.core.rows import check_authentic, pause_event, scope_of, whole_second_after
from symfonic_interrupts.errors import (
    PauseNotReady,
    PauseSuperseded,
    ScopeMismatch,
    StoreError,
    TokenConsumed,
    UnknownInterrupt,
    UsageError,
)
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.operations import Claim, ClaimLost
from symfonic_interrupts.store.row_mac import seal_row
from symfonic_interrupts.store.rows import PauseRow
from symfonic_interrupts.store.same_ids import the_one_meant

MOST_TRIES = 5
"""So often a pause is tried that gets another token, or another slot, meanwhile."""


class Operator:
    """Reissues and revokes the pauses of one graph."""

    def __init__(self, hub: Hub, graph: str, redeemer: Redeemer) -> None:
        self._hub = hub
        self._graph = graph
        self._redeemer = redeemer

    def reissue(
        self, interrupt_id: str, ttl: timedelta | None, scope: FrameworkTenantScope | None, thread_id: str | None
    ) -> Effects[PauseEvent]:
        """Give a pending or expired pause a new token; the old one counts no more. See `ResumeAdapter.reissue`."""
        for _ in range(MOST_TRIES):
            row = yield from self._find(interrupt_id, scope, thread_id)
            thread_id = row["thread_id"]  # in the next try it must be the same pause, though it may have ended
            if row["state"] not in ("pending", "expired"):
                _refuse(row, "reissued")
            yield from self._redeemer.check_head(row)
            renewed = self._renewed(row, ttl)
            facts = {"name": row["name"], "expires_at": renewed["expires_at"].isoformat()}
            try:
                done = yield from transact(
                    self._hub.operations.claiming.reissue, row, renewed, ("interrupt_reissued", facts)
                )
            except ClaimLost:
                done = False
            if done:
                yield from self._check_again(renewed, scope)
                return pause_event(self._hub, renewed)
        raise _changing()

    def _renewed(self, row: PauseRow, ttl: timedelta | None) -> PauseRow:
        hub = self._hub
        if ttl is None:
            ttl = hub.registry.named(row["name"]).ttl or hub.config.default_ttl
        if not isinstance(ttl, timedelta) or not timedelta(0) < ttl <= hub.config.max_ttl:
            raise UsageError(
                f"ttl must be a timedelta above zero and at most FrameworkConfig.max_ttl ({hub.config.max_ttl})"
            )
        end = whole_second_after(hub.now() + ttl)
        return seal_row({**row, "jti": secrets.token_hex(16), "state": "pending", "expires_at": end}, hub.keys)

    def _check_again(self, renewed: PauseRow, scope: FrameworkTenantScope | None) -> Effects[None]:
        """Check the renewed pause once more: new input that came after the first check has closed the old one only.

        Raises:
            PauseSuperseded, PauseNotReady: the question no longer stands.
        """
        try:
            yield from self._redeemer.check_head(renewed)
        except (PauseSuperseded, PauseNotReady):
            row = yield from self._find(renewed["interrupt_id"], scope, renewed["thread_id"])
            if row["state"] == "superseded":
                raise  # any other state: it was answered meanwhile

    def revoke(
        self, interrupt_id: str, reason: str, scope: FrameworkTenantScope | None, thread_id: str | None
    ) -> Effects[None]:
        """Make the token of a pending pause count no more. The thread stays as it is. See `ResumeAdapter.revoke`."""
        if not isinstance(reason, str) or not reason.strip() or len(reason) > 1000:
            raise UsageError("reason must be a text of 1 to 1,000 characters; it is recorded")
        for _ in range(MOST_TRIES):
            row = yield from self._find(interrupt_id, scope, thread_id)
            thread_id = row["thread_id"]
            if row["state"] != "pending":
                _refuse(row, "revoked")
            event = ("interrupt_revoked", {"name": row["name"], "reason": reason})
            claim = Claim("revoked", "revoked")
            if (yield from transact(self._hub.operations.claiming.close, row, claim, event)) is not None:
                return
        raise _changing()

    def _find(self, interrupt_id: str, scope: FrameworkTenantScope | None, thread_id: str | None) -> Effects[PauseRow]:
        hub = self._hub
        hub.database.check_open()
        given = hub.require_scope(scope, "pass scope=FrameworkTenantScope(...)")
        thread = None if thread_id is None else str(thread_id)
        rows = yield from transact(hub.operations.reading.find_pauses, self._graph, interrupt_id, thread)
        row = the_one_meant([row for row in rows if scope_of(row) == given])
        for candidate in rows if row is None else [row]:
            check_authentic(hub, candidate)
            hub.registry.named(candidate["name"])
            if row is None:
                raise ScopeMismatch(f"{candidate['name']}: this pause belongs to another scope")
        if row is None:
            raise UnknownInterrupt("no pause of this graph has that interrupt_id")
        return row


def _refuse(row: PauseRow, what: str) -> None:
    if row["state"] == "superseded":
        raise PauseSuperseded(f"the thread went on without this pause; it cannot be {what}")
    raise TokenConsumed(f"the pause is {row['state']}; it cannot be {what}", state=row["state"])


def _changing() -> StoreError:
    return StoreError("the pause was changed by others again and again meanwhile; try again", retryable=True)
