"""Event cursors: a place in the events of all tenants, sealed so that whoever holds it learns nothing from it.

The plain place counts everybody's transactions and events. It is encrypted and authenticated with a key of the ring, bound to
one graph and scope. The construction is SIV (as in RFC 5297, with HMAC-SHA-256): the tag, a MAC of the plain text, is what the
key stream is derived from. Sealing the same place twice gives the same cursor, unless it is asked for another one each time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import struct

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.tokens.keys import KeyRing

Place = tuple[int, int]
"""(transaction, id)."""

Where = tuple[str, str]
"""(graph, scope hash)."""

_FORM = struct.Struct(">QQQ")
_TAG = 16
_LONGEST = 64


def seal_place(place: Place, keys: KeyRing, where: Where, *, fresh: bool = False) -> str:
    """The cursor of a place: 54 characters of base64url.

    Args:
        where: for whom it is; for anybody else it means nothing.
        fresh: another cursor each time, for a place of which it must not even be told whether it is the same as before.
    """
    plain = _FORM.pack(*place, secrets.randbits(64) if fresh else 0)
    tag = _tag(keys, keys.signing_kid, where, plain)
    sealed = tag + _mixed(keys, keys.signing_kid, tag, plain)
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")


def open_place(cursor: object, keys: KeyRing, where: Where) -> Place | None:
    """The place of a cursor that was given out for this graph and scope, under any key of the ring; else None."""
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
        if hmac.compare_digest(_tag(keys, kid, where, plain), tag):
            transaction, event_id, _ = _FORM.unpack(plain)
            return transaction, event_id
    return None


def _tag(keys: KeyRing, kid: str, where: Where, plain: bytes) -> bytes:
    said = canonical_json(["tag", *where, plain.hex()])
    return bytes.fromhex(keys.mac("event-cursor", said, kid))[:_TAG]


def _mixed(keys: KeyRing, kid: str, tag: bytes, text: bytes) -> bytes:
    stream = bytes.fromhex(keys.mac("event-cursor", canonical_json(["stream", tag.hex()]), kid))
    return bytes(one ^ other for one, other in zip(text, stream, strict=False))
