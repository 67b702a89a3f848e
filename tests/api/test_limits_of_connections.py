"""Limits on what one connection, one peer or all of them together may take, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import repeat

import pytest
from structlog.testing import capture_logs

from app.server.limiter import Limits
from app.server.protocol import BoundedProtocol
from app.server.refusals import MAX_HEAD, MAX_HEADERS
from tests.api.rig import Rig, until
from tests.api.serving import HEAD, HEALTH, Served, all_of, answer_to, connection, request, serving

SMALL = Limits(connections=4, per_peer=4, probes=2)
ENOUGH = 64 * 1024 * 1024
"""Bytes after which nobody will refuse any more."""


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Served]:
    async with serving(rig) as one:
        yield one


@pytest.fixture
async def small(rig: Rig) -> AsyncIterator[Served]:
    async with serving(rig, SMALL) as one:
        yield one


async def flood(port: int, begin: bytes, chunks: Iterator[bytes]) -> tuple[bytes, int]:
    """Send until the node has enough; its answer, and how many bytes it took (with what the system has queued)."""
    async with connection(port) as (reader, writer):
        sent = len(begin)
        writer.write(begin)
        answer = asyncio.create_task(all_of(reader))
        try:
            while sent < ENOUGH and not answer.done():
                chunk = next(chunks)
                writer.write(chunk)
                await writer.drain()
                sent += len(chunk)
        except ConnectionError:
            pass
        return await answer, sent


ENDLESS: dict[str, tuple[bytes, bytes, bytes, str]] = {
    "small headers": (HEAD.encode(), b"a:b\r\n" * 1000, b"431", "head_too_large"),
    "one header": (HEAD.encode() + b"X-Long: ", b"x" * 4096, b"431", "head_too_large"),
    "a name of a header": (HEAD.encode(), b"x" * 4096, b"431", "head_too_large"),
    "the target": (b"GET /v1/commands?cursor=", b"x" * 4096, b"414", "target_too_long"),
    "small chunks": (HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 512, b"413", ""),
    "a chunk's extension": (
        HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n1;x=",
        b"x" * 4096,
        b"413",
        "body_too_large",
    ),
    "trailers": (
        HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n",
        b"a:b\r\n" * 1000,
        b"413",
        "body_too_large",
    ),
    "a trailer": (
        HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Long: ",
        b"x" * 4096,
        b"413",
        "body_too_large",
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_what_does_not_end_is_cut_off_early_and_with_a_word(served: Served, what: str) -> None:
    begin, chunk, status, why = ENDLESS[what]
    answer, sent = await flood(served.port, begin, repeat(chunk))
    assert answer.startswith(b"HTTP/1.1 " + status + b" "), answer
    assert b"application/problem+json" in answer
    assert sent < ENOUGH
    if why:
        assert served.closed(why) == 1
    assert not served.rig.store.registrations
    await until(lambda: served.count() == 0)
    assert served.limiter.held == 0


async def test_a_body_that_nobody_reads_is_cut_off(served: Served) -> None:
    begin = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    answer, sent = await flood(served.port, begin, repeat(b"x" * 4096))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1
    assert sent < ENOUGH
    assert served.closed("body_too_large") == 1


async def test_a_head_of_ordinary_size_is_served_whole_or_in_small_pieces(served: Served) -> None:
    headers = "".join(f"X-{n}: {'v' * 100}\r\n" for n in range(90))
    whole = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n".encode()
    assert len(whole) < MAX_HEAD
    assert (await answer_to(served.port, whole)).startswith(b"HTTP/1.1 200")
    pieces = [whole[at : at + 3000] for at in range(0, len(whole), 3000)]
    assert (await answer_to(served.port, *pieces)).startswith(b"HTTP/1.1 200")


async def test_a_complete_head_with_too_many_headers_is_refused(served: Served) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * MAX_HEADERS + b"\r\n"
    assert (await answer_to(served.port, head)).startswith(b"HTTP/1.1 431")


async def test_half_sent_requests_share_a_budget(rig: Rig) -> None:
    async with serving(rig, Limits(held=100_000)) as served, AsyncExitStack() as stack:
        half = f"{HEAD}Content-Length: 50000\r\n\r\n".encode() + b" " * 40_000
        for _ in range(2):
            _, writer = await stack.enter_async_context(connection(served.port))
            writer.write(half)
        await until(lambda: served.limiter.held > 80_000)
        answer = await answer_to(served.port, half)
        assert answer.startswith(b"HTTP/1.1 503")
        assert served.closed("too_much_held") == 1
        whole = request('{"method":"ok"}').replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert (await answer_to(served.port, whole)).startswith(b"HTTP/1.1 200")
        await stack.aclose()
        await until(lambda: served.limiter.held == 0)


SENT_BEFORE: dict[str, tuple[bytes, float, bytes, str]] = {
    "nothing": (b"", Limits().idle, b"", "idle"),
    "empty lines": (b"\r\n\r\n", Limits().idle, b"", "idle"),
    "half a request line": (b"GET /heal", Limits().head, b"HTTP/1.1 408 ", "slow_head"),
    "half a head": (HEAD.encode(), Limits().head, b"HTTP/1.1 408 ", "slow_head"),
    "half a body": (
        b"GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
        Limits().body,
        b"HTTP/1.1 200 ",
        "slow_body",
    ),
    "a request": (HEALTH, Limits().idle, b"HTTP/1.1 200 ", "idle"),
    "a request and a half": (HEALTH + b"GET", Limits().head, b"HTTP/1.1 200 ", "slow_head"),
}


@pytest.mark.parametrize("sent", SENT_BEFORE)
async def test_a_connection_has_its_time_and_not_more(served: Served, sent: str) -> None:
    what, seconds, answer, why = SENT_BEFORE[sent]
    async with connection(served.port) as (reader, writer):
        writer.write(what)
        await until(lambda: served.count() == 1)
        if b"200" in answer:
            await reader.readuntil(b"}")
        else:
            await until(lambda: not what.strip() or bool(served.limiter.head.since))
        served.after(seconds - 1)
        assert served.closed(why) == 0
        served.after(1)
        rest = await all_of(reader)
        assert rest.startswith(b"" if b"200" in answer else answer)
        assert served.closed(why) == 1
    await until(lambda: served.count() == 0)


async def test_more_of_a_head_gives_no_more_time(served: Served) -> None:
    async with connection(served.port) as (reader, writer):
        for n in range(5):
            writer.write(b"GET / HTTP/1.1\r\n" if n == 0 else b"X-Slow: 1\r\n")
            await until(lambda: bool(served.limiter.head.since))
            served.after(Limits().head / 5)
        assert (await all_of(reader)).startswith(b"HTTP/1.1 408")


async def test_a_caller_that_waits_for_its_device_is_in_no_hurry(served: Served) -> None:
    async with connection(served.port) as (reader, writer):
        writer.write(request('{"method":"silent","timeout":"1h"}') + b"GET /heal")
        command = await served.rig.heard()
        served.after(3000)
        served.rig.device.answer(command, '"status":"ok"')
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    assert not [name for name in served.rig.counters if name.startswith("http.closed.")]


@asynccontextmanager
async def crowd(served: Served, size: int, sent: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open so many connections that have sent this."""
    async with AsyncExitStack() as stack:
        readers = []
        for n in range(size):
            reader, writer = await stack.enter_async_context(connection(served.port))
            writer.write(sent)
            await until(lambda n=n: served.count() == n + 1)  # type: ignore[misc]
            readers.append(reader)
        yield readers


@pytest.mark.parametrize("sent", [b"", b"GET /half", HEALTH])
async def test_who_has_waited_longest_without_a_request_makes_room(small: Served, sent: bytes) -> None:
    async with crowd(small, 4, sent) as readers:
        for reader in readers if sent is HEALTH else ():
            await reader.readuntil(b"}")
        health = HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert (await answer_to(small.port, health)).startswith(b"HTTP/1.1 200")
        assert small.closed("made_room") == 1
        assert await all_of(readers[0]) == b""
        assert small.count() == 3


SILENT = request('{"method":"silent","timeout":"1h"}')


async def busy(served: Served, size: int) -> None:
    await until(lambda: len(served.rig.waiters) == size)


async def test_with_callers_on_every_connection_only_health_is_served(small: Served) -> None:
    async with crowd(small, 4, SILENT):
        await busy(small, 4)
        for path in (b"/healthz", b"/readyz", b"/metrics"):
            answer = await answer_to(small.port, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), path
            assert b"connection: close" in answer
        assert small.closed("too_many") + small.closed("too_many_of_peer") == 0
        answer = await answer_to(small.port, request('{"method":"ok"}'))
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"urn:homing:problem:too-many-connections" in answer
        assert b"retry-after: 1" in answer
        assert small.closed("too_many") + small.closed("too_many_of_peer") == 1
        assert len(small.rig.store.registrations) == 4


async def test_connections_that_hold_the_last_places_without_a_word_give_way(small: Served) -> None:
    async with crowd(small, 4, SILENT):
        await busy(small, 4)
        async with AsyncExitStack() as stack:
            for _ in range(20):
                await stack.enter_async_context(connection(small.port))
            assert (await answer_to(small.port, HEALTH)).startswith(b"HTTP/1.1 200")


async def test_one_peer_cannot_take_the_places_of_the_others(rig: Rig) -> None:
    limits = Limits(connections=4, per_peer=2, probes=2)
    async with serving(rig, limits) as served, crowd(served, 2, SILENT):
        await busy(served, 2)
        assert (await answer_to(served.port, request('{"method":"ok"}'))).startswith(b"HTTP/1.1 503")
        assert served.closed("too_many_of_peer") == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, local_addr=("127.0.0.2", 0))
        writer.write(request('{"method":"ok"}'))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_place_is_free_again_when_its_caller_has_left(small: Served) -> None:
    async with crowd(small, 4, SILENT):
        await busy(small, 4)
    await until(lambda: small.count() == 0)
    for _ in range(10):
        answer = await answer_to(small.port, HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert answer.startswith(b"HTTP/1.1 200")
    await until(lambda: small.count() == 0)


async def test_a_peer_that_does_not_read_is_cut_off(served: Served) -> None:
    document = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    transport = writer.transport
    transport.pause_reading()  # type: ignore[attr-defined]  # asyncio's have it
    writer.write(document * 2000)
    await until(lambda: bool(served.limiter._stalled))
    served.after(Limits().stall - 1)
    assert served.closed("slow_reader") == 0
    served.after(1)
    assert served.closed("slow_reader") == 1
    await until(lambda: served.count() == 0)
    writer.close()


async def test_a_peer_that_reads_in_the_end_gets_everything(served: Served) -> None:
    document = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with connection(served.port) as (reader, writer):
        writer.write(document * 300 + document.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await until(lambda: bool(served.limiter._stalled))
        answer = await all_of(reader)
    assert answer.count(b"HTTP/1.1 200") == 301
    assert served.closed("slow_reader") == 0


async def test_a_flood_of_pipelined_requests_is_read_as_far_as_it_is_served(served: Served) -> None:
    """Each request that is parsed takes kilobytes; a segment holds thousands of them."""
    async with connection(served.port) as (reader, writer):
        writer.write(SILENT)
        command = await served.rig.heard()
        writer.write(HEALTH * 5_000)
        await until(lambda: served.limiter.held > 4096)
        assert parsed(served) <= 4096 / len(HEALTH) + 1
        served.rig.device.answer(command, '"status":"ok"')
        for _ in range(5_001):
            await reader.readuntil(b"HTTP/1.1 200")
    await until(lambda: served.count() == 0)
    assert served.limiter.held == 0


async def test_a_body_that_nobody_reads_is_forgotten_with_the_answer(served: Served) -> None:
    body = b"x" * 60_000
    head = b"POST /v1/devices/dock-1/commands HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with connection(served.port) as (reader, writer):
        writer.write(head + body)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 421")
        (one,) = served.server.server_state.connections
        assert isinstance(one, BoundedProtocol)
        assert one.cycle.response_complete
        assert one.cycle.body == b""


def parsed(served: Served) -> int:
    return max(len(one.pipeline) for one in served.server.server_state.connections if isinstance(one, BoundedProtocol))


JUNK = (b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"\x00", b"GARBAGE\r\n\r\n")


async def test_junk_is_counted_and_logged_once_in_a_while(served: Served) -> None:
    with capture_logs() as logs:
        for _ in range(25):
            for junk in JUNK:
                assert (await answer_to(served.port, junk)).startswith(b"HTTP/1.1 400")
    assert served.closed("unreadable") == 100
    assert [(one["event"], one["reason"], one["count"]) for one in logs] == [
        ("http_connection_closed", "unreadable", 1)
    ]
    served.after(10)
    with capture_logs() as logs:
        await answer_to(served.port, JUNK[0])
    assert [one["count"] for one in logs] == [100]
