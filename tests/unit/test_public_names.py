"""What `from symfonic_interrupts import ...` gives."""

from __future__ import annotations

import symfonic_interrupts

NAMES = [
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


def test_the_public_names_are_those_of_the_design_and_sorted() -> None:
    assert symfonic_interrupts.__all__ == NAMES


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    assert [name for name in NAMES if not getattr(symfonic_interrupts, name).__doc__] == []


def test_no_other_class_or_function_is_public() -> None:
    found = {
        name
        for name, value in vars(symfonic_interrupts).items()
        if not name.startswith("_") and (isinstance(value, type) or callable(value))
    }

    assert found == set(NAMES)
