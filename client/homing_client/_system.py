"""The only place that reads this machine's clocks, sleeps, and makes keys; everybody else is given them."""

from __future__ import annotations

import secrets
import time

monotonic = time.monotonic
"""Seconds since an arbitrary point."""

wall = time.time
"""Seconds since the Unix epoch."""

chance = secrets.SystemRandom().random
"""A number from 0 to 1, for jitter."""


def new_key() -> str:
    """An idempotency key that nobody else makes."""
    return secrets.token_hex(16)


async def async_sleep(seconds: float) -> None:
    """Let other tasks run meanwhile."""
    import asyncio  # noqa: PLC0415 - it takes longer to import than all of this package

    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)
