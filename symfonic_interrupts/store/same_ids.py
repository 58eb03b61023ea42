"""Which pause an `interrupt_id` means.

An id has 48 bits: among some ten million pauses, two are likely to have the same one.

An open pause is meant before those that have ended. Where the id may still mean several, none is shown, answered or ended, and
the caller must say more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, TypeVar

from symfonic_interrupts.errors import UnknownInterrupt


class _WithState(TypedDict):
    state: str


R = TypeVar("R", bound=_WithState)


def the_one_meant(rows: Sequence[R]) -> R | None:
    """The pause that is meant, of those with the same id that the caller may see; None where there is none.

    Args:
        rows: the newest row of each.

    Raises:
        UnknownInterrupt: it may be any of several.
    """
    meant = [row for row in rows if row["state"] == "pending"] or rows
    if len(meant) > 1:
        raise UnknownInterrupt(
            "several pauses have this interrupt_id, so it does not say which is meant; name the pause by thread_id and"
            " interrupt_id together, or by its token"
        )
    return meant[0] if meant else None
