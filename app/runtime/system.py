"""The only place that reads the machine's clocks and makes ids; everybody else takes them through the constructor."""

from __future__ import annotations

import os
import resource
import secrets
import time

from ulid import ULID

from app.core.cluster.charter import Charter
from app.core.cluster.wakekey import WakeKey


class SystemClock:
    """The clocks of this machine."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; only differences within this process mean anything."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the Unix epoch; may jump when the machine's time is corrected."""
        return time.time()


def resident_bytes() -> int:
    """Return the memory that this process has, or 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - it is read every second
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def new_ulid() -> str:
    """Return a new ULID: 48 bits of milliseconds and 80 random bits, as 26 characters.

    Ids of one millisecond come in no order: `ULID()` would count up from the last one, which makes an id guessable
    from its predecessor, and equal in two processes that forked within that millisecond.
    """
    milliseconds = time.time_ns() // 1_000_000
    return str(ULID(milliseconds.to_bytes(6) + os.urandom(10)))


def new_secret() -> str:
    """Return 128 random bits as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def random_bytes(count: int) -> bytes:
    """Return `count` random bytes that nobody can guess."""
    return secrets.token_bytes(count)


def new_wake_key() -> WakeKey:
    """A key that nobody knows, until the cluster has its own."""
    return WakeKey(secrets.token_bytes(32))


def new_charter() -> Charter:
    """A charter for a cluster that has none yet: its text is ASCII, so that every store can keep it."""
    return Charter(secrets.token_hex(16), secrets.token_hex(32).encode())
