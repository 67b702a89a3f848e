"""The epoch of the intake is at one primary of a Redis Cluster, and shards at others keep the latest that they saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
from redis.crc import key_slot

from app.core.errors import FencedError
from app.core.events import keys
from app.core.events.event import Entry, Shard
from app.core.events.reading import Reading
from app.core.messages import Publication
from app.events.plane import EventPlane, open_plane
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from app.profiles.loader import load_profiles
from app.runtime.system import SystemClock, new_secret
from app.runtime.tasks import end
from app.settings import EventsSettings
from app.store.redis.driver.role import RedisRole, open_role
from tests.contract.event_places import DATABASES, ShardedEvents
from tests.sharded import Sharded
from tests.waiting import PATIENCE, eventually

LEASE = timedelta(seconds=PATIENCE)
SHARDS = DATABASES[0].all_shards()
DEVICES = [f"dock{number}" for number in range(12)]
AHEAD = 10**14
"""An epoch that no clock comes to."""


@pytest.fixture
async def place(redis_cluster: Sharded) -> AsyncIterator[ShardedEvents]:
    place = ShardedEvents(redis_cluster)
    await asyncio.to_thread(redis_cluster.empty)
    yield place
    await place.close()


@asynccontextmanager
async def role_of(cluster: Sharded, node_id: str) -> AsyncIterator[RedisRole]:
    holder = f"{node_id} {new_secret()}"
    role = open_role(cluster.url, "intake", holder, lease=LEASE, clock=SystemClock(), counters=Counter())
    yield role
    await role.close()


async def forget_epoch(cluster: Sharded, epoch: int | None) -> None:
    """Let the primary of the role forget all that it has, a moment after it gave this epoch out: the lease, too."""
    owner = await asyncio.to_thread(cluster.owner, key_slot(keys.epoch("intake").encode()))

    async def passed() -> bool:
        seconds, micros = map(int, await asyncio.to_thread(owner.ask, "TIME"))
        return seconds * 1000 + micros // 1000 > (epoch or 0)

    await eventually(passed)
    await asyncio.to_thread(owner.forget_everything)


async def test_the_next_holder_is_not_refused_by_shards_and_shuts_out_the_one_before_where_the_epoch_is_forgotten(
    redis_cluster: Sharded, place: ShardedEvents
) -> None:
    log = await place.open()
    async with role_of(redis_cluster, "n1") as first, role_of(redis_cluster, "n2") as second:
        epoch: int | None = None
        async with asyncio.timeout(PATIENCE):
            for _ in range(3):
                await first.release()
                epoch = await first.hold()
        for shard in SHARDS:
            await log.append(shard, [Entry("a", b"first")], epoch)
        await forget_epoch(redis_cluster, epoch)
        async with asyncio.timeout(PATIENCE):
            later = await second.hold()
        for shard in SHARDS:
            await log.append(shard, [Entry("a", b"second")], later)
            with pytest.raises(FencedError):
                await log.append(shard, [Entry("a", b"under his feet")], epoch)


class IntakeNode:
    """A node that brings events in, and a device that talks through the same broker."""

    def __init__(self, plane: EventPlane, talker: LoopbackMqttClient, counters: Counter[str]) -> None:
        self.plane = plane
        self.counters = counters
        self._talker = talker

    def say(self, *numbers: int) -> None:
        for number in numbers:
            for device in DEVICES:
                _puback = self._talker.publish(Publication(f"thing/product/{device}/osd", b"%d" % number, qos=1))

    async def said(self) -> dict[str, list[int]]:
        """Return what is in the log, by device, in its order."""
        found: dict[str, list[int]] = {}
        for shard in SHARDS:
            for event in (await self.plane.store.read(shard, Reading(), 1000)).events:
                found.setdefault(event.entry.topic.split("/")[2], []).append(int(event.entry.value))
        return found


@asynccontextmanager
async def intake_of(place: ShardedEvents, role: RedisRole) -> AsyncIterator[IntakeNode]:
    counters, broker = Counter[str](), LoopbackBroker()
    plane = open_plane(
        EventsSettings(url="redis://", databases="events=720h", shards=len(SHARDS)),
        profiles=list(load_profiles().values()),
        open_store=place.make,
        role=role,
        open_mqtt=lambda: LoopbackMqttClient(broker, "intake", counters),
        clock=SystemClock(),
        counters=counters,
        new_secret=new_secret,
    )
    (service,) = plane.plane.services
    assert service.run is not None
    assert service.close is not None
    async with AsyncExitStack() as stack:
        running = asyncio.create_task(service.run())
        stack.push_async_callback(service.close)
        stack.push_async_callback(end, [running])
        talker = LoopbackMqttClient(broker, "talker", counters)
        await talker.start([], lambda delivery: delivery.acknowledge())
        await talker.wait_connected()
        async with asyncio.timeout(PATIENCE):
            await plane.intake.listened()
        yield IntakeNode(plane, talker, counters)
        await talker.stop()


async def test_an_intake_that_a_shard_refuses_brings_all_in_under_a_later_epoch(
    redis_cluster: Sharded, place: ShardedEvents
) -> None:
    """The epoch is forgotten and the clock of its server set back, so a shard has a later one than who is there now."""
    async with role_of(redis_cluster, "n1") as role, intake_of(place, role) as node:
        node.say(1, 2)
        await eventually(has(node, 1, 2))
        ahead = {shard: AHEAD + shard.number for shard in SHARDS[:2]}
        for shard, epoch in ahead.items():
            await put_epoch(redis_cluster, shard, epoch)
        node.say(3, 4, 5)
        await eventually(has(node, 1, 2, 3, 4, 5))
        assert node.counters["events.fenced"]
        node.say(6)
        await eventually(has(node, 1, 2, 3, 4, 5, 6))


async def put_epoch(cluster: Sharded, shard: Shard, epoch: int) -> None:
    name = keys.state(shard)
    owner = await asyncio.to_thread(cluster.owner, key_slot(name.encode()))
    await asyncio.to_thread(owner.ask, "HSET", name, "epoch", epoch)


def has(node: IntakeNode, *numbers: int) -> Callable[[], object]:
    """Each device has said these, first copies in this order."""

    async def whole() -> bool:
        said = {device: list(dict.fromkeys(found)) for device, found in (await node.said()).items()}
        return said == {device: list(numbers) for device in DEVICES}

    return whole
