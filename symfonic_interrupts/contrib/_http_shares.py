"""How much of a process one tenant may have at a time, so that the others always get some of it."""

from __future__ import annotations

from collections import Counter

from symfonic_interrupts.contrib._http_problems import TenantBusy
from symfonic_interrupts.scope import FrameworkTenantScope


class Shares:
    """Counts what each tenant has under way. For one event loop.

    Args:
        what: what is counted, in the plural.
        most: how many a tenant may have in this process.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most
        self._taken: Counter[str] = Counter()

    def take(self, scope: FrameworkTenantScope) -> None:
        """Count one more. Raises TenantBusy."""
        if self._taken[scope.tenant_id] >= self._most:
            raise TenantBusy(
                f"your tenant has {self._most} {self._what} under way here, which is all that it may have; try again when"
                " some have ended. Nothing was done"
            )
        self._taken[scope.tenant_id] += 1

    def give_back(self, scope: FrameworkTenantScope) -> None:
        """Count one less."""
        self._taken[scope.tenant_id] -= 1
        if not self._taken[scope.tenant_id]:
            del self._taken[scope.tenant_id]
