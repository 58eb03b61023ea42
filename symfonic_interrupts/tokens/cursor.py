"""Event cursors: a position among the events of all tenants, sealed so that whoever holds it learns nothing from it.

The plain position counts everybody's transactions and events. It is encrypted and authenticated with a key of the ring, bound
to one graph and scope. The construction is SIV (as in RFC 5297, with HMAC-SHA-256): the key stream is derived from the tag,
a MAC of the plain text. Sealing the same position twice gives the same cursor, unless `fresh` is asked for.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import struct

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.tokens.keys import KeyRing

Position = tuple[int, int]
"""Where an event row stands among all: (transaction, id)."""

Reader = tuple[str, str]
"""For whom a cursor is made: (graph, scope hash)."""

_FORM = struct.Struct(">QQQ")
_TAG = 16
_LONGEST = 64


def seal_position(position: Position, keys: KeyRing, reader: Reader, *, fresh: bool = False) -> str:
    """The cursor of a position: 54 characters of base64url.

    Args:
        reader: for whom it is; for anybody else it means nothing.
        fresh: another cursor each time, so that nobody can see whether the position is the same as before.
    """
    plain = _FORM.pack(*position, secrets.randbits(64) if fresh else 0)
    tag = _tag(keys, keys.signing_kid, reader, plain)
    sealed = tag + _mixed(keys, keys.signing_kid, tag, plain)
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")


def open_position(cursor: object, keys: KeyRing, reader: Reader) -> Position | None:
    """The position of a cursor that was given out for this graph and scope, under any key of the ring; else None."""
    if not isinstance(cursor, str) or not cursor.isascii() or len(cursor) > _LONGEST:
        return None
    try:
        sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(sealed) != _TAG + _FORM.size:
        return None
    tag, mixed = sealed[:_TAG], sealed[_TAG:]
    for kid in keys.kids:
        plain = _mixed(keys, kid, tag, mixed)
        if hmac.compare_digest(_tag(keys, kid, reader, plain), tag):
            transaction, event_id, _ = _FORM.unpack(plain)
            return transaction, event_id
    return None


def _tag(keys: KeyRing, kid: str, reader: Reader, plain: bytes) -> bytes:
    message = canonical_json(["tag", *reader, plain.hex()])
    return bytes.fromhex(keys.mac("event-cursor", message, kid))[:_TAG]


def _mixed(keys: KeyRing, kid: str, tag: bytes, text: bytes) -> bytes:
    stream = bytes.fromhex(keys.mac("event-cursor", canonical_json(["stream", tag.hex()]), kid))
    return bytes(byte ^ mask for byte, mask in zip(text, stream, strict=False))
