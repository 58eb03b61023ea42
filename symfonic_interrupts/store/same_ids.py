"""Which pause an `interrupt_id` means. It has 48 bits: among some ten million pauses two are likely to have the same one.

Nothing may then be shown, answered or ended in the place of something else. The one that is open is meant; where more are left,
the id does not say which, and whoever asks must say more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symfonic_interrupts.errors import UnknownInterrupt


def the_one_meant(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The pause that is meant, of those with one id that the caller may see; None where there is none.

    Args:
        rows: the newest row of each, with its `state`.

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
