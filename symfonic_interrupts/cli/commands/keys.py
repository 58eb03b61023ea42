"""`keys new`, `keys rotate` and `keys check`.

`new` prints a key, and so does `rotate` if the keys are in a variable, because the keys are its result. No other command prints
one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import Unsound, Usage, with_exit_code
from symfonic_interrupts.cli.key_files import key_ring, key_texts, replace_key_file
from symfonic_interrupts.cli.options import KEYS, RETIRED_KEYS, AsJson, KeysFile, RetiredKeysFile, Store
from symfonic_interrupts.cli.stores import open_store
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


@with_exit_code
def new() -> None:
    """Print a new key, for a secret store, a variable or a file."""
    output.line(KeyRing.new_key())


@with_exit_code
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
    active_text, retired_text = key_texts(keys_file, retired_keys_file, may_be_new=True)
    active, retired = after_step(step, _split(active_text), _split(retired_text))
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
            replace_key_file(retired_keys_file, retired)  # first, so that every key is always in one of the files
        replace_key_file(keys_file, active)
        if as_json:
            output.document({"signing": ring.signing_kid, "kids": list(ring.kids)})
        else:
            output.fields([("signs", ring.signing_kid), ("kids", " ".join(ring.kids))])
    output.say(f"next: {NEXT[step]}")


@with_exit_code
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
    keys = [{"kid": kid, "role": role_of(kid, ring), "in_use": count} for kid, count in in_use.items()]
    if as_json:
        output.document(keys)
    else:
        output.rows(["kid", "role", "in use"], [list(key.values()) for key in keys])
    missing = sum(key["role"] == "missing" for key in keys)
    if missing:
        output.say(
            f"not in the ring, but needed: {missing} of the keys; their pauses can neither be answered nor delivered"
            " until they are back"
        )
        raise Unsound


def role_of(kid: str, ring: KeyRing) -> str:
    """What the key with this id does in the ring: `signs`, `verifies` or `retired`; or it is `missing`."""
    if kid == ring.signing_kid:
        return "signs"
    if ring.derived(kid, "pause-token") is not None:
        return "verifies"
    return "retired" if kid in ring.kids else "missing"


def after_step(step: Step, active: list[str], retired: list[str]) -> tuple[list[str], list[str]]:
    """The active keys and the retired keys after a step of the rotation.

    Raises:
        Usage: the step needs more active keys.
    """
    if step is Step.ADD:
        return [*active, KeyRing.new_key()], retired
    if len(active) < 2:
        raise Usage(f"`keys rotate {step}` needs two keys or more; begin with `keys rotate add`")
    if step is Step.SIGN:
        return [active[-1], *active[:-1]], retired
    return active[:1], [*active[1:], *retired]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
