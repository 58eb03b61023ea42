"""The receipt: the signed form in which an accepted answer travels into the graph.

A receipt says: for this pause (task, point, payload, scope), exactly this response was accepted by the adapter. It is
signed with a key of its own purpose, so a token is no receipt and a receipt no token. The response travels beside it as
canonical JSON text, so that no change on the way (msgpack, a database) goes unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from symfonic_interrupts.canonical import canonical_json, sha256
from symfonic_interrupts.errors import ReceiptInvalid
from symfonic_interrupts.tokens.keys import KeyRing

KIND = "symfonic-interrupts receipt v1"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt states. All hashes are SHA-256, base64url; times are ISO 8601 in UTC.

    Attributes:
        jti: the token that was spent.
        name: the point.
        audience: the configured audience, `/`, and the graph's name.
        thread_id: LangGraph's thread.
        task_id: LangGraph's task that asked.
        interrupt_id: the pause.
        scope_hash: of the scope.
        request_hash: of the payload that was answered.
        response_hash: of the response.
        asked_at, answered_at: when the pause was opened, and when its answer was accepted.
        actor: who answered, as the application named them, or None.
        defaulted: nobody answered in time; this is the point's `on_expire`.
    """

    jti: str
    name: str
    audience: str
    thread_id: str
    task_id: str
    interrupt_id: str
    scope_hash: str
    request_hash: str
    response_hash: str
    asked_at: str
    answered_at: str
    actor: str | None
    defaulted: bool

    def seal(self, keys: KeyRing) -> dict[str, Any]:
        """The receipt as JSON data, with the id of its key and its MAC."""
        stated = {name: getattr(self, name) for name in _STATED}
        return {**stated, "kid": keys.signing_kid, "mac": keys.mac("receipt", self._message())}

    def _message(self) -> str:
        return canonical_json([KIND, *(getattr(self, name) for name in _STATED)])

    @classmethod
    def unseal(cls, sealed: object, keys: KeyRing) -> Receipt:
        """The receipt from its JSON data.

        Raises:
            ReceiptInvalid: not one that this service signed, or changed since.
        """
        if not isinstance(sealed, dict) or set(sealed) != _SEALED:
            raise ReceiptInvalid("this is not a receipt")
        receipt = cls(**{name: sealed[name] for name in _STATED})
        for name in _STATED:
            value = sealed[name]
            fits = type(value) is bool if name == "defaulted" else isinstance(value, str)
            if not fits and not (name == "actor" and value is None):
                raise ReceiptInvalid("the receipt has a field of the wrong type")
        try:
            genuine = isinstance(sealed["kid"], str) and keys.mac_fits(
                "receipt", receipt._message(), sealed["kid"], sealed["mac"]
            )
        except ValueError:
            genuine = False
        if not genuine:
            raise ReceiptInvalid("the receipt was not signed here, or was changed")
        return receipt

    def covers(self, response_text: object) -> bool:
        """Whether the response is the one that the receipt was given for."""
        try:
            return isinstance(response_text, str) and sha256(response_text) == self.response_hash
        except UnicodeEncodeError:
            return False


_STATED = tuple(field.name for field in fields(Receipt))
_SEALED = {*_STATED, "kid", "mac"}
