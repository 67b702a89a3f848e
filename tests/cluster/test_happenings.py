"""The stream of all commands over two nodes and a real Redis: what it loses, it says, and all nodes say it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from app.core.commands.stream import Position
from app.core.identifiers import PARTITIONS
from app.core.keys import happened
from tests.api.streaming import Event, Reading, stream
from tests.cluster.harness import Caller, Cluster, caller, cluster_of, devices
from tests.services import MosquittoProcess
from tests.stepped_redis import SteppedRedis
from tests.waiting import PATIENCE


@pytest.fixture
def redis() -> Iterator[SteppedRedis]:
    with SteppedRedis(at_once=True) as server:
        yield server


@pytest.fixture
def cluster(redis: SteppedRedis) -> Iterator[Cluster]:
    with MosquittoProcess() as broker, cluster_of(2, redis, broker) as nodes:
        yield nodes


@dataclass
class Site:
    client: Caller

    async def command(self, number: int) -> str:
        """The id of a command that a device of this number has done."""
        status, command = await self.client.command(number % 2, f"SN{number}", {})
        assert status == 200, command
        return str(command["id"])

    def stream(self, node: int, after: str = "") -> str:
        return f"{self.client.cluster.nodes[node].url}/v1/commands/events{after}"


@asynccontextmanager
async def site(cluster: Cluster) -> AsyncIterator[Site]:
    answering = devices(cluster.broker, lambda device, command: device.answer(command))
    async with asyncio.timeout(2 * PATIENCE), answering, caller(cluster) as client:
        yield Site(client)


async def next_of(reading: Reading) -> Event:
    event = await reading.next()
    assert event is not None
    return event


async def told(reading: Reading) -> Event:
    """The next one that is no bookmark."""
    while (event := await next_of(reading)).name == "bookmark":
        pass
    return event


async def happens(reading: Reading) -> Event:
    """The next one of a command."""
    while (event := await next_of(reading)).name in ("bookmark", "gap"):
        pass
    return event


def position_of(event: Event) -> Position:
    return Position.parse(event.id or "")


async def test_who_is_cut_off_before_the_first_event_misses_nothing_on_the_other_node(cluster: Cluster) -> None:
    async with site(cluster) as here:
        async with stream(here.stream(0)) as reading:
            began = await next_of(reading)
            assert began.name == "bookmark"
        done = [await here.command(number) for number in range(4)]
        async with stream(here.stream(1, f"?after={began.id}")) as reading:
            assert {(await told(reading)).data["command_id"] for _ in done} == set(done)


async def test_all_who_have_it_open_are_told_of_a_loss_on_whichever_node(cluster: Cluster, redis: SteppedRedis) -> None:
    async with (
        site(cluster) as here,
        stream(here.stream(0)) as first,
        stream(here.stream(1)) as second,
        Redis.from_url(redis.url) as client,
    ):
        for reading in (first, second):
            assert (await next_of(reading)).name == "bookmark"
        done = await here.command(1)
        before = [await told(reading) for reading in (first, second)]
        assert {one.data["command_id"] for one in before} == {done}
        await client.delete(*(happened(one) for one in range(PARTITIONS)))
        gaps = [await told(reading) for reading in (first, second)]
        assert [one.name for one in gaps] == ["gap", "gap"]
        assert all(position_of(gap) > position_of(one) for gap, one in zip(gaps, before, strict=True))
        done = await here.command(2)
        assert [(await happens(reading)).data["command_id"] for reading in (first, second)] == [done, done]
        async with stream(here.stream(1, f"?after={before[0].id}")) as late:
            assert (await told(late)).name == "gap"
            assert (await happens(late)).data["command_id"] == done


async def test_all_who_have_it_open_are_told_when_the_clock_of_the_store_was_set_back(
    cluster: Cluster, redis: SteppedRedis
) -> None:
    async with site(cluster) as here, stream(here.stream(0)) as first, stream(here.stream(1)) as second:
        for reading in (first, second):
            assert (await next_of(reading)).name == "bookmark"
        await here.command(1)
        before = [await told(reading) for reading in (first, second)]
        redis.clock.step(-60)
        latest = [await told(reading) for reading in (first, second)]
        assert [one.name for one in latest] == ["gap", "gap"]
        assert all(position_of(now) > position_of(then) for now, then in zip(latest, before, strict=True))
        for number in range(2, 6):
            done = await here.command(number)
            for place, reading in enumerate((first, second)):
                event = await told(reading)
                if event.name == "gap":  # the other node knew of later ones
                    latest[place], event = event, await told(reading)
                assert event.data["command_id"] == done
                assert position_of(event).ms >= position_of(latest[place]).ms
                latest[place] = event
        async with stream(here.stream(1, f"?after={before[0].id}")) as late:
            assert (await told(late)).name == "gap"
        async with stream(here.stream(0, f"?after={latest[1].id}")) as late:
            done = await here.command(6)
            while (event := await told(late)).data["command_id"] != done:
                assert event.name == "outcome"  # those of the same millisecond come once more
