"""How a refusal is recorded: in the events and in the audit log, once a minute for each pause and kind, with a count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.hub import Hub, audit_log
from symfonic_interrupts.store.rows import RefusalSubject


def record_refusal(
    hub: Hub, row: RefusalSubject, code: str, told: Mapping[str, Any], scope_hash: str = ""
) -> Effects[None]:
    """Record that something was refused about a pause.

    Args:
        code: the kind of refusal.
        told: further facts.
        scope_hash: of the scope that was refused, if it is known.
    """
    count = yield from transact(hub.operations.recording.refuse, row, code, told, scope_hash)
    if count is not None:
        facts = {"interrupt_id": row["interrupt_id"], **told, "code": code, "count": count}
        audit_log.warning("interrupt_refused %s", canonical_json(facts))
