"""Cases that only a real server and real connections show: hanging up, bodies without end, pipelining."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.api import parking
from tests.api.rig import Rig, until
from tests.api.serving import HEAD, connection, request, serving
from tests.waiting import PATIENCE


@pytest.fixture
async def port(rig: Rig) -> AsyncIterator[int]:
    async with serving(rig) as served:
        yield served.port


async def test_F16_connections_that_close_free_their_places(rig: Rig, port: int) -> None:
    async def hang_up() -> None:
        async with connection(port) as (_, writer):
            writer.write(request('{"method":"silent","timeout":"60s"}'))
            await writer.drain()
            await until(lambda: len(rig.waiters) == 100)

    await asyncio.gather(*(hang_up() for _ in range(100)))
    async with asyncio.timeout(PATIENCE):
        await until(lambda: len(rig.waiters) == 0)
    assert len(rig.open_commands) == 100
    assert rig.counters["caller.hung_up"] == 100


async def test_a_caller_that_was_watched_can_go_on_with_its_connection(
    rig: Rig, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = asyncio.Event()
    watch = parking.ParkedCaller.watch

    def told(place: parking.ParkedCaller) -> None:
        watch(place)
        watched.set()

    monkeypatch.setattr(parking.ParkedCaller, "watch", told)
    async with connection(port) as (reader, writer):
        writer.write(request('{"method":"silent"}'))
        command = await rig.heard()
        async with asyncio.timeout(PATIENCE):
            await watched.wait()
        rig.device.answer(command, '"status":"ok"')
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.write(request('{"method":"ok","params":"second"}'))
        async with asyncio.timeout(PATIENCE):
            assert b'"params":"second"' in await reader.readuntil(b'"second"')


async def test_pipelined_requests_are_answered_in_order(rig: Rig, port: int) -> None:
    async with connection(port) as (reader, writer):
        writer.write(b"".join(request(f'{{"method":"ok","params":{number}}}') for number in range(20)))
        async with asyncio.timeout(PATIENCE):
            for number in range(20):
                await reader.readuntil(f'"params":{number},'.encode())


async def test_F99_a_chunked_body_without_end_ends_the_connection(rig: Rig, port: int) -> None:
    async def send_for_ever(writer: asyncio.StreamWriter) -> None:
        writer.write(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        while True:
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await writer.drain()

    async with connection(port) as (_, writer):
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(send_for_ever(writer), PATIENCE)
    assert rig.node.state == "ready"
    assert not rig.store.registrations


async def test_F99_a_large_declared_body_is_refused_before_it_is_sent(rig: Rig, port: int) -> None:
    async with connection(port) as (reader, writer):
        writer.write(f"{HEAD}Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"100 Continue" not in answer
