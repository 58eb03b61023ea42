"""Whose pause it is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from symfonic_interrupts import FrameworkTenantScope, ScopeRequired


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (("acme",), "Csdxzwbb07YK8wLMbcAE4oa7A8W-OXjnV2CuwTemTE4"),
        (("a", "b"), "CQ4cy1sb1h2oFf9UOpCkwMY0ZzerfyOWZ9yVFBwynU8"),
        (("ab", None), "UPFHZZx4PWtz-AsqPN-1ABDBjHYaG_W94POu-CYsvkI"),
        (("a", None, "b"), "VrtDCyQQReWhlh-8GazrkawBNe11YKrP2sQqdXe99HE"),
        (("münchen", "süd", "näm"), "5EfTycN3JJCmvA6y3aBD35_J59KvWL1-hghwdsJwzLI"),
    ],
)
def test_a_scope_has_this_hash(parts: tuple[Any, ...], found: str) -> None:
    assert FrameworkTenantScope(*parts).scope_hash == found


def test_scopes_that_would_be_equal_when_joined_have_different_hashes() -> None:
    scopes = [
        FrameworkTenantScope("a", "b"),
        FrameworkTenantScope("ab"),
        FrameworkTenantScope("a", None, "b"),
        FrameworkTenantScope("a,b"),
        FrameworkTenantScope('a","b'),
        FrameworkTenantScope("a", "null"),
        FrameworkTenantScope("a"),
    ]

    assert len({scope.scope_hash for scope in scopes}) == len(scopes)


@pytest.mark.parametrize("field", ["tenant_id", "sub_tenant_id", "namespace"])
@pytest.mark.parametrize(
    "part",
    [
        pytest.param("", id="empty"),
        pytest.param(" \t", id="blank"),
        pytest.param(5, id="number"),
        pytest.param(b"acme", id="bytes"),
        pytest.param(True, id="bool"),
        pytest.param(["acme"], id="list"),
        pytest.param("a" * 256, id="too long"),
        pytest.param("a\x00b", id="NUL"),
        pytest.param("a\ud800", id="lone surrogate"),
    ],
)
def test_a_part_that_cannot_name_anything_is_refused_by_name(field: str, part: Any) -> None:
    with pytest.raises(ScopeRequired, match=rf"^{field} must"):
        FrameworkTenantScope(**{"tenant_id": "acme", field: part})


def test_the_tenant_is_never_left_out() -> None:
    with pytest.raises(ScopeRequired, match=r"^tenant_id must"):
        FrameworkTenantScope(None)  # type: ignore[arg-type]


def test_the_longest_part_has_255_characters() -> None:
    assert FrameworkTenantScope("a" * 255, "é" * 255, "n" * 255).namespace == "n" * 255


def test_a_scope_cannot_be_changed() -> None:
    scope = FrameworkTenantScope("acme")

    with pytest.raises(dataclasses.FrozenInstanceError):
        scope.tenant_id = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (("acme",), ("acme",), True),
        (("acme",), ("acme", "east"), True),
        (("acme",), ("acme", "east", "prod"), True),
        (("acme",), ("acme", None, "prod"), True),
        (("acme", "east"), ("acme", "east", "prod"), True),
        (("acme", "east"), ("acme", "east"), True),
        (("acme", None, "prod"), ("acme", "east", "prod"), True),
        (("acme",), ("acme2",), False),
        (("acme",), ("other", "acme"), False),
        (("acme", "east"), ("acme",), False),
        (("acme", "east"), ("acme", "west"), False),
        (("acme", "east"), ("acme", None, "east"), False),
        (("acme", "east", "prod"), ("acme", "east"), False),
        (("acme", "east", "prod"), ("acme", "east", "test"), False),
        (("acme", None, "prod"), ("acme", "east"), False),
    ],
)
def test_a_scope_contains_itself_and_what_lies_below_it(
    outer: tuple[Any, ...], inner: tuple[Any, ...], expected: bool
) -> None:
    assert FrameworkTenantScope(*outer).contains(FrameworkTenantScope(*inner)) is expected
