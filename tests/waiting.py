"""Waiting for what goes on elsewhere, where no event tells."""

from __future__ import annotations

import asyncio

from homing_rig.patience import PATIENCE, eventually

__all__ = ["PATIENCE", "eventually", "turns"]


async def turns(count: int = 50) -> None:
    """Let the event loop turn, so that what is ready in this process gets its turn."""
    for _ in range(count):
        await asyncio.sleep(0)
