"""The public names, by the modules that define them. `symfonic_interrupts` gives them out."""

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.ask_user import (
    AskUserAnswer,
    AskUserOption,
    AskUserQuestion,
    AskUserRequest,
    AskUserResponse,
)
from symfonic_interrupts.asking.point import Approval, InterruptPoint
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.core.results import AnswerReceipt, PauseView
from symfonic_interrupts.delivering.failed_thread import FailedThread
from symfonic_interrupts.delivering.progress import Delivery
from symfonic_interrupts.errors import (
    AnswerUnused,
    CheckpointMissing,
    FeatureDisabled,
    InterruptError,
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
)
from symfonic_interrupts.events import (
    AskUserAnsweredEvent,
    AskUserExpiredEvent,
    AskUserQuestionEvent,
    InterruptEvent,
    InterruptExpiredEvent,
    InterruptResolvedEvent,
    RecordedEvent,
)
from symfonic_interrupts.interrupts import Interrupts
from symfonic_interrupts.registration import InterruptRegistration
from symfonic_interrupts.saver.saver import InterruptSaver
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.streaming import InterruptTransformer, interrupt_events
from symfonic_interrupts.tokens.keys import KeyRing
from symfonic_interrupts.tokens.pause_token import PauseToken
from symfonic_interrupts.upkeep.janitor import Janitor, SweepReport
from symfonic_interrupts.upkeep.worker import Worker

__all__ = [
    "AnswerReceipt",
    "AnswerUnused",
    "Approval",
    "AskUserAnswer",
    "AskUserAnsweredEvent",
    "AskUserExpiredEvent",
    "AskUserOption",
    "AskUserQuestion",
    "AskUserQuestionEvent",
    "AskUserRequest",
    "AskUserResponse",
    "CheckpointMissing",
    "Delivery",
    "FailedThread",
    "FeatureDisabled",
    "FrameworkConfig",
    "FrameworkTenantScope",
    "InterruptError",
    "InterruptEvent",
    "InterruptExpiredEvent",
    "InterruptPoint",
    "InterruptRegistration",
    "InterruptResolvedEvent",
    "InterruptSaver",
    "InterruptTransformer",
    "Interrupts",
    "Janitor",
    "KeyRing",
    "KeyRingError",
    "PauseNotReady",
    "PauseSuperseded",
    "PauseSwallowed",
    "PauseToken",
    "PauseView",
    "PayloadInvalid",
    "ReceiptInvalid",
    "RecordedEvent",
    "RegistrationError",
    "ResponseInvalid",
    "ResumeAdapter",
    "ResumeRefused",
    "ScopeMismatch",
    "ScopeRequired",
    "StoreError",
    "SweepReport",
    "ThreadBusy",
    "TokenConsumed",
    "TokenExpired",
    "TokenInvalid",
    "UnknownInterrupt",
    "Worker",
    "interrupt_events",
]
