"""A primary that takes over has not got the last events: who has read them is told, and goes on with what follows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from app.core.events import keys
from app.core.events.event import BEGINNING, Database, Entry, Position, Shard
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.reading import EVERYTHING, Cursor, Reading, Slice
from app.events.reader import EventsReader
from app.events.tail import EventBatch, Tails
from app.runtime.system import SystemClock
from app.store.events import ArchivedError, EventStore
from app.store.redis.events.ends import MOST_SPANS
from tests.contract.cold_places import Cooling, archive_at
from tests.contract.event_places import RedisEvents
from tests.services import RedisProcess
from tests.unit.queues.stage import QueueStage
from tests.waiting import PATIENCE

PLAN = Plan([NamedDatabase("events", timedelta(days=1))], [], 1)
DATABASES: Sequence[Database] = PLAN.databases
SHARD = Shard("events", 0)
AHEAD = 3600 * 1_000_000
"""The time by which the clock of the primary that is gone was ahead, in µs."""

SET_BACK = "the clock of the one before was ahead"


class LosingServer:
    """A Redis with the event log of some nodes, which loses what came last, as one that takes over does."""

    def __init__(self, place: RedisEvents, client: Redis, clock: str) -> None:
        self.place = place
        self._client = client
        self._clock = clock

    async def say(self, log: EventStore, *values: str) -> Position:
        return await log.append(SHARD, [Entry("alarm", one.encode()) for one in values])

    async def kept(self) -> dict[bytes, bytes]:
        """All keys of the shard, as they are at this moment."""
        names: list[bytes] = await self._ask("KEYS", f"*{{{SHARD}}}*")
        return {name: await self._ask("DUMP", name) for name in names}

    async def lose(self, kept: dict[bytes, bytes]) -> None:
        """Go back to what it had."""
        await self._ask("DEL", *(await self._ask("KEYS", f"*{{{SHARD}}}*")))
        for name, value in kept.items():
            await self._ask("RESTORE", name, 0, value)

    async def say_lost(self, log: EventStore) -> dict[bytes, bytes]:
        """Say something that is kept, then something that will be lost; return what is kept."""
        await self.say(log, "kept")
        kept = await self.kept()
        if self._clock == SET_BACK:
            await self._ask("HINCRBY", keys.state(SHARD), "head", AHEAD)
        await self.say(log, "lost 1", "lost 2")
        return kept

    async def field(self, name: str) -> bytes | None:
        """Return what the shard has in a field."""
        found: bytes | None = await self._ask("HGET", keys.state(SHARD), name)
        return found

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        """Redis takes no writes meanwhile."""
        await self._ask("CONFIG", "SET", "maxmemory", 1)
        try:
            yield
        finally:
            await self._ask("CONFIG", "SET", "maxmemory", 0)

    async def _ask(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis replies
        return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]


@pytest.fixture(params=["clocks agree", SET_BACK])
async def server(request: pytest.FixtureRequest, redis_server: RedisProcess) -> AsyncIterator[LosingServer]:
    place = RedisEvents(redis_server.url, redis_server.node_url)
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
        yield LosingServer(place, client, request.param)
    await place.close()


@pytest.fixture
def own_redis() -> Iterator[RedisProcess]:
    """One that a test may kill."""
    with RedisProcess() as server:
        yield server


async def values(log: EventStore, after: Position = BEGINNING) -> list[str]:
    found = await log.read(SHARD, Reading(EVERYTHING, after), 1000)
    return [event.entry.value.decode() for event in found.events]


async def test_a_reader_gets_what_follows_on_pages(server: LosingServer) -> None:
    log = await server.place.open(DATABASES)
    reader = EventsReader(log, PLAN)
    kept = await server.say_lost(log)
    page = await reader.page("events", "#", Cursor((BEGINNING,)), 10)
    assert [one.entry.value for one in page.events] == [b"kept", b"lost 1", b"lost 2"]
    await server.lose(kept)
    after = await reader.page("events", "#", page.cursor, 10)
    assert not after.events
    assert after.lost > page.events[-1].position
    assert not (await reader.page("events", "#", after.cursor, 10)).lost
    picked = await log.pick(SHARD, [one.position for one in page.events])
    assert [one.entry.value for one in picked.events.values()] == [b"kept"]
    assert not picked.damaged
    await server.say(log, "new 1")
    await server.say(log, "new 2")
    page = await reader.page("events", "#", page.cursor, 10)
    assert [one.entry.value for one in page.events] == [b"new 1", b"new 2"]
    assert page.lost == after.lost
    assert await values(log) == ["kept", "new 1", "new 2"]


async def test_each_reader_that_passes_what_is_lost_is_told_once_whatever_their_node_knows(
    server: LosingServer,
) -> None:
    log = await server.place.open(DATABASES)
    kept = await server.say_lost(log)
    read = (await log.read(SHARD, Reading(), 10)).events
    await server.lose(kept)
    await server.say(log, "new")
    node = await server.place.open(DATABASES)
    for after, told in ((BEGINNING, 2), (read[0].position, 1), (read[1].position, 1), (read[2].position, 1)):
        first = await node.read(SHARD, Reading(after=after, until=read[2].position), 10)
        assert len(first.events) + 1 == told
        assert first.lost == (read[2].position if after < read[2].position else BEGINNING)
        whole = await node.read(SHARD, Reading(after=after), 10)
        assert whole.events[-1].entry.value == b"new"
        assert read[2].position < whole.lost < whole.events[-1].position
        assert not (await node.read(SHARD, Reading(after=whole.lost), 10)).lost


async def test_of_two_nodes_that_know_of_more_the_one_behind_the_other_is_heard_too(server: LosingServer) -> None:
    """The first one that appends knows of less than a reader has got."""
    one, other = await server.place.open(DATABASES), await server.place.open(DATABASES)
    kept = await server.say_lost(one)
    last = await server.say(other, "lost 3")
    await server.lose(kept)
    await server.say(one, "new 1")
    await other.wait("events", [BEGINNING])
    assert (await one.read(SHARD, Reading(after=last), 10)).lost > last


async def test_a_shard_remembers_what_it_has_forgotten_in_bounds(server: LosingServer) -> None:
    log = await server.place.open(DATABASES)
    for _ in range(MOST_SPANS + 3):
        await server.lose(await server.say_lost(log))
        await server.say(log, "new")
    spans = (await server.field("forgot") or b"").split()
    assert len(spans) == MOST_SPANS
    assert spans == sorted(spans)
    assert (await log.read(SHARD, Reading(), 1000)).lost == int(spans[-1].partition(b"-")[2])


async def test_a_reader_is_told_of_it_in_the_cold_tier(server: LosingServer, tmp_path: Path) -> None:
    log = await server.place.open(DATABASES)
    kept = await server.say_lost(log)
    (*_, last) = (await log.read(SHARD, Reading(), 10)).events
    await server.lose(kept)
    new = await server.say(log, "new")
    archive = archive_at(tmp_path)
    await archive.start()
    cold = Cooling(log, archive)
    await cold.rotate("events", 1)
    with pytest.raises(ArchivedError):
        await log.read(SHARD, Reading(after=last.position), 10)
    found = await cold.read(SHARD, Reading(after=last.position), 10)
    assert [event.position for event in found.events] == [new]
    assert last.position < found.lost < new
    assert not (await cold.read(SHARD, Reading(after=new), 10)).lost
    await archive.close()


async def test_a_log_that_lost_nothing_tells_of_nothing(server: LosingServer) -> None:
    """A reader who begins at an instant may stand behind the last event."""
    log = await server.place.open(DATABASES)
    await server.say(log, "kept")
    (head,) = await log.wait("events", [BEGINNING])
    found = await log.read(SHARD, Reading(after=head + AHEAD), 10)
    assert found == Slice([], head + AHEAD, more=False)
    assert not (await log.read(SHARD, Reading(), 10)).lost
    assert await server.field("forgot") is None


async def test_reading_goes_on_where_a_shard_cannot_be_told(server: LosingServer) -> None:
    log = await server.place.open(DATABASES)
    kept = await server.say_lost(log)
    await server.lose(kept)
    async with server.full():
        assert await values(log) == ["kept"]
        assert not (await log.read(SHARD, Reading(), 10)).lost


@pytest.mark.parametrize("knows", ["by reading", "by waiting"])
async def test_a_node_that_knows_of_what_is_lost_appends_behind_it(server: LosingServer, knows: str) -> None:
    """The node that appended what is lost is gone."""
    gone, node = await server.place.open(DATABASES), await server.place.open(DATABASES)
    kept = await server.say_lost(gone)
    if knows == "by reading":
        (*_, last) = (await node.read(SHARD, Reading(), 10)).events
        position = last.position
    else:
        (position,) = await node.wait("events", [BEGINNING])
    await server.lose(kept)
    assert await server.say(node, "new") > position


async def test_a_follower_gets_what_follows(server: LosingServer) -> None:
    log = await server.place.open(DATABASES)
    tails = Tails(log, EventsReader(log, PLAN), Counter(), SystemClock())
    batches = tails.follow("events", "#", Cursor((BEGINNING,)))
    kept = await server.say_lost(log)
    assert await told(batches, 3) == ["kept", "lost 1", "lost 2"]
    await server.lose(kept)
    assert (await of_gap(batches)).lost > BEGINNING  # nothing was said since
    await server.say(log, "new 1")
    assert await told(batches, 1) == ["new 1"]
    await server.say(log, "new 2")
    assert await told(batches, 1) == ["new 2"]
    await batches.aclose()
    await tails.close()


async def test_who_follows_a_redis_whose_file_was_cut_is_told(own_redis: RedisProcess) -> None:
    place = RedisEvents(own_redis.url, own_redis.node_url)
    log = await place.open(DATABASES)
    tails = Tails(log, EventsReader(log, PLAN), Counter(), SystemClock())
    batches = tails.follow("events", "#", Cursor((BEGINNING,)))
    await log.append(SHARD, [Entry("alarm", b"kept")])
    end = await asyncio.to_thread(own_redis.log_end)
    last = await log.append(SHARD, [Entry("alarm", b"lost")])
    assert await told(batches, 2) == ["kept", "lost"]
    await asyncio.to_thread(own_redis.forget_since, end)
    gap = await of_gap(batches)
    assert gap.lost > last
    assert not gap.events
    await log.append(SHARD, [Entry("alarm", b"new")])
    assert await told(batches, 1) == ["new"]
    assert await values(log) == ["kept", "new"]
    await batches.aclose()
    await tails.close()
    await place.close()


async def told(batches: AsyncGenerator[EventBatch, None], count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += (event.entry.value.decode() for event in (await anext(batches)).events)
    return found


async def of_gap(batches: AsyncGenerator[EventBatch, None]) -> EventBatch:
    async with asyncio.timeout(PATIENCE):
        while True:
            batch = await anext(batches)
            if batch.lost:
                return batch


class LosingStage(QueueStage):
    """A queue over this log."""

    def __init__(self, log: EventStore) -> None:
        self.other_log = log
        super().__init__()


async def test_a_queue_is_fed_with_what_follows(server: LosingServer) -> None:
    """A node that has not got them does not lend those that are gone, and nothing is fed twice."""
    log = await server.place.open(DATABASES)
    stage = LosingStage(log)
    kept = await server.say_lost(log)
    await stage.feeder.round()
    assert await stage.size() == 3
    await server.lose(kept)
    await stage.feeder.round()
    await server.say(log, "new 1")
    await stage.feeder.round()
    taker = stage.new_taker()
    lent = await taker.take(stage.queue, 10, "w1", 0, 1_000_000)
    assert [one.event.entry.value for one in lent] == [b"kept", b"new 1"]
    assert stage.counters["queues.expired"] == 2
    await taker.close()
