"""`keys new`, `keys rotate` and `keys check`.

A key is printed by `new`, and by `rotate` where keys live in a variable: there it is the result. No other command shows one.
A key file is replaced whole, mode 0600, so that no reader ever finds half of one.
"""

from __future__ import annotations

import os
import secrets
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.database import open_store
from symfonic_interrupts.cli.ends import Unsound, Usage, ending
from symfonic_interrupts.cli.loading import key_ring, key_texts
from symfonic_interrupts.cli.options import KEYS, RETIRED_KEYS, AsJson, KeysFile, RetiredKeysFile, Store
from symfonic_interrupts.errors import KeyRingError
from symfonic_interrupts.tokens.keys import KeyRing


class Step(StrEnum):
    """The three steps of a rotation."""

    ADD = "add"
    SIGN = "sign"
    RETIRE = "retire"


NEXT = {
    Step.ADD: "give these keys to every process; then `keys rotate sign`",
    Step.SIGN: "give these keys to every process; when the longest time to live has passed, `keys rotate retire`",
    Step.RETIRE: "give both to every process; drop a retired key when `keys check` shows 0 for it",
}


@ending
def new() -> None:
    """Print a new key, for a secret store, a variable or a file."""
    output.line(KeyRing.new_key())


@ending
def rotate(
    step: Annotated[Step, typer.Argument(help="add: a new key, last. sign: it comes first. retire: the others go.")],
    keys_file: KeysFile = None,
    retired_keys_file: RetiredKeysFile = None,
    as_json: AsJson = False,
) -> None:
    """Replace the signing key, in three steps, with a deployment after each.

    `add` appends a new key, which verifies. `sign` puts it first: it signs from then on. `retire` keeps the first key and
    moves the others to the retired ones, which verify stored rows and answers, but no token. With --keys-file the file is
    rewritten, else the new values of the variables are printed.
    """
    active_text, retired_text = key_texts(keys_file, retired_keys_file, made=True)
    active, retired = stepped(step, _parts(active_text), _parts(retired_text))
    ring = KeyRing.from_text(",".join(active), retired=",".join(retired))
    if keys_file is None:
        if as_json:
            output.document({KEYS: ",".join(active), RETIRED_KEYS: ",".join(retired)})
        else:
            output.line(f"{KEYS}={','.join(active)}")
            if retired:
                output.line(f"{RETIRED_KEYS}={','.join(retired)}")
    else:
        if step is Step.RETIRE:
            if retired_keys_file is None:
                raise Usage(
                    "`keys rotate retire` with --keys-file needs --retired-keys-file, for the keys that go there"
                )
            replace_file(retired_keys_file, retired)  # first: no moment in which a key is in neither file
        replace_file(keys_file, active)
        if as_json:
            output.document({"signing": ring.signing_kid, "kids": list(ring.kids)})
        else:
            output.fields([("signs", ring.signing_kid), ("kids", " ".join(ring.kids))])
    output.say(f"next: {NEXT[step]}")


@ending
def check(
    store: Store = None,
    keys_file: KeysFile = None,
    retired_keys_file: RetiredKeysFile = None,
    as_json: AsJson = False,
) -> None:
    """Show by key id how many signatures are still needed, and warn of keys that are missing.

    A key of the ring with 0 may be dropped, unless a graph's state holds an approval that `require` has still to check.
    """
    ring = key_ring(keys_file, retired_keys_file)
    with open_store(store) as interrupts:
        in_use = ring.check(interrupts)
    found = [{"kid": kid, "role": role_of(kid, ring), "in_use": count} for kid, count in in_use.items()]
    if as_json:
        output.document(found)
    else:
        output.rows(["kid", "role", "in use"], [list(row.values()) for row in found])
    missing = [row["kid"] for row in found if row["role"] == "missing"]
    if missing:
        output.say(
            f"not in the ring, but needed: {len(missing)} of the keys; their pauses can neither be answered nor delivered"
            " until they are back"
        )
        raise Unsound


def role_of(kid: str, ring: KeyRing) -> str:
    """What a key of that id does in the ring."""
    if kid == ring.signing_kid:
        return "signs"
    if ring.derived(kid, "pause-token") is not None:
        return "verifies"
    return "retired" if kid in ring.kids else "missing"


def stepped(step: Step, active: list[str], retired: list[str]) -> tuple[list[str], list[str]]:
    """The keys after a step of the rotation: the active ones, the retired ones.

    Raises:
        Usage: the ring is not where this step begins.
    """
    if step is Step.ADD:
        return [*active, KeyRing.new_key()], retired
    if len(active) < 2:
        raise Usage(f"`keys rotate {step}` needs two keys or more; begin with `keys rotate add`")
    if step is Step.SIGN:
        return [active[-1], *active[:-1]], retired
    return active[:1], [*active[1:], *retired]


def replace_file(path: Path, keys: list[str]) -> None:
    """Write a key file whole, or leave it as it was.

    Raises:
        KeyRingError: it cannot be written.
    """
    file = path.resolve()  # what a link points to, not the link
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


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
