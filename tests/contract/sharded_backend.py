"""A Redis Cluster as a place of the state store."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from app.core.identifiers import PARTITIONS
from app.core.keys import LAST_HELD, happened
from tests.contract.store_backends import MOMENT, RedisBackend
from tests.sharded import Sharded


class ShardedBackend(RedisBackend):
    """An emptied cluster, whose stores have the rights of nodes and no others."""

    def __init__(self, cluster: Sharded) -> None:
        super().__init__(cluster.primaries[0].url, cluster.url)
        self._cluster = cluster
        self._clients = [Redis.from_url(one.url) for one in cluster.primaries]

    async def begin(self) -> None:
        for one in self._clients:
            await one.flushall()
            await one.acl_log_reset()
        await self._channels.psubscribe("mqtt:node:*")
        await self.woken()

    async def lose_happenings(self) -> None:
        await asyncio.sleep(MOMENT.total_seconds())
        names = {happened(one).encode() for one in range(PARTITIONS)}
        for client in self._clients:
            for name in names.intersection(await client.keys("mqtt:happened:*")):
                await client.delete(name)

    async def size(self) -> int:
        return sum([len(set(await one.keys()) - {LAST_HELD.encode()}) for one in self._clients])

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
        for one in self._clients:
            assert await one.acl_log() == []
            await one.aclose()
        await self._channels.aclose()  # type: ignore[no-untyped-call]
        await self._client.aclose()

    async def _published(self) -> list[tuple[str, bytes]]:
        """Messages of one member come to another in their order, so each of them says the end."""
        for one in self._clients:
            await one.publish(self.END, b"")
        published, ends = [], 0
        async for message in self._channels.listen():
            if message["type"] == "pmessage":
                channel = message["channel"].decode()
                ends += channel == self.END
                if ends == len(self._clients):
                    break
                if channel != self.END:
                    published.append((channel.removeprefix("mqtt:node:"), message["data"]))
        return published
