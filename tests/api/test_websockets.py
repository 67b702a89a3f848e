"""WebSockets at the border: how they are opened, and what one of them may take, over real sockets."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from socket import create_server

import aiohttp
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from structlog.testing import capture_logs

from app.api.problems import NOT_FOUND, problem
from app.api.websockets import upgrade_required
from app.server.frames import WebSocketFrames
from app.server.hosts import Hosts
from app.server.limiter import ConnectionLimiter, Limits
from app.server.refusals import MAX_MESSAGE
from app.server.run import http_config
from tests.api.rig import until
from tests.api.serving import Clock, all_of, connection, raw_socket
from tests.api.sockets import BytesMessage, CloseConnection, Ping, Pong, TextMessage, opening, socket
from tests.waiting import PATIENCE, turns

TEXT = 0x81
FRAGMENT = 0x01


class Echo:
    """An application that says what it hears; `deny` refuses, `hold` hears nothing until it may, `crash` fails."""

    def __init__(self) -> None:
        self.may_hear = asyncio.Event()
        self.heard: list[str] = []
        self.ended: list[int] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (upgrade_required() if scope["path"] == "/v1/connect" else problem(NOT_FOUND, "none"))(
                scope, receive, send
            )
            return
        wire, query = WebSocket(scope, receive, send), scope["query_string"]
        if query == b"deny":
            await wire.send_denial_response(problem(NOT_FOUND, "nobody is here"))
            return
        await wire.accept()
        if query == b"hold":
            await self.may_hear.wait()
        try:
            await self._echo(wire, query)
        except WebSocketDisconnect as error:
            self.ended.append(error.code)

    async def _echo(self, wire: WebSocket, query: bytes) -> None:
        while True:
            message = await wire.receive()
            if message["type"] == "websocket.disconnect":
                self.ended.append(message["code"])
                return
            if query == b"crash":
                raise ValueError("a mistake")
            text = message.get("text")
            self.heard.append(f"{len(message['bytes'])} bytes" if text is None else text[:16])
            if text == "more":
                while True:
                    await wire.send_bytes(b"x" * 65536)
            await wire.send({**message, "type": "websocket.send"})


class Site:
    """The parts of a served application that a test may want to touch."""

    def __init__(self, limits: Limits) -> None:
        self.clock = Clock()
        self.counters: Counter[str] = Counter()
        self.limiter = ConnectionLimiter(limits, self.clock, self.counters)
        self.echo = Echo()
        self.port = 0
        self.server: uvicorn.Server

    def after(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.limiter.tick()

    def count(self) -> int:
        return self.limiter.fill().size


@asynccontextmanager
async def serving(limits: Limits | None = None) -> AsyncIterator[Site]:
    site = Site(limits or Limits())
    config = http_config(site.echo, site.limiter, Hosts((), loopback=True))
    config.lifespan = "off"
    with create_server(("127.0.0.1", 0)) as listening:
        site.server = uvicorn.Server(config)
        task = asyncio.create_task(site.server._serve([listening]))  # without its signal handlers
        await until(lambda: site.server.started)
        site.port = listening.getsockname()[1]
        try:
            yield site
        finally:
            site.server.should_exit = True
            await task


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as one:
        yield one
    assert one.count() == 0
    assert one.limiter.held == 0
    assert not one.limiter.silent.since
    assert not one.limiter.pinged.since


async def test_a_client_that_others_wrote_is_echoed(site: Site) -> None:
    url = f"http://127.0.0.1:{site.port}/v1/connect"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, compress=15) as wire:
        assert wire.compress == 0  # nothing is compressed: what a bound says is what comes
        await wire.send_str("a" * 100_000)
        assert await wire.receive_str() == "a" * 100_000
        await wire.send_bytes(bytes(range(256)) * 100)
        assert await wire.receive_bytes() == bytes(range(256)) * 100
        await wire.ping(b"there?")
        await wire.send_str("ü")
        assert await wire.receive_str() == "ü"
    await until(lambda: bool(site.echo.ended))
    assert site.echo.ended == [1000]
    assert site.counters["websocket.opened"] == 1


REFUSED: dict[str, tuple[bytes, int]] = {
    "no version": (opening({"Sec-WebSocket-Version": ""}), 426),
    "an old version": (opening({"Sec-WebSocket-Version": "8"}), 426),
    "no key": (opening({"Sec-WebSocket-Key": ""}), 426),
    "a key that is too short": (opening({"Sec-WebSocket-Key": "c2hvcnQ="}), 426),
    "a key that is none": (opening({"Sec-WebSocket-Key": "-" * 24}), 426),
    "two protocols": (opening({"Upgrade": "websocket, h2c"}), 426),
    "no wish to upgrade": (opening({"Connection": "keep-alive"}), 426),
    "a body": (opening({"Content-Length": "2"}) + b"{}", 426),
    "another path": (opening(target="/v1/other"), 404),
    "HTTP/1.0": (opening().replace(b"HTTP/1.1", b"HTTP/1.0"), 426),
    "POST": (opening().replace(b"GET", b"POST"), 426),
    "another host": (opening({"Host": "evil.example"}), 421),
    "a page of a stranger": (opening({"Origin": "http://evil.example"}), 403),
    "no host": (opening({"Host": ""}), 400),
    "what the application refuses": (opening(target="/v1/connect?deny"), 404),
}


async def test_what_opens_no_websocket_is_answered_with_a_problem(site: Site) -> None:
    for what, (sent, status) in REFUSED.items():
        async with connection(site.port) as (reader, writer):
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status), (what, head)
            assert b"application/problem+json" in head, what
            assert (b"sec-websocket-version: 13" in head) == (status == 426), what
    assert not site.counters["websocket.opened"]


async def test_a_page_of_the_node_itself_may_open_one(site: Site) -> None:
    async with socket(site.port, {"Origin": "http://localhost"}) as one:
        one.send(TextMessage("hello"))
        assert isinstance(await one.next(), TextMessage)


async def test_frames_behind_the_head_of_the_request_are_no_websocket(site: Site) -> None:
    async with connection(site.port) as (reader, writer):
        writer.write(opening() + b"\x81\x80\0\0\0\0")
        answer = await all_of(reader)
    assert [int(one) for one in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)] == [426, 400]


async def test_a_websocket_has_a_place_among_the_connections() -> None:
    async with serving(Limits(connections=2, per_peer=2, probes=1)) as site:
        async with socket(site.port) as one, socket(site.port):
            assert site.count() == 2
            async with connection(site.port) as (reader, writer):
                writer.write(opening())
                assert (await all_of(reader)).startswith(b"HTTP/1.1 503 ")
            one.send(TextMessage("still served"))
            assert isinstance(await one.next(), TextMessage)
        await until(lambda: site.count() == 0)


HOSTILE: dict[str, tuple[bytes, int]] = {
    "an unknown opcode": (bytes((0x83, 0x80)) + b"\0\0\0\0", 1002),
    "a frame that is not masked": (bytes((TEXT, 2)) + b"hi", 1002),
    "reserved bits": (bytes((0xC1, 0x80)) + b"\0\0\0\0", 1002),
    "a ping of 126 bytes": (bytes((0x89, 0xFE, 0, 126)) + b"\0" * 130, 1002),
    "a ping in pieces": (bytes((0x09, 0x80)) + b"\0\0\0\0", 1002),
    "a continuation of nothing": (bytes((0x80, 0x80)) + b"\0\0\0\0", 1002),
    "text that is no UTF-8": (bytes((TEXT, 0x81)) + b"\0\0\0\0\xff", 1007),
    "a close with half a code": (bytes((0x88, 0x81)) + b"\0\0\0\0\x03", 1002),
    "a frame of 2 MiB": (bytes((TEXT, 0xFF)) + (2 * MAX_MESSAGE).to_bytes(8, "big") + b"\0" * 4, 1009),
    "fragments of 2 MiB": (b"", 1009),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, 1002),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_what_is_no_right_frame_or_too_large_closes_with_the_code_for_it(site: Site, what: str) -> None:
    data, code = HOSTILE[what]
    async with socket(site.port) as one:
        one.writer.write(data)
        if what == "a frame of 2 MiB":
            one.writer.write(b"x" * (MAX_MESSAGE + 8192))
        if what == "fragments of 2 MiB":
            for at in range(32):
                one.writer.write(bytes((FRAGMENT if at == 0 else 0, 0xFF)) + (65536).to_bytes(8, "big") + b"\0" * 65540)
        assert (await one.closed())[0] == code
    why = "body_too_large" if code == 1009 else "unreadable"
    assert site.counters[f"http.closed.{why}"] == 1
    await until(lambda: site.count() == 0)


async def test_a_message_in_many_empty_fragments_takes_no_room(site: Site) -> None:
    async with socket(site.port) as one:
        one.writer.write(bytes((FRAGMENT, 0x80)) + b"\0" * 4 + (bytes((0, 0x80)) + b"\0" * 4) * 5_000)
        one.writer.write(bytes((0x80, 0x82)) + b"\0" * 4 + b"ok")
        event = await one.next()
        assert isinstance(event, TextMessage)
        assert event.data == "ok"


async def test_a_message_that_stays_half_sent_is_closed_in_the_time_of_a_body(site: Site) -> None:
    async with socket(site.port) as one:
        one.writer.write(bytes((FRAGMENT, 0x82)) + b"\0" * 4 + b"ha")
        await until(lambda: bool(site.limiter.body.since))
        assert site.limiter.held > 0
        site.after(15)
        assert await one.closed() == (1008, "the rest of a message did not arrive in time")
    assert site.counters["http.closed.slow_body"] == 1


async def test_half_sent_messages_of_all_together_are_bounded() -> None:
    async with serving(Limits(held=100_000)) as site, socket(site.port) as one, socket(site.port) as other:
        for each in (one, other):
            each.writer.write(bytes((FRAGMENT, 0xFF)) + (65536).to_bytes(8, "big") + b"\0" * 65540)
        ended = [asyncio.create_task(each.closed()) for each in (one, other)]
        done, left = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        assert [task.result()[0] for task in done] == [1013]
        for task in left:
            task.cancel()


async def test_who_is_silent_is_asked_and_who_does_not_answer_is_gone(site: Site) -> None:
    async with socket(site.port) as one, socket(site.port) as half_open:
        await until(lambda: len(site.limiter.silent.since) == 2)
        site.after(20)
        assert isinstance(await one.next(), Ping)
        one.send(Pong())
        await until(lambda: len(site.limiter.silent.since) == 1)
        site.after(20)
        await until(lambda: site.count() == 1)
        assert site.counters["http.closed.no_pong"] == 1
        assert isinstance(await half_open.next(), Ping)
        with pytest.raises((EOFError, ConnectionError)):
            await half_open.next()
        assert isinstance(await one.next(), Ping)
        one.send(TextMessage("any word will do"))
        assert isinstance(await one.next(), TextMessage)


async def test_who_is_not_heard_owes_no_pong(site: Site) -> None:
    async with connection(site.port) as (reader, writer):
        writer.write(opening(target="/v1/connect?hold"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bytes((TEXT, 0x81)) + b"\0" * 4 + b"a")
        await until(lambda: site.count() == 1 and not site.limiter.silent.since)
        site.after(20)
        site.after(20)
        assert site.count() == 1
        site.echo.may_hear.set()
        assert await reader.readexactly(3) == b"\x81\x01a"


async def test_who_never_reads_is_cut_and_nothing_piles_up(site: Site) -> None:
    with raw_socket(site.port, receive_buffer=4096) as peer:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(peer, opening())
        assert (await loop.sock_recv(peer, 4096)).startswith(b"HTTP/1.1 101 ")
        await loop.sock_sendall(peer, bytes((TEXT, 0x84)) + b"\0" * 4 + b"more")
        await until(lambda: bool(site.limiter._stalled))
        (stalled,) = site.limiter._stalled
        assert stalled.unread() < 256 * 1024
        pings = bytes((0x89, 0x80)) + b"\0" * 4
        for _ in range(50):  # we do not read either
            with suppress(BlockingIOError):
                peer.send(pings * 10_000)
            await turns(2)
        assert stalled.unread() < 256 * 1024
        site.after(30)
        await until(lambda: site.count() == 0)
    assert site.counters["http.closed.slow_reader"] == 1


async def test_a_flood_of_small_messages_is_read_as_far_as_it_is_heard(site: Site) -> None:
    async with connection(site.port) as (reader, writer):
        writer.write(opening(target="/v1/connect?hold"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write((bytes((TEXT, 0x81)) + b"\0" * 4 + b"a") * 20_000)
        await until(lambda: not site.limiter.silent.since)
        site.echo.may_hear.set()
        async with asyncio.timeout(PATIENCE):
            assert await reader.readexactly(60_000) == b"\x81\x01a" * 20_000
    assert len(site.echo.heard) == 20_000


async def test_a_mistake_of_the_application_closes_and_is_logged(site: Site) -> None:
    with capture_logs() as logs:
        await crashed(site)
    assert [(one["event"], one["path"]) for one in logs] == [("websocket_failed", "/v1/connect")]


async def crashed(site: Site) -> None:
    async with connection(site.port) as (reader, writer):
        writer.write(opening(target="/v1/connect?crash"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bytes((TEXT, 0x81)) + b"\0" * 4 + b"a")
        assert (await reader.readexactly(4))[2:] == (1011).to_bytes(2, "big")


async def test_a_peer_that_closes_is_answered_and_let_go(site: Site) -> None:
    async with socket(site.port) as one:
        one.send(CloseConnection(1000, "bye"))
        assert await one.closed() == (1000, "bye")
        assert await one.reader.read() == b""
    assert site.echo.ended == [1000]


async def test_a_peer_that_is_lost_is_let_go(site: Site) -> None:
    async with socket(site.port) as one:
        one.send(BytesMessage(b"abc"))
        await one.next()
        one.writer.write(bytes((FRAGMENT, 0x82)) + b"\0" * 4 + b"ha")
        await until(lambda: site.limiter.held > 0)
        one.writer.transport.abort()
        await until(lambda: bool(site.echo.ended))
    assert site.echo.ended == [1006]


async def test_a_node_that_stops_says_so() -> None:
    async with serving() as site, socket(site.port) as one:
        one.send(TextMessage("a"))
        await one.next()
        site.server.should_exit = True
        assert await one.closed() == (1001, "the node stops; go on with another one")
        one.send(CloseConnection(1001))
        assert await one.reader.read() == b""
        await until(lambda: bool(site.echo.ended))


def test_nothing_is_written_behind_a_close() -> None:
    frames = WebSocketFrames(10)
    assert frames.close(1000, "x" * 500)[1] == 122
    assert frames.close(1000, "") == b""
    assert not frames.is_open
