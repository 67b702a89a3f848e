"""Sessions of the broker in a node are there when they are opened again, wherever they are, and are one process's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis

from app.broker.keeper import SessionKeeper
from app.core import keys
from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.codes import PacketType, ReasonCode
from app.core.broker.journal import BrokerJournal
from app.core.broker.message import Message
from app.core.broker.packets import (
    FilterOptions,
    Pingreq,
    Pingresp,
    Publish,
    PublishAck,
    Suback,
    Subscribe,
    WillMessage,
)
from app.core.errors import BrokerTakenOverError
from app.core.events.keys import epoch as epoch_of
from app.core.events.keys import role
from app.runtime.tasks import end
from app.store.redis.driver.scripts import WRITE_SESSIONS
from app.store.sessions import SessionStore
from tests.broker import RunningBroker, running_broker
from tests.contract.session_places import NAME, FolderPlace, RedisPlace, SessionPlace
from tests.mqtt_talk import Talk, begin_talk
from tests.services import RedisProcess
from tests.unit.core.broker.doors import Book
from tests.unit.core.broker.peers import HandClock
from tests.waiting import PATIENCE, eventually

ROWS = keys.broker_rows(f"{NAME}-broker")
ROLE = role(f"{NAME}-broker")


@pytest.fixture(params=["rocks", "redis", "sharded"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> SessionPlace:
    if request.param == "rocks":
        return FolderPlace(tmp_path)
    if request.param == "sharded":
        cluster = request.getfixturevalue("redis_cluster")
        await asyncio.to_thread(cluster.empty)
        return RedisPlace(cluster.url)
    return await redis_place(request.getfixturevalue("redis_server"))


async def redis_place(server: RedisProcess) -> RedisPlace:
    async with Redis.from_url(server.url) as client:
        await client.flushall()
    return RedisPlace(server.node_url)


@pytest.fixture
async def on_redis(redis_server: RedisProcess) -> RedisPlace:
    return await redis_place(redis_server)


@asynccontextmanager
async def started(store: SessionStore) -> AsyncIterator[Mapping[bytes, bytes]]:
    """Its rows; closed at the end."""
    try:
        async with asyncio.timeout(PATIENCE):
            yield await store.start()
    finally:
        await store.close()


@asynccontextmanager
async def kept_in(place: SessionPlace, book: Book | None = None) -> AsyncIterator[tuple[RunningBroker, list[Talk]]]:
    """A broker over this place; at the end all connections are cut."""
    talks: list[Talk] = []
    try:
        async with running_broker(store=place.open(), door=book) as running:
            yield running, talks
    finally:
        for one in talks:
            await one.close()


async def test_rows_are_there_when_it_is_opened_again_and_those_deleted_are_not(place: SessionPlace) -> None:
    many = {b"m%d" % number: b"%d" % number * 7 for number in range(2500)}
    store = place.open()
    async with started(store) as rows:
        assert rows == {}
        await store.write({b"ca\0\xff": b"\0\xff\n", b"rempty": b"", b"tgone": b"1", **many})
        await store.write({b"tgone": None, b"tnever": None, b"ca\0\xff": b"2"})
    async with started(place.open()) as rows:
        assert rows == {b"ca\0\xff": b"2", b"rempty": b"", **many}


async def test_what_was_kept_goes_on_being_written(place: SessionPlace) -> None:
    for number in range(3):
        store = place.open()
        async with started(store) as rows:
            assert sorted(rows) == [b"t%d" % one for one in range(number)]
            await store.write({b"t%d" % number: b"x"})
            store.check()


async def test_sessions_and_messages_outlive_the_process(place: SessionPlace) -> None:
    async with kept_in(place) as (running, talks):
        reader, connack = await begin_talk(running, "c", talks)
        assert not connack.session_present
        reader.say(Subscribe(1, (FilterOptions("t", 2),)))
        await reader.hear(Suback)
        await reader.close()
        await eventually(lambda: not running.broker.connections)
        other, _ = await begin_talk(running, "other", talks)
        for number in range(1, 51):
            other.say(Publish("t", b"%d" % number, 1 + number % 2, packet_id=number, retain=number == 50))
        for _ in range(50):
            await other.hear(PublishAck)
    async with kept_in(place) as (running, talks):
        reader, connack = await begin_talk(running, "c", talks)
        assert connack.session_present
        got = [await reader.hear(Publish) for _ in range(50)]
        assert [one.payload for one in got] == [b"%d" % one for one in range(1, 51)]
        assert running.broker.retained.get("t") is not None


async def test_qos_2_is_exactly_once_across_processes_in_both_directions(place: SessionPlace) -> None:
    async with kept_in(place) as (running, talks):
        reader, _ = await begin_talk(running, "c", talks)
        reader.say(Subscribe(1, (FilterOptions("t", 2),)))
        await reader.hear(Suback)
        writer, _ = await begin_talk(running, "w", talks)
        writer.say(Publish("t", b"once", 2, packet_id=7))
        assert (await writer.hear(PublishAck)).type is PacketType.PUBREC
        sent = await reader.hear(Publish)
        reader.say(PublishAck(PacketType.PUBREC, sent.packet_id))
        assert (await reader.hear(PublishAck)).type is PacketType.PUBREL
    async with kept_in(place) as (running, talks):
        writer, _ = await begin_talk(running, "w", talks)
        writer.say(Publish("t", b"once", 2, packet_id=7, dup=True))
        assert (await writer.hear(PublishAck)).type is PacketType.PUBREC
        reader, _ = await begin_talk(running, "c", talks)
        again = await reader.hear(PublishAck)
        assert (again.type, again.packet_id) == (PacketType.PUBREL, sent.packet_id)
        reader.say(PublishAck(PacketType.PUBCOMP, again.packet_id))
        writer.say(Publish("t", b"two", 2, packet_id=8))
        assert (await reader.hear(Publish)).payload == b"two", "the first one did not come again"


async def test_the_will_of_a_client_whose_broker_has_died_is_published_once(place: SessionPlace) -> None:
    async with kept_in(place) as (running, talks):
        witness, _ = await begin_talk(running, "witness", talks)
        witness.say(Subscribe(1, (FilterOptions("wills", 1),)))
        await witness.hear(Suback)
        await begin_talk(running, "c", talks, will=WillMessage("wills", b"gone", 1))
    async with kept_in(place) as (running, talks):
        witness, _ = await begin_talk(running, "witness", talks)
        said = await witness.hear(Publish)
        assert said.payload == b"gone"
        witness.say(PublishAck(PacketType.PUBACK, said.packet_id), Pingreq())
        await witness.hear(Pingresp)
    async with kept_in(place) as (running, talks):
        witness, _ = await begin_talk(running, "witness", talks)
        other, _ = await begin_talk(running, "other", talks)
        other.say(Publish("wills", b"the end", 1, packet_id=1))
        assert (await witness.hear(Publish)).payload == b"the end"


async def test_a_session_belongs_to_its_owner_in_the_next_process(place: SessionPlace) -> None:
    async with kept_in(place, Book()) as (running, talks):
        await begin_talk(running, "c", talks, user="ann")
    async with kept_in(place, Book()) as (running, talks):
        _, refused = await begin_talk(running, "c", talks, user="bob")
        assert refused.reason is ReasonCode.NOT_AUTHORIZED
        _, connack = await begin_talk(running, "c", talks, user="ann")
        assert connack.session_present


async def test_a_second_process_waits_until_the_first_has_ended_and_has_all_of_it(on_redis: RedisPlace) -> None:
    first, second = on_redis.open(), on_redis.open(timedelta(seconds=1))
    async with started(first):
        waiting = asyncio.create_task(second.start())
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await asyncio.shield(waiting)
            await first.write({b"tt": b"1"})
            await first.close()
            async with asyncio.timeout(PATIENCE):
                assert await waiting == {b"tt": b"1"}
        finally:
            await end([waiting])
            await second.close()


async def test_a_process_that_stood_still_writes_nothing_when_another_one_has_taken_over(
    on_redis: RedisPlace, redis_server: RedisProcess
) -> None:
    first, second = on_redis.open(), on_redis.open()
    async with started(first), Redis.from_url(redis_server.url) as client:
        await first.write({b"tt": b"1"})
        await client.delete(ROLE)  # its lease has run out meanwhile
        async with started(second) as rows:
            assert rows == {b"tt": b"1"}
            await second.write({b"tt": b"2"})
            with pytest.raises(BrokerTakenOverError, match="another process is the broker"):
                await first.write({b"tt": b"3", b"more": b"4"})
            with pytest.raises(BrokerTakenOverError):
                first.check()
            second.check()
        assert (await client.hgetall(ROWS))[b"tt"] == b"2"
        assert not await client.hexists(ROWS, b"more")


async def test_a_process_whose_lease_is_lost_is_told_without_writing(
    on_redis: RedisPlace, redis_server: RedisProcess
) -> None:
    first = on_redis.open(timedelta(seconds=1))

    def taken_over() -> bool:
        try:
            first.check()
        except BrokerTakenOverError:
            return True
        return False

    async with started(first), Redis.from_url(redis_server.url) as client:
        first.check()
        await client.set(ROLE, "somebody else")
        await eventually(taken_over)


async def test_a_redis_that_has_forgotten_what_it_acknowledged_ends_the_broker(
    on_redis: RedisPlace, redis_server: RedisProcess
) -> None:
    """As a replica does that was promoted before it had the last writes."""
    first = on_redis.open()
    async with started(first), Redis.from_url(redis_server.url) as client:
        await first.write({b"tt": b"1"})
        was = await client.dump(ROWS)
        await first.write({b"tt": b"2"})
        assert was is not None
        await client.restore(ROWS, 0, was, replace=True)
        with pytest.raises(BrokerTakenOverError, match="Redis has forgotten"):
            await first.write({b"tu": b"1"})
    async with started(on_redis.open()) as rows:
        assert rows == {b"tt": b"1"}


async def test_a_write_that_was_given_up_and_comes_late_changes_nothing(
    on_redis: RedisPlace, redis_server: RedisProcess
) -> None:
    async with started(store := on_redis.open()), Redis.from_url(redis_server.url) as client:
        await store.write({b"tt": b"old"})
        epoch = int(await client.get(epoch_of(f"{NAME}-broker")) or 0)
        await store.write({b"tt": b"new"})
        late = await client.eval(
            WRITE_SESSIONS.text, 2, epoch_of(f"{NAME}-broker"), ROWS, epoch, 1, 0, 1, b"tt", b"old"
        )
        assert late == b"late"
        assert await client.hget(ROWS, b"tt") == b"new"


async def test_a_redis_that_stands_still_for_a_moment_is_waited_for(
    on_redis: RedisPlace, redis_server: RedisProcess
) -> None:
    """As a disk is: to give the write up disconnects all clients."""
    async with started(store := on_redis.open()):
        with redis_server.paused():
            writing = asyncio.create_task(store.write({b"tt": b"1"}))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.shield(writing)
        async with asyncio.timeout(PATIENCE):
            await writing
    async with started(on_redis.open()) as rows:
        assert rows == {b"tt": b"1"}


async def test_a_broker_that_was_taken_over_ends(on_redis: RedisPlace, redis_server: RedisProcess) -> None:
    counters: Counter[str] = Counter()
    journal = BrokerJournal(keeps=True)
    broker = Broker(clock=HandClock(), new_client_id=str, counters=counters, bounds=BrokerBounds(), journal=journal)
    keeper = SessionKeeper(broker, on_redis.open())
    assert keeper.health != "ok"
    async with Redis.from_url(redis_server.url) as client:
        await keeper.start()
        assert keeper.health == "ok"
        keeper.check()
        await client.incr(epoch_of(f"{NAME}-broker"))
        broker.publish(Message(topic="t", payload=b"1", qos=1, retain=True, publisher="c"))

        def has_ended() -> bool:
            with suppress(BrokerTakenOverError):
                keeper.check()
                return False
            return True

        await eventually(has_ended)
        assert not await client.exists(ROWS)
    await keeper.close()
