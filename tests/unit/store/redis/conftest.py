from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from app.store.redis.commands.store import RedisStateStore
from tests.services import RedisProcess
from tests.stores import redis_store


@pytest.fixture
async def client(redis_server: RedisProcess) -> AsyncIterator[Redis]:
    """An empty Redis."""
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def store(redis_server: RedisProcess, client: Redis) -> AsyncIterator[RedisStateStore]:
    """A store on it."""
    store = redis_store(redis_server.url)
    await store.start()
    yield store
    await store.close()
