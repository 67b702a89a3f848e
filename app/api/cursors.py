"""Places in lists, as callers keep them: sealed where callers are told apart.

A place names what the list was looked through to, which may be something of another tenant: a command, a topic, the
instant of an event. So a node that asks who calls gives it out encrypted and padded (docs/adr/0068). A node that asks
nobody hides nothing from anybody, needs no library for that, and gives it out as it is.
"""

from __future__ import annotations

import binascii
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from app.core.errors import InvalidInputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # comes with the extra `access`

PREFIX: Final = "s1."
"""The beginning of a sealed place; a plain one of a command, device, event or line of the audit never has it."""
ANY: Final = "[!-~]{1,2048}"
"""The form of a cursor for callers, as a regular expression for documentation."""
_NONCE: Final = 16
_FILLING: Final = "\0"
"""No place has it: topics may not."""


class Cursors:
    """Gives places out, and takes them back. `secret` is what nodes know and callers do not; None seals nothing."""

    def __init__(self, secret: str | None) -> None:
        self._cipher = None if secret is None else _cipher(secret)

    def give(self, kind: str, place: str, room: int) -> str:
        """The cursor of a place in this kind of list. Sealed, it is as long as one of `room` bytes always is."""
        if self._cipher is None:
            return place
        nonce = secrets.token_bytes(_NONCE)  # the same place twice is two cursors: whether a list grew is not told
        body = self._cipher.encrypt(place.encode().ljust(room, _FILLING.encode()), [kind.encode(), nonce])
        return PREFIX + urlsafe_b64encode(nonce + body).decode().rstrip("=")

    def take(self, kind: str, cursor: str) -> str:
        """The place; InvalidInputError. A plain one tells its caller nothing: it is taken, as 0.2.0 gave it out."""
        if self._cipher is None or not cursor.startswith(PREFIX):
            return cursor
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - comes with the extra `access`

        text = cursor.removeprefix(PREFIX)
        try:
            sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return self._cipher.decrypt(sealed[_NONCE:], [kind.encode(), sealed[:_NONCE]]).rstrip(b"\0").decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise InvalidInputError(
                "cursor", "is none that this list of this cluster gave; leave it out to begin anew"
            ) from None


@lru_cache(maxsize=4)
def cursors(secret: str | None) -> Cursors:
    """The cursors of a cluster with this secret."""
    return Cursors(secret)


def _cipher(secret: str) -> AESSIV:
    """AES-SIV (RFC 5297): one more nonce that comes twice would tell that two places are the same, and nothing else."""
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # noqa: PLC0415 - comes with the extra `access`

    return AESSIV(blake2b(secret.encode(), digest_size=64, person=b"homing cursors").digest())
