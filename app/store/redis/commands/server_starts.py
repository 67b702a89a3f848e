"""The starts of Redis servers, and what nodes tell them; see lua/commands/reclaim.lua for the step."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from app.core import keys
from app.core.errors import StoreRefusedError
from app.store.redis.commands.holds import keys_of
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import HOLD_RECLAIM
from app.store.server_starts import KeptClaim, Reclaimed

_NOTE_MS: Final = 7 * 24 * 3_600_000


class RedisServerStarts:
    """A start is what INFO calls `run_id`."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def starts(self) -> AbstractSet[str]:
        try:
            return await self._lanes.starts()
        except StoreRefusedError:  # `store_unchecked` in the log says so
            return frozenset()

    async def reclaim(self, kept: KeptClaim, node_id: str) -> Reclaimed:
        command, record = kept.claimed.command, kept.claimed.record
        known = command.id, node_id, kept.token, f"{command.id}:{command.device_id}"
        reply: bytes = await self._lanes.run(HOLD_RECLAIM, keys_of(command.id), *known, *record)
        return Reclaimed(reply.decode())

    async def enter(self, node_id: str, starts: AbstractSet[str]) -> None:
        await self._lanes.call("SET", keys.asserted(node_id), " ".join(sorted(starts)), "PX", _NOTE_MS)

    async def entered(self, node_ids: AbstractSet[str]) -> Mapping[str, AbstractSet[str]]:
        names = sorted(node_ids)
        replies = await self._lanes.call_for_list([("GET", keys.asserted(one)) for one in names])
        told = zip(names, replies, strict=True)
        return {
            one: frozenset(reply.decode().split()) if isinstance(reply, bytes) else frozenset() for one, reply in told
        }
