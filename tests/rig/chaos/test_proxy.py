"""The fault proxy between real sockets."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from homing_rig.chaos.proxy import HELD_BYTES, Direction, FaultProxy
from tests.tcp import listening
from tests.waiting import eventually

MILLISECONDS = timedelta(milliseconds=1)
NOTHING = 0.15
"""Seconds in which nothing must come."""


@dataclass
class Target:
    """Keeps what it receives and who is connected; sends back what it gets while `echoing`."""

    port: int = 0
    echoing: bool = True
    received: bytearray = field(default_factory=bytearray)
    pieces: list[bytes] = field(default_factory=list)
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    ended: int = 0
    reset: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while data := await reader.read(1 << 16):
                self.received += data
                self.pieces.append(data)
                if self.echoing:
                    writer.write(data)
                    await writer.drain()
            self.ended += 1
        except ConnectionError:
            self.reset += 1


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    one = Target()
    async with listening(one.serve) as one.port:
        yield one


@pytest.fixture
async def proxy(target: Target) -> AsyncIterator[FaultProxy]:
    async with FaultProxy("127.0.0.1", target.port, seed=7) as one:
        yield one


@asynccontextmanager
async def connected(proxy: FaultProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    writer.write(text)
    return await reader.readexactly(len(text))


async def nothing_comes(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(NOTHING):
            await reader.read(1)


async def test_without_faults_everything_passes_both_ways_unchanged(proxy: FaultProxy, target: Target) -> None:
    sent = random.Random(1).randbytes(3_000_000)
    async with connected(proxy) as (reader, writer):
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
    assert target.received == sent


async def test_connections_are_counted(proxy: FaultProxy) -> None:
    assert (proxy.accepted, proxy.open) == (0, 0)
    async with connected(proxy) as one, connected(proxy) as two:
        await ask(*one, b"a")
        await ask(*two, b"b")
        assert (proxy.accepted, proxy.open) == (2, 2)
    await eventually(lambda: proxy.open == 0)
    assert proxy.accepted == 2


async def test_the_end_of_a_stream_passes_and_the_other_direction_goes_on(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as (reader, writer):
        writer.write(b"last words")
        writer.write_eof()
        assert await reader.read() == b"last words"
    assert target.ended == 1
    await eventually(lambda: proxy.open == 0)


async def test_a_reset_of_either_side_passes(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as one:
        await ask(*one, b"a")
        one[1].transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        one[1].transport.abort()
        await eventually(lambda: target.reset == 1)
    await eventually(lambda: proxy.open == 0)


async def test_a_target_that_is_not_there_resets_the_client() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with FaultProxy("127.0.0.1", unused.getsockname()[1]) as proxy, connected(proxy) as (reader, _writer):
            with pytest.raises(ConnectionResetError):
                await reader.read(1)


async def test_latency_delays_each_direction_on_its_own_and_keeps_the_order(proxy: FaultProxy) -> None:
    loop = asyncio.get_running_loop()
    async with connected(proxy) as (reader, writer):
        await ask(reader, writer, b"warm")
        for direction, least in ((Direction.UP, 0.1), (Direction.DOWN, 0.1), (Direction.BOTH, 0.2)):
            proxy.heal()
            proxy.latency(100 * MILLISECONDS, direction=direction)
            started = loop.time()
            for number in range(50):
                writer.write(b"%02d" % number)
                await asyncio.sleep(0)
            assert await reader.readexactly(100) == b"".join(b"%02d" % number for number in range(50))
            assert loop.time() - started >= least


async def test_jitter_comes_from_the_seed(target: Target) -> None:
    loop = asyncio.get_running_loop()
    most = timedelta(seconds=2)
    arrived: list[int] = []

    async def seconds(seed: int) -> float:
        async with FaultProxy("127.0.0.1", target.port, seed=seed) as proxy, connected(proxy) as (reader, writer):
            proxy.latency(timedelta(), jitter=most, direction=Direction.UP)
            started = loop.time()
            await ask(reader, writer, b"x")
            arrived.append(seed)
            return loop.time() - started

    seeds = (2, 1)
    expected = [most.total_seconds() * random.Random(seed).random() for seed in seeds]
    assert expected[0] > expected[1] + 1
    took = await asyncio.gather(*(seconds(seed) for seed in seeds))
    assert all(least <= one for least, one in zip(expected, took, strict=True))
    assert arrived == [1, 2], "the one with the longer delay came first"


async def test_heal_delivers_at_once_what_was_to_come_later(proxy: FaultProxy) -> None:
    async with connected(proxy) as (reader, writer):
        proxy.latency(timedelta(hours=1), direction=Direction.UP)
        writer.write(b"soon")
        await nothing_comes(reader)
        proxy.heal()
        assert await reader.readexactly(4) == b"soon"


async def test_a_blackhole_passes_nothing_and_tells_nobody_until_it_ends(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as (reader, writer):
        await ask(reader, writer, b"before")
        proxy.blackhole()
        writer.write(b"into the dark")
        await nothing_comes(reader)
        assert target.received == b"before"
        assert not reader.at_eof()
        proxy.heal()
        assert await reader.readexactly(13) == b"into the dark"


async def test_a_blackhole_down_swallows_the_reply_to_what_arrived(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as (reader, writer):
        await ask(reader, writer, b"before")
        proxy.blackhole(Direction.DOWN)
        writer.write(b"!")
        await eventually(lambda: target.received == b"before!")
        await nothing_comes(reader)


async def test_a_blackhole_up_still_lets_the_target_speak(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as (reader, writer):
        await ask(reader, writer, b"before")
        proxy.blackhole(Direction.UP)
        writer.write(b"!")
        target.connections[0].write(b"news")
        assert await reader.readexactly(4) == b"news"
        assert target.received == b"before"


async def test_neither_end_nor_reset_passes_a_blackhole(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as one, connected(proxy) as two:
        await ask(*one, b"a")
        await ask(*two, b"b")
        proxy.blackhole()
        one[1].close()
        target.connections[1].transport.abort()
        await eventually(lambda: target.ended == 1)
        await nothing_comes(two[0])
        assert target.ended == 1, "only the one that was aborted there"
        proxy.heal()
        await eventually(lambda: target.ended == 2)
        assert await two[0].read() == b""
    await eventually(lambda: proxy.open == 0)


async def test_a_target_that_is_gone_is_not_told_through_a_blackhole_down(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as (reader, writer):
        await ask(reader, writer, b"before")
        proxy.blackhole(Direction.DOWN)
        target.connections[0].transport.abort()
        await asyncio.sleep(0)
        for _ in range(3):  # the first one makes its system say that it is gone
            writer.write(b"!")
            await nothing_comes(reader)
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)


async def test_a_blackhole_takes_new_connections_and_joins_them_after_it(proxy: FaultProxy, target: Target) -> None:
    proxy.blackhole()
    async with connected(proxy) as (reader, writer):
        writer.write(b"hello?")
        await nothing_comes(reader)
        assert target.connections == []
        proxy.heal()
        assert await reader.readexactly(6) == b"hello?"


async def test_reset_cuts_every_connection_on_both_sides_and_takes_new_ones(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as one, connected(proxy) as two:
        await ask(*one, b"a")
        await ask(*two, b"b")
        assert proxy.reset() == 2
        for reader, _writer in (one, two):
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
        await eventually(lambda: target.reset == 2)
        assert proxy.open == 0
    async with connected(proxy) as three:
        assert await ask(*three, b"c") == b"c"


async def test_refuse_turns_new_clients_away_and_leaves_the_others(proxy: FaultProxy) -> None:
    port = proxy.port
    async with connected(proxy) as one:
        await ask(*one, b"a")
        proxy.refuse()
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert await ask(*one, b"b") == b"b"
        proxy.heal()
        assert proxy.port == port
        async with connected(proxy) as two:
            assert await ask(*two, b"c") == b"c"


async def test_slice_delivers_in_small_pieces_without_loss(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as (reader, writer):
        proxy.slice(3, gap=5 * MILLISECONDS, direction=Direction.UP)
        assert await ask(reader, writer, b"in small pieces") == b"in small pieces"
        assert len(target.pieces) > 1  # TCP may join some of them on a busy machine
        proxy.slice(1, gap=timedelta())
        sent = random.Random(2).randbytes(5_000)
        assert await ask(reader, writer, sent) == sent


async def test_slices_of_several_writes_keep_their_gaps(proxy: FaultProxy) -> None:
    loop = asyncio.get_running_loop()
    async with connected(proxy) as (reader, writer):
        proxy.slice(1, gap=10 * MILLISECONDS, direction=Direction.UP)
        started = loop.time()
        for part in (b"abcde", b"fghij"):
            writer.write(part)
            await asyncio.sleep(0.005)
        assert await reader.readexactly(10) == b"abcdefghij"
        assert loop.time() - started >= 0.09


async def test_limit_cuts_after_exactly_so_many_bytes_from_now_on(proxy: FaultProxy, target: Target) -> None:
    async with connected(proxy) as (reader, writer):
        await ask(reader, writer, b"before")
        proxy.limit(4, Direction.UP)
        writer.write(b"12")
        await eventually(lambda: target.received == b"before12")
        writer.write(b"34567")
        await reader.read()
        assert target.received == b"before1234"
    await eventually(lambda: proxy.open == 0)
    async with connected(proxy) as (reader, writer):
        writer.write(b"abcdefg")
        await reader.read()
        assert target.received == b"before1234abcd"


async def test_limit_down_cuts_the_reply(proxy: FaultProxy) -> None:
    proxy.limit(3, Direction.DOWN)
    async with connected(proxy) as (reader, writer):
        writer.write(b"abcdefg")
        assert await reader.read() == b"abc"


async def test_faults_add_up(proxy: FaultProxy, target: Target) -> None:
    loop = asyncio.get_running_loop()
    proxy.latency(50 * MILLISECONDS)
    proxy.slice(2)
    proxy.limit(5, Direction.DOWN)
    async with connected(proxy) as (reader, writer):
        started = loop.time()
        writer.write(b"abcdefg")
        assert await reader.read() == b"abcde"
        assert loop.time() - started >= 0.1


@pytest.mark.parametrize("delay", [timedelta(), timedelta(hours=1)])
async def test_a_reader_that_does_not_read_stops_the_writer(delay: timedelta) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        async with FaultProxy("127.0.0.1", deaf.getsockname()[1]) as proxy, connected(proxy) as (_reader, writer):
            proxy.latency(delay)
            sent = 0

            async def send() -> None:
                nonlocal sent
                while True:
                    writer.write(bytes(1 << 20))
                    await writer.drain()
                    sent += 1 << 20

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(send(), 0.5)
            assert sent < HELD_BYTES + (32 << 20), "what the proxy keeps, and the kernel's buffers"


async def test_a_taken_port_is_an_error(proxy: FaultProxy) -> None:
    with pytest.raises(OSError, match="in use"):
        async with FaultProxy("127.0.0.1", 1, port=proxy.port):
            pass


async def test_leaving_it_closes_everything(target: Target) -> None:
    async with FaultProxy("127.0.0.1", target.port) as proxy:
        one = await asyncio.open_connection("127.0.0.1", proxy.port)
        await ask(*one, b"a")
        proxy.blackhole()
        two = await asyncio.open_connection("127.0.0.1", proxy.port)
        await eventually(lambda: proxy.open == 2)
    for reader, writer in (one, two):
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", proxy.port)
