"""The cost of a pending command in Redis: record and all index entries, as `used_memory` tells."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.core.commands.callback import Expectation, Registration
from app.core.profiles.correlation import Correlation
from tests.contract.store_backends import by_value, registration, topic_of
from tests.services import RedisProcess
from tests.stores import redis_store

COMMANDS = 10_000
MOST_BYTES = 1536
MOST_BYTES_WITH_LONG_PARAMS = 1664
"""1,596 on a quiet machine, 1,615 seen on a busy one: Redis's allocator keeps what it may need again."""


def drone_open(device: str, number: int) -> Registration:
    """Like most services of a dock: answered on two topics by its id."""
    places = (Expectation(topic_of(device), Correlation.ID), Expectation(topic_of(device, "events"), Correlation.ID))
    return replace(registration(device, *places, params=b'{"action":1}'), method="drone_open")


def takeoff_to_point(device: str, number: int) -> Registration:
    """One of the longest: 200 bytes of params, and its flight id is a third way to name it."""
    flight = f"0d7d1c1a-6c0b-4a4b-9b8e-{number:012d}"
    params = {
        "flight_id": flight,
        "target_latitude": 22.579,
        "target_longitude": 113.941,
        "target_height": 100.0,
        "security_takeoff_height": 100.0,
        "rth_altitude": 100,
        "max_speed": 12,
    }
    common = drone_open(device, number)
    return replace(
        common,
        method="takeoff_to_point",
        params=json.dumps(params, separators=(",", ":")).encode(),
        expectations=(*common.expectations, by_value(flight, device)),
    )


@pytest.mark.parametrize("devices", [COMMANDS, 1], ids=["distinct-devices", "one-topic"])
@pytest.mark.parametrize(
    ("command", "most_bytes"), [(drone_open, MOST_BYTES), (takeoff_to_point, MOST_BYTES_WITH_LONG_PARAMS)]
)
async def test_a_pending_command_takes_less_than_one_and_a_half_kibibytes(
    command: Callable[[str, int], Registration], most_bytes: int, devices: int
) -> None:
    with RedisProcess("--appendonly", "no") as server:
        store = redis_store(server.url)
        await store.start()
        async with Redis.from_url(server.url) as client:
            before = await _used(client)
            for start in range(0, COMMANDS, 500):
                numbers = range(start, start + 500)
                each = [command(f"4TADL210010{number % devices:05d}", number) for number in numbers]
                await asyncio.gather(*(store.register(one) for one in each))
            bytes_each = (await _used(client) - before) / COMMANDS
        await store.close()
    print(f"{bytes_each:.0f} bytes")  # noqa: T201 - for docs/performance.md
    assert bytes_each < most_bytes


async def _used(client: Redis) -> int:
    """Without the buffers of connections, which do not grow with the commands."""
    memory = await client.info("memory")
    return int(memory["used_memory"]) - int(memory["mem_clients_normal"])
