from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode
from random import Random

import pytest

from app.access.login.key_set import KeySet, SigningKey, parse_key_set
from app.access.login.tokens import MAX_LENGTH, TokenRules, Tokens
from app.core.access.callers import Caller, TokenFault
from homing_rig.issuer import part
from tests.unit.access.signing import (
    AUDIENCE,
    EC,
    ED,
    ISSUER,
    KEYS,
    NOW,
    RSA,
    STRANGER,
    Key,
    claims,
    public_set,
    signed,
)
from tests.unit.assembly import ManualClock

RULES = TokenRules(ISSUER, AUDIENCE)


class Held:
    """Keys that were fetched before."""

    def __init__(self, keys: KeySet = KEYS) -> None:
        self.keys = keys
        self.asked: list[str] = []

    def find(self, kid: str) -> SigningKey | None:
        self.asked.append(kid)
        return self.keys.get(kid)

    def __len__(self) -> int:
        return len(self.keys)


def verifier(keys: Held | None = None, rules: TokenRules = RULES, clock: ManualClock | None = None) -> Tokens:
    return Tokens(rules, keys or Held(), clock or ManualClock())


@pytest.mark.parametrize(
    ("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS256"), (EC, "ES256"), (ED, "EdDSA"), (ED, "Ed25519")]
)
def test_a_good_token_names_its_caller(key: Key, algorithm: str) -> None:
    found = verifier().verify(signed(claims(groups=["b", "a"]), key, algorithm))
    assert found == Caller.of_token(
        ISSUER,
        "ada",
        groups=["a", "b"],
        tenant_id=None,
        issued_us=(NOW - 60) * 1_000_000,
        expires_us=(NOW + 630) * 1_000_000,
    )


def hmac_signed(secret: bytes) -> str:
    body = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(claims())}"
    return f"{body}.{part(hmac.digest(secret, body.encode(), hashlib.sha256))}"


def unsigned(algorithm: str) -> str:
    return f"{part({'alg': algorithm, 'kid': 'ec'})}.{part(claims())}."


def with_header(raw: bytes) -> str:
    return f"{part(raw)}.{part(claims())}.{part(b'x' * 64)}"


GOOD = signed(claims())
HEAD, BODY, SIGNATURE = GOOD.split(".")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", TokenFault.MALFORMED),
        ("a.b", TokenFault.MALFORMED),
        ("a.b.c", TokenFault.MALFORMED),
        ("..", TokenFault.MALFORMED),
        (GOOD + ".", TokenFault.MALFORMED),
        (f"{GOOD}.{SIGNATURE}.{SIGNATURE}", TokenFault.MALFORMED),
        ("é" + GOOD[1:], TokenFault.MALFORMED),
        ("x" * (MAX_LENGTH + 1), TokenFault.MALFORMED),
        (signed(claims(pad="x" * MAX_LENGTH)), TokenFault.MALFORMED),
        (with_header(b"[" * 5_000), TokenFault.MALFORMED),
        (with_header(b'{"alg":' * 700), TokenFault.MALFORMED),
        (with_header(b"[]"), TokenFault.MALFORMED),
        (with_header(b'{"alg": {"a": 1}, "kid": "ec"}'), TokenFault.MALFORMED),
        (unsigned("none"), TokenFault.ALGORITHM),
        (unsigned("None"), TokenFault.ALGORITHM),
        (unsigned(""), TokenFault.ALGORITHM),
        (unsigned("ES256"), TokenFault.SIGNATURE),
        (hmac_signed(RSA.as_pem(private=False)), TokenFault.ALGORITHM),
        (hmac_signed(public_set(RSA)), TokenFault.ALGORITHM),
        (signed(claims(), RSA, "RS384"), TokenFault.ALGORITHM),
        (signed(claims(), EC, kid="rsa"), TokenFault.ALGORITHM),
        (signed(claims(), RSA, "RS256", kid="ec"), TokenFault.ALGORITHM),
        (signed(claims(), EC, kid="unheard-of"), TokenFault.UNKNOWN_KEY),
        (signed(claims(), EC, kid=None), TokenFault.UNKNOWN_KEY),
        (signed(claims(), EC, kid=""), TokenFault.UNKNOWN_KEY),
        (signed(claims(), STRANGER), TokenFault.SIGNATURE),
        (f"{HEAD}.{part(claims(sub='eve'))}.{SIGNATURE}", TokenFault.SIGNATURE),
        (f"{HEAD}.{BODY}.", TokenFault.SIGNATURE),
        (f"{HEAD}.{BODY}.{part(bytes(64))}", TokenFault.SIGNATURE),
        (signed(claims(), jku="https://evil.example/keys"), TokenFault.MALFORMED),
        (signed(claims(), x5u="https://evil.example/certificate"), TokenFault.MALFORMED),
        (signed(claims(), STRANGER, jwk=STRANGER.as_dict(private=False)), TokenFault.MALFORMED),
        (signed(claims(), typ="logout+jwt"), TokenFault.MALFORMED),
        (signed(GOOD.encode(), cty="JWT"), TokenFault.MALFORMED),
        (signed(GOOD.encode()), TokenFault.MALFORMED),
        (signed(b"[]"), TokenFault.MALFORMED),
        (signed(b"[" * 5_000), TokenFault.MALFORMED),
        (signed(b'{"exp": NaN}'), TokenFault.MALFORMED),
        (signed(claims(iss=None)), TokenFault.ISSUER),
        (signed(claims(iss=ISSUER + "/")), TokenFault.ISSUER),
        (signed(claims(iss=[ISSUER])), TokenFault.ISSUER),
        (signed(claims(aud=None)), TokenFault.AUDIENCE),
        (signed(claims(aud="homing2")), TokenFault.AUDIENCE),
        (signed(claims(aud=["other", "homin"])), TokenFault.AUDIENCE),
        (signed(claims(aud={"homing": 1})), TokenFault.AUDIENCE),
        (signed(claims(exp=None)), TokenFault.CLAIMS),
        (signed(claims(exp=str(NOW + 60))), TokenFault.CLAIMS),
        (signed(claims(exp=True)), TokenFault.CLAIMS),
        (signed(claims(exp=1e300)), TokenFault.CLAIMS),
        (signed(claims(iat=-5)), TokenFault.CLAIMS),
        (signed(claims(nbf="soon")), TokenFault.CLAIMS),
        (signed(claims(exp=NOW - 30)), TokenFault.EXPIRED),
        (signed(claims(nbf=NOW + 31)), TokenFault.NOT_YET),
        (signed(claims(iat=NOW + 31)), TokenFault.NOT_YET),
        (signed(claims(exp=NOW - 60 + 86_401)), TokenFault.LIFE),
        (signed(claims(iat=None, exp=NOW + 86_431)), TokenFault.LIFE),
        (signed(claims(sub=None)), TokenFault.CLAIMS),
        (signed(claims(sub="")), TokenFault.CLAIMS),
        (signed(claims(sub=7)), TokenFault.CLAIMS),
        (signed(claims(sub="a\nb")), TokenFault.CLAIMS),
        (signed(claims(sub="x" * 256)), TokenFault.CLAIMS),
        (signed(claims(groups=["a", 7])), TokenFault.CLAIMS),
        (signed(claims(groups={"a": 1})), TokenFault.CLAIMS),
        (signed(claims(groups=[f"g{number}" for number in range(257)])), TokenFault.CLAIMS),
    ],
)
def test_a_wrong_token_is_refused(text: str, fault: TokenFault) -> None:
    tokens = verifier()
    for _ in range(2):  # a refusal is not remembered as anything else
        assert tokens.verify(text) is fault


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW - 29},
        {"nbf": NOW + 30},
        {"iat": NOW + 30},
        {"exp": NOW - 60 + 86_400},
        {"iat": None},
        {"exp": NOW + 60.5},
        {"aud": ["other", AUDIENCE]},
        {"groups": "one"},
        {"groups": [f"g{number}" for number in range(256)]},
    ],
)
def test_what_is_just_right_is_accepted(changes: dict[str, object]) -> None:
    assert isinstance(verifier().verify(signed(claims(**changes))), Caller)


@pytest.mark.parametrize("kind", ["JWT", "at+jwt", "application/at+JWT"])
def test_types_of_tokens_for_us(kind: str) -> None:
    assert isinstance(verifier().verify(signed(claims(), typ=kind)), Caller)


def test_a_key_is_used_with_its_own_algorithm_only() -> None:
    keys = Held(parse_key_set(public_set(RSA, alg="RS256")))
    assert isinstance(verifier(keys).verify(signed(claims(), RSA, "RS256")), Caller)
    assert verifier(keys).verify(signed(claims(), RSA, "PS256")) is TokenFault.ALGORITHM


@pytest.mark.parametrize(
    "text",
    [
        unsigned("none"),
        hmac_signed(public_set(RSA)),
        signed(claims(), jku="https://evil.example"),
        signed(claims(), kid=None),
        "a.b.c",
    ],
)
def test_what_its_header_rules_out_makes_nobody_look_for_a_key(text: str) -> None:
    keys = Held()
    verifier(keys).verify(text)
    assert keys.asked == []


def test_groups_and_tenants_stand_where_the_settings_say() -> None:
    rules = TokenRules(ISSUER, AUDIENCE, groups_claim="roles", tenant_claim="org")
    found = verifier(rules=rules).verify(signed(claims(roles=["x"], groups=["y"], org="north")))
    assert isinstance(found, Caller)
    assert (found.groups, found.tenant_id) == (("x",), "north")
    for wrong in (claims(), claims(org=""), claims(org=["north"])):
        assert verifier(rules=rules).verify(signed(wrong)) is TokenFault.CLAIMS


def test_a_token_is_remembered_for_a_minute_and_never_past_its_end() -> None:
    keys, clock = Held(), ManualClock()
    tokens = verifier(keys, clock=clock)
    text = signed(claims(exp=NOW + 70))
    short = signed(claims(exp=NOW - 10))
    assert isinstance(tokens.verify(text), Caller)
    assert isinstance(tokens.verify(short), Caller)
    assert isinstance(tokens.verify(text), Caller)
    assert len(keys.asked) == 2
    clock.advance(19.9)
    assert isinstance(tokens.verify(short), Caller)
    clock.advance(0.1)
    assert tokens.verify(short) is TokenFault.EXPIRED
    keys.keys = parse_key_set(public_set(RSA))
    clock.advance(39.9)
    assert isinstance(tokens.verify(text), Caller)
    clock.advance(0.1)
    assert tokens.verify(text) is TokenFault.UNKNOWN_KEY


def test_of_tokens_with_one_changed_character_none_is_accepted() -> None:
    """Unless it says the same: in the last character of base64 there are bits that count for nothing."""
    random = Random(1)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    tokens = verifier()
    for _ in range(2_000):
        place = random.randrange(len(GOOD))
        changed = GOOD[:place] + random.choice(alphabet) + GOOD[place + 1 :]
        if "".join(changed.split(".")) and isinstance(tokens.verify(changed), Caller):
            assert [urlsafe_b64decode(one + "==") for one in changed.split(".")] == [
                urlsafe_b64decode(one + "==") for one in GOOD.split(".")
            ]
