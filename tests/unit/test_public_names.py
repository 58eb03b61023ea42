"""What `from symfonic_interrupts import ...` gives."""

from __future__ import annotations

import symfonic_interrupts
from symfonic_interrupts import InterruptError, errors, events

NAMES = [
    "AnswerReceipt",
    "Approval",
    "AskUserAnswer",
    "AskUserOption",
    "AskUserQuestion",
    "AskUserRequest",
    "AskUserResponse",
    "Delivery",
    "FailedThread",
    "FrameworkConfig",
    "FrameworkTenantScope",
    "Identity",
    "InterruptError",
    "InterruptEvent",
    "InterruptPoint",
    "InterruptSaver",
    "InterruptTransformer",
    "Interrupts",
    "Janitor",
    "KeyRing",
    "PauseToken",
    "PauseView",
    "Presentation",
    "ResumeAdapter",
    "SweepReport",
    "Worker",
    "interrupt_events",
]

ALSO_THERE = [
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
"""Errors, events and one more, which stood in `__all__` once. Nobody's imports may break."""


def test_the_public_names_are_those_that_a_reader_of_the_readme_needs_and_sorted() -> None:
    assert symfonic_interrupts.__all__ == NAMES


def test_names_that_were_public_once_can_still_be_imported() -> None:
    found = {name: getattr(symfonic_interrupts, name) for name in ALSO_THERE}

    assert [name for name, value in found.items() if value.__name__ != name] == []


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    assert [name for name in NAMES + ALSO_THERE if not getattr(symfonic_interrupts, name).__doc__] == []


def test_no_other_class_or_function_is_public() -> None:
    found = {
        name
        for name, value in vars(symfonic_interrupts).items()
        if not name.startswith("_") and (isinstance(value, type) or callable(value))
    }

    assert found == {*NAMES, *ALSO_THERE}


def test_errors_are_in_errors_and_events_in_events() -> None:
    kinds = {name: getattr(symfonic_interrupts, name) for name in [*NAMES, *ALSO_THERE]}
    raised = [name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, InterruptError)]
    told = [name for name in kinds if name.endswith("Event")]

    assert [name for name in raised if getattr(errors, name) is not kinds[name]] == []
    assert [name for name in told if getattr(events, name) is not kinds[name]] == []
    assert {*ALSO_THERE} - {*raised, *told} == {"InterruptRegistration"}
