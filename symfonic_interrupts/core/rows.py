"""Makes rows from questions, and tokens, events and receipts from rows. Pure functions.

Nothing is minted from a row whose MAC does not fit.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime

from symfonic_interrupts.canonical import canonical_json, sha256
from symfonic_interrupts.core.executions import Answer, Question
from symfonic_interrupts.core.hub import Hub, audit_log
from symfonic_interrupts.errors import ReceiptInvalid, StoreError
from symfonic_interrupts.events import (
    AnswerEvent,
    ExpiryEvent,
    PauseEvent,
)
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.store.operations import Event
from symfonic_interrupts.store.row_mac import row_is_authentic, seal_row
from symfonic_interrupts.store.rows import EventSubject, PauseRow, PauseWithAnswer, columns_of
from symfonic_interrupts.tokens.pause_token import PauseToken
from symfonic_interrupts.tokens.receipt import Receipt


def new_row(
    hub: Hub,
    question: Question,
    *,
    graph: str,
    thread_id: str,
    checkpoint_id: str,
    task_id: str,
    langgraph_id: str,
    slot: int,
) -> PauseRow:
    """The sealed row of a question that LangGraph surfaces as `langgraph_id`."""
    ttl = hub.registry.named(question.name).ttl or hub.config.default_ttl
    scope = question.scope
    row = {
        "interrupt_id": question.interrupt_id,
        "jti": secrets.token_hex(16),
        "graph": graph,
        "audience": hub.audience(graph),
        "name": question.name,
        "thread_id": thread_id,
        "checkpoint_id": checkpoint_id,
        "task_id": task_id,
        "leaf_ns": question.leaf_ns,
        "leaf_checkpoint_id": question.leaf_checkpoint_id,
        "leaf_task_id": question.leaf_task_id,
        "langgraph_id": langgraph_id,
        "slot": slot,
        "occurrence": question.occurrence,
        "native": question.native,
        "payload": question.payload,
        "request_hash": question.request_hash,
        "tenant_id": scope.tenant_id,
        "sub_tenant_id": scope.sub_tenant_id,
        "namespace": scope.namespace,
        "scope_hash": scope.scope_hash,
        "run_id": question.run_id,
        "created_at": question.asked_at,
        "expires_at": whole_second_after(question.asked_at + ttl),
        "requested_by": None,
        "trace_context": None,
        "votes": None,
        "seal": None,
        "state": "pending",
        "used_at": None,
        "skipped_at": None,
        "confirmed_at": None,
    }
    return seal_row(row, hub.keys)


def whole_second_after(moment: datetime) -> datetime:
    """The next whole second: a JWT's `exp` has no fractions, and row and token end at the same moment."""
    return datetime.fromtimestamp(math.ceil(moment.timestamp()), UTC)


def check_authentic(hub: Hub, row: PauseRow) -> None:
    """Raise StoreError where a row is not as this service wrote it."""
    if not row_is_authentic(row, hub.keys):
        raise StoreError(
            f"pause {row.get('interrupt_id')} was changed in the database, or its key was dropped from the ring; it is refused"
        )


def token_of(hub: Hub, row: PauseRow) -> PauseToken:
    """The claims of a row's token. The row must be authentic."""
    return PauseToken(
        issuer=hub.config.issuer,
        audience=row["audience"],
        issued_at=int(row["created_at"].timestamp()),
        expires_at=int(row["expires_at"].timestamp()),
        jti=row["jti"],
        name=row["name"],
        interrupt_id=row["interrupt_id"],
        scope_hash=row["scope_hash"],
        request_hash=row["request_hash"],
        checkpoint_hash=PauseToken.hash_checkpoint(row["thread_id"], "", row["checkpoint_id"], row["task_id"]),
    )


def scope_of(row: EventSubject) -> FrameworkTenantScope:
    """The scope that a pause, or an event of one, belongs to."""
    return FrameworkTenantScope(row["tenant_id"], row["sub_tenant_id"], row["namespace"])


def pause_event(hub: Hub, row: PauseRow) -> PauseEvent:
    """The event of an open pause, with a freshly minted token. Raises StoreError for a row that is not authentic."""
    check_authentic(hub, row)
    token = token_of(hub, row).mint(hub.keys)
    return _pause_event(hub, row, token)


def open_events(hub: Hub, rows: Iterable[PauseRow]) -> list[PauseEvent]:
    """The events of open pauses. A row that is not authentic is left out and logged: it does not take the others down."""
    events = []
    for row in rows:
        try:
            events.append(pause_event(hub, row))
        except StoreError:
            audit_log.warning(
                "interrupt_refused %s", canonical_json({"interrupt_id": row["interrupt_id"], "code": "row_altered"})
            )
    return events


def _pause_event(hub: Hub, row: PauseRow, token: str) -> PauseEvent:
    common = columns_of(row, "expires_at", "interrupt_id", "thread_id", "run_id")
    return hub.registry.shapes(row["name"]).asked(row["name"], row["payload"], token, **common)


def pause_record(hub: Hub, row: PauseRow) -> Event:
    """The event row of a new pause: the event without its token."""
    return _record(_pause_event(hub, row, ""), exclude={"pause_token"})


def answer_record(hub: Hub, row: PauseRow, response: str, at: datetime, *, actor: str | None, defaulted: bool) -> Event:
    """The event row of an accepted answer: the event, and who answered."""
    seconds = max(0.0, (at - row["created_at"]).total_seconds())
    pause = columns_of(row, "name", "interrupt_id", "thread_id", "run_id", "payload")
    shapes = hub.registry.shapes(row["name"])
    kind, body = _record(shapes.answered(response=response, seconds=seconds, defaulted=defaulted, **pause))
    return kind, {**body, "actor": actor}


def used_answer_event(hub: Hub, answer: Answer, question: Question | None, run_id: str | None) -> AnswerEvent:
    """The event of an answer that a node has just used."""
    receipt = answer.receipt
    asked, answered = datetime.fromisoformat(receipt.asked_at), datetime.fromisoformat(receipt.answered_at)
    return hub.registry.shapes(receipt.name).answered(
        receipt.name,
        question.payload if question else None,
        answer.response,
        seconds=max(0.0, (answered - asked).total_seconds()),
        interrupt_id=receipt.interrupt_id,
        thread_id=receipt.thread_id,
        defaulted=receipt.defaulted,
        run_id=run_id,
    )


def expiry_event(hub: Hub, row: PauseRow, swept_at: datetime) -> ExpiryEvent:
    """The event of a pause that the janitor found past its `expires_at`."""
    common = columns_of(row, "interrupt_id", "scope_hash", "thread_id")
    times = {"expired_at": row["expires_at"], "swept_at": swept_at}
    return hub.registry.shapes(row["name"]).expired(row["name"], **common, **times)


def expiry_record(event: ExpiryEvent) -> Event:
    """The event row of an expiry."""
    return _record(event)


def _record(event: PauseEvent | AnswerEvent | ExpiryEvent, exclude: set[str] | None = None) -> Event:
    return event.type, event.model_dump(mode="json", exclude=exclude)


def new_receipt(row: PauseRow, response: str, at: datetime, *, actor: str | None, defaulted: bool) -> Receipt:
    """What the receipt of an answer states. The row must be authentic."""
    return Receipt(
        jti=row["jti"],
        name=row["name"],
        audience=row["audience"],
        thread_id=row["thread_id"],
        task_id=row["leaf_task_id"],
        interrupt_id=row["interrupt_id"],
        scope_hash=row["scope_hash"],
        request_hash=row["request_hash"],
        response_hash=sha256(response),
        asked_at=row["created_at"].isoformat(),
        answered_at=at.isoformat(),
        actor=actor,
        defaulted=defaulted,
    )


def stored_answer(hub: Hub, row: PauseWithAnswer) -> Answer:
    """The answer of an answered row, checked: the row, the receipt and the response must fit each other.

    Raises:
        StoreError: one of them was changed in the database.
    """
    check_authentic(hub, row)
    response = row["answer_response"]
    try:
        sealed = json.loads(row["answer_receipt"] or "null")
        receipt = Receipt.unseal(sealed, hub.keys)
    except (ReceiptInvalid, ValueError):
        receipt = None
    if receipt is None or response is None or receipt.jti != row["jti"] or not receipt.covers(response):
        raise StoreError(f"the answer to {row['interrupt_id']} was changed in the database; it is not delivered")
    return Answer(receipt, response, sealed)
