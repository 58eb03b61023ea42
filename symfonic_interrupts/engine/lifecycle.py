"""What an operator does to a pause: a new token for an old one, or no token at all."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from symfonic_interrupts.engine.context import Engine
from symfonic_interrupts.engine.redeem import Redeemer
from symfonic_interrupts.engine.rows import check_authentic, pause_event, scope_of, whole_second_after
from symfonic_interrupts.engine.steps import Steps, transact
from symfonic_interrupts.errors import (
    PauseSuperseded,
    RegistrationError,
    ScopeMismatch,
    TokenConsumed,
    UnknownInterrupt,
)
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.operations import Claim
from symfonic_interrupts.store.row_mac import seal_row
from symfonic_interrupts.store.schema import PauseRow


class Lifecycle:
    """Reissues and revokes the pauses of one graph."""

    def __init__(self, engine: Engine, graph: str, redeemer: Redeemer) -> None:
        self._engine = engine
        self._graph = graph
        self._redeemer = redeemer

    def reissue(
        self, interrupt_id: str, ttl: timedelta | None, scope: FrameworkTenantScope | None
    ) -> Steps[PauseEvent]:
        """A new token for a pending or expired pause; the old one is dead."""
        engine = self._engine
        row = yield from self._find(interrupt_id, scope)
        if row["state"] not in ("pending", "expired"):
            _refuse(row, "reissued")
        ttl = ttl or engine.registry.named(row["name"]).ttl or engine.config.default_ttl
        if not timedelta(0) < ttl <= engine.config.max_ttl:
            raise RegistrationError(
                f"ttl must be above zero and at most FrameworkConfig.max_ttl ({engine.config.max_ttl})"
            )
        yield from self._redeemer.check_head(row)
        now = engine.now()
        renewed = {**row, "jti": secrets.token_hex(16), "state": "pending", "expires_at": whole_second_after(now + ttl)}
        renewed = seal_row(renewed, engine.keys)
        told = {"name": row["name"], "expires_at": renewed["expires_at"].isoformat()}
        done = yield transact(engine.operations.reissue, row, renewed, ("interrupt_reissued", told))
        if not done:
            _refuse((yield from self._find(interrupt_id, scope)), "reissued")
        return pause_event(engine, renewed)

    def revoke(self, interrupt_id: str, reason: str, scope: FrameworkTenantScope | None) -> Steps[None]:
        """Kill the token of a pending pause. The thread stays where it is."""
        if not isinstance(reason, str) or not reason.strip() or len(reason) > 1000:
            raise RegistrationError("reason must be a text of 1 to 1,000 characters; it is recorded")
        row = yield from self._find(interrupt_id, scope)
        told = ("interrupt_revoked", {"name": row["name"], "reason": reason})
        done: Any = None
        if row["state"] == "pending":
            done = yield transact(self._engine.operations.close, row, Claim("revoked", "revoked"), told)
            if done is None:
                row = yield from self._find(interrupt_id, scope)
        if done is None:
            _refuse(row, "revoked")

    def _find(self, interrupt_id: str, scope: FrameworkTenantScope | None) -> Steps[PauseRow]:
        engine = self._engine
        engine.database.check_open()
        given = engine.require_scope(scope, "pass scope=FrameworkTenantScope(...)")
        row = yield transact(engine.operations.find_pause, self._graph, interrupt_id)
        if row is None:
            raise UnknownInterrupt("no pause of this graph has that interrupt_id")
        check_authentic(engine, row)
        engine.registry.named(row["name"])
        if given != scope_of(row):
            raise ScopeMismatch(f"{row['name']}: this pause belongs to another scope")
        found: PauseRow = row
        return found


def _refuse(row: PauseRow, what: str) -> None:
    if row["state"] == "superseded":
        raise PauseSuperseded(f"the thread went on without this pause; it cannot be {what}")
    raise TokenConsumed(f"the pause is {row['state']}; it cannot be {what}", state=row["state"])
