"""Mistakes of nodes that hold commands: `mutants.py` has the table of all."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.rig.planting import product_class


def held_by_the_dead_waits_on() -> None:
    """A node sends what it holds itself: nobody reads what others held when they died."""

    async def never(_self: Any) -> None:
        await asyncio.Event().wait()

    product_class("app.commands.held.drainer.Drainer")._read = never
