"""The keys of an issuer, read from a JSON Web Key Set (RFC 7517). Only what can verify our algorithms is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import orjson
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from app.core.errors import InvalidInputError

ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
MAX_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 100
_MAX_KID: Final = 255
_RSA_BITS: Final = 2_048  # RFC 7518, section 3.3

VerifyingKey = RSAKey | ECKey | OKPKey


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the algorithms that it may be used with."""

    key: VerifyingKey
    algorithms: frozenset[str]


KeySet = Mapping[str, SigningKey]
"""The keys, by key id."""


def parse_key_set(body: bytes) -> KeySet:
    """The usable keys; the others, for encryption or of other algorithms, are left out.

    Raises InvalidInputError when it is no key set, has too many keys, two of one id, or none that is usable.
    """
    try:
        document = orjson.loads(body) if len(body) <= MAX_BYTES else None
    except ValueError:
        document = None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise InvalidInputError("keys", f"is no JSON Web Key Set of {MAX_BYTES} bytes or less")
    if len(listed) > MAX_KEYS:
        raise InvalidInputError("keys", f"has {len(listed)} keys; allowed are {MAX_KEYS}")
    found: dict[str, SigningKey] = {}
    for kid, key in _usable(listed):
        if kid in found:
            raise InvalidInputError("keys", f"has two keys of the id {kid!a}; allowed is one")
        found[kid] = key
    if not found:
        raise InvalidInputError("keys", f"has no key with an id for one of {', '.join(ALGORITHMS)}")
    return MappingProxyType(found)


def _usable(listed: Iterable[object]) -> Iterator[tuple[str, SigningKey]]:
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        kid = entry.get("kid")
        key = _public(entry)
        algorithms = _algorithms(key) if key is not None else frozenset()
        if entry.get("alg") is not None:
            algorithms &= {entry["alg"]} if isinstance(entry["alg"], str) else set()
        if isinstance(kid, str) and 0 < len(kid) <= _MAX_KID and key is not None and algorithms:
            yield kid, SigningKey(key, algorithms)


def _public(entry: dict[str, object]) -> VerifyingKey | None:
    if entry.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    numbers = {name: value for name in ("kty", "n", "e", "crv", "x", "y") if isinstance(value := entry.get(name), str)}
    if len(numbers.get("n", "")) * 6 < _RSA_BITS and entry["kty"] == "RSA":
        return None  # the library would warn of it
    try:
        key = import_key({**numbers})
    except (JoseError, LookupError, TypeError, ValueError):
        return None
    return key if isinstance(key, RSAKey | ECKey | OKPKey) else None


def _algorithms(key: VerifyingKey) -> frozenset[str]:
    match key:
        case RSAKey():
            return frozenset({"RS256", "PS256"}) if key.public_key.key_size >= _RSA_BITS else frozenset()
        case ECKey():
            return frozenset({"ES256"}) if key.curve_name == "P-256" else frozenset()
        case OKPKey():
            return frozenset({"EdDSA", "Ed25519"}) if key.curve_name == "Ed25519" else frozenset()
