"""The pause token: exactly the bytes that were given out are accepted, and nothing else."""

from __future__ import annotations

import base64
import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import jwt
import pytest

from symfonic_interrupts import (
    FrameworkConfig,
    FrameworkTenantScope,
    InterruptError,
    KeyRing,
    PauseToken,
    TokenExpired,
    TokenInvalid,
)
from tests.unit.by_hand import (
    AUDIENCE,
    BEFORE_EXPIRY,
    CLAIMS,
    CONTENT,
    EXPIRES_AT,
    HEADER,
    ISSUED_AT,
    ISSUER,
    KEY,
    KID,
    OLDER_KEY,
    OLDER_KID,
    OLDER_TOKEN_KEY,
    RECEIPT,
    RECEIPT_KEY,
    TOKEN,
    TOKEN_KEY,
    at,
    base64url,
    compact,
    forge,
    verify,
)

HEAD, BODY, SIGNATURE = TOKEN.split(".")
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)


def assert_refused(token: object, why: str = "", **changed: Any) -> None:
    with pytest.raises(TokenInvalid, match=why or None) as refused:
        verify(token, **changed)
    assert refused.value.code == "token_invalid"
    for part in str(token).split("."):
        assert len(part) < 20 or part not in str(refused.value)


def without(claim: str) -> dict[str, Any]:
    return {name: value for name, value in CLAIMS.items() if name != claim}


# -- what is given out


def test_these_claims_and_this_key_have_this_token() -> None:
    assert CONTENT.mint(KeyRing([KEY])) == TOKEN
    assert forge() == TOKEN


def test_this_token_has_these_claims() -> None:
    assert verify(TOKEN) == CONTENT


def test_a_token_is_a_jwt_with_no_more_than_this_in_it() -> None:
    assert jwt.get_unverified_header(TOKEN) == {"alg": "HS256", "kid": "ea3f09b6bcf4a216", "typ": "pause+jwt"}
    assert jwt.decode(TOKEN, TOKEN_KEY, ["HS256"], {"verify_exp": False}, audience=AUDIENCE, issuer=ISSUER) == CLAIMS


def test_minting_again_gives_the_same_token() -> None:
    assert CONTENT.mint(KeyRing([KEY])) == CONTENT.mint(KeyRing([KEY, OLDER_KEY])) == TOKEN


def test_a_token_is_minted_with_the_key_that_is_named() -> None:
    token = CONTENT.mint(KeyRing([KEY, OLDER_KEY]), kid=OLDER_KID)

    assert token == forge(header={**HEADER, "kid": OLDER_KID}, key=OLDER_TOKEN_KEY)
    assert verify(token, KeyRing([KEY, OLDER_KEY])) == CONTENT


def test_the_longest_token_is_shorter_than_800_characters() -> None:
    config = FrameworkConfig()
    longest = PauseToken(
        issuer=config.issuer,
        audience=f"{config.audience}/{'g' * 64}",
        issued_at=9_999_999_999,
        expires_at=9_999_999_999,
        jti="f" * 32,
        name="n" * 64,
        interrupt_id="i-" + "f" * 12,
        scope_hash="s" * 43,
        request_hash="r" * 43,
        checkpoint_hash="c" * 43,
    )

    assert len(longest.mint(KeyRing([KEY]))) < 800


def test_a_token_says_nothing_of_thread_tenant_or_payload() -> None:
    assert {field.name for field in dataclasses.fields(PauseToken)} == {
        "issuer",
        "audience",
        "issued_at",
        "expires_at",
        "jti",
        "name",
        "interrupt_id",
        "scope_hash",
        "request_hash",
        "checkpoint_hash",
    }


def test_the_hashes_in_a_token_are_these() -> None:
    assert PauseToken.hash_scope(FrameworkTenantScope("acme")) == "Csdxzwbb07YK8wLMbcAE4oa7A8W-OXjnV2CuwTemTE4"
    assert PauseToken.hash_payload({"order": "A1", "amount": 90}) == "0vkH5LLnLe4cXYilC8eXMoc8KFQJriQcCUtBxCJvl9g"
    assert PauseToken.hash_payload_text('{"amount":90,"order":"A1"}') == "0vkH5LLnLe4cXYilC8eXMoc8KFQJriQcCUtBxCJvl9g"
    assert PauseToken.hash_checkpoint("t1", "", "c1", "k1") == "0a5SJ3JcChwGWX-GpA5J6eGlOcGlXF1Bklt9T0uW_AM"


def test_places_that_would_be_equal_when_joined_have_different_hashes() -> None:
    places = [("t1", "", "c1", "k1"), ("t1", "c1", "", "k1"), ("t", "1", "c1", "k1"), ("t1", "", "c1k", "1")]

    assert len({PauseToken.hash_checkpoint(*place) for place in places}) == len(places)


# -- time


@pytest.mark.parametrize("skew", [timedelta(0), timedelta(seconds=60)])
def test_a_token_is_accepted_until_its_end_and_the_skew(skew: timedelta) -> None:
    assert verify(TOKEN, now=at(EXPIRES_AT) + skew - MICROSECOND, clock_skew=skew) == CONTENT


@pytest.mark.parametrize("skew", [timedelta(0), timedelta(seconds=60)])
@pytest.mark.parametrize("late", [timedelta(0), MICROSECOND, timedelta(days=3650)])
def test_a_token_is_expired_from_its_end_and_the_skew_on(skew: timedelta, late: timedelta) -> None:
    with pytest.raises(TokenExpired) as refused:
        verify(TOKEN, now=at(EXPIRES_AT) + skew + late, clock_skew=skew)

    assert refused.value.expired_at == datetime(2023, 11, 14, 23, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize("skew", [timedelta(0), timedelta(seconds=60)])
def test_a_token_from_the_future_is_refused_but_for_the_skew(skew: timedelta) -> None:
    assert verify(TOKEN, now=at(ISSUED_AT) - skew, clock_skew=skew) == CONTENT
    assert_refused(TOKEN, "issued in the future", now=at(ISSUED_AT) - skew - MICROSECOND, clock_skew=skew)


def test_without_a_skew_given_there_is_none() -> None:
    with pytest.raises(TokenExpired):
        verify(TOKEN, now=at(EXPIRES_AT))
    assert_refused(TOKEN, "issued in the future", now=at(ISSUED_AT) - SECOND)


def test_the_zone_of_the_clock_does_not_matter() -> None:
    east = timezone(timedelta(hours=9))

    assert verify(TOKEN, now=(at(EXPIRES_AT) - SECOND).astimezone(east)) == CONTENT
    with pytest.raises(TokenExpired):
        verify(TOKEN, now=at(EXPIRES_AT).astimezone(east))


def test_the_machines_own_time_does_not_matter() -> None:
    token = forge({**CLAIMS, "iat": 4_000_000_000, "exp": 4_000_003_600})

    assert verify(token, now=at(4_000_000_010)).issued_at == 4_000_000_000


def test_a_forged_token_that_is_expired_is_forged() -> None:
    assert_refused(forge({**CLAIMS, "exp": 1}, key=KEY), now=at(EXPIRES_AT + 1))


def test_an_expired_token_for_another_graph_is_for_another_graph() -> None:
    assert_refused(TOKEN, "another audience", audience="symfonic-interrupts/other", now=at(EXPIRES_AT + 1))


# -- for whom


@pytest.mark.parametrize(
    "audience", ["symfonic-interrupts/other", "symfonic-interrupts", "default", "", AUDIENCE + "/"]
)
def test_a_token_for_another_audience_is_refused(audience: str) -> None:
    assert_refused(TOKEN, "for another audience or graph", audience=audience)


@pytest.mark.parametrize("issuer", ["other", "", "symfonic-interrupt", ISSUER + " "])
def test_a_token_of_another_issuer_is_refused(issuer: str) -> None:
    assert_refused(TOKEN, issuer=issuer)


# -- signatures and headers


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(KEY, id="the key before it is derived"),
        pytest.param(RECEIPT_KEY, id="the receipt key"),
        pytest.param(OLDER_TOKEN_KEY, id="another key"),
        pytest.param(OLDER_KEY, id="another key before it is derived"),
        pytest.param(b"", id="no key"),
        pytest.param(b"\x00" * 32, id="zeros"),
        pytest.param(KID.encode(), id="the key's id"),
        pytest.param(TOKEN_KEY.hex().encode(), id="the key as hex"),
    ],
)
def test_a_token_signed_with_another_key_is_refused(key: bytes) -> None:
    assert_refused(forge(key=key), "not valid")


@pytest.mark.parametrize("kid", [OLDER_KID, "0" * 16, "", KID.upper(), KID + " ", "../" + KID])
def test_a_token_with_the_id_of_another_key_is_refused(kid: str) -> None:
    assert_refused(forge(header={**HEADER, "kid": kid}), "not in use")


def test_a_token_with_the_id_of_another_active_key_is_refused() -> None:
    with pytest.raises(TokenInvalid):
        verify(forge(header={**HEADER, "kid": OLDER_KID}), KeyRing([KEY, OLDER_KEY]))


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", "HS384", "HS512", "RS256", "ES256", "hs256", "HS256 "])
def test_a_token_that_names_another_algorithm_is_refused(alg: str) -> None:
    assert_refused(forge(header={**HEADER, "alg": alg}), "not a pause token")
    assert_refused(f"{base64url(compact({**HEADER, 'alg': alg}))}.{BODY}.", "not a pause token")
    assert_refused(f"{base64url(compact({**HEADER, 'alg': alg}))}.{BODY}", "not valid|not a pause token")


@pytest.mark.parametrize(("alg", "digest"), [("HS384", "sha384"), ("HS512", "sha512")])
def test_a_token_rightly_signed_with_another_algorithm_and_the_same_key_is_refused(alg: str, digest: str) -> None:
    assert_refused(forge(header={**HEADER, "alg": alg}, digest=digest), "not a pause token")
    assert_refused(forge(digest=digest), "not valid")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"typ": "JWT"}, id="typ JWT"),
        pytest.param({"typ": "PAUSE+JWT"}, id="typ in capitals"),
        pytest.param({"typ": "application/pause+jwt"}, id="typ in full"),
        pytest.param({"typ": None}, id="typ None"),
        pytest.param({"typ": ["pause+jwt"]}, id="typ as a list"),
        pytest.param({"alg": None}, id="alg None"),
        pytest.param({"alg": ["HS256"]}, id="alg as a list"),
        pytest.param({"alg": {"HS256": 1}}, id="alg as an object"),
        pytest.param({"kid": None}, id="kid None"),
        pytest.param({"kid": 5}, id="kid as a number"),
        pytest.param({"kid": [KID]}, id="kid as a list"),
        pytest.param({"kid": {KID: 1}}, id="kid as an object"),
        pytest.param({"crit": ["exp"]}, id="crit"),
        pytest.param({"crit": []}, id="empty crit"),
        pytest.param({"crit": ["b64"], "b64": True}, id="crit b64"),
        pytest.param({"b64": True}, id="b64 true"),
        pytest.param({"b64": False}, id="b64 false"),
        pytest.param({"crit": ["b64"], "b64": False}, id="detached"),
        pytest.param({"jku": "https://example.org/keys"}, id="jku"),
        pytest.param({"jwk": {"kty": "oct", "k": "AAAA"}}, id="jwk"),
        pytest.param({"x5u": "https://example.org/cert"}, id="x5u"),
        pytest.param({"zip": "DEF"}, id="zip"),
        pytest.param({"cty": "JWT"}, id="cty"),
        pytest.param({"extra": 1}, id="extra"),
    ],
)
def test_a_token_with_another_header_is_refused(changed: dict[str, Any]) -> None:
    assert_refused(forge(header={**HEADER, **changed}))


@pytest.mark.parametrize("missing", ["alg", "kid", "typ"])
def test_a_token_whose_header_lacks_a_member_is_refused(missing: str) -> None:
    assert_refused(forge(header={name: value for name, value in HEADER.items() if name != missing}))


def test_a_detached_payload_is_refused() -> None:
    header = base64url(compact({**HEADER, "crit": ["b64"], "b64": False}))

    assert_refused(f"{header}..{SIGNATURE}")


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b'{"kid":"ea3f09b6bcf4a216","alg":"HS256","typ":"pause+jwt"}', id="another order"),
        pytest.param(b'{"alg":"HS256", "kid":"ea3f09b6bcf4a216","typ":"pause+jwt"}', id="a blank"),
        pytest.param(b'{"alg":"HS256","kid":"ea3f09b6bcf4a216","typ":"pause+jwt"}\n', id="a newline"),
        pytest.param(b'{"alg":"HS256","kid":"ea3f09b6bcf4a216","typ":"pause\\u002bjwt"}', id="an escape"),
        pytest.param(b'{"alg":"none","alg":"HS256","kid":"ea3f09b6bcf4a216","typ":"pause+jwt"}', id="alg twice"),
        pytest.param(b'{"alg":"HS256","kid":"0","kid":"ea3f09b6bcf4a216","typ":"pause+jwt"}', id="kid twice"),
        pytest.param(b'\xef\xbb\xbf{"alg":"HS256","kid":"ea3f09b6bcf4a216","typ":"pause+jwt"}', id="a byte order mark"),
        pytest.param('{"alg":"HS256","kid":"ea3f09b6bcf4a216","typ":"pause+jwt"}'.encode("utf-16"), id="UTF-16"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b"\xff\xfe\xfd", id="no text"),
        pytest.param(b'{"a":' + b"[" * 600, id="deep"),
    ],
)
def test_a_token_whose_header_is_written_in_another_way_is_refused(header: bytes) -> None:
    assert_refused(forge(header=header))


# -- claims


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_token_that_lacks_a_claim_is_refused(claim: str) -> None:
    assert_refused(forge(without(claim)))


TEXTS = [name for name in CLAIMS if name not in ("iat", "exp")]


@pytest.mark.parametrize("claim", TEXTS)
@pytest.mark.parametrize("value", [None, 5, 1.5, True, False, [], {}, float("nan"), ["same"], {"same": 1}], ids=repr)
def test_a_token_with_a_text_claim_of_another_type_is_refused(claim: str, value: Any) -> None:
    if value == ["same"]:
        value = [CLAIMS[claim]]
    if value == {"same": 1}:
        value = {CLAIMS[claim]: 1}

    assert_refused(forge({**CLAIMS, claim: value}))


@pytest.mark.parametrize("claim", ["iat", "exp"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        1_700_000_000.0,
        1_700_003_600.5,
        1e10,
        float("nan"),
        float("inf"),
        float("-inf"),
        "1700000000",
        "",
        [1_700_000_000],
        {},
        [],
    ],
    ids=repr,
)
def test_a_token_with_a_time_of_another_type_is_refused(claim: str, value: Any) -> None:
    assert_refused(forge({**CLAIMS, claim: value}))


@pytest.mark.parametrize("claim", ["iat", "exp"])
@pytest.mark.parametrize(
    "value",
    [10**20, 10**400, -(10**20), -(10**400), 2**63, -1, 0],
    ids=lambda n: f"{n:.0e}" if abs(n) < 10**300 else "huge",
)
def test_a_token_with_a_time_beyond_any_calendar_raises_no_error_but_ours(claim: str, value: int) -> None:
    try:
        found = verify(forge({**CLAIMS, claim: value}))
    except InterruptError as refused:
        assert isinstance(refused, TokenInvalid | TokenExpired)  # noqa: PT017
    else:
        assert getattr(found, {"iat": "issued_at", "exp": "expires_at"}[claim]) == value


@pytest.mark.parametrize("name", ["", "9a", "a b", "a\n", "n" * 65, "é", "approval\x00"])
def test_a_token_with_a_name_that_no_point_can_have_is_refused(name: str) -> None:
    assert_refused(forge({**CLAIMS, "name": name}))


@pytest.mark.parametrize("extra", [{"nbf": 0}, {"sub": "alice"}, {"scope": "admin"}, {"": 1}, {"ISS": ISSUER}])
def test_a_token_with_a_further_claim_is_refused(extra: dict[str, Any]) -> None:
    assert_refused(forge({**CLAIMS, **extra}), "not in the form")


def body_with(old: str, new: str) -> bytes:
    text = compact(CLAIMS).decode()
    assert text.count(old) == 1
    return text.replace(old, new).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body_with('"jti"', '"jti":"ffffffffffffffffffffffffffffffff","jti"'), id="jti twice"),
        pytest.param(body_with('"exp"', '"exp":9999999999,"exp"'), id="exp twice, the right one last"),
        pytest.param(
            body_with('"exp":1700003600', '"exp":1700003600,"exp":9999999999'), id="exp twice, the wrong one last"
        ),
        pytest.param(body_with('"iss"', '"iss":"symfonic-interrupts","iss"'), id="the same claim twice"),
        pytest.param(body_with('"name":"approval"', '"name":"\\u0061pproval"'), id="an escape"),
        pytest.param(body_with("symfonic-interrupts/default", "symfonic-interrupts\\/default"), id="an escaped slash"),
        pytest.param(body_with('"exp":1700003600', '"exp":1700003600 '), id="a blank"),
        pytest.param(compact(CLAIMS) + b"\n", id="a newline"),
        pytest.param(compact(dict(reversed(CLAIMS.items()))), id="another order"),
        pytest.param(json.dumps(CLAIMS).encode(), id="with blanks"),
        pytest.param(body_with("1700003600", "1.7000036e9"), id="an exponent"),
        pytest.param(body_with("1700003600", "01700003600"), id="a leading zero"),
        pytest.param(body_with("1700003600", "-0"), id="minus zero"),
        pytest.param(b"\xef\xbb\xbf" + compact(CLAIMS), id="a byte order mark"),
        pytest.param(json.dumps(CLAIMS).encode("utf-16"), id="UTF-16"),
        pytest.param(compact(CLAIMS)[:-1], id="cut"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="an empty object"),
        pytest.param(compact([CLAIMS]), id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b'"text"', id="a text"),
        pytest.param(b"\xff\xfe\xfd", id="no text"),
        pytest.param(b"[" * 1200, id="deep"),
        pytest.param(b'{"iss":' + b"9" * 1200 + b"}", id="a long number"),
    ],
)
def test_a_token_whose_claims_are_written_in_another_way_is_refused(body: bytes) -> None:
    assert_refused(forge(body))


# -- the text


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(TOKEN + "=", id="padding"),
        pytest.param(TOKEN + "==", id="more padding"),
        pytest.param(f"{HEAD}=.{BODY}.{SIGNATURE}", id="padding of the header"),
        pytest.param(f"{HEAD}.{BODY}=.{SIGNATURE}", id="padding of the claims"),
        pytest.param(f"{HEAD}.{BODY}==.{SIGNATURE}=", id="padding of claims and signature"),
        pytest.param(" " + TOKEN, id="blank before"),
        pytest.param(TOKEN + " ", id="blank after"),
        pytest.param(TOKEN + "\n", id="newline after"),
        pytest.param("\n" + TOKEN, id="newline before"),
        pytest.param(TOKEN + "\r\n", id="line end after"),
        pytest.param(TOKEN + "\t", id="tab after"),
        pytest.param(TOKEN + "\x00", id="NUL after"),
        pytest.param(f"{HEAD}.\n{BODY}.{SIGNATURE}", id="newline within"),
        pytest.param(f"{HEAD[:9]} {HEAD[9:]}.{BODY}.{SIGNATURE}", id="blank within"),
        pytest.param(f"{HEAD[:9]}\n{HEAD[9:]}.{BODY}.{SIGNATURE}", id="newline within the header"),
        pytest.param(TOKEN + ".", id="a dot more"),
        pytest.param("." + TOKEN, id="a dot before"),
        pytest.param(TOKEN + "." + SIGNATURE, id="a part more"),
        pytest.param(f"{HEAD}.{BODY}", id="no signature"),
        pytest.param(f"{HEAD}.{BODY}.", id="empty signature"),
        pytest.param(f"{HEAD}.{SIGNATURE}", id="no claims"),
        pytest.param(f"{HEAD}..{SIGNATURE}", id="empty claims"),
        pytest.param(f".{BODY}.{SIGNATURE}", id="empty header"),
        pytest.param(f"{BODY}.{HEAD}.{SIGNATURE}", id="parts exchanged"),
        pytest.param(TOKEN.swapcase(), id="other case"),
        pytest.param(TOKEN[::-1], id="backwards"),
        pytest.param(TOKEN * 2, id="twice"),
        pytest.param("Bearer " + TOKEN, id="with a scheme"),
        pytest.param(f'"{TOKEN}"', id="in quotes"),
        pytest.param(TOKEN.replace(".", "%2E"), id="percent-encoded"),
        pytest.param(TOKEN.replace(".", "\uff0e"), id="full-width dots"),
        pytest.param(TOKEN[:-1] + "\u00e9", id="not ASCII"),
        pytest.param(TOKEN[:-1] + "\ud800", id="lone surrogate"),
        pytest.param("", id="empty"),
        pytest.param(".", id="one dot"),
        pytest.param("..", id="two dots"),
        pytest.param("a.b.c", id="three letters"),
        pytest.param("....", id="four dots"),
        pytest.param("A" * 2048, id="long"),
        pytest.param("." * 2048, id="many dots"),
        pytest.param(TOKEN.encode(), id="bytes"),
        pytest.param(bytearray(TOKEN.encode()), id="bytearray"),
        pytest.param(None, id="None"),
        pytest.param(5, id="number"),
        pytest.param([TOKEN], id="list"),
        pytest.param({"pause_token": TOKEN}, id="dict"),
        pytest.param(CONTENT, id="the claims themselves"),
    ],
)
def test_a_text_that_is_not_the_token_as_it_was_given_out_is_refused(token: object) -> None:
    assert_refused(token)


def test_every_other_last_character_is_refused_also_where_it_decodes_to_the_same_signature() -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    signature = base64.urlsafe_b64decode(SIGNATURE + "=")
    others = [last for last in alphabet if last != TOKEN[-1]]
    same = [last for last in others if base64.urlsafe_b64decode(SIGNATURE[:-1] + last + "=") == signature]

    assert len(same) == 3
    for last in others:
        assert_refused(TOKEN[:-1] + last)


def test_the_standard_alphabet_is_refused() -> None:
    # a token with a jti for which the signature has both of the characters in which the alphabets differ
    content = next(
        found
        for number in range(1000)
        for found in [dataclasses.replace(CONTENT, jti=f"{number:032x}")]
        if {"-", "_"} <= set(found.mint(KeyRing([KEY])).rpartition(".")[2])
    )
    head, body, signature = content.mint(KeyRing([KEY])).split(".")

    assert verify(f"{head}.{body}.{signature}") == content
    for standard in (signature.replace("-", "+"), signature.replace("_", "/"), signature.translate({45: 43, 95: 47})):
        assert_refused(f"{head}.{body}.{standard}")


def test_a_signature_of_one_token_does_not_fit_another() -> None:
    other = dataclasses.replace(CONTENT, jti="f" * 32).mint(KeyRing([KEY]))

    assert_refused(f"{HEAD}.{BODY}.{other.split('.')[2]}", "not valid")
    assert_refused(f"{HEAD}.{other.split('.')[1]}.{SIGNATURE}", "not valid")


@pytest.mark.parametrize("cut", range(1, len(TOKEN), 7))
def test_a_token_that_was_cut_is_refused(cut: int) -> None:
    assert_refused(TOKEN[:cut])
    assert_refused(TOKEN[cut:])


def test_a_token_is_read_up_to_the_limit_and_the_limit_is_named() -> None:
    assert verify(TOKEN, max_bytes=len(TOKEN)) == CONTENT
    assert_refused(TOKEN, f"at most {len(TOKEN) - 1} characters", max_bytes=len(TOKEN) - 1)
    assert_refused("A" * 5_000_000, "at most 2048 characters")


def test_a_receipt_is_no_token() -> None:
    sealed = RECEIPT.seal(KeyRing([KEY]))

    assert_refused(sealed)
    assert_refused(json.dumps(sealed, ensure_ascii=True))
    assert_refused(f"{HEAD}.{BODY}.{base64url(bytes.fromhex(sealed['mac']))}")
    assert_refused(forge({**CLAIMS, **sealed}, key=RECEIPT_KEY))


def test_a_jwt_that_somebody_else_signs_with_the_same_secret_is_no_token() -> None:
    assert_refused(jwt.encode(CLAIMS, KEY, "HS256", {"typ": "pause+jwt", "kid": KID}), "not valid")


def test_a_refusal_does_not_repeat_the_token() -> None:
    for token in (TOKEN + "=", forge(key=KEY), forge(without("jti")), TOKEN):
        with pytest.raises(InterruptError) as refused:
            verify(token, now=at(EXPIRES_AT + 1))
        for part in (*token.split("."), CLAIMS["jti"]):
            assert part not in str(refused.value)


def test_the_time_of_the_tests_lies_within_the_token() -> None:
    assert at(ISSUED_AT) < BEFORE_EXPIRY < at(EXPIRES_AT)
