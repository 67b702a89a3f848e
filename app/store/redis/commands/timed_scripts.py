"""Runs scripts that judge whether the time of a command is over, by the clock as it went when it was registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from app.core.clock import Clock
from app.core.errors import StoreUnavailableError
from app.store.redis.driver.lane import Argument, Script
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.steps import StoreClocks

AHEAD_US: Final = 1_000_000
"""The time after its call up to which a script may find the store's clock, besides the budget of a call."""
TRIES: Final = 2
"""A step of the clock is known after the first of them."""


class TimedScripts:
    """`clocks` are told of a step by the script that meets it: it judges nothing then, and is run once more.

    So claims and decisions of second persons agree with the sweep that ends what was held too long.
    """

    def __init__(self, lanes: Lanes, clocks: StoreClocks, clock: Clock) -> None:
        self._lanes = lanes
        self._clocks = clocks
        self._now = clock.monotonic

    async def run(self, script: Script, script_keys: Sequence[str], *arguments: Argument) -> list[Any]:
        """The reply of a script. StoreUnavailableError, also while the clock of Redis is set again and again."""
        server = self._lanes.server_of(script_keys[0])
        for _ in range(TRIES):
            asked_at = self._now()
            reply: list[Any] = await self._lanes.run(script, script_keys, *arguments, *self.told(server, asked_at))
            if reply[0] != b"stepped":
                return reply
            self._clocks.told(server, int(reply[1]), asked_at, self._now())
        raise StoreUnavailableError("the clock of Redis is being set")

    def told(self, server: str, asked_at: float) -> Sequence[int]:
        """The last arguments of a script, as eras.lua has them, that is called at an instant of the monotonic clock."""
        return self._clocks.told_to_scripts(server, asked_at, AHEAD_US + round(self._lanes.budget * 1e6))
