"""Names that `symfonic_interrupts` gives out as well, though they live elsewhere: errors in `.errors`, events in `.events`.

They stood in its `__all__` once, so they stay importable from there; every error does.
"""

from symfonic_interrupts.errors import (
    AnswerUnused,
    CheckpointMissing,
    FeatureDisabled,
    KeyRingError,
    PauseNotReady,
    PauseSuperseded,
    PauseSwallowed,
    PayloadInvalid,
    ReceiptInvalid,
    RegistrationError,
    ResponseInvalid,
    ResumeRefused,
    ScopeMismatch,
    ScopeRequired,
    StoreError,
    ThreadBusy,
    TokenConsumed,
    TokenExpired,
    TokenInvalid,
    UnknownInterrupt,
    UsageError,
)
from symfonic_interrupts.events import (
    AskUserAnsweredEvent,
    AskUserExpiredEvent,
    AskUserQuestionEvent,
    InterruptExpiredEvent,
    InterruptResolvedEvent,
    RecordedEvent,
)
from symfonic_interrupts.registration import InterruptRegistration

__all__ = [
    "AnswerUnused",
    "AskUserAnsweredEvent",
    "AskUserExpiredEvent",
    "AskUserQuestionEvent",
    "CheckpointMissing",
    "FeatureDisabled",
    "InterruptExpiredEvent",
    "InterruptRegistration",
    "InterruptResolvedEvent",
    "KeyRingError",
    "PauseNotReady",
    "PauseSuperseded",
    "PauseSwallowed",
    "PayloadInvalid",
    "ReceiptInvalid",
    "RecordedEvent",
    "RegistrationError",
    "ResponseInvalid",
    "ResumeRefused",
    "ScopeMismatch",
    "ScopeRequired",
    "StoreError",
    "ThreadBusy",
    "TokenConsumed",
    "TokenExpired",
    "TokenInvalid",
    "UnknownInterrupt",
    "UsageError",
]
