"""The broker sends what has no PUBACK with each connection: while the log is away that may be more than may wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from app.core.errors import StoreUnavailableError
from app.core.events.batches import BatchId, CallId
from app.core.events.event import Database, Entry, Position, Shard
from app.core.events.reading import Reading
from app.core.messages import Publication
from app.events.plane import BOUND, open_plane
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from app.profiles.loader import load_profiles
from app.runtime.tasks import end
from app.settings import EventsSettings
from app.store.memory.events import MemoryEventLog
from app.store.roles import OnlyOne
from tests.unit.assembly import ManualClock
from tests.waiting import PATIENCE, eventually, turns

DEVICES = ("dock1", "dock2", "dock3")


class AwayLog(MemoryEventLog):
    """A log that is away, but for the next so many appends."""

    takes = 0

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        if not self.takes:
            raise StoreUnavailableError("away")
        self.takes -= 1
        return await super().append(shard, entries, epoch, batch)


class FloodedNode:
    """A node whose log is away, its session, and a device that talks."""

    def __init__(self) -> None:
        self.counters = Counter[str]()
        broker, clock = LoopbackBroker(), ManualClock()
        self.session = LoopbackMqttClient(broker, "intake", self.counters)
        self.talker = LoopbackMqttClient(broker, "talker", self.counters)
        self.logs: list[AwayLog] = []

        def open_log(databases: Sequence[Database]) -> AwayLog:
            self.logs.append(AwayLog(databases, clock))
            return self.logs[0]

        self.plane = open_plane(
            EventsSettings(url="memory://", databases="events=720h", shards=1, receive_maximum=1, max_items=1),
            profiles=list(load_profiles().values()),
            open_store=open_log,
            role=OnlyOne(),
            open_mqtt=lambda: self.session,
            clock=clock,
            counters=self.counters,
            new_secret=lambda: "secret",
        )

    async def say(self, *numbers: int) -> None:
        for number in numbers:
            for device in DEVICES:
                _puback = self.talker.publish(Publication(f"thing/product/{device}/osd", b"%d" % number, qos=1))
        await turns()

    async def first_copies(self) -> dict[str, list[int]]:
        """Return what each device has said, in the order of the log."""
        found: dict[str, list[int]] = {device: [] for device in DEVICES}
        for event in (await self.logs[0].read(Shard("events", 0), Reading(), 1000)).events:
            device, number = event.entry.topic.split("/")[2], int(event.entry.value)
            if number not in found[device]:
                found[device].append(number)
        return found


@pytest.fixture
async def node() -> AsyncIterator[FloodedNode]:
    node = FloodedNode()
    (service,) = node.plane.plane.services
    assert service.run is not None
    assert service.close is not None
    running = asyncio.create_task(service.run())
    await node.talker.start([], lambda delivery: delivery.acknowledge())
    async with asyncio.timeout(PATIENCE):
        await node.talker.wait_connected()
        await node.session.wait_connected()
    yield node
    await end([running])
    await service.close()
    await node.talker.stop()


async def test_what_did_not_fit_is_sent_again_when_there_is_room(node: FloodedNode) -> None:
    """Nobody else breaks the connection, so without a new one it would stay at the broker."""
    await node.say(1)
    for number in range(2, 5):
        node.session.cut()
        await turns()
        await node.say(number)
    assert len(DEVICES) * (1 + 2 + 3 + 4) > BOUND, "more than may wait"
    node.logs[0].takes = 2

    async def a_little_room() -> bool:
        return node.counters["events.appended"] == 2

    await eventually(a_little_room)
    await node.say(5)  # it must not overtake what was left
    node.logs[0].takes = 1000

    async def whole() -> bool:
        return await node.first_copies() == {device: [1, 2, 3, 4, 5] for device in DEVICES}

    await eventually(whole)
    await node.say(6)

    async def goes_on() -> bool:
        return await node.first_copies() == {device: [1, 2, 3, 4, 5, 6] for device in DEVICES}

    await eventually(goes_on)


async def test_that_a_device_came_is_told_though_there_was_no_room_for_it(node: FloodedNode) -> None:
    """It says so once, when it connects."""
    while not node.counters["drop.events_full"]:
        _no_puback = node.talker.publish(Publication("thing/product/dock1/osd", b"1", qos=0))
        await turns()
    _puback = node.talker.publish(Publication("homing/gate-7/presence", b'{"online": true}', qos=1))
    await turns()
    node.logs[0].takes = 1000

    async def told() -> bool:
        return await node.plane.presence.presence_of("gate-7") is not None

    await eventually(told)
