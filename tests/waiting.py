"""Waiting for what another process does, where no event tells."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def eventually(condition: Callable[[], object | Awaitable[object]], seconds: float = 5) -> None:
    """Return as soon as the condition holds; TimeoutError when it does not within so many seconds."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(0.02)
