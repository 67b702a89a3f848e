"""A broker over a folder: it says what is on the disk, and to nobody what the disk does not take."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from rocksdict import Rdict
from structlog.testing import capture_logs

from app.broker.keeper import SessionKeeper
from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.codes import PacketType, ReasonCode
from app.core.broker.journal import BrokerJournal
from app.core.broker.message import Message
from app.core.broker.packets import (
    Connack,
    FilterOptions,
    Pingreq,
    Pingresp,
    Publish,
    PublishAck,
    Suback,
    Subscribe,
)
from app.core.broker.rights import Door
from app.core.errors import BrokerEntryNotFoundError, StoreUnavailableError
from app.store.rocks.folder import COMMANDS, RocksFolder, options
from app.store.rocks.sessions import RocksSessions
from tests.broker import RunningBroker, running_broker
from tests.mqtt_talk import Talk, begin_talk
from tests.unit.assembly import ManualClock
from tests.unit.core.broker.doors import Book
from tests.unit.core.broker.peers import HandClock
from tests.waiting import PATIENCE, eventually, turns


class Disk:
    """Syncs while it is `on`; then it may fail."""

    def __init__(self) -> None:
        self.fails = False
        self.on = threading.Event()
        self.on.set()
        self.syncs = 0

    def flush(self, database: Rdict) -> None:
        self.on.wait(PATIENCE)
        if self.fails:
            raise OSError(28, "No space left on device")
        self.syncs += 1
        database.flush_wal(True)


TALKS: list[Talk] = []


async def talk(running: RunningBroker, client_id: str, user: str | None = None) -> tuple[Talk, Connack]:
    return await begin_talk(running, client_id, TALKS, user)


@asynccontextmanager
async def kept_in(
    path: Path, disk: Disk | None = None, door: Door | None = None, clock: HandClock | None = None
) -> AsyncIterator[RunningBroker]:
    """A broker over this folder; at the end all connections are closed, as the process does, and the folder, too."""
    folder = RocksFolder(path, COMMANDS, (disk or Disk()).flush)
    try:
        async with running_broker(store=RocksSessions(folder), door=door, clock=clock) as running:
            yield running
    finally:
        while TALKS:
            await TALKS.pop().close()


async def test_sessions_and_messages_are_there_after_a_restart(tmp_path: Path) -> None:
    async with kept_in(tmp_path) as running:
        talking, connack = await talk(running, "c")
        assert not connack.session_present
        talking.say(Subscribe(1, (FilterOptions("t", 2),)))
        await talking.hear(Suback)
        await talking.close()
        await eventually(lambda: not running.broker.connections)
        other, _ = await talk(running, "other")
        for number in range(1, 101):
            other.say(Publish("t", b"%d" % number, 1 + number % 2, packet_id=number))
        for _ in range(100):
            await other.hear(PublishAck)
    async with kept_in(tmp_path) as running:
        talking, connack = await talk(running, "c")
        assert connack.session_present
        assert [(await talking.hear(Publish)).payload for _ in range(100)] == [b"%d" % one for one in range(1, 101)]


async def test_the_session_of_a_client_is_nobody_else_s_after_a_restart(tmp_path: Path) -> None:
    async with kept_in(tmp_path, door=Book()) as running:
        await talk(running, "c", "ann")
    async with kept_in(tmp_path, door=Book()) as running:
        _, refused = await talk(running, "c", "bob")
        assert refused.reason is ReasonCode.NOT_AUTHORIZED
        _, connack = await talk(running, "c", "ann")
        assert connack.session_present


async def test_what_comes_while_the_disk_works_shares_the_next_sync(tmp_path: Path) -> None:
    disk = Disk()
    async with kept_in(tmp_path, disk) as running:
        talks = [(await talk(running, f"c{number}"))[0] for number in range(20)]
        talks[0].say(Subscribe(1, (FilterOptions("t", 1),)))
        await talks[0].hear(Suback)
        disk.on.clear()
        before = disk.syncs
        for one in talks:
            one.say(Publish("t", b"x", 1, packet_id=7))
        await eventually(lambda: running.counters["broker.received"] == 20)
        disk.on.set()
        for one in talks[1:]:
            await one.hear(PublishAck)
        assert disk.syncs - before <= 3


async def test_a_ping_is_answered_while_the_disk_works_unless_it_would_overtake_something(tmp_path: Path) -> None:
    disk = Disk()
    async with kept_in(tmp_path, disk) as running:
        busy, idle = (await talk(running, "busy"))[0], (await talk(running, "idle"))[0]
        disk.on.clear()
        busy.say(Subscribe(1, (FilterOptions("t"),)), Pingreq())
        await eventually(lambda: len(running.broker.subscriptions))
        idle.say(Pingreq())
        await idle.hear(Pingresp)
        disk.on.set()
        await busy.hear(Suback)
        await busy.hear(Pingresp)


async def test_a_client_whose_packets_wait_for_the_disk_is_not_silent(tmp_path: Path) -> None:
    disk, clock = Disk(), HandClock()
    async with kept_in(tmp_path, disk, clock=clock) as running:
        client, _ = await begin_talk(running, "c", TALKS, keep_alive=10)
        client.say(Subscribe(1, (FilterOptions("t", 1),)))
        await client.hear(Suback)
        disk.on.clear()
        for number in (1, 2):
            client.say(Publish("t", b"x" * 200_000, 1, packet_id=number))
        await eventually(lambda: running.counters["broker.received"] == 2)
        client.say(Publish("t", b"last", 1, packet_id=3))
        for _ in range(4):
            clock.now += 15
            running.broker.tick()
        assert running.counters["broker.received"] == 2, "nothing more is read from it"
        assert running.counters["broker.refused.keep_alive_timeout"] == 0
        disk.on.set()
        await eventually(lambda: running.counters["broker.received"] == 3)
        clock.now += 15
        running.broker.tick()
        assert len(running.broker.connections) == 1
        clock.now += 1
        running.broker.tick()
        assert running.counters["broker.refused.keep_alive_timeout"] == 1


async def test_a_disk_that_fails_disconnects_and_refuses_until_it_takes_all_of_it(tmp_path: Path) -> None:
    disk = Disk()
    async with kept_in(tmp_path, disk) as running:
        reader, publisher = (await talk(running, "reader"))[0], (await talk(running, "publisher"))[0]
        reader.say(Subscribe(1, (FilterOptions("t", 2),)))
        await reader.hear(Suback)
        disk.fails = True
        publisher.say(Publish("t", b"1", 2, packet_id=1))
        for one in (reader, publisher):
            with pytest.raises(ConnectionError):
                await one.hear(PublishAck)
        assert running.broker.unavailable
        _, connack = await talk(running, "reader")
        assert connack.reason is ReasonCode.SERVER_UNAVAILABLE
        disk.fails = False
        await eventually(lambda: not running.broker.unavailable)
        publisher, connack = await talk(running, "publisher")
        assert connack.session_present
        publisher.say(Publish("t", b"1", 2, dup=True, packet_id=1))
        assert (await publisher.hear(PublishAck)).type is PacketType.PUBREC
    async with kept_in(tmp_path) as running:
        reader, _ = await talk(running, "reader")
        assert (await reader.hear(Publish)).payload == b"1"
        reader.say(Pingreq())
        await reader.hear(Pingresp)


async def test_what_an_operator_ends_is_off_the_disk_when_it_is_answered(tmp_path: Path) -> None:
    disk = Disk()
    async with kept_in(tmp_path, disk) as running:
        one, _ = await talk(running, "one")
        one.say(Subscribe(1, (FilterOptions("t", 1),)), Publish("kept", b"x", 1, packet_id=2, retain=True))
        await one.hear(Suback)
        await one.hear(PublishAck)
        disk.on.clear()
        ending = asyncio.create_task(running.operations.end_session("one", "boss"))
        removing = asyncio.create_task(running.operations.remove_retained("kept", None))
        await turns()
        assert not ending.done()
        assert not removing.done()
        disk.on.set()
        await asyncio.gather(ending, removing)
        for missing in (running.operations.end_session("one", None), running.operations.remove_retained("kept", None)):
            with pytest.raises(BrokerEntryNotFoundError):
                await missing
    async with kept_in(tmp_path) as running:
        assert running.operations.client_ids == []
        assert list(running.operations.retained(None)) == []


async def test_an_operator_is_told_when_the_disk_does_not_take_it(tmp_path: Path) -> None:
    disk = Disk()
    async with kept_in(tmp_path, disk) as running:
        await talk(running, "one")
        disk.fails = True
        with pytest.raises(StoreUnavailableError):
            await running.operations.end_session("one", "boss")
        disk.fails = False


async def test_a_damaged_row_is_named_and_left_out(tmp_path: Path) -> None:
    async with kept_in(tmp_path) as running:
        for name in ("good", "bad"):
            await talk(running, name)
    raw = Rdict(str(tmp_path), options(), {"sessions": options()})
    rows = raw.get_column_family("sessions")
    rows[b"cbad"] = b"{"
    rows.close()
    raw.close()
    del rows, raw
    with capture_logs() as logs:
        async with kept_in(tmp_path) as running:
            await eventually(lambda: "good" in running.broker.sessions)
            assert "bad" not in running.broker.sessions
            assert running.counters["drop.unreadable_record"] == 1
    assert [one["name"] for one in logs if one["event"] == "row_unreadable"] == ["cbad"]


async def test_the_end_does_not_wait_for_a_disk_that_fails(tmp_path: Path) -> None:
    disk = Disk()
    async with kept_in(tmp_path, disk) as running:
        talking, _ = await talk(running, "c")
        disk.fails = True
        talking.say(Subscribe(1, (FilterOptions("t", 2),)))
        with suppress(ConnectionError):
            await talking.hear(Suback)


class BrokenStore:
    """A store with a mistake."""

    async def start(self) -> Mapping[bytes, bytes]:
        return {}

    async def close(self) -> None: ...

    def check(self) -> None: ...

    async def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        raise ValueError(f"cannot write {len(rows)} rows")


async def test_a_mistake_ends_the_broker_as_what_is_held_back_would_never_leave() -> None:
    journal = BrokerJournal(keeps=True)
    broker = Broker(clock=ManualClock(), new_client_id=str, counters=Counter(), bounds=BrokerBounds(), journal=journal)
    keeper = SessionKeeper(broker, BrokenStore())
    await keeper.start()
    keeper.check()
    broker.publish(Message(topic="t", payload=b"1", qos=1, retain=True, publisher="c"))
    await turns()
    with pytest.raises(ValueError, match="cannot write"):
        keeper.check()
