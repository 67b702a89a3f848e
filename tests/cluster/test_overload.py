"""More than a node can take: it says so, stays healthy, and is itself again when the flood is over."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import Counter
from collections.abc import Iterator

import psutil  # type: ignore[import-untyped]  # has no types
import pytest

from tests.cluster.harness import Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE, eventually

WAITERS = 100
FLOOD = 1_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        cluster_of(1, redis, broker, HOMING_COMMAND_MAX_WAITERS=str(WAITERS)) as nodes,
    ):
        yield nodes


class Silent:
    """Devices that answer when told to."""

    def __init__(self) -> None:
        self.commands: list[Json] = []

    def __call__(self, _device: Device, command: Json) -> None:
        self.commands.append(command)


def memory(cluster: Cluster) -> int:
    return int(psutil.Process(cluster.nodes[0].pid).memory_info().rss)


def healthy(cluster: Cluster) -> bool:
    """True if liveness answers."""
    with urllib.request.urlopen(f"{cluster.nodes[0].url}/healthz", timeout=PATIENCE) as response:  # noqa: S310
        return bool(response.status == 200)


async def test_F73_more_callers_than_may_wait_are_refused_and_harm_nobody(cluster: Cluster) -> None:
    silent = Silent()
    before = memory(cluster)
    async with devices(cluster.broker, silent) as device, caller(cluster) as client:
        calls = [asyncio.create_task(client.command(0, f"SN{i}", {"nonce": i}, timeout="60s")) for i in range(FLOOD)]
        await eventually(lambda: sum(call.done() for call in calls) == FLOOD - WAITERS)
        assert await asyncio.to_thread(healthy, cluster)
        for command in silent.commands:
            device.answer(command)
        answers = await asyncio.gather(*calls)
        assert Counter(status for status, _ in answers) == {200: WAITERS, 429: FLOOD - WAITERS}
        assert len(silent.commands) == WAITERS  # what was refused was not sent
        silent.commands.clear()
        again = asyncio.create_task(client.command(0, "SN-AGAIN", {"nonce": 1}))
        await eventually(lambda: bool(silent.commands))
        device.answer(silent.commands[0])
        assert (await again)[0] == 200
    assert memory(cluster) - before < 64 * 1024 * 1024


async def test_F32_a_frozen_store_costs_callers_a_503_and_the_node_nothing(cluster: Cluster) -> None:
    def at_once(device: Device, command: Json) -> None:
        device.answer(command)

    before = memory(cluster)
    async with devices(cluster.broker, at_once), caller(cluster) as client:
        with cluster.redis.paused():
            flood = await asyncio.gather(*(client.command(0, f"SN{i}", {"nonce": i}) for i in range(WAITERS)))
            assert {status for status, _ in flood} == {503}
            assert await asyncio.to_thread(healthy, cluster)
            later = await asyncio.gather(*(client.command(0, f"SN{i}", {"nonce": i}) for i in range(WAITERS)))
            assert {status for status, _ in later} == {503}
        await eventually(cluster.nodes[0]._answers)
        tally = await client.many(200, 32)
    assert tally.states == {"succeeded": 200}
    assert tally.wrong == []
    assert memory(cluster) - before < 64 * 1024 * 1024


async def test_F59_without_a_broker_callers_get_503_and_nothing_is_sent_later(cluster: Cluster) -> None:
    silent = Silent()
    cluster.broker.stop()
    async with caller(cluster) as client:
        flood = await asyncio.gather(*(client.command(0, f"SN{i}", {"nonce": i}) for i in range(FLOOD)))
        assert {status for status, _ in flood} == {503}
        assert await asyncio.to_thread(healthy, cluster)
        await asyncio.to_thread(cluster.broker.start)
        async with devices(cluster.broker, silent) as device:
            await eventually(cluster.nodes[0]._answers)
            one = asyncio.create_task(client.command(0, "SN-NEW", {"nonce": 1}))
            await eventually(lambda: bool(silent.commands))
            assert [command["device_id"] for command in silent.commands] == ["SN-NEW"]
            device.answer(silent.commands[0])
            assert (await one)[0] == 200
