"""Waiting for what another process does, where no event tells."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

PATIENCE: Final = 90.0
"""Seconds after which a wait is given up. It ends what hangs and judges nothing: busy machines are slow."""

LONGEST_PAUSE: Final = 0.1
"""Seconds between two looks at what takes a while."""
_GROWTH: Final = 1.1


def pauses(first: float) -> Iterator[float]:
    """Yield the seconds between looks. They become longer, as a look may cost a processor as much as a request."""
    pause = first
    while True:
        yield pause
        pause = min(pause * _GROWTH, max(first, LONGEST_PAUSE))


async def eventually(condition: Callable[[], object | Awaitable[object]], seconds: float = PATIENCE) -> None:
    """Return as soon as the condition holds; TimeoutError when it never does."""
    async with asyncio.timeout(seconds):
        for pause in pauses(0.02):
            holds = condition()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(pause)
