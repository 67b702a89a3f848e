"""Turns to ask devices for their state, in Redis."""

from __future__ import annotations

from app.core import keys
from app.core.identifiers import partition_of
from app.store.questions import ASKED_EVERY
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import ASK
from app.store.rules import micros


class RedisQuestionTurns:
    """See `app/core/keys.py` for the key, and the header of lua/commands/ask.lua for the step."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def turn_to_ask(self, device_id: str, command_id: str) -> str:
        turn = keys.asked(partition_of(device_id), device_id)
        holder: bytes = await self._lanes.run(ASK, [turn], command_id, micros(ASKED_EVERY))
        return holder.decode("utf-8", "replace")
