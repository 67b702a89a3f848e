"""The implementations of the state store behind one face, so that no test asks which one it has."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Protocol

from redis.asyncio import Redis
from rocksdict import Rdict

from app.core.cluster.wakeup import WATCHED, decode_wake_up
from app.core.commands.callback import Answer, Expectation, HoldRequest, Registration
from app.core.commands.command import CommandState, IfOffline
from app.core.commands.routing import Outcome
from app.core.identifiers import PARTITIONS, command_id
from app.core.keys import LAST_HELD, happened
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane
from app.store.memory.commands.store import MemoryStateStore
from app.store.redis.commands.store import RedisStateStore
from app.store.rocks.commands import RocksStateStore
from app.store.rocks.folder import COMMANDS, RocksFolder
from app.store.state import StateStore
from tests.stores import redis_store
from tests.waiting import PATIENCE

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(milliseconds=30)
"""Long enough to tell two instants apart, short enough to wait for."""

TOPIC = "thing/product/{device}/services_reply"


class ManualClock:
    """Stands still until advanced."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.ahead = 0.0
        """The time by which the clock on the wall was set ahead."""

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + 1_700_000_000 + self.ahead


class Backend(Protocol):
    """A place where commands are kept, and what a test needs to know of it from outside."""

    async def open(self) -> StateStore:
        """One more node's view of the same place, started; closed with the backend."""

    async def advance(self, duration: timedelta) -> None:
        """Let time pass."""

    async def woken(self) -> list[tuple[str, Outcome | None]]:
        """The wake-ups since the last call: node id, and the outcome where it was sent along."""

    async def told(self) -> list[tuple[str, str]]:
        """Return what watching nodes were told since the last call: node id and command id."""

    async def lose_happenings(self) -> None:
        """Drop what is kept for who follows all commands, as a Redis does that comes back empty."""

    async def size(self) -> int:
        """Return how much is kept: 0 when nothing is left of any command."""

    async def close(self) -> None: ...


class MemoryBackend:
    def __init__(self) -> None:
        self._clock = ManualClock()
        self._woken: list[tuple[str, Outcome | None]] = []
        self._told: list[tuple[str, str]] = []
        self._store = MemoryStateStore(
            self._clock,
            wake=lambda node, outcome: self._woken.append((node, outcome)),
            tell=lambda node, command: self._told.append((node, command)),
        )

    async def open(self) -> StateStore:
        await self._store.start()
        return self._store

    async def advance(self, duration: timedelta) -> None:
        self._clock.now += duration.total_seconds()

    async def woken(self) -> list[tuple[str, Outcome | None]]:
        woken, self._woken = self._woken, []
        return woken

    async def told(self) -> list[tuple[str, str]]:
        told, self._told = self._told, []
        return told

    async def lose_happenings(self) -> None:
        self._clock.now += MOMENT.total_seconds()
        self._store.changes._until = 0

    async def size(self) -> int:
        return self._store.size

    async def close(self) -> None:
        await self._store.close()


class RocksBackend:
    """A folder, which all views share as all nodes do: there is one process."""

    def __init__(
        self, folder: Path, flush: Callable[[Rdict], None] | None = None, clock: ManualClock | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.folder = RocksFolder(folder, COMMANDS, flush)
        self.counters: Counter[str] = Counter()
        self._woken: list[tuple[str, Outcome | None]] = []
        self._told: list[tuple[str, str]] = []
        self.store = RocksStateStore(
            self.folder,
            self.clock,
            self.counters,
            budget=timedelta(seconds=PATIENCE),
            wake=lambda node, outcome: self._woken.append((node, outcome)),
            tell=lambda node, command: self._told.append((node, command)),
        )
        self._opened = False

    async def open(self) -> StateStore:
        if not self._opened:
            self._opened = True
            await self.store.start()
        return self.store

    async def again(self) -> None:
        """End and start: what is in memory is what the folder has."""
        await self.store.close()
        await self.store.start()

    async def advance(self, duration: timedelta) -> None:
        self.clock.now += duration.total_seconds()

    async def woken(self) -> list[tuple[str, Outcome | None]]:
        woken, self._woken = self._woken, []
        return woken

    async def told(self) -> list[tuple[str, str]]:
        told, self._told = self._told, []
        return told

    async def lose_happenings(self) -> None:
        self.clock.now += MOMENT.total_seconds()
        await self.again()

    async def size(self) -> int:
        return self.store.size

    async def close(self) -> None:
        await self.store.close()


class RedisBackend:
    """An emptied Redis, whose stores have the rights of nodes and no others."""

    END = "mqtt:node:-end-"

    def __init__(self, url: str, node_url: str) -> None:
        self.node_url = node_url
        self._client = Redis.from_url(url)
        self._channels = self._client.pubsub()
        self._stores: list[RedisStateStore] = []

    async def begin(self) -> None:
        await self._client.flushall()
        await self._client.acl_log_reset()
        await self._channels.psubscribe("mqtt:node:*")
        await self.woken()

    async def open(self) -> StateStore:
        store = redis_store(self.node_url)
        self._stores.append(store)
        await store.start()
        return store

    async def advance(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())

    async def woken(self) -> list[tuple[str, Outcome | None]]:
        return [
            (node, decode_wake_up(data)[1]) for node, data in await self._published() if not data.startswith(WATCHED)
        ]

    async def told(self) -> list[tuple[str, str]]:
        return [
            (node, data.removeprefix(WATCHED).decode())
            for node, data in await self._published()
            if data.startswith(WATCHED)
        ]

    async def _published(self) -> list[tuple[str, bytes]]:
        await self._client.publish(self.END, b"")
        published = []
        async for message in self._channels.listen():
            if message["type"] == "pmessage":
                channel = message["channel"].decode()
                if channel == self.END:
                    break
                published.append((channel.removeprefix("mqtt:node:"), message["data"]))
        return published

    async def lose_happenings(self) -> None:
        await asyncio.sleep(MOMENT.total_seconds())  # so that it begins anew in a later millisecond
        await self._client.delete(*(happened(one) for one in range(PARTITIONS)))

    async def size(self) -> int:
        names = await self._client.keys()  # expired ones are not listed
        return len(set(names) - {LAST_HELD.encode()})  # one string for all, which ends after a while

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
        assert await self._client.acl_log() == []
        await self._channels.aclose()  # type: ignore[no-untyped-call]
        await self._client.aclose()


_numbers = count(1)


def new_id(device: str) -> str:
    """A command id of this device, newer than all before."""
    return command_id(device, f"01J{next(_numbers):023d}")


def topic_of(device: str, name: str = "services_reply") -> str:
    return f"thing/product/{device}/{name}"


def registration(
    device: str = "dock-1",
    *expectations: Expectation,
    identity: str | None = None,
    home: str = "node-a",
    params: bytes = b'{"height":30}',
    timeout: timedelta = MINUTE,
    retention: timedelta = MINUTE,
    quarantine: timedelta = timedelta(),
    key: str | None = None,
    fingerprint: str = "",
    if_offline: IfOffline = IfOffline.SEND,
    notify: tuple[str, ...] = (),
    held: timedelta | None = None,
    not_before: int | None = None,
    lane: CommandLane | None = None,
    waits: timedelta | None = None,
    approval: timedelta | None = None,
    replaces: str = "",
    run: str = "",
) -> Registration:
    """Return a registration; with `waits` it is held for so long if its lane has no room."""
    hold = HoldRequest(waits, "somebody", only_if_taken=True) if waits is not None else None
    return Registration(
        command_id=identity or new_id(device),
        device_id=device,
        method="takeoff",
        params=params,
        profile="dji",
        home_node=home,
        expectations=expectations or (Expectation(topic_of(device), Correlation.ID),),
        timeout=timeout,
        retention=retention,
        quarantine=quarantine,
        idempotency_key=key,
        fingerprint=fingerprint,
        if_offline=if_offline,
        notify=notify,
        hold=hold
        if held is None
        else HoldRequest(held, "somebody", not_before, approval=approval, replaces=replaces, run=run),
        lane=lane,
    )


def by_order(device: str = "dock-1", name: str = "services_reply") -> Expectation:
    return Expectation(topic_of(device, name), Correlation.ORDER)


def by_value(value: str, device: str = "dock-1", name: str = "events") -> Expectation:
    return Expectation(topic_of(device, name), Correlation.VALUE, value)


def answer(
    registered: Registration,
    state: CommandState = CommandState.SUCCEEDED,
    result: bytes | None = b'{"code":0}',
    error: bytes | None = None,
    *,
    expectation: int = 0,
    topic: str | None = None,
    device: str | None = None,
    profile: str = "",
) -> Answer:
    """Return what the device answers to the command on one of its topics."""
    place = registered.expectations[expectation]
    named = {
        Correlation.ID: registered.command_id,
        Correlation.VALUE: place.value,
        Correlation.ECHO: registered.command_id,
        Correlation.ORDER: "",
    }
    return Answer(
        topic=topic or place.topic,
        device_id=device or registered.device_id,
        correlation=place.correlation,
        value=named[place.correlation],
        state=state,
        result=result,
        error=error,
        profile=profile,
    )
