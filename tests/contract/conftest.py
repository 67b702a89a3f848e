"""Every state store, every event log, and every database of the access directory, one after the other."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from app.store.directory import AccessDirectory
from app.store.state import StateStore
from tests.contract.directory_places import Place, postgresql_place, sqlite_place
from tests.contract.event_engines import ENGINES, place_of
from tests.contract.event_places import EventPlace
from tests.contract.queue_places import QueuePlace, with_set_clock
from tests.contract.sharded_backend import ShardedBackend
from tests.contract.store_backends import (
    Backend,
    MemoryBackend,
    RedisBackend,
    RocksBackend,
)

SHARDED: Final = (
    *("test_event_log_batches.py", "test_event_log_values.py", "test_named_cursors.py", "test_states.py"),
    *("test_store_fleets.py", "test_store_register.py", "test_store_schedules.py", "test_webhooks.py"),
)
"""The files that are run on a Redis Cluster as a rule."""
SHARDED_LONG: Final = (
    *("test_event_log.py", "test_event_log_pick.py", "test_event_log_room.py", "test_event_log_shares.py"),
    *("test_store_finish.py", "test_store_follow.py", "test_store_respond.py"),
)
"""More of the same. The rest waits for time to pass: HOMING_TEST_SHARDED=all runs that, too."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose what runs on a Redis Cluster."""
    left_out = []
    for item in items:
        call = getattr(item, "callspec", None)
        if call is None or item.path.parent != Path(__file__).parent or "sharded" not in call.params.values():
            continue
        if item.path.name in SHARDED_LONG:
            item.add_marker(pytest.mark.long)
        elif item.path.name not in SHARDED and os.environ.get("HOMING_TEST_SHARDED") != "all":
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(params=["memory", "rocks", "redis", "sharded"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    place: Backend
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        place = redis = RedisBackend(server.url, server.node_url)
        await redis.begin()
    elif request.param == "sharded":
        place = many = ShardedBackend(request.getfixturevalue("redis_cluster"))
        await many.begin()
    else:
        place = MemoryBackend() if request.param == "memory" else RocksBackend(tmp_path)
    yield place
    await place.close()


@pytest.fixture(params=["memory", "redis", "rocks"])
async def queue_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[QueuePlace]:
    with_set_clock(monkeypatch)
    found = QueuePlace(request.param, request)
    await found.start()
    try:
        yield found
    finally:
        await found.store.close()


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
    if "redis" in request.param or "sharded" in request.param:
        await (await place.fresh(())).close()
    yield place
    await place.close()
