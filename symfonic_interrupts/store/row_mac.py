"""The MAC of a pause row: a row that was edited by hand is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.store.rows import PauseRow
from symfonic_interrupts.store.schema import SIGNED_COLUMNS
from symfonic_interrupts.tokens.keys import KeyRing


def seal_row(row: Mapping[str, Any], keys: KeyRing) -> PauseRow:
    """The row with the MAC of its present values, under the signing key.

    Args:
        row: all columns of a `PauseRow`; those of an older MAC are replaced.
    """
    return cast(PauseRow, {**row, "mac_kid": keys.signing_kid, "mac": keys.mac("pause-row", _message(row))})


def row_is_authentic(row: Mapping[str, Any], keys: KeyRing) -> bool:
    """Whether the row is as this service wrote it, under any key of the ring."""
    try:
        return keys.mac_fits("pause-row", _message(row), row["mac_kid"], row["mac"])
    except ValueError:
        return False


def _message(row: Mapping[str, Any]) -> str:
    return canonical_json([_plain(row.get(column)) for column in SIGNED_COLUMNS])


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat(timespec="microseconds") if isinstance(value, datetime) else value
