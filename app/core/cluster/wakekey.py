"""Tells a wake-up of the cluster from one that somebody else published.

Whoever may publish in Redis could otherwise hand a caller a result that the store never had. The home node puts a token
with each command on record, and scripts send it along with the outcome.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

TOKEN_BYTES: Final = 9
"""Twelve characters: nobody guesses one of 2^72 while a command waits."""
MOST_KEY_BYTES: Final = 64


class WakeKey:
    """The key that all nodes of a cluster share. It begins with one of its own, which nobody else knows.

    A node that has another key than the home of a command takes its wake-ups for hints, and reads the store.
    """

    __slots__ = ("_keyed",)

    def __init__(self, key: bytes) -> None:
        self.set(key)

    def set(self, key: bytes) -> None:
        """Use the cluster's key from now on; ValueError when it is empty or longer than 64 bytes."""
        if not 0 < len(key) <= MOST_KEY_BYTES:
            raise ValueError(f"a key has 1 to {MOST_KEY_BYTES} bytes, not {len(key)}")
        # To copy it is three times as fast as to begin with the key each time.
        self._keyed = blake2b(digest_size=TOKEN_BYTES, key=key)

    def token(self, command_id: str) -> str:
        """The token that a wake-up of this command must carry: twelve characters of base64url."""
        keyed = self._keyed.copy()
        keyed.update(command_id.encode())
        return urlsafe_b64encode(keyed.digest()).decode()

    def made(self, token: str, command_id: str) -> bool:
        """True if the token is that of the command."""
        return compare_digest(token.encode(), self.token(command_id).encode())
