"""The copy of the access rules in Redis."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from app.core import keys
from app.store.redis.driver.plain import FewCalls

KEPT_LATELY: Final = timedelta(minutes=15)
"""A copy of a later version that nobody has kept for so long is of a database that has gone back."""


class RedisCopies:
    """Keeps one copy for all nodes, over the connection of the cluster."""

    def __init__(self, redis: FewCalls) -> None:
        self._redis = redis

    async def keep(self, version: int, at_us: int, copy: bytes, life: timedelta) -> None:
        lately = at_us - KEPT_LATELY // timedelta(microseconds=1)
        await self._redis.run("keep", [keys.ACCESS], version, at_us, copy, life // timedelta(milliseconds=1), lately)

    async def kept(self) -> tuple[int, int] | None:
        found = await self._redis.call("HMGET", keys.ACCESS, "version", "at")
        try:
            version, at_us = (int(one) for one in found if one is not None)
        except ValueError:  # there is none, or none that can be read
            return None
        return version, at_us

    async def read(self) -> bytes | None:
        found: bytes | None = await self._redis.call("HGET", keys.ACCESS, "copy")
        return found
