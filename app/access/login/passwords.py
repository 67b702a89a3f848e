"""Passwords of people, kept as argon2id in PHC string format."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import threading
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from pwdlib import PasswordHash
from pwdlib.exceptions import PwdlibError
from pwdlib.hashers.argon2 import Argon2Hasher

from app.access.login.fair_turns import FairTurns
from app.core.errors import InvalidInputError

MIN_LENGTH: Final = 12
MAX_LENGTH: Final = 256
_NICENESS: Final = 5
"""The niceness of the thread that computes, and of those that argon2 makes for it: commands go before."""

T = TypeVar("T")


class Passwords:
    """Computes one at a time, in a thread of its own: a hash takes some 50 ms of several cores, and 64 MiB."""

    def __init__(self) -> None:
        self._hasher: Final = PasswordHash((Argon2Hasher(),))
        self._threads: Final = ThreadPoolExecutor(1, thread_name_prefix="passwords", initializer=_give_way)
        self._turns: Final = FairTurns()
        self._nobodys: str | None = None

    async def hash(self, password: str) -> str:
        """Return the hash of a password, to keep; raises InvalidInputError when it is too short or too long."""
        if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
            raise InvalidInputError(
                "password", f"has {len(password)} characters; allowed are {MIN_LENGTH} to {MAX_LENGTH}"
            )
        text = _normal(password)
        return await self._compute(lambda: self._hasher.hash(text))

    async def check(self, password: str, kept: str | None, address: str = "") -> bool:
        """True if this is the password. None, for nobody, takes as long: so it does not tell who has one.

        Addresses take turns. Raises CapacityError when too many wait, NodeDrainingError once closed.
        """
        if len(password) > MAX_LENGTH:
            return False
        text = _normal(password)
        async with self._turns.take(address):
            return await self._compute(lambda: self._verify(text, kept))

    def close(self) -> None:
        """End the thread when it has done what it was given. Those who wait for their turn are told so."""
        self._turns.close()
        self._threads.shutdown(wait=False)

    def _verify(self, text: bytes, kept: str | None) -> bool:
        if self._nobodys is None:
            self._nobodys = self._hasher.hash(secrets.token_urlsafe())
        try:
            return self._hasher.verify(text, kept if kept is not None else self._nobodys) and kept is not None
        except (PwdlibError, ValueError):  # what is kept is no hash
            return False

    async def _compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _give_way() -> None:
    """Let all other threads of this process go first, where the system knows of threads: Linux does."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def _normal(password: str) -> bytes:
    """The bytes of a password, whichever keyboard it was typed on (RFC 8265, section 4.2)."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
