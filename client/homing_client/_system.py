"""The only place that reads this machine's clocks, sleeps, and makes keys; everybody else is given them."""

from __future__ import annotations

import os
import time

monotonic = time.monotonic
"""Seconds since an arbitrary point."""

wall = time.time
"""Seconds since the Unix epoch."""


def chance() -> float:
    """A number from 0 to 1, for jitter."""
    return int.from_bytes(os.urandom(6)) / 2**48


def new_key() -> str:
    """An idempotency key that nobody else makes."""
    return os.urandom(16).hex()


async def async_sleep(seconds: float) -> None:
    """Let other tasks run meanwhile."""
    import asyncio  # noqa: PLC0415 - it takes longer to import than all of this package

    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)
