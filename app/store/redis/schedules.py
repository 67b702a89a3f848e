"""Schedules in Redis, over the connection for lists: no command waits behind them."""

from __future__ import annotations

from typing import Any

from app.core import keys
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import SCHEDULE_WRITE
from app.store.schedules import MOST_SCHEDULES, KeptSchedules, no_room


class RedisSchedules:
    """All of them in one hash, whose field without a name has the number of changes."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def changes(self) -> int:
        return int(await self._call("HGET", keys.SCHEDULES, "") or 0)

    async def read(self) -> KeptSchedules:
        found = await self._call("HGETALL", keys.SCHEDULES)
        documents = {name.decode(): one for name, one in zip(found[::2], found[1::2], strict=True)}
        return KeptSchedules(int(documents.pop("", 0)), documents)

    async def write(self, name: str, document: bytes | None, before: bytes | None) -> bool:
        reply = await self._lanes.run_for_list(
            SCHEDULE_WRITE, [keys.SCHEDULES], name, before or b"", document or b"", MOST_SCHEDULES
        )
        if reply == -1:
            raise no_room()
        return bool(reply == 1)

    async def _call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis replies
        (reply,) = await self._lanes.replies_for_list([command])
        return reply
