"""The keys that `--keys-file` and `--retired-keys-file` name, or else the environment variables."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from symfonic_interrupts.cli.exits import Usage
from symfonic_interrupts.cli.options import KEYS, RETIRED_KEYS
from symfonic_interrupts.errors import KeyRingError
from symfonic_interrupts.tokens.keys import KeyRing, read_key_file


def key_ring(keys_file: Path | None, retired_keys_file: Path | None) -> KeyRing:
    """The ring from the files, or else from the variables.

    Raises:
        KeyRingError: there are no keys, or they cannot be used.
    """
    active, retired = key_texts(keys_file, retired_keys_file)
    source = f"key file {keys_file.name}" if keys_file else KEYS
    return KeyRing.from_text(active, retired=retired, source=source)


def key_texts(keys_file: Path | None, retired_keys_file: Path | None, *, may_be_new: bool = False) -> tuple[str, str]:
    """The texts of the active keys and of the retired keys. Files are checked as `KeyRing.from_file` checks them.

    Args:
        may_be_new: the file of retired keys need not exist yet.
    """
    if keys_file is None and retired_keys_file is not None:
        raise Usage(f"--retired-keys-file goes with --keys-file; beside {KEYS} stands {RETIRED_KEYS}")
    if keys_file is None:
        KeyRing.from_env(KEYS)
        active = os.environ[KEYS]
    else:
        active = read_key_file(keys_file)
        KeyRing.from_text(active, source=f"key file {keys_file.name}")
    if retired_keys_file is None:
        return active, os.environ.get(RETIRED_KEYS, "") if keys_file is None else ""
    if may_be_new and not retired_keys_file.exists():
        return active, ""
    retired = read_key_file(retired_keys_file)
    KeyRing.from_text(retired, source=f"key file {retired_keys_file.name}")
    return active, retired


def replace_key_file(path: Path, keys: list[str]) -> None:
    """Replace a key file, mode 0600, in one step: a reader sees the old file or the new one, never a part.

    Raises:
        KeyRingError: it cannot be written; the old file is unchanged.
    """
    file = path.resolve()  # a symbolic link stays; the file that it points to is replaced
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                stream.write("\n".join(keys) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise KeyRingError(f"key file {path.name} cannot be written: {type(error).__name__}") from None
