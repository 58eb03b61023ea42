"""How a refusal is recorded: as an event and in the audit log, once a minute for each pause and code, with a count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.hub import Hub, audit_log
from symfonic_interrupts.store.rows import RefusalSubject


def record_refusal(
    hub: Hub, row: RefusalSubject, code: str, facts: Mapping[str, Any], scope_hash: str = ""
) -> Effects[None]:
    """Record that something was refused about a pause.

    Args:
        row: the pause that the refused call was about.
        code: the `code` of the error, or `row_altered`.
        facts: what else the event and the log line say.
        scope_hash: of the scope that was refused, if it is known.
    """
    count = yield from transact(hub.operations.recording.refuse, row, code, facts, scope_hash)
    if count is not None:
        logged = {"interrupt_id": row["interrupt_id"], **facts, "code": code, "count": count}
        audit_log.warning("interrupt_refused %s", canonical_json(logged))
