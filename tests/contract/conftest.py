"""Every state store, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.store.state import StateStore
from tests.contract.store_backends import (
    Backend,
    MemoryBackend,
    RedisBackend,
)


@pytest.fixture(params=["memory", "redis"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    place: Backend
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        place = redis = RedisBackend(server.url, server.node_url)
        await redis.begin()
    else:
        place = MemoryBackend()
    yield place
    await place.close()


@pytest.fixture
async def store(backend: Backend) -> StateStore:
    return await backend.open()


@pytest.fixture
async def other_node(backend: Backend) -> StateStore:
    return await backend.open()
