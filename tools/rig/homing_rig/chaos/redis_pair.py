"""A Redis with a replica, and a fail-over between them as an operator or a cloud does it: by a stable address."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from homing_rig.chaos.options import ChaosError
from homing_rig.chaos.proxy_process import RemoteProxy
from homing_rig.chaos.servers import POLL_SECONDS, START_SECONDS, RedisProcess
from homing_rig.rights import PASSWORD, RIG_USER

BEHIND_SECONDS: Final = 0.3
"""The time by which the replica is behind when the primary dies: on one machine alone it hardly ever is."""


class RedisPair:
    """A primary and a replica behind addresses that lead to the primary of the moment."""

    def __init__(
        self, primary: RedisProcess, replica: RedisProcess, link: RemoteProxy, addresses: Mapping[str, RemoteProxy]
    ) -> None:
        """The replica follows through `link`. All belong to the caller, who starts the primary before `start`."""
        self.primary = primary
        self.replica = replica
        self._link = link
        self._addresses = addresses
        self._failing_over = asyncio.Lock()
        """Held until the replica follows again, which takes longer the more there is to copy."""

    @property
    def whole(self) -> bool:
        """True while the replica follows."""
        return not self._failing_over.locked()

    async def start(self) -> None:
        """Start the replica; ChaosError when it never has what the primary has."""
        await self._link.lead_to(self.primary.port)
        self.replica.follow(self._link.port)
        await self.replica.start()
        await self._in_step()

    async def fail_over(self, seconds: float) -> float:
        """Kill the primary, promote the replica, which is behind, and have the old primary follow it after `seconds`.

        Return how many seconds it took until the pair was whole again; ChaosError when it never was.
        """
        async with self._failing_over:
            return await self._fail_over(seconds)

    async def _fail_over(self, seconds: float) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._link.blackhole()
        await asyncio.sleep(BEHIND_SECONDS)
        await self.primary.kill()
        await self._link.reset()  # and what it held is gone
        await self._link.heal()
        async with _connected(self.replica) as promoted:
            await promoted.replicaof("NO", "ONE")
        self.primary, self.replica = self.replica, self.primary
        self.primary.follow(None)
        self.replica.wipe()  # it gets all of it anew, whatever it still has
        for address in self._addresses.values():
            await address.lead_to(self.primary.port)
        await asyncio.sleep(seconds)
        await self.start()
        return loop.time() - began

    async def _in_step(self) -> None:
        until = asyncio.get_running_loop().time() + START_SECONDS
        async with _connected(self.replica) as replica:
            while asyncio.get_running_loop().time() < until:
                if await _linked(replica):
                    return
                await asyncio.sleep(POLL_SECONDS)
        raise ChaosError(f"{self.replica.name} does not follow {self.primary.name}: {self.replica.log_text[-1500:]}")


def _connected(server: RedisProcess) -> Redis:
    return Redis(port=server.port, username=RIG_USER, password=PASSWORD)


async def _linked(replica: Redis) -> bool:
    with suppress(RedisError):
        said = await replica.info("replication")
        return said.get("master_link_status") == "up"
    return False
