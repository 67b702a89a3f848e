"""Signatures of Standard Webhooks 1.0: https://github.com/standard-webhooks/standard-webhooks.

Secrets are derived: nothing that could leak is stored, and every node knows them.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from app.core.webhooks.endpoints import Endpoint

LEAST_ROOT_BYTES: Final = 32
PREFIX: Final = "whsec_"


def signed_headers(keys: Iterable[bytes], event_id: str, body: bytes, now: int) -> Mapping[str, str]:
    """The three headers of a message at `now` (µs), signed by each of the keys."""
    seconds = now // 1_000_000
    signed = f"{event_id}.{seconds}.".encode() + body
    digests = (hmac.digest(key, signed, sha256) for key in keys)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{b64encode(one).decode()}" for one in digests),
    }


class Signer:
    """Derives secrets from one root secret, and signs by them. All nodes of a cluster have the same root."""

    def __init__(self, root: bytes) -> None:
        self._root = root

    @property
    def fingerprint(self) -> str:
        """Tells two roots apart, and nothing else about them."""
        return hmac.digest(self._root, b"homing webhook root", sha256).hex()[:8]

    def secret(self, endpoint: Endpoint) -> str:
        """The newest secret, which its owner is shown once."""
        return PREFIX + b64encode(self._key(endpoint, endpoint.epoch)).decode()

    def headers(self, endpoint: Endpoint, event_id: str, body: bytes, now: int) -> Mapping[str, str]:
        """The three headers of a delivery at `now` (µs); both secrets sign while a rotation is young."""
        return signed_headers([self._key(endpoint, epoch) for epoch in endpoint.epochs(now)], event_id, body, now)

    def _key(self, endpoint: Endpoint, epoch: int) -> bytes:
        # The first words keep these apart from whatever else may be derived from the same root one day.
        return hmac.digest(self._root, f"homing webhook {endpoint.id} {epoch}".encode(), sha256)
