"""Handlers of replies: services of the operator that say what a device is told. Profiles name them."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from app.core.errors import InvalidInputError
from app.core.webhooks.signatures import PREFIX

HANDLER_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
LEAST_SECRET: Final = 24
MOST_SECRET: Final = 64
"""Standard Webhooks 1.0: a symmetric secret has 24 to 64 bytes."""
MOST_SECRETS: Final = 2


@dataclass(frozen=True, slots=True)
class Handler:
    """The URL to which questions are sent, and the keys that sign them: two, while one takes the place of the other."""

    url: str
    keys: Sequence[bytes] = field(repr=False)


def key_of(secret: str) -> bytes:
    """The key that a secret stands for; InvalidInputError, which does not repeat it."""
    allowed = (
        f"allowed: {PREFIX} and {LEAST_SECRET} to {MOST_SECRET} bytes in Base64, as openssl rand -base64 32 makes them"
    )
    if not secret.startswith(PREFIX):
        raise InvalidInputError("secret", f"does not begin with {PREFIX}; {allowed}")
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True)
    except (Error, ValueError):
        raise InvalidInputError("secret", f"is no Base64; {allowed}") from None
    if not LEAST_SECRET <= len(key) <= MOST_SECRET:
        raise InvalidInputError("secret", f"has {len(key)} bytes; {allowed}")
    return key
