"""Every error this library raises, as one tree under `InterruptError`.

Each class carries a stable `code` (for clients and logs) and the `http_status` a web layer should answer with. A message
says what is wrong, names the field, and says what to do next. It never contains a token, a key, a payload or a response.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from symfonic_interrupts.errors_in_nodes import PauseSwallowed as PauseSwallowed
    from symfonic_interrupts.errors_in_nodes import ResumeRefused as ResumeRefused
else:  # they are LangGraph's exceptions too, and whatever only names an error shall not wait for LangGraph

    def __getattr__(name: str) -> object:
        if name in ("PauseSwallowed", "ResumeRefused"):
            from symfonic_interrupts import errors_in_nodes

            return getattr(errors_in_nodes, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class InterruptError(RuntimeError):
    """Base of all errors of symfonic_interrupts. A `RuntimeError`: servers that pass on known kinds only show its message.

    Attributes:
        code: stable machine-readable name of the kind of error.
        http_status: the HTTP status code (RFC 9110) that fits it.
        index: which of several answers it is about, from 0; None where there was one.
    """

    code: ClassVar[str] = "interrupt_error"
    http_status: ClassVar[int] = 500
    index: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[InterruptError], args: tuple[Any, ...], facts: dict[str, Any]) -> InterruptError:
    """An error as it was in another process, with its facts."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class TokenInvalid(InterruptError):
    """The pause token is not one that this service issued: forged, cut, re-encoded, for another audience or of another kind."""

    code = "token_invalid"
    http_status = 401


class TokenExpired(InterruptError):
    """The pause token is genuine but its time is over.

    Attributes:
        expired_at: when it ended (UTC), or None where that is not known.
    """

    code = "token_expired"
    http_status = 410

    def __init__(self, message: str, *, expired_at: datetime | None = None) -> None:
        super().__init__(message)
        self.expired_at = expired_at


class TokenConsumed(InterruptError):
    """The pause token was spent before: answered, revoked or reissued. A token counts once.

    Attributes:
        state: the state of the pause now, such as `answered`, `applied`, `unused`, `revoked` or `reissued`.
    """

    code = "token_consumed"
    http_status = 409

    def __init__(self, message: str, *, state: str) -> None:
        super().__init__(message)
        self.state = state


class ScopeMismatch(InterruptError):
    """The pause belongs to another scope than the caller's, and its point does not allow answers across scopes."""

    code = "scope_mismatch"
    http_status = 403


class ScopeRequired(InterruptError):
    """No tenant was given, and there is no default. A scope is never guessed."""

    code = "scope_required"
    http_status = 400


class UnknownInterrupt(InterruptError):
    """The point of this name is not registered here, or no pause that the caller may see has this id.

    Not LangGraph's `UnknownInterruptError`: that one comes from a run whose `Command(resume=...)` does not fit the interrupts
    that wait, and is no `InterruptError`. This one comes from the adapter, before any run.
    """

    code = "unknown_interrupt"
    http_status = 404


class _Validation(InterruptError):
    """A value that does not fit its schema.

    Attributes:
        errors: pydantic's list of errors (`type`, `loc`, `msg`), without the input; empty where another check refused.
    """

    def __init__(self, message: str, *, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


class PayloadInvalid(_Validation):
    """What a node wants to show does not fit the payload schema of its point, or is too large."""

    code = "payload_invalid"
    http_status = 500


class ResponseInvalid(_Validation):
    """The answer does not fit the response schema of the point, or its validator refused it. The token is not spent."""

    code = "response_invalid"
    http_status = 422


class PauseNotReady(InterruptError):
    """The pause is not durable in its checkpoint yet. Try again in a moment; the token is not spent."""

    code = "pause_not_ready"
    http_status = 425


class PauseSuperseded(InterruptError):
    """The thread went on without this pause (new input, `update_state`, a fork), so its question no longer stands."""

    code = "pause_superseded"
    http_status = 409


class AnswerUnused(InterruptError):
    """The answer was accepted and recorded, but the graph finished without using it: it asked for something else meanwhile."""

    code = "answer_unused"
    http_status = 409


class CheckpointMissing(InterruptError):
    """The thread has no checkpoint (any more): there is nothing to resume."""

    code = "checkpoint_missing"
    http_status = 404


class ThreadBusy(InterruptError):
    """Another worker drives this thread, and did not finish in time. Accepted answers are stored: it delivers them, or
    `recover()` does."""

    code = "thread_busy"
    http_status = 429


class FeatureDisabled(InterruptError):
    """The feature is behind a flag of `FrameworkConfig` that is off. The message names the flag."""

    code = "feature_disabled"
    http_status = 403


class UsageError(InterruptError, ValueError):
    """A call was made with an argument that it does not take, or where it cannot be made. Nothing was changed.

    Such as a limit out of range, a cursor that is none, an empty reason, a `ttl` beyond the longest, or a tenant named in the
    config of a delivery.
    """

    code = "usage_error"
    http_status = 422


class RegistrationError(InterruptError):
    """Something was put together in a way that cannot work: a point, a schema, a saver, a graph. Raised as early as known.

    Also where the parts do not fit the way they are used: a sync saver in a graph that runs async, say.
    """

    code = "registration_error"
    http_status = 500


class KeyRingError(InterruptError):
    """A signing key is missing, too short, not decodable, or readable by others."""

    code = "key_ring_error"
    http_status = 500


class ReceiptInvalid(InterruptError):
    """An approval is not one that was given through the adapter for exactly this payload, point, thread and scope."""

    code = "receipt_invalid"
    http_status = 403


class StoreError(InterruptError):
    """The pause store cannot be used: not reachable, no schema, closed, driver missing, or a row was altered from outside.

    Attributes:
        retryable: True where the same call may succeed later (a lock, a lost connection).
    """

    code = "store_error"
    http_status = 503

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable
