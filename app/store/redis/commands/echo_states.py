"""States that devices tell, in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from app.core import keys
from app.core.commands.command import Command
from app.core.identifiers import partition_of
from app.store.echo_states import MOST_EXPECTING
from app.store.redis.commands.reader import RedisCommandReader
from app.store.redis.driver.lanes import Lanes
from app.store.rules import micros


class RedisEchoStates:
    """`app/store/echo_states.py`."""

    def __init__(self, lanes: Lanes, reader: RedisCommandReader) -> None:
        self._lanes = lanes
        self._reader = reader

    async def expecting(self, device_id: str, topic: str, within: timedelta) -> Sequence[Command]:
        key = keys.topic(partition_of(device_id), topic)
        waiting = await self._lanes.call("ZRANGE", key, 0, MOST_EXPECTING - 1)
        if not waiting:
            return []
        commands = await self._reader.get([one.decode() for one in waiting])
        since = await self._lanes.now(key) - micros(within)
        return [
            one
            for one in commands
            if one is not None and not one.state.final and one.device_id == device_id and one.begun_at >= since
        ]

    async def tell_state(self, device_id: str, topic: str, state: bytes, keep: timedelta) -> None:
        key = keys.state(partition_of(device_id), topic)
        await self._lanes.call("SET", key, state, "PX", max(1, micros(keep) // 1000))

    async def last_state(self, device_id: str, topic: str) -> bytes | None:
        found: bytes | None = await self._lanes.call("GET", keys.state(partition_of(device_id), topic))
        return found
