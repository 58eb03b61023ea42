"""The signing keys: which one signs, which ones still verify, and how each is split by purpose.

Every key is split (HMAC-SHA-256 over a purpose's name, as in NIST SP 800-108's counter mode with one block) into one key
for tokens, one for receipts, one for row MACs and one for event cursors, so nothing signed for one purpose passes for another,
nor for a JWT that somebody else signs with the same secret. There is no default key, and no key is ever in a repr or an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from symfonic_interrupts.errors import KeyRingError

MIN_KEY_BYTES = 32
Purpose = Literal["pause-token", "receipt", "pause-row", "event-cursor"]


class KeysInUse(Protocol):
    """A store that knows which keys its pauses need; `Interrupts` is one."""

    def keys_in_use(self) -> dict[str, int]:
        """By key id, how many signatures of open pauses are its own."""


class KeyRing:
    """Signing keys, newest first.

    Args:
        keys: the first signs; all verify. At least 32 bytes each, random.
        retired: keys that sign nothing more and verify receipts and row MACs only, not tokens. Retire a key when the
            longest TTL has passed since it last signed.

    Raises:
        KeyRingError: no key, a key that is short or no bytes, or the same key twice.
    """

    def __init__(self, keys: Sequence[bytes], *, retired: Sequence[bytes] = ()) -> None:
        if not isinstance(keys, list | tuple) or not keys:
            raise KeyRingError("keys must be a list of one or more keys, newest first; KeyRing.generate() makes one")
        if not isinstance(retired, list | tuple):
            raise KeyRingError("retired must be a list of keys")
        self._derived: dict[tuple[str, Purpose], bytes] = {}
        self._active = tuple(self._admit(key, f"keys[{place}]") for place, key in enumerate(keys))
        self._retired = tuple(self._admit(key, f"retired[{place}]") for place, key in enumerate(retired))

    def _admit(self, key: object, place: str) -> str:
        if not isinstance(key, bytes | bytearray):
            text = "; text is for KeyRing.from_text or from_env" if isinstance(key, str) else ""
            raise KeyRingError(f"{place} must be bytes, not {type(key).__name__}{text}")
        if len(key) < MIN_KEY_BYTES:
            raise KeyRingError(f"{place} has {len(key)} bytes; at least {MIN_KEY_BYTES} are needed")
        kid = hashlib.sha256(b"symfonic-interrupts key id\x00" + key).hexdigest()[:16]
        if (kid, "receipt") in self._derived:
            raise KeyRingError(f"{place} is in the ring already")
        purposes: tuple[Purpose, ...] = ("pause-token", "receipt", "pause-row", "event-cursor")
        for purpose in purposes:
            message = b"\x01symfonic-interrupts " + purpose.encode() + b"\x00"
            self._derived[kid, purpose] = hmac.digest(key, message, "sha256")
        return kid

    @property
    def signing_kid(self) -> str:
        """The id of the key that signs: 16 hex digits, the same in every process that has the key."""
        return self._active[0]

    @property
    def kids(self) -> tuple[str, ...]:
        """The ids of all keys, the signing one first, retired ones last."""
        return self._active + self._retired

    def derived(self, kid: str, purpose: Purpose) -> bytes | None:
        """The key for a purpose, or None where that key may not be used for it."""
        if purpose == "pause-token" and kid not in self._active:
            return None
        return self._derived.get((kid, purpose))

    def mac(self, purpose: Purpose, message: str, kid: str | None = None) -> str:
        """HMAC-SHA-256 (RFC 2104) of the text under the signing key, or the one named, as hex."""
        key = self.derived(kid or self.signing_kid, purpose)
        if key is None:
            raise KeyRingError(f"key {kid} is not in the ring for {purpose}")
        return hmac.digest(key, message.encode("utf-8"), "sha256").hex()

    def mac_fits(self, purpose: Purpose, message: str, kid: str, mac: str) -> bool:
        """Whether the MAC is the one of this text under that key. False for unknown keys and anything malformed."""
        if not isinstance(kid, str) or not isinstance(mac, str) or not mac.isascii():
            return False
        key = self.derived(kid, purpose)
        if key is None:
            return False
        return hmac.compare_digest(hmac.digest(key, message.encode("utf-8"), "sha256").hex(), mac)

    def check(self, store: KeysInUse) -> dict[str, int]:
        """What dropping keys would strand: by key id, how many signatures of that key open pauses still need.

        Every key of the ring is listed; one with 0 may be dropped. A key id that is not in the ring is listed too: its
        pauses can neither be answered nor delivered until that key is back. Approvals that an application keeps in a graph's
        state are not counted: `require` needs their key, too.

        Args:
            store: the `Interrupts`.
        """
        in_use = store.keys_in_use()
        return {**dict.fromkeys(self.kids, 0), **in_use}

    def __repr__(self) -> str:
        return f"KeyRing(active={len(self._active)}, retired={len(self._retired)}, signing_kid={self.signing_kid!r})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a KeyRing is not pickled: keys do not travel; make one from the environment in each process")

    @staticmethod
    def generate() -> str:
        """A new random 256-bit key as unpadded base64url text: for a secret store, a variable or a file."""
        return base64.urlsafe_b64encode(secrets.token_bytes(MIN_KEY_BYTES)).rstrip(b"=").decode("ascii")

    @classmethod
    def from_text(cls, keys: str, *, retired: str = "", source: str = "keys") -> KeyRing:
        """A ring from base64url keys, comma- or newline-separated, newest first.

        Raises:
            KeyRingError: none given, or one that cannot be decoded; the message names `source` and the position.
        """
        return cls(_decode(keys, source), retired=_decode(retired, source, required=False))

    @classmethod
    def from_env(cls, name: str, *, retired: str | None = None) -> KeyRing:
        """A ring from the environment variable `name`; `retired` names another one with retired keys, if there are any.

        Raises:
            KeyRingError: the variable is not set, or holds no usable keys.
        """
        if not os.environ.get(name, "").strip():
            raise KeyRingError(f"{name} is not set; put base64url keys there (KeyRing.generate() makes one)")
        return cls.from_text(os.environ[name], retired=os.environ.get(retired, "") if retired else "", source=name)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> KeyRing:
        """A ring from a file with one base64url key a line, newest first. Only its owner may read it.

        Raises:
            KeyRingError: no such file, others may read it, or it holds no usable keys.
        """
        file = Path(path)
        try:
            with file.open(encoding="ascii") as stream:
                mode = os.fstat(stream.fileno()).st_mode
                text = stream.read()
        except (OSError, UnicodeDecodeError) as error:
            raise KeyRingError(
                f"key file {file.name}: {type(error).__name__}; it must be a readable text file"
            ) from None
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise KeyRingError(
                f"key file {file.name} can be read by others (mode {stat.S_IMODE(mode):04o}); chmod 600 it"
            )
        return cls.from_text(text, source=f"key file {file.name}")

    @classmethod
    def create_file(cls, path: str | os.PathLike[str]) -> KeyRing:
        """The ring of that file; where there is none, one with a new key is made first, mode 0600.

        Safe when several processes do it at once: all get the same key.
        """
        file = Path(path)
        if not file.exists():
            fresh = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
            try:
                descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                    stream.write(cls.generate() + "\n")
                try:
                    os.link(fresh, file)
                except FileExistsError:
                    pass
                finally:
                    fresh.unlink()
            except OSError as error:
                problem = (
                    "its directory does not exist" if isinstance(error, FileNotFoundError) else type(error).__name__
                )
                raise KeyRingError(f"key file {file.name} cannot be made: {problem}") from None
        return cls.from_file(file)


def _decode(text: str, source: str, *, required: bool = True) -> list[bytes]:
    parts = [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
    if required and not parts:
        raise KeyRingError(f"{source} holds no key; KeyRing.generate() makes one")
    keys = []
    for place, part in enumerate(parts):
        try:
            keys.append(base64.b64decode(part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4), b"-_", validate=True))
        except (binascii.Error, ValueError):
            raise KeyRingError(f"{source}: key {place + 1} is not base64url") from None
    return keys
