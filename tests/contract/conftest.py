"""Every state store, every event log, and every database of the access directory, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.store.directory import AccessDirectory
from app.store.state import StateStore
from tests.contract.directory_places import Place, postgresql_place, sqlite_place
from tests.contract.event_engines import ENGINES, place_of
from tests.contract.event_places import EventPlace
from tests.contract.store_backends import (
    Backend,
    MemoryBackend,
    RedisBackend,
    RocksBackend,
)


@pytest.fixture(params=["memory", "rocks", "redis"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    place: Backend
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        place = redis = RedisBackend(server.url, server.node_url)
        await redis.begin()
    else:
        place = MemoryBackend() if request.param == "memory" else RocksBackend(tmp_path)
    yield place
    await place.close()


@pytest.fixture
async def store(backend: Backend) -> StateStore:
    return await backend.open()


@pytest.fixture
async def other_node(backend: Backend) -> StateStore:
    return await backend.open()


@pytest.fixture(params=["sqlite", "postgresql"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty database for the access directory: SQLite and PostgreSQL, one after the other."""
    if request.param == "sqlite":
        empty = sqlite_place(tmp_path)
    else:
        empty = postgresql_place(request.getfixturevalue("postgresql"))
    yield empty
    await empty.close()


@pytest.fixture
async def directory(place: Place) -> AccessDirectory:
    """Migrated and started."""
    opened = place.open()
    await opened.migrate()
    await opened.start()
    return opened


@pytest.fixture(params=ENGINES)
async def event_place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventPlace]:
    """The place where events are kept, with nothing in it."""
    place = place_of(request.param, tmp_path, request)
    if "redis" in request.param:
        await (await place.fresh(())).close()
    yield place
    await place.close()
