"""An OIDC issuer's keys, and tokens that are signed with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from joserfc import jws
from joserfc.jwa import JWSAlgModel
from joserfc.jwk import ECKey, OKPKey, RSAKey

from app.access.login.key_set import KeySet, parse_key_set

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "homing"
NOW: Final = 1_700_001_000
"""The instant that a ManualClock shows at first."""

RSA: Final = RSAKey.generate_key(2048, {"kid": "rsa"})
EC: Final = ECKey.generate_key("P-256", {"kid": "ec"})
ED: Final = OKPKey.generate_key("Ed25519", {"kid": "ed"})
STRANGER: Final = ECKey.generate_key("P-256", {"kid": "ec"})

Key = RSAKey | ECKey | OKPKey


class _Registry(jws.JWSRegistry):
    """Without warnings of what is out of date."""

    def get_alg(self, name: str) -> JWSAlgModel:
        return self.algorithms[name]


def public_set(*keys: Key, **more: str) -> bytes:
    """The JSON of a key set of the public halves."""
    return json.dumps({"keys": [{**key.as_dict(private=False), **more} for key in keys]}).encode()


KEYS: Final[KeySet] = parse_key_set(public_set(RSA, EC, ED))


def claims(**changes: object) -> dict[str, object]:
    """Good claims with some changed; those that are None are left out."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": NOW - 60, "exp": NOW + 600, **changes}
    return {name: value for name, value in good.items() if value is not None}


def signed(payload: bytes | Mapping[str, object], key: Key = EC, algorithm: str = "ES256", **header: Any) -> str:
    """A token with a good signature."""
    registry = _Registry(strict_check_header=False)
    protected = {
        name: value for name, value in {"alg": algorithm, "kid": key.kid, **header}.items() if value is not None
    }
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return jws.serialize_compact(protected, body, key, registry=registry)
