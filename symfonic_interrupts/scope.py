"""Whose pause it is: the tenant, and within it a sub-tenant and a namespace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from symfonic_interrupts.canonical import hash_json
from symfonic_interrupts.errors import ScopeRequired

MAX_PART_LENGTH = 255


@dataclass(frozen=True, slots=True)
class FrameworkTenantScope:
    """The scope that a pause belongs to, and that an answer must come from.

    Attributes:
        tenant_id: the tenant; required, not empty.
        sub_tenant_id: a part of the tenant, or None.
        namespace: a further division, or None. None and an empty string are not the same; the latter is refused.

    Raises:
        ScopeRequired: a part is empty, no string, or longer than 255 characters.
    """

    tenant_id: str
    sub_tenant_id: str | None = None
    namespace: str | None = None

    def __post_init__(self) -> None:
        for field in ("tenant_id", "sub_tenant_id", "namespace"):
            part = getattr(self, field)
            if part is None and field != "tenant_id":
                continue
            if not isinstance(part, str) or not part.strip():
                raise ScopeRequired(f"{field} must be a non-empty string; pass FrameworkTenantScope(tenant_id=...)")
            if len(part) > MAX_PART_LENGTH or "\x00" in part or not part.isprintable():
                raise ScopeRequired(f"{field} must have at most {MAX_PART_LENGTH} characters, all of them printable")

    @property
    def scope_hash(self) -> str:
        """SHA-256 of the canonical JSON array of the three parts: ("a", "b") and ("ab", None) differ."""
        return _hash_of(self.tenant_id, self.sub_tenant_id, self.namespace)

    def contains(self, other: FrameworkTenantScope) -> bool:
        """Whether `other` is this scope or one below it: every part that this scope names is the same there."""
        return (
            self.tenant_id == other.tenant_id
            and self.sub_tenant_id in (None, other.sub_tenant_id)
            and self.namespace in (None, other.namespace)
        )


@lru_cache(maxsize=1024)
def _hash_of(*parts: str | None) -> str:
    return hash_json(parts)
