from __future__ import annotations

import json

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey

from app.access.login.key_set import MAX_BYTES, parse_key_set
from app.core.errors import InvalidInputError
from tests.unit.access.signing import EC, ED, RSA, public_set

EC_JSON = EC.as_dict(private=False)
RSA_JSON = RSA.as_dict(private=False)


def key_set(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_each_key_has_its_algorithms() -> None:
    found = parse_key_set(public_set(RSA, EC, ED))
    assert {kid: set(key.algorithms) for kid, key in found.items()} == {
        "rsa": {"RS256", "PS256"},
        "ec": {"ES256"},
        "ed": {"EdDSA", "Ed25519"},
    }


@pytest.mark.parametrize(
    "useless",
    [
        OctKey.generate_key(256, {"kid": "a"}).as_dict(private=True),
        ECKey.generate_key("P-384", {"kid": "a"}).as_dict(private=False),
        OKPKey.generate_key("X25519", {"kid": "a"}).as_dict(private=False),
        {**RSA_JSON, "kid": "a", "n": str(RSA_JSON["n"])[:171]},
        {**EC_JSON, "kid": "a", "use": "enc"},
        {**EC_JSON, "kid": "a", "alg": "ES384"},
        {**EC_JSON, "kid": "a", "alg": ["ES256"]},
        {**EC_JSON, "kid": None},
        {**EC_JSON, "kid": ""},
        {**EC_JSON, "kid": "x" * 256},
        {**EC_JSON, "kid": "a", "x": "AAAA"},
        {**EC_JSON, "kid": "a", "x": "*"},
        {**EC_JSON, "kid": "a", "y": None},
        {**EC_JSON, "kid": "a", "crv": "P-999"},
        {"kty": "RSA", "kid": "a"},
        {"kid": "a"},
        "a",
        None,
    ],
)
def test_a_useless_key_spoils_nothing(useless: object) -> None:
    assert list(parse_key_set(key_set(useless, EC_JSON))) == ["ec"]


def test_the_private_half_is_not_kept() -> None:
    (key,) = parse_key_set(key_set(EC.as_dict(private=True))).values()
    assert not key.key.is_private


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", f"keys: is no JSON Web Key Set of {MAX_BYTES} bytes or less"),
        (b"[]", "keys: is no JSON Web Key Set"),
        (b"{}", "keys: is no JSON Web Key Set"),
        (b'{"keys": {}}', "keys: is no JSON Web Key Set"),
        (b"[" * 100_000, "keys: is no JSON Web Key Set"),
        (public_set(EC) + b" " * MAX_BYTES, "keys: is no JSON Web Key Set"),
        (key_set(*[EC_JSON] * 101), "keys: has 101 keys; allowed are 100"),
        (key_set(EC_JSON, EC_JSON), "keys: has two keys of the id 'ec'; allowed is one"),
        (key_set(), "keys: has no key with an id for one of RS256, PS256, ES256, EdDSA, Ed25519"),
    ],
)
def test_a_wrong_set_is_told(body: bytes, sentence: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        parse_key_set(body)
    assert str(error.value).startswith(sentence)
