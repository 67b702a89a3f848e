"""Passwords of people, kept as argon2id in PHC string format."""

from __future__ import annotations

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from pwdlib import PasswordHash
from pwdlib.exceptions import PwdlibError
from pwdlib.hashers.argon2 import Argon2Hasher

from app.core.errors import CapacityError, InvalidInputError

MIN_LENGTH: Final = 12
MAX_LENGTH: Final = 256
_THREADS: Final = 2  # each holds 64 MiB while it computes
_WAITING: Final = 16

T = TypeVar("T")


class Passwords:
    """Computes in threads of its own, a few at a time: a hash takes some 50 ms and 64 MiB."""

    def __init__(self) -> None:
        self._hasher: Final = PasswordHash((Argon2Hasher(),))
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="passwords")
        self._nobodys: str | None = None
        self._asked = 0

    async def hash(self, password: str) -> str:
        """What is kept of a password; raises InvalidInputError when it is too short or too long."""
        if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
            raise InvalidInputError(
                "password", f"has {len(password)} characters; allowed are {MIN_LENGTH} to {MAX_LENGTH}"
            )
        text = _normal(password)
        return await self._compute(lambda: self._hasher.hash(text))

    async def check(self, password: str, kept: str | None) -> bool:
        """Whether this is the password. None, for nobody, takes as long: so it does not tell who has one.

        Raises CapacityError when too many are being checked.
        """
        if len(password) > MAX_LENGTH:
            return False
        text = _normal(password)
        return await self._compute(lambda: self._verify(text, kept))

    def close(self) -> None:
        """End the threads; what waits for one is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _verify(self, text: bytes, kept: str | None) -> bool:
        if self._nobodys is None:
            self._nobodys = self._hasher.hash(secrets.token_urlsafe())
        try:
            return self._hasher.verify(text, kept if kept is not None else self._nobodys) and kept is not None
        except (PwdlibError, ValueError):  # what is kept is no hash
            return False

    async def _compute(self, work: Callable[[], T]) -> T:
        if self._asked >= _THREADS + _WAITING:
            raise CapacityError("too many passwords are being checked: try again in a second")
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._asked -= 1


def _normal(password: str) -> bytes:
    """The bytes of a password, whichever keyboard it was typed on (RFC 8265, section 4.2)."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
