"""The values that the store's transactions take and give."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.store.rows import MovedPause, PauseRow, PauseWithAnswer, columns_of

Event = tuple[str, Any]
"""The type of an event row, and its body as JSON data."""


@dataclass(frozen=True, slots=True)
class Claim:
    """How a pause leaves `pending`.

    Attributes:
        outcome: what is recorded of the token: `answered`, `expired`, `superseded`, `revoked`, `reissued`.
        state: the row's new state.
        response: canonical JSON of the answer, where there is one.
        response_hash: SHA-256 of the response, base64url.
        receipt: canonical JSON of the sealed receipt of the answer.
        actor: who answered, as the application named them.
        scope_hash: of the scope that answered.
        defaulted: nobody answered in time; the response is the point's `on_expire`.
        idempotency_key: the caller's, so that the same call again gets the same answer.
    """

    outcome: str
    state: str
    response: str | None = None
    response_hash: str | None = None
    receipt: str | None = None
    actor: str | None = None
    scope_hash: str | None = None
    defaulted: bool = False
    idempotency_key: str | None = None

    def parameters(self) -> dict[str, Any]:
        """The bound parameters of the statements that make it."""
        return {f"c_{field.name}": getattr(self, field.name) for field in fields(self) if field.name != "state"}


@dataclass(frozen=True, slots=True)
class Failure:
    """What a run raised after an answer, as it is stored.

    Attributes:
        node: the path of the node that raised, as `sub:node`; None where no node did.
        error_type: the name of the exception's class.
        message: the exception's text, cut off where it is long.
        about: the pause whose answer the run had, to whose scope the failure belongs.
        interrupt_ids: of all answers that the run had.
    """

    node: str | None
    error_type: str
    message: str
    about: PauseRow
    interrupt_ids: tuple[str, ...]

    def parameters(self) -> dict[str, Any]:
        """The bound parameters of the statement that notes it."""
        scope = columns_of(self.about, "tenant_id", "sub_tenant_id", "namespace")
        texts = {"failed_node": self.node, "failed_type": self.error_type, "failed_message": self.message}
        ids = canonical_json(list(self.interrupt_ids))
        return {f"c_{key}": value for key, value in {**texts, "failed_ids": ids, **scope}.items()}


class ClaimLost(Exception):
    """One of several claims was lost, so none is made.

    Attributes:
        index: which one.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's hold on a thread.

    Attributes:
        taken_over: the one before it did not end cleanly.
        failed: the run of the one before it raised.
        breakpoints: canonical JSON of those that hold for this run; where it was taken over, of the one before.
    """

    graph: str
    thread_id: str
    owner: str
    taken_over: bool
    failed: bool = False
    breakpoints: str | None = None

    def parameters(self) -> dict[str, str]:
        """The bound parameters of the statements about it."""
        return {"the_graph": self.graph, "the_thread": self.thread_id, "the_owner": self.owner}


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a thread stands after a run.

    Attributes:
        rows: its pauses that are still open or answered.
        moved: its pauses that have ended in this transaction.
        states: the states of both, and of those that were asked for, by jti.
        over: no answer is left to deliver, and the lease is given back.
    """

    rows: list[PauseWithAnswer]
    moved: list[MovedPause]
    states: dict[str, str]
    over: bool
