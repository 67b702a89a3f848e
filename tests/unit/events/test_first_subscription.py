"""A node is ready when the broker keeps events for it: before, nobody keeps what devices say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from app.events import life
from app.events.plane import EventPlane, open_plane
from app.mqtt.base import MessageHandler, Subscription, Will
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from app.profiles.loader import load_profiles
from app.runtime.tasks import end
from app.settings import EventsSettings
from app.store.memory.events import MemoryEventLog
from app.store.roles import OnlyOne, RoleLease
from tests.unit.assembly import ManualClock
from tests.waiting import PATIENCE, eventually, turns

WAITS = "nobody has subscribed to events yet"


class SlowClient(LoopbackMqttClient):
    """It subscribes when a test says so."""

    may_subscribe: asyncio.Event

    async def start(
        self, subscriptions: Sequence[Subscription], handler: MessageHandler, will: Will | None = None
    ) -> None:
        await self.may_subscribe.wait()
        await super().start(subscriptions, handler, will)


class OfAnotherNode(OnlyOne):
    """The role, which another node has."""

    async def hold(self) -> int | None:
        await asyncio.Event().wait()
        return None


@asynccontextmanager
async def plane_of(role: RoleLease) -> AsyncIterator[tuple[EventPlane, asyncio.Event]]:
    clock, counters = ManualClock(), Counter[str]()
    client = SlowClient(LoopbackBroker(), "intake", counters)
    client.may_subscribe = asyncio.Event()
    plane = open_plane(
        EventsSettings(url="memory://"),
        profiles=list(load_profiles().values()),
        open_store=lambda databases: MemoryEventLog(databases, clock),
        role=role,
        open_mqtt=lambda: client,
        clock=clock,
        counters=counters,
        new_secret=lambda: "secret",
    )
    (service,) = plane.plane.services
    assert service.run is not None
    assert service.close is not None
    running = asyncio.create_task(service.run())
    yield plane, client.may_subscribe
    await end([running])
    await service.close()


def health(plane: EventPlane) -> str:
    (service,) = plane.plane.services
    assert service.check is not None
    return service.check()


async def test_a_node_is_ready_with_its_first_subscription() -> None:
    async with plane_of(OnlyOne()) as (plane, may_subscribe):
        await eventually(lambda: health(plane) == WAITS)
        await turns()
        assert health(plane) == WAITS
        may_subscribe.set()
        await eventually(lambda: health(plane) == "ok")


async def test_or_where_another_node_brings_events_in() -> None:
    async with plane_of(OfAnotherNode()) as (plane, _):
        await eventually(lambda: health(plane) == "ok")


async def test_or_after_some_seconds_as_commands_go_on_without_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "LISTEN_SECONDS", 0.01)
    async with plane_of(OnlyOne()) as (plane, _):
        async with asyncio.timeout(PATIENCE):
            await eventually(lambda: health(plane) == "ok")
