"""The settings and their defaults."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, RegistrationError

DEFAULTS = {
    "experimental_interrupt": False,
    "issuer": "symfonic-interrupts",
    "audience": "symfonic-interrupts",
    "default_ttl": timedelta(hours=24),
    "max_ttl": timedelta(days=30),
    "default_scope": None,
    "scope_resolver": None,
    "clock_skew": timedelta(seconds=60),
    "lease_ttl": timedelta(seconds=30),
    "lease_wait": timedelta(seconds=45),
    "max_token_bytes": 2048,
    "on_swallowed": "ask",
    "max_payload_bytes": 1_048_576,
    "max_response_bytes": 4_194_304,
}


def test_the_defaults_are_those_of_the_design() -> None:
    config = FrameworkConfig()

    assert {field.name: getattr(config, field.name) for field in dataclasses.fields(config)} == DEFAULTS


def test_the_settings_cannot_be_changed_or_given_by_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FrameworkConfig().issuer = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        FrameworkConfig(True)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("default_ttl", timedelta(0)),
        ("default_ttl", timedelta(seconds=-1)),
        ("default_ttl", 3600),
        ("default_ttl", None),
        ("max_ttl", timedelta(0)),
        ("max_ttl", 3600.0),
        ("lease_ttl", timedelta(0)),
        ("lease_ttl", "30"),
        ("clock_skew", timedelta(seconds=-1)),
        ("clock_skew", 60),
        ("clock_skew", None),
        ("lease_wait", timedelta(seconds=-1)),
        ("lease_wait", 45),
        ("max_token_bytes", 0),
        ("max_token_bytes", -5),
        ("max_token_bytes", 2048.0),
        ("max_token_bytes", True),
        ("max_payload_bytes", 0),
        ("max_payload_bytes", "1 MiB"),
        ("max_payload_bytes", True),
        ("max_response_bytes", 0),
        ("max_response_bytes", None),
        ("max_response_bytes", True),
        ("issuer", ""),
        ("issuer", "a" * 101),
        ("issuer", b"symfonic"),
        ("issuer", None),
        ("audience", ""),
        ("audience", "a" * 101),
        ("audience", 5),
        ("default_scope", "acme"),
        ("default_scope", {"tenant_id": "acme"}),
        ("scope_resolver", "acme"),
        ("experimental_interrupt", "false"),
        ("experimental_interrupt", None),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(RegistrationError, match=rf"^FrameworkConfig\.{field} must"):
        FrameworkConfig(**{field: value})


def test_a_default_ttl_beyond_the_longest_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"^FrameworkConfig\.default_ttl must not be longer than max_ttl"):
        FrameworkConfig(default_ttl=timedelta(hours=2), max_ttl=timedelta(hours=1))


def test_values_at_the_edge_are_taken() -> None:
    config = FrameworkConfig(
        default_ttl=timedelta(hours=1),
        max_ttl=timedelta(hours=1),
        clock_skew=timedelta(0),
        lease_wait=timedelta(0),
        lease_ttl=timedelta(microseconds=1),
        max_token_bytes=1,
        max_payload_bytes=1,
        max_response_bytes=1,
        issuer="a" * 100,
        audience="a",
        default_scope=FrameworkTenantScope("acme"),
        scope_resolver=lambda config: None,
        experimental_interrupt=True,
    )

    assert config.default_scope == FrameworkTenantScope("acme")
