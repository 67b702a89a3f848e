"""The events of a command are told as they happen, without gaps where connections break."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from threading import Timer

import pytest

from homing_client import AsyncHoming, Homing, NotFoundError, Retry, UnavailableError
from homing_client.testing import FakeHoming
from tests.client.conftest import Open
from tests.client.twins import all_of, done
from tests.tcp import Handler, listening

SOON = Retry(first=timedelta(milliseconds=1))


@pytest.fixture
def fake() -> Iterator[FakeHoming]:
    with FakeHoming() as one:
        one.on("dock-1", "fly", state="pending")
        one.on("dock-1", "stop", result=1)
        yield one


def fly(fake: FakeHoming) -> str:
    with Homing(fake.url) as homing:
        return homing.send("dock-1", "fly", wait=False).id


async def test_progress_is_told_until_there_is_an_outcome(fake: FakeHoming, open_homing: Open) -> None:
    command = fly(fake)
    for percent in (10, 50):
        fake.report(command, {"percent": percent})
    Timer(0.05, fake.finish, (command,), {"result": "landed"}).start()
    events = await all_of(open_homing(fake.url).watch, command)
    assert [one.kind for one in events] == ["command", "progress", "progress", "outcome"]
    assert [one.progress for one in events[1:3]] == [{"percent": 10}, {"percent": 50}]
    assert events[0].command is not None
    assert (events[-1].command.result, events[-1].command.last_progress) == ("landed", {"percent": 50})
    rest = await all_of(open_homing(fake.url).watch, command, after=events[1].id)
    assert [one.kind for one in rest] == ["progress", "outcome"]
    assert await all_of(open_homing(fake.url).watch, command, after=events[-1].id) == []


async def test_a_stream_that_is_refused_for_a_moment_is_asked_for_again(fake: FakeHoming, open_homing: Open) -> None:
    command = fly(fake)
    fake.finish(command)
    fake.refuse(503, times=2)
    homing = open_homing(fake.url, retry=SOON)
    assert [one.kind for one in await all_of(homing.watch, command)] == ["command", "outcome"]
    fake.refuse(503, times=9)
    with pytest.raises(UnavailableError):
        await all_of(homing.watch, command)


async def test_a_command_that_is_not_there_cannot_be_watched(fake: FakeHoming, open_homing: Open) -> None:
    with pytest.raises(NotFoundError):
        await all_of(open_homing(fake.url).watch, "000-01J00000000000000000000099")


async def test_a_stream_goes_on_where_it_broke_off(fake: FakeHoming) -> None:
    """Each connection is cut after one event."""
    command = fly(fake)
    for percent in range(5):
        fake.report(command, {"percent": percent})
    fake.finish(command)
    async with listening(_cutter(fake)) as port:
        retry = Retry(attempts=1, burst=0, first=timedelta())
        async with AsyncHoming(f"http://127.0.0.1:{port}", retry=retry) as homing:
            events = [one async for one in homing.watch(command)]
    assert [one.kind for one in events] == ["command", *["progress"] * 5, "outcome"]
    assert [one.progress["percent"] for one in events[1:-1]] == list(range(5))


def _cutter(fake: FakeHoming) -> Handler:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", int(fake.url.rpartition(":")[2]))
        try:
            there[1].write(await reader.readuntil(b"\r\n\r\n"))
            writer.write(await there[0].readuntil(b"\r\n\r\n"))
            writer.write(await there[0].readuntil(b"\n\n"))
            await writer.drain()
        finally:
            there[1].close()

    return cut


async def test_whoever_stops_reading_leaves_nothing_open(fake: FakeHoming, open_homing: Open) -> None:
    command = fly(fake)
    homing = open_homing(fake.url)
    assert len(await all_of(homing.watch, command, most=1)) == 1
    assert (await done(homing.send, "dock-1", "stop")).result == 1
    fake.finish(command)
