"""The scope of a pause: whose it is, by tenant, sub-tenant and namespace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from symfonic_interrupts.canonical import hash_json
from symfonic_interrupts.errors import ScopeRequired

MAX_PART_LENGTH = 255


@dataclass(frozen=True, slots=True)
class FrameworkTenantScope:
    """The scope that a pause belongs to. Its answer must come from that scope.

    Attributes:
        tenant_id: the tenant; required, not empty.
        sub_tenant_id: a part of the tenant, or None.
        namespace: a further division, or None. An empty string is not None, and is refused.

    Raises:
        ScopeRequired: a part is empty, not a string, longer than 255 characters, or not printable.
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
        """SHA-256 of the canonical JSON array of the three parts, so that ("a", "b") and ("ab", None) differ."""
        return _hash_of(self.tenant_id, self.sub_tenant_id, self.namespace)

    def contains(self, other: FrameworkTenantScope) -> bool:
        """Whether `other` is this scope or below it: it has the same value for every part that this scope names."""
        return (
            self.tenant_id == other.tenant_id
            and self.sub_tenant_id in (None, other.sub_tenant_id)
            and self.namespace in (None, other.namespace)
        )


@lru_cache(maxsize=1024)
def _hash_of(*parts: str | None) -> str:
    return hash_json(parts)
