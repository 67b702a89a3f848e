"""The charter that the nodes of one cluster share and nobody else knows: the name of their share group, and a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

_SIGNATURE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Charter:
    """Made by the first node of a cluster and kept in its store; new whenever the store has lost its memory.

    `group` is the part of the share group's name that nobody can guess: whoever subscribes under that name takes a
    share of all responses away (MQTT 5, section 4.8.2). `key` is secret, too. `age` is how old it was when it was read.
    """

    group: str = field(repr=False)
    key: bytes = field(repr=False)
    age: timedelta = field(default=timedelta(0), compare=False)

    def sign(self, purpose: str, text: str) -> str:
        """A code that only nodes of this cluster can make: 16 hexadecimal digits."""
        body = f"{purpose}\0{text}".encode()
        return blake2b(body, digest_size=_SIGNATURE_BYTES, key=self.key[: blake2b.MAX_KEY_SIZE]).hexdigest()

    def seal(self, once: str, secret: str) -> str:
        """The secret as only nodes of this cluster can read it, in hexadecimal digits; `once` names no other secret.

        ValueError if it has more than 64 bytes.
        """
        return self._padded(once, secret.encode()).hex()

    def unseal(self, once: str, sealed: str) -> str:
        """The secret that `seal` was given; ValueError if this is none."""
        return self._padded(once, bytes.fromhex(sealed)).decode()

    def _padded(self, once: str, data: bytes) -> bytes:
        if len(data) > blake2b.MAX_DIGEST_SIZE:
            raise ValueError(f"{len(data)} bytes are no such secret; allowed are {blake2b.MAX_DIGEST_SIZE}")
        pad = blake2b(f"seal\0{once}".encode(), key=self.key[: blake2b.MAX_KEY_SIZE]).digest()
        return bytes(one ^ other for one, other in zip(data, pad, strict=False))

    def signed(self, purpose: str, text: str, code: str) -> bool:
        """True if this code was made by `sign` for this text."""
        return compare_digest(self.sign(purpose, text).encode(), code.encode())
