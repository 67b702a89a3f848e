"""A client of whatever is in the place of a node: it raises an error of ours, in time, and takes no page for a yes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import pytest

from homing_client import NO_RETRY, AsyncHoming, HomingError, UnexpectedAnswerError, UnreachableError
from tests.client.conftest import Open
from tests.client.twins import all_of, done
from tests.tcp import listening
from tests.waiting import PATIENCE

SOON = timedelta(milliseconds=200)
LOGIN = b"<html>Log in first</html>"
DEEP = b"[" * 200_000


def saying(answer: bytes) -> Callable[[], AbstractAsyncContextManager[str]]:
    """Serve this to each request, and close."""

    @asynccontextmanager
    async def serve() -> AsyncIterator[str]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

        async with listening(handle) as port:
            yield f"http://127.0.0.1:{port}"

    return serve


def answer(status: str, body: bytes, *, kind: str = "application/json", more: str = "", short: int = 0) -> bytes:
    """An answer; `short` is how many bytes it announces and does not send."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body) + short}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    "said",
    [
        answer("302 Found", b"", more="Location: /login\r\n"),
        answer("302 Found", LOGIN, kind="text/html", more="Location: /login\r\n"),
        answer("200 OK", LOGIN, kind="text/html"),
    ],
    ids=["redirect", "redirect-page", "page"],
)
async def test_a_page_of_something_in_between_is_no_yes(open_homing: Open, said: bytes) -> None:
    async with saying(said)() as url:
        homing = open_homing(url, retry=NO_RETRY)
        with pytest.raises(UnexpectedAnswerError):
            await done(homing.access.revoke_key, "k")
        with pytest.raises(UnexpectedAnswerError):
            await done(homing.access.put_tenant, "north", {})
        with pytest.raises(UnexpectedAnswerError):
            await done(homing.nodes)


@pytest.mark.parametrize("body", [b'{"a": ', DEEP, b"\xff\xfe"], ids=["cut", "deep", "binary"])
async def test_json_that_is_none_is_an_error_of_ours(open_homing: Open, body: bytes) -> None:
    async with saying(answer("200 OK", body))() as url:
        homing = open_homing(url, retry=NO_RETRY)
        with pytest.raises(UnexpectedAnswerError):
            await done(homing.nodes)
        with pytest.raises(UnexpectedAnswerError):
            await done(homing.access.tenant, "north")


async def test_a_body_that_ends_too_early_is_no_answer(open_homing: Open) -> None:
    async with saying(answer("200 OK", b'{"nodes": []}', short=10))() as url:
        with pytest.raises(UnreachableError):
            await done(open_homing(url, retry=NO_RETRY).nodes)


@pytest.mark.parametrize("data", [b"retry: 1e9\n", b"retry: " + b"9" * 400 + b"\n"])
@pytest.mark.parametrize("status", ["abc", [1], None])
async def test_a_problem_in_a_stream_is_an_error_of_ours(open_homing: Open, data: bytes, status: object) -> None:
    word = repr(status).replace("'", '"').replace("None", "null").encode()
    body = data + b'id: 1\nevent: problem\ndata: {"status": ' + word + b"}\n\n"
    async with saying(answer("200 OK", body, kind="text/event-stream"))() as url:
        with pytest.raises(HomingError):
            await all_of(open_homing(url, retry=NO_RETRY).watch_all)


async def test_a_body_that_trickles_ends_with_the_patience(open_homing: Open) -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("200 OK", b"", short=1_000_000))
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with listening(trickle) as port:
        homing = open_homing(f"http://127.0.0.1:{port}", retry=NO_RETRY, patience=SOON)
        with pytest.raises(UnreachableError, match="did not answer in time") as late:
            async with asyncio.timeout(10):
                await done(homing.nodes)
    assert late.value.sent


async def test_a_head_that_trickles_ends_as_well() -> None:
    """A byte now and then never lets a read time out. Threads have no way to end a read that is under way."""

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with listening(trickle) as port:
        url = f"http://127.0.0.1:{port}"
        async with AsyncHoming(url, retry=NO_RETRY, patience=SOON) as homing:
            with pytest.raises(UnreachableError, match="did not answer in time") as late:
                async with asyncio.timeout(10):
                    await homing.nodes()
    assert late.value.sent


async def test_a_node_that_never_opens_a_connection_is_left_and_a_consumer_stops(open_homing: Open) -> None:
    """A node that is frozen has a kernel that accepts for it."""
    asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        await reader.read()

    async with asyncio.timeout(PATIENCE), listening(hangs) as port:
        consumer = open_homing(f"http://127.0.0.1:{port}", retry=NO_RETRY, patience=SOON).consumer()
        consumer.on("alarms")(lambda _: None)
        running = asyncio.create_task(done(consumer.run))
        for _ in range(2):
            assert (await asked.get()).startswith(b"GET /v1/connect ")
        consumer.stop()
        await running
