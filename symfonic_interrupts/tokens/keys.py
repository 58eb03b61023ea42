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
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, Protocol

from symfonic_interrupts.errors import KeyRingError

MIN_KEY_BYTES = 32
FEWEST_BYTES, FEWEST_TRIPLES, FEWEST_TURNS = 8, 18, 16
"""Of a random key: different bytes, different sequences of three bytes, steps that differ from the most frequent one."""

PLACEHOLDERS = (
    b"changeme",
    b"changethis",
    b"replaceme",
    b"replacethis",
    b"placeholder",
    b"yoursecret",
    b"yourkeyhere",
    b"secretkey",
    b"supersecret",
    b"notsosecret",
    b"password",
    b"qwertyui",
    b"asdfghjk",
)
"""At least eight letters each: a shorter word stands in the base64 text of one random key in some million."""

_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz")

Purpose = Literal["pause-token", "receipt", "pause-row", "event-cursor"]


class KeysInUse(Protocol):
    """A store that knows which keys its pauses need; `Interrupts` is one."""

    def keys_in_use(self) -> dict[str, int]:
        """By key id, how many signatures of open pauses were made with the key."""


class KeyRing:
    """Signing keys, newest first.

    A key that is obviously not random is refused, as bytes and as the text that encodes it: fewer than 8 different bytes, fewer
    than 18 different sequences of three bytes (a pattern that repeats), bytes that count up or down (fewer than 16 steps differ
    from the most frequent one), or a placeholder, such as "changeme", somewhere in it. That hits a random key less than once in
    10^9. A sentence of 32 characters may pass; use one in tests only.

    Args:
        keys: the first signs; all verify. At least 32 bytes each, random.
        retired: keys that sign nothing more and verify receipts and row MACs only, not tokens. Retire a key when the
            longest TTL has passed since it last signed.

    Raises:
        KeyRingError: no key, a key that is short, no bytes or obviously not random, or the same key twice.
    """

    def __init__(self, keys: Sequence[bytes], *, retired: Sequence[bytes] = ()) -> None:
        if not isinstance(keys, list | tuple) or not keys:
            raise KeyRingError("keys must be a list of one or more keys, newest first; KeyRing.new_key() makes one")
        if not isinstance(retired, list | tuple):
            raise KeyRingError("retired must be a list of keys")
        self._derived: dict[tuple[str, Purpose], bytes] = {}
        self._active = tuple(self._admit(key, f"keys[{index}]") for index, key in enumerate(keys))
        self._retired = tuple(self._admit(key, f"retired[{index}]") for index, key in enumerate(retired))

    def _admit(self, key: object, name: str) -> str:
        if not isinstance(key, bytes | bytearray):
            text = "; text is for KeyRing.from_text or from_env" if isinstance(key, str) else ""
            raise KeyRingError(f"{name} must be bytes, not {type(key).__name__}{text}")
        if len(key) < MIN_KEY_BYTES:
            raise KeyRingError(f"{name} has {len(key)} bytes; at least {MIN_KEY_BYTES} are needed")
        if why := _not_random(bytes(key)):
            raise KeyRingError(f"{name} {why}; KeyRing.new_key() makes a random one")
        kid = hashlib.sha256(b"symfonic-interrupts key id\x00" + key).hexdigest()[:16]
        if (kid, "receipt") in self._derived:
            raise KeyRingError(f"{name} is in the ring already")
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
    def new_key() -> str:
        """A new random 256-bit key as unpadded base64url text: for a secret store, a variable or a file."""
        return base64.urlsafe_b64encode(secrets.token_bytes(MIN_KEY_BYTES)).rstrip(b"=").decode("ascii")

    @staticmethod
    def generate() -> str:
        """The former name of `new_key`, which does the same."""
        return KeyRing.new_key()

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
            raise KeyRingError(f"{name} is not set; put base64url keys there (KeyRing.new_key() makes one)")
        return cls.from_text(os.environ[name], retired=os.environ.get(retired, "") if retired else "", source=name)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> KeyRing:
        """A ring from a file with one base64url key a line, newest first.

        The file must belong to this process's user, and nobody else may read it.

        Raises:
            KeyRingError: no such file, it is somebody else's (also where root reads it), others may read it, or it holds no
                usable keys.
        """
        return cls.from_text(read_key_file(path), source=f"key file {Path(path).name}")

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
                    stream.write(cls.new_key() + "\n")
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


def read_key_file(path: str | os.PathLike[str]) -> str:
    """The text of a key file that belongs to this process's user and that nobody else may use.

    Raises:
        KeyRingError: it cannot be read, or its owner or mode is wrong. Root is no exception: whoever owns a file can
            change what root signs with.
    """
    file = Path(path)
    try:
        with file.open(encoding="ascii") as stream:
            status = os.fstat(stream.fileno())
            text = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyRingError(f"key file {file.name}: {type(error).__name__}; it must be a readable text file") from None
    if os.name == "posix" and status.st_uid != os.geteuid():
        raise KeyRingError(
            f"key file {file.name} belongs to user {status.st_uid}, and this process is user {os.geteuid()};"
            " run it as the file's owner, or chown the file"
        )
    if os.name == "posix" and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyRingError(
            f"key file {file.name} can be read by others (mode {stat.S_IMODE(status.st_mode):04o}); chmod 600 it"
        )
    return text


def _decode(text: str, source: str, *, required: bool = True) -> list[bytes]:
    parts = [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
    if required and not parts:
        raise KeyRingError(f"{source} holds no key; KeyRing.new_key() makes one")
    keys = []
    for number, part in enumerate(parts, 1):
        try:
            keys.append(base64.b64decode(part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4), b"-_", validate=True))
        except (binascii.Error, ValueError):
            raise KeyRingError(f"{source}: key {number} is not base64url") from None
        if len(keys[-1]) >= MIN_KEY_BYTES and (why := _not_random(part.encode())):
            raise KeyRingError(f"{source}: key {number} {why}; KeyRing.new_key() makes a random one")
    return keys


def _not_random(key: bytes) -> str | None:
    """Why these bytes, or the text that encodes them, are obviously not random; None where they may be."""
    letters = bytes(byte for byte in key.lower() if byte in _LETTERS)
    steps = Counter((after - before) % 256 for before, after in pairwise(key))
    if len(set(key)) < FEWEST_BYTES:
        return "has too few different bytes"
    if len({key[start : start + 3] for start in range(len(key) - 2)}) < FEWEST_TRIPLES:
        return "repeats itself"
    if steps.total() - max(steps.values()) < FEWEST_TURNS:
        return "only counts up or down"
    if any(word in letters for word in PLACEHOLDERS):
        return "is a placeholder"
    return None
