"""API keys: `homing_2F7QW9ZD_<43 characters of secret>_<6 characters of checksum>`.

The public id stands in lists and logs. The checksum (CRC-32 of all before it) lets scanners of source code know a key,
and a node tell a typo from a key that is unknown. Only the SHA-256 of the secret is ever kept: with 256 random bits
there is nothing that a slow hash would make harder to guess.

A key is found by its digest. How long that takes may tell something about digests, and so nothing about secrets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from zlib import crc32

from app.core.characters import CROCKFORD, digits

RandomBytes = Callable[[int], bytes]
"""Returns so many bytes that nobody can guess, as `secrets.token_bytes` does."""

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_BYTES: Final = 32
_SECRET_LENGTH: Final = 43
_CHECKSUM_LENGTH: Final = 6
_ID_BYTES: Final = 5  # 40 bits: 8 characters of 5

PREFIX: Final = "homing_"
"""The beginning of all keys, and of no token of an issuer."""
PATTERN: Final = f"{PREFIX}[{CROCKFORD}]{{8}}_[0-9A-Za-z]{{{_SECRET_LENGTH}}}_[0-9A-Za-z]{{{_CHECKSUM_LENGTH}}}"
"""The form of a key, as a regular expression for scanners."""
_PATTERN: Final = re.compile(PATTERN)
_BEGUN: Final = "login by key "


class KeyFault(StrEnum):
    """The reason why a text is no key."""

    MALFORMED = "malformed"
    TYPO = "typo"
    """It has the form of a key, and another checksum."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as its owner has it. It is shown once; what is printed of it later is its id."""

    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """All of it: what goes into `Authorization: Bearer`."""
        body = f"homing_{self.id}_{self.secret}"
        return f"{body}_{_checksum(body)}"

    @property
    def digest(self) -> bytes:
        """SHA-256 of the secret, 32 bytes: what is kept."""
        return hashlib.sha256(self.secret.encode()).digest()


def make_key(random: RandomBytes) -> Key:
    """A new key, of 37 random bytes."""
    return Key(
        digits(int.from_bytes(random(_ID_BYTES), "big"), CROCKFORD, 8),
        digits(int.from_bytes(random(_SECRET_BYTES), "big"), _BASE62, _SECRET_LENGTH),
    )


def by_key(key_id: str) -> str:
    """The label of logins that the key with this id has begun; they end with it."""
    return f"{_BEGUN}{key_id}"


def beginner_of(label: str) -> str | None:
    """The id of the key that has begun a login with this label; None where a password has."""
    return label.removeprefix(_BEGUN) if label.startswith(_BEGUN) else None


def parse_key(text: str) -> Key | KeyFault:
    """The key, or why it is none. Whether anybody knows it is another question."""
    if not _PATTERN.fullmatch(text):
        return KeyFault.MALFORMED
    body, _, checksum = text.rpartition("_")
    if checksum != _checksum(body):
        return KeyFault.TYPO
    _, key_id, secret = body.split("_")
    return Key(key_id, secret)


def _checksum(body: str) -> str:
    return digits(crc32(body.encode()), _BASE62, _CHECKSUM_LENGTH)
