"""Waiting for what another process does, where no event tells."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

PATIENCE: Final = 90.0
"""Seconds after which a wait is given up. It ends what hangs and judges nothing: busy machines are slow."""


async def eventually(condition: Callable[[], object | Awaitable[object]], seconds: float = PATIENCE) -> None:
    """Return as soon as the condition holds; TimeoutError when it never does."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(0.02)
