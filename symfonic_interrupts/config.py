"""The settings of one `Interrupts`, with their defaults. Immutable; no setting is read from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.scope import FrameworkTenantScope

ScopeResolver = Callable[[Mapping[str, Any]], FrameworkTenantScope | None]
"""Takes the run's LangGraph config (`RunnableConfig`), returns the scope of a pause made in that run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkConfig:
    """Settings of an `Interrupts`.

    Attributes:
        experimental_interrupt: custom points may be registered and may pause.
        issuer: the `iss` claim of tokens (RFC 7519, 4.1.1).
        audience: the first part of the `aud` claim; the graph's name follows after a `/`.
        default_ttl: how long a pause may be answered where its point says nothing.
        max_ttl: the longest a point may ask for.
        default_scope: the scope where none is given. None: a scope is required everywhere.
        scope_resolver: finds the scope of a pause from the run's config, instead of `configurable`'s tenant keys.
        clock_skew: how far apart two machines' clocks may be.
        lease_ttl: how long a worker holds a thread without renewing; it renews every third of it.
        lease_wait: how long `deliver` waits for another worker's thread before `ThreadBusy`.
        on_swallowed: what happens where a node finishes although a pause in it was swallowed (by `except Exception`, say).
            "ask": it is asked all the same, or the run fails with `PauseSwallowed`. "warn": it is only told of.
        max_token_bytes, max_payload_bytes, max_response_bytes: limits, in bytes of UTF-8 JSON.

    Raises:
        RegistrationError: a value that cannot work; the message names the field.
    """

    experimental_interrupt: bool = False
    issuer: str = "symfonic-interrupts"
    audience: str = "symfonic-interrupts"
    default_ttl: timedelta = timedelta(hours=24)
    max_ttl: timedelta = timedelta(days=30)
    default_scope: FrameworkTenantScope | None = None
    scope_resolver: ScopeResolver | None = None
    clock_skew: timedelta = timedelta(seconds=60)
    lease_ttl: timedelta = timedelta(seconds=30)
    lease_wait: timedelta = timedelta(seconds=45)
    on_swallowed: Literal["ask", "warn"] = "ask"
    max_token_bytes: int = 2048
    max_payload_bytes: int = 1024 * 1024
    max_response_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        zero = timedelta(0)
        if type(self.experimental_interrupt) is not bool:
            raise RegistrationError("FrameworkConfig.experimental_interrupt must be True or False")
        if self.scope_resolver is not None and not callable(self.scope_resolver):
            raise RegistrationError("FrameworkConfig.scope_resolver must be callable with the run's config, or None")
        for name in ("default_ttl", "max_ttl", "lease_ttl"):
            if not isinstance(getattr(self, name), timedelta) or getattr(self, name) <= zero:
                raise RegistrationError(f"FrameworkConfig.{name} must be a timedelta above zero")
        for name in ("clock_skew", "lease_wait"):
            if not isinstance(getattr(self, name), timedelta) or getattr(self, name) < zero:
                raise RegistrationError(f"FrameworkConfig.{name} must be a timedelta of zero or more")
        for name in ("max_token_bytes", "max_payload_bytes", "max_response_bytes"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise RegistrationError(f"FrameworkConfig.{name} must be a whole number of bytes, at least 1")
        if self.on_swallowed not in ("ask", "warn"):
            raise RegistrationError('FrameworkConfig.on_swallowed must be "ask" or "warn"')
        for name in ("issuer", "audience"):
            if not isinstance(getattr(self, name), str) or not 1 <= len(getattr(self, name)) <= 100:
                raise RegistrationError(f"FrameworkConfig.{name} must be a string of 1 to 100 characters")
        if self.default_ttl > self.max_ttl:
            raise RegistrationError("FrameworkConfig.default_ttl must not be longer than max_ttl")
        if self.default_scope is not None and not isinstance(self.default_scope, FrameworkTenantScope):
            raise RegistrationError("FrameworkConfig.default_scope must be a FrameworkTenantScope, or None")
