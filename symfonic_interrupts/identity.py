"""Who is calling: what an application knows of a caller from its own session."""

from __future__ import annotations

from dataclasses import dataclass, field

from symfonic_interrupts.scope import FrameworkTenantScope


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is calling.

    Attributes:
        scope: where the caller belongs; from your session, never from the request.
        actor: who answers, in your words, at most 255 characters; recorded. None: not known.
    """

    scope: FrameworkTenantScope
    actor: str | None = field(default=None, repr=False)
