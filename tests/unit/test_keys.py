"""The signing keys: which one signs, which ones verify what, and that no key is ever told."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import symfonic_interrupts
from symfonic_interrupts import KeyRing, KeyRingError, TokenInvalid
from symfonic_interrupts.tokens.receipt import Receipt
from tests.unit.by_hand import CONTENT, KEY, KID, OLDER_KEY, OLDER_KID, RECEIPT, TOKEN, key_text, verify

KEY_TEXT = "YSB0ZXN0IGtleSBvZiB0aGlydHktdHdvIGJ5dGVzLi4"
OLDER_TEXT = "YW4gb2xkZXIga2V5IG9mIHRoaXJ0eS10d28gYnl0ZS4"


# -- what a ring is made of


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        pytest.param([], "^keys must be a list of one or more keys", id="empty"),
        pytest.param((), "^keys must be a list of one or more keys", id="empty tuple"),
        pytest.param(KEY, "^keys must be a list of one or more keys", id="a key itself"),
        pytest.param(KEY_TEXT, "^keys must be a list of one or more keys", id="text"),
        pytest.param(None, "^keys must be a list of one or more keys", id="None"),
        pytest.param(
            [KEY_TEXT],
            r"^keys\[0\] must be bytes, not str; text is for KeyRing.from_text or from_env$",
            id="text in a list",
        ),
        pytest.param([KEY, None], r"^keys\[1\] must be bytes, not NoneType$", id="None in a list"),
        pytest.param([KEY[:31]], r"^keys\[0\] has 31 bytes; at least 32 are needed$", id="short"),
        pytest.param([KEY, b""], r"^keys\[1\] has 0 bytes; at least 32 are needed$", id="empty key"),
        pytest.param([KEY, KEY], r"^keys\[1\] is in the ring already$", id="twice"),
    ],
)
def test_keys_that_cannot_sign_are_refused_by_place(keys: Any, why: str) -> None:
    with pytest.raises(KeyRingError, match=why):
        KeyRing(keys)


NO_KEYS = {
    "zeros": (bytes(32), "has too few different bytes"),
    "one byte": (b"k" * 64, "has too few different bytes"),
    "zeros but for one": (bytes(31) + b"\x01", "has too few different bytes"),
    "ones and zeros": (b"01101001100101101001011001101001", "has too few different bytes"),
    "a short pattern": (b"deadbeef" * 4, "has too few different bytes"),
    "a longer pattern": (bytes.fromhex("9d3bc0a41f8b7e62d59011aa") * 3, "repeats itself"),
    "a word and its number": (b"secret1secret2secret3secret4sec!", "repeats itself"),
    "digits": (b"0123456789" * 4, "repeats itself"),
    "a word and zeros": (b"MySecret1".ljust(32, b"\x00"), "repeats itself"),
    "bytes that count up": (bytes(range(32)), "only counts up or down"),
    "bytes that count down": (bytes(range(255, 191, -2)), "only counts up or down"),
    "the alphabet": (b"abcdefghijklmnopqrstuvwxyz012345", "only counts up or down"),
    "a placeholder": (b"Please-Change-Me-before-you-ship", "is a placeholder"),
    "a password": (b"this is the PASSWORD of the shop", "is a placeholder"),
}


@pytest.mark.parametrize(("key", "why"), NO_KEYS.values(), ids=NO_KEYS)
def test_what_nobody_drew_at_random_is_refused_wherever_keys_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bytes, why: str
) -> None:
    text = base64.urlsafe_b64encode(key).decode()
    monkeypatch.setenv("SOME_KEYS", text)
    file = key_file(tmp_path / "keys", text=text)
    ways: dict[str, Any] = {
        r"keys\[0\]": lambda: KeyRing([key]),
        r"retired\[0\]": lambda: KeyRing([KEY], retired=[bytearray(key)]),
        r"(keys\[0\]|keys: key 1)": lambda: KeyRing.from_text(text),
        r"(keys\[0\]|SOME_KEYS: key 1)": lambda: KeyRing.from_env("SOME_KEYS"),
        r"(keys\[0\]|key file keys: key 1)": lambda: KeyRing.from_file(file),
    }
    for place, make in ways.items():
        with pytest.raises(KeyRingError, match=rf"^{place} \w.*; KeyRing.new_key\(\) makes a random one$") as refused:
            make()
        assert text not in str(refused.value)
    with pytest.raises(KeyRingError, match=why):
        KeyRing([key])
    with pytest.raises(KeyRingError):
        KeyRing.create_file(file)


@pytest.mark.parametrize("text", ["changeme-" * 5, "please-change-me-before-you-ship-this-thing_1", "abcdefgh" * 6])
def test_a_text_that_only_happens_to_be_base64_is_refused(text: str) -> None:
    with pytest.raises(KeyRingError, match=r"^(keys: key 1|keys\[0\]) \w.*KeyRing.new_key"):
        KeyRing.from_text(text[: len(text) // 4 * 4])


@pytest.mark.parametrize("make", [lambda: os.urandom(32), lambda: os.urandom(16).hex().encode()], ids=["bytes", "hex"])
def test_a_random_key_is_taken(make: Any) -> None:
    for _ in range(1000):
        key = make()
        assert KeyRing([key]).kids == KeyRing.from_text(key_text(key)).kids


@pytest.mark.parametrize(
    ("retired", "why"),
    [
        pytest.param([KEY], r"^retired\[0\] is in the ring already$", id="active and retired"),
        pytest.param([OLDER_KEY, OLDER_KEY], r"^retired\[1\] is in the ring already$", id="twice"),
        pytest.param([OLDER_KEY[:31]], r"^retired\[0\] has 31 bytes", id="short"),
        pytest.param([OLDER_TEXT], r"^retired\[0\] must be bytes", id="text"),
        pytest.param(OLDER_KEY, r"^retired", id="a key itself"),
        pytest.param(None, r"^retired", id="None"),
    ],
)
def test_retired_keys_are_checked_as_well(retired: Any, why: str) -> None:
    with pytest.raises(KeyRingError, match=why):
        KeyRing([KEY], retired=retired)


def test_a_ring_cannot_be_made_without_keys() -> None:
    with pytest.raises(TypeError):
        KeyRing()  # type: ignore[call-arg]


def test_a_key_has_this_id_in_every_process() -> None:
    ring = KeyRing([KEY], retired=[OLDER_KEY])

    assert ring.signing_kid == "ea3f09b6bcf4a216"
    assert ring.kids == ("ea3f09b6bcf4a216", "3c846e5e02f1b6e6")
    assert ring.kids == (KID, OLDER_KID)


def test_the_first_key_signs() -> None:
    assert KeyRing([OLDER_KEY, KEY]).signing_kid == OLDER_KID
    assert KeyRing([OLDER_KEY, KEY]).kids == (OLDER_KID, KID)


@pytest.mark.parametrize(
    ("kid", "purpose", "mac"),
    [
        (KID, "pause-token", "f67335d7fb069023ad799aa4a4a4629de86eb9ec744c22dc5e0d7ddec9967c51"),
        (KID, "receipt", "a10f19b97da354eab7b26a1d370a16c44b865af28679112267b279149ac74a71"),
        (KID, "pause-row", "446388776f0cdb5474b35db2ce73d8aaff6969217593e7d48e5350b712e1691e"),
        (OLDER_KID, "receipt", "43cadd00ef8be6d26093d5b8fafd4ff2d5748d4a8ce1088a947fe5f7ef1eb2ae"),
        (OLDER_KID, "pause-row", "f649af5a424180b1cbda3e87b696c7fc0573cf9fc80974a70d3e0b7a9538e50d"),
    ],
)
def test_each_purpose_has_a_key_of_its_own(kid: str, purpose: Any, mac: str) -> None:
    ring = KeyRing([KEY], retired=[OLDER_KEY])

    assert ring.mac(purpose, "hello", kid) == mac
    assert ring.mac_fits(purpose, "hello", kid, mac)
    for other in {"pause-token", "receipt", "pause-row"} - {purpose}:
        assert not ring.mac_fits(other, "hello", kid, mac)  # type: ignore[arg-type]


def test_without_a_name_the_signing_key_is_used() -> None:
    ring = KeyRing([KEY, OLDER_KEY])

    assert ring.mac("receipt", "hello") == "a10f19b97da354eab7b26a1d370a16c44b865af28679112267b279149ac74a71"


MAC = "a10f19b97da354eab7b26a1d370a16c44b865af28679112267b279149ac74a71"


@pytest.mark.parametrize(
    ("message", "kid", "mac"),
    [
        pytest.param("hellp", KID, MAC, id="another message"),
        pytest.param("", KID, MAC, id="no message"),
        pytest.param("hello", OLDER_KID, MAC, id="another key"),
        pytest.param("hello", "0" * 16, MAC, id="unknown key"),
        pytest.param("hello", "", MAC, id="no key"),
        pytest.param("hello", None, MAC, id="key is None"),
        pytest.param("hello", [KID], MAC, id="key is a list"),
        pytest.param("hello", KID, MAC.upper(), id="capitals"),
        pytest.param("hello", KID, MAC[:-1], id="cut"),
        pytest.param("hello", KID, "", id="no mac"),
        pytest.param("hello", KID, MAC + "\u00e9", id="not ASCII"),
        pytest.param("hello", KID, None, id="mac is None"),
        pytest.param("hello", KID, MAC.encode(), id="mac is bytes"),
        pytest.param("hello", KID, 5, id="mac is a number"),
    ],
)
def test_anything_but_the_right_mac_does_not_fit(message: str, kid: Any, mac: Any) -> None:
    assert KeyRing([KEY, OLDER_KEY]).mac_fits("receipt", message, kid, mac) is False


def test_signing_with_a_key_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyRingError, match=r"^key 0{16} is not in the ring for receipt$"):
        KeyRing([KEY]).mac("receipt", "hello", "0" * 16)


# -- rotation


def test_a_token_signed_with_any_active_key_verifies() -> None:
    older = CONTENT.mint(KeyRing([OLDER_KEY]))

    assert verify(older, KeyRing([KEY, OLDER_KEY])) == CONTENT
    assert verify(TOKEN, KeyRing([OLDER_KEY, KEY])) == CONTENT


def test_a_retired_key_verifies_no_token() -> None:
    with pytest.raises(TokenInvalid, match="a key that is not in use"):
        verify(TOKEN, KeyRing([OLDER_KEY], retired=[KEY]))
    assert KeyRing([OLDER_KEY], retired=[KEY]).derived(KID, "pause-token") is None


def test_a_retired_key_still_verifies_receipts_and_row_macs() -> None:
    before, after = KeyRing([KEY]), KeyRing([OLDER_KEY], retired=[KEY])

    assert Receipt.unseal(RECEIPT.seal(before), after) == RECEIPT
    assert after.mac_fits("pause-row", "row", KID, before.mac("pause-row", "row"))


def test_a_key_that_is_gone_verifies_nothing() -> None:
    before, after = KeyRing([KEY]), KeyRing([OLDER_KEY])

    with pytest.raises(TokenInvalid):
        verify(TOKEN, after)
    assert not after.mac_fits("pause-row", "row", KID, before.mac("pause-row", "row"))


def test_a_new_key_signs_from_now_on() -> None:
    ring = KeyRing([OLDER_KEY, KEY])

    assert RECEIPT.seal(ring)["kid"] == OLDER_KID
    assert CONTENT.mint(ring) != TOKEN
    assert CONTENT.mint(ring, kid=KID) == TOKEN


# -- secrecy


def forms(key: bytes) -> list[str]:
    padded = base64.urlsafe_b64encode(key).decode()
    return [key.decode(), key.hex(), padded, padded.rstrip("="), base64.b64encode(key).decode()]


def test_a_ring_does_not_show_its_keys() -> None:
    ring = KeyRing([KEY], retired=[OLDER_KEY])

    assert repr(ring) == "KeyRing(active=1, retired=1, signing_kid='ea3f09b6bcf4a216')"
    assert str(ring) == repr(ring)


def test_no_error_contains_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = b"a short key, also secret"
    file = tmp_path / "keys"

    def from_file(text: bytes, mode: int = 0o600) -> KeyRing:
        file.unlink(missing_ok=True)
        file.write_bytes(text)
        file.chmod(mode)
        return KeyRing.from_file(file)

    def from_env(text: str) -> KeyRing:
        monkeypatch.setenv("SOME_KEYS", text)
        return KeyRing.from_env("SOME_KEYS")

    calls: list[Any] = [
        lambda: KeyRing([short]),
        lambda: KeyRing([KEY, KEY]),
        lambda: KeyRing(KEY),  # type: ignore[arg-type]
        lambda: KeyRing([KEY.decode()]),  # type: ignore[list-item]
        lambda: KeyRing([KEY], retired=[KEY]),
        lambda: KeyRing.from_text(key_text(short)),
        lambda: KeyRing.from_text(KEY.decode()),
        lambda: KeyRing.from_text(KEY_TEXT + "é"),
        lambda: KeyRing.from_text(f"{KEY_TEXT},{KEY_TEXT}"),
        lambda: from_env(KEY.decode()),
        lambda: from_file(KEY_TEXT.encode(), 0o644),
        lambda: from_file(KEY),
        lambda: from_file(KEY_TEXT.encode() + "é".encode()),
    ]
    for call in calls:
        with pytest.raises(KeyRingError) as refused:
            call()
        for secret in (*forms(KEY), *forms(short)):
            assert secret not in str(refused.value)
            assert secret not in repr(refused.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_ring_is_not_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="a KeyRing is not pickled"):
        pickle.dumps(KeyRing([KEY]), protocol)


def test_a_ring_is_not_copied() -> None:
    with pytest.raises(TypeError, match="a KeyRing is not pickled"):
        copy.deepcopy({"keys": KeyRing([KEY])})


# -- where keys come from


def test_a_generated_key_is_new_and_has_32_bytes() -> None:
    one, other = KeyRing.new_key(), KeyRing.new_key()

    assert one != other
    assert len(one) == 43
    assert len(base64.urlsafe_b64decode(one + "=")) == 32
    assert KeyRing.from_text(one).signing_kid != KeyRing.from_text(other).signing_kid


def test_the_former_name_of_new_key_makes_keys_too() -> None:
    assert len(KeyRing.from_text(f"{KeyRing.generate()},{KeyRing.generate()}").kids) == 2


@pytest.mark.parametrize(
    "text",
    [
        KEY_TEXT,
        KEY_TEXT + "=",
        f"  {KEY_TEXT}\n",
        f"{KEY_TEXT},",
        f"\n\n{KEY_TEXT}\r\n",
    ],
)
def test_a_key_is_read_from_text(text: str) -> None:
    assert KeyRing.from_text(text).kids == (KID,)


@pytest.mark.parametrize(
    "text", [f"{KEY_TEXT},{OLDER_TEXT}", f"{KEY_TEXT}\n{OLDER_TEXT}\n", f"{KEY_TEXT} , {OLDER_TEXT}"]
)
def test_several_keys_are_read_newest_first(text: str) -> None:
    assert KeyRing.from_text(text).kids == (KID, OLDER_KID)


def test_the_alphabet_is_that_of_urls() -> None:
    key = b"\xfb\xff\xbf" * 4 + KEY[:20]
    assert {"-", "_"} <= set(base64.urlsafe_b64encode(key).decode())

    assert KeyRing.from_text(base64.urlsafe_b64encode(key).decode()).signing_kid == KeyRing([key]).signing_kid


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEYS", KEY_TEXT)
    monkeypatch.setenv("SOME_RETIRED", OLDER_TEXT)

    ring = KeyRing.from_env("SOME_KEYS", retired="SOME_RETIRED")

    assert ring.kids == (KID, OLDER_KID)
    assert repr(ring) == "KeyRing(active=1, retired=1, signing_kid='ea3f09b6bcf4a216')"


@pytest.mark.parametrize("value", [None, "", "  ", "\n"])
def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("SOME_KEYS", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_KEYS", value)

    with pytest.raises(KeyRingError, match=r"^SOME_KEYS is not set"):
        KeyRing.from_env("SOME_KEYS")


@pytest.mark.parametrize("value", [None, "", " , "])
def test_a_variable_for_retired_keys_may_be_unset_or_empty_before_the_first_rotation(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("SOME_KEYS", KEY_TEXT)
    monkeypatch.delenv("SOME_RETIRED", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_RETIRED", value)

    assert len(KeyRing.from_env("SOME_KEYS", retired="SOME_RETIRED").kids) == 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (",", "^SOME_KEYS holds no key"),
        (" , ,\n", "^SOME_KEYS holds no key"),
        ("not a key at all!", "^SOME_KEYS: key 1 is not base64url$"),
        (f"{KEY_TEXT},???", "^SOME_KEYS: key 2 is not base64url$"),
        (f"{KEY_TEXT},é", "^SOME_KEYS: key 2 is not base64url$"),
        (KEY_TEXT[:-2], "^SOME_KEYS: key 1 is not base64url$"),
        ("AAAA", r"^keys\[0\] has 3 bytes; at least 32 are needed$"),
    ],
)
def test_a_variable_without_usable_keys_is_refused(monkeypatch: pytest.MonkeyPatch, value: str, why: str) -> None:
    monkeypatch.setenv("SOME_KEYS", value)

    with pytest.raises(KeyRingError, match=why):
        KeyRing.from_env("SOME_KEYS")


def key_file(path: Path, mode: int = 0o600, text: str = f"{KEY_TEXT}\n{OLDER_TEXT}\n") -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_that_only_its_owner_may_read_is_read(tmp_path: Path, mode: int) -> None:
    assert KeyRing.from_file(key_file(tmp_path / "keys", mode)).kids == (KID, OLDER_KID)
    assert KeyRing.from_file(str(tmp_path / "keys")).kids == (KID, OLDER_KID)


@pytest.mark.skipif(os.name != "posix", reason="POSIX modes")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o620, 0o602, 0o610, 0o601, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(KeyRingError, match=rf"^key file keys can be read by others \(mode {mode:04o}\); chmod 600 it$"):
        KeyRing.from_file(key_file(tmp_path / "keys", mode))


@pytest.mark.skipif(os.name != "posix", reason="POSIX modes")
def test_the_mode_that_counts_is_that_of_the_file_behind_a_link(tmp_path: Path) -> None:
    key_file(tmp_path / "keys", 0o644)
    (tmp_path / "link").symlink_to(tmp_path / "keys")

    with pytest.raises(KeyRingError, match="can be read by others"):
        KeyRing.from_file(tmp_path / "link")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a file away, or read it then")
def test_a_file_of_somebody_else_is_refused_as_root_as_well(tmp_path: Path) -> None:
    os.chown(key_file(tmp_path / "keys"), 1234, 1234)
    (tmp_path / "link").symlink_to(tmp_path / "keys")

    for name in ("keys", "link"):
        with pytest.raises(
            KeyRingError, match=rf"^key file {name} belongs to user 1234, and this process is user 0; run it"
        ):
            KeyRing.from_file(tmp_path / name)
    with pytest.raises(KeyRingError, match="belongs to user 1234"):
        KeyRing.create_file(tmp_path / "keys")


def test_a_file_that_is_missing_or_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyRingError, match=r"^key file absent: FileNotFoundError"):
        KeyRing.from_file(tmp_path / "absent")
    with pytest.raises(KeyRingError, match=r"^key file .*: (IsADirectory|Permission)Error"):
        KeyRing.from_file(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "holds no key"), ("\n\n", "holds no key"), ("???", "key 1 is not base64url"), ("é", "Unicode")],
)
def test_a_file_without_usable_keys_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(KeyRingError, match=rf"^key file keys.*{why}"):
        KeyRing.from_file(key_file(tmp_path / "keys", text=text))


def test_a_file_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    first = KeyRing.create_file(tmp_path / "keys")
    again = KeyRing.create_file(tmp_path / "keys")

    assert first.kids == again.kids == KeyRing.from_file(tmp_path / "keys").kids
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600


def test_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    key_file(tmp_path / "keys")

    assert KeyRing.create_file(tmp_path / "keys").kids == (KID, OLDER_KID)
    assert (tmp_path / "keys").read_text() == f"{KEY_TEXT}\n{OLDER_TEXT}\n"


@pytest.mark.parametrize("text", ["", "???"])
def test_a_file_that_is_there_and_holds_no_key_is_not_replaced(tmp_path: Path, text: str) -> None:
    key_file(tmp_path / "keys", text=text)

    with pytest.raises(KeyRingError, match="key file keys"):
        KeyRing.create_file(tmp_path / "keys")
    assert (tmp_path / "keys").read_text() == text


def test_a_file_where_none_can_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyRingError, match=r"^key file keys cannot be made: its directory does not exist$"):
        KeyRing.create_file(tmp_path / "absent" / "keys")


# The package's own __init__ (LangGraph and all) takes seconds to import; the keys need none of it.
MAKE_A_KEY_FILE = """
import sys, types
package = types.ModuleType("symfonic_interrupts")
package.__path__ = [sys.argv[1]]
sys.modules["symfonic_interrupts"] = package
from symfonic_interrupts.tokens.keys import KeyRing
print("ready", flush=True)
for path in sys.stdin:
    print(KeyRing.create_file(path.strip()).signing_kid, flush=True)
"""


def test_eight_processes_at_once_all_get_the_same_key(tmp_path: Path) -> None:
    package = str(Path(symfonic_interrupts.__file__).parent)
    command = [sys.executable, "-c", MAKE_A_KEY_FILE, package]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    workers = [subprocess.Popen(command, **pipes) for _ in range(8)]
    try:
        assert [worker.stdout.readline() for worker in workers if worker.stdout] == ["ready\n"] * 8
        for round_ in range(20):
            for worker in workers:
                assert worker.stdin
                worker.stdin.write(f"{tmp_path / f'keys-{round_}'}\n")
                worker.stdin.flush()
            kids = {worker.stdout.readline().strip() for worker in workers if worker.stdout}
            assert kids == {KeyRing.from_file(tmp_path / f"keys-{round_}").signing_kid}
    finally:
        for worker in workers:
            worker.communicate()
    assert {path.name for path in tmp_path.iterdir()} == {f"keys-{round_}" for round_ in range(20)}
