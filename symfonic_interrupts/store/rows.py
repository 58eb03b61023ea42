"""The rows of the tables as they are read and written: dicts by column name, typed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NotRequired, TypedDict


class EventSubject(TypedDict):
    """What an event row says of the pause that it is about."""

    graph: str
    thread_id: str
    interrupt_id: str
    name: str
    tenant_id: str
    sub_tenant_id: str | None
    namespace: str | None


class RefusalSubject(EventSubject):
    """What a refusal is counted by, beside its scope and code."""

    jti: str


class MovedPause(RefusalSubject):
    """A pause whose state has just changed: enough for its event row."""

    state: str


class PauseRow(MovedPause):
    """A row of `interrupt_pauses`; see `schema.pauses`.

    `id` and `drifts` are there only where the row was read: a new row has neither.
    """

    id: NotRequired[int]
    audience: str
    checkpoint_id: str
    task_id: str
    leaf_ns: str
    leaf_checkpoint_id: str
    leaf_task_id: str
    langgraph_id: str
    slot: int
    occurrence: int
    native: bool
    payload: str
    request_hash: str
    scope_hash: str
    run_id: str | None
    created_at: datetime
    expires_at: datetime
    requested_by: str | None
    trace_context: str | None
    votes: str | None
    seal: str | None
    used_at: datetime | None
    skipped_at: datetime | None
    confirmed_at: datetime | None
    mac_kid: str
    mac: str
    drifts: NotRequired[int | None]


class PauseWithAnswer(PauseRow):
    """A pause read together with what is recorded of its token. Until the token is spent, the answer columns are None.

    `overdue`: its time to answer was over when it was read.
    """

    answer_outcome: str | None
    answer_at: datetime | None
    answer_response: str | None
    answer_response_hash: str | None
    answer_receipt: str | None
    answer_actor: str | None
    answer_scope_hash: str | None
    answer_defaulted: bool | None
    answer_idempotency_key: str | None
    overdue: bool


class EventRow(EventSubject):
    """A row of `interrupt_events`."""

    id: int
    xid: int
    at: datetime
    type: str
    body: str
    trace_context: str | None
    seal: str | None


class FailedLease(TypedDict):
    """A row of `interrupt_thread_leases` that says how a run failed, and whose answer that run had."""

    graph: str
    thread_id: str
    owner: str
    fence: int
    expires_at: datetime
    breakpoints: str | None
    failed_at: datetime
    failed_node: str | None
    failed_type: str
    failed_message: str
    failed_ids: str
    tenant_id: str
    sub_tenant_id: str | None
    namespace: str | None


def columns_of(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some columns of a row, by name."""
    return {name: row[name] for name in names}
