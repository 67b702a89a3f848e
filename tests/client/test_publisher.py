"""A program that publishes much over one connection, with both twins of the client, on real nodes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from app.api.v1 import connect, connect_models
from app.core.errors import InvalidInputError as RefusedInputError
from homing_client import NO_RETRY, AsyncHoming, InvalidInputError, UnreachableError
from tests.api.rig import Rig, running
from tests.api.serving import serving
from tests.client.twins import AnyHoming, Twin, close, done
from tests.tcp import listening
from tests.waiting import PATIENCE, eventually, turns

Start = Callable[..., Awaitable[tuple[Rig, AnyHoming]]]


@pytest.fixture
async def start(twin: Twin) -> AsyncIterator[Start]:
    """Starts a node with the exchange `ops`, and the queue `all` of what is said in it."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> tuple[Rig, AnyHoming]:
            rig = await stack.enter_async_context(running(events={"url": "memory://"}, **settings))
            served = await stack.enter_async_context(serving(rig))
            homing = twin(f"http://127.0.0.1:{served.port}")
            stack.push_async_callback(close, homing)

            async def is_declared() -> bool:
                body = {"routes": [{"exchange": "ops", "key": "heard.#"}]}
                there = (await rig.http.put("/v1/exchanges/ops", json={"kind": "topic"})).is_success
                return there and (await rig.http.put("/v1/queues/all", json=body)).is_success

            await eventually(is_declared)
            return rig, homing

        yield start


@asynccontextmanager
async def publishing(homing: AnyHoming, **named: Any) -> AsyncIterator[Any]:
    """Open the publisher of either twin."""
    publisher: Any = homing.publisher(**named)
    prefix = "__a" if type(homing).__name__.startswith("Async") else "__"
    await done(getattr(publisher, f"{prefix}enter__"))
    try:
        yield publisher
    except BaseException:
        await done(getattr(publisher, f"{prefix}exit__"), *sys.exc_info())
        raise
    await done(getattr(publisher, f"{prefix}exit__"), None, None, None)


async def taken(rig: Rig, most: int) -> list[Any]:
    """Return the data of the messages that are there, by position."""
    body = {"max": most + 1, "auto": True}
    found: list[dict[str, Any]] = []

    async def are_there() -> bool:
        found.extend((await rig.http.post("/v1/queues/all/take", json=body)).json()["events"])
        return len(found) >= most

    await eventually(are_there)
    return [one["event"]["data"] for one in sorted(found, key=lambda one: one["event"]["position"])]


class SlowLog:
    """The log of a node, which takes nothing until it is told to."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        plane = rig.application.ports.queues
        assert plane is not None
        self.goes_on, self.asked = asyncio.Event(), 0
        self._publish: Any = plane.publisher._publisher.publish
        monkeypatch.setattr(plane.publisher._publisher, "publish", self)

    async def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 - as that of the log
        self.asked += 1
        await self.goes_on.wait()
        return await self._publish(*arguments)


async def test_messages_leave_without_waiting_and_are_confirmed_in_their_order(start: Start) -> None:
    rig, homing = await start()
    async with publishing(homing) as publisher:
        sent = [await done(publisher.send, "ops", "heard.all", number) for number in range(100)]
        told = [await done(one.confirmed) for one in sent]
    positions = [one["position"] for one in told]
    assert positions == sorted(set(positions))
    assert {tuple(one["routed"]) for one in told} == {("all",)}
    assert await taken(rig, 100) == [*range(100)]
    assert rig.counters["websocket.opened"] == 1


async def test_nodes_that_offer_no_connection_are_called(start: Start) -> None:
    rig, homing = await start(api={"max_streams": 1})
    rig.application.streams.admit(None)  # no place is left
    async with publishing(homing) as publisher:
        one = await done(publisher.send, "ops", "heard.all", 1, message_id="m-1", device_id="dock-1")
        assert (await done(one.confirmed))["routed"] == ["all"]
        large = await done(publisher.send, "ops", "heard.all", "x" * 1_100_000)
        with pytest.raises(InvalidInputError):
            await done(large.confirmed)
    assert await taken(rig, 1) == [1]
    assert rig.counters["websocket.opened"] == 0


async def test_older_nodes_which_know_no_channel_that_publishes_are_called(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, homing = await start()

    def as_before(frame: dict[str, Any]) -> Any:  # noqa: ANN401 - as it is
        if "publish" in frame["open"]:
            raise RefusedInputError("open.queue", "Field required")
        return connect_models.call_of(frame)

    monkeypatch.setattr(connect, "call_of", as_before)
    async with publishing(homing) as publisher:
        await done(publisher.send, "ops", "heard.all", 1)
    assert await taken(rig, 1) == [1]
    assert rig.counters["websocket.opened"] == 1


async def test_what_is_wrong_is_raised_for_whoever_asks_and_else_at_the_end(start: Start) -> None:
    rig, homing = await start()
    async with publishing(homing) as publisher:
        unheard = await done(publisher.send, "ops", "unheard", 1)
        await done(publisher.send, "ops", "unheard", 2, even_unrouted=True)
        large = await done(publisher.send, "ops", "heard.all", "x" * 1_100_000)  # larger than a frame
        for one, why in ((unheard, "no queue has a route"), (large, "bytes")):
            with pytest.raises(InvalidInputError, match=why):
                await done(one.confirmed)
        with pytest.raises(ValueError, match="JSON"):
            await done(publisher.send, "ops", "heard.all", float("nan"))

    async def publish_two() -> None:
        async with publishing(homing) as publisher:
            await done(publisher.send, "ops", "unheard", 1)
            await done(publisher.send, "ops", "heard.all", 3)

    with pytest.raises(InvalidInputError, match="no queue has a route"):
        await publish_two()
    assert await taken(rig, 1) == [3]
    with pytest.raises(ValueError, match="in_flight: 0"):
        homing.publisher(in_flight=0)


async def test_no_more_are_in_flight_than_may_be(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, homing = await start()
    log = SlowLog(rig, monkeypatch)
    async with publishing(homing, in_flight=2) as publisher:
        for number in range(2):
            await done(publisher.send, "ops", "heard.all", number)
        third = asyncio.create_task(done(publisher.send, "ops", "heard.all", 2))

        async def is_asked() -> bool:
            return log.asked > 0

        await eventually(is_asked)
        await turns()
        assert not third.done()
        log.goes_on.set()
        await third
    assert await taken(rig, 3) == [0, 1, 2]


async def test_a_connection_that_is_lost_loses_no_message_with_a_key_and_is_made_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, homing = await start()
    log = SlowLog(rig, monkeypatch)
    monkeypatch.setattr(connect, "DRAIN_SECONDS", 0.0)
    async with publishing(homing) as publisher:
        unsure = await done(publisher.send, "ops", "heard.all", "unsure")
        sure = await done(publisher.send, "ops", "heard.other", "sure", idempotency_key="k")

        async def is_asked() -> bool:
            return log.asked == 1

        await eventually(is_asked)
        rig.application.connections.dismiss()
        with pytest.raises(UnreachableError, match="lost before the confirmation"):
            await done(unsure.confirmed)
        log.goes_on.set()
        assert (await done(sure.confirmed))["routed"] == ["all"]

        async def is_connected() -> bool:
            return rig.counters["websocket.opened"] == 2 and len(rig.application.streams) == 1

        await eventually(is_connected)
        await done(publisher.send, "ops", "heard.all", "again")
    assert sorted(set(await taken(rig, 2)) - {"unsure"}) == ["again", "sure"]


async def test_who_gives_up_a_message_leaves_its_place_to_the_next_and_holds_up_no_end() -> None:
    """A message is a call where a node offers no connection, and a sender that is cancelled hears nothing of it."""
    asked = asyncio.Event()

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /v1/connect "):
            writer.write(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n")
            return
        asked.set()
        await asyncio.Event().wait()

    async with (
        asyncio.timeout(PATIENCE),
        listening(hangs) as port,
        AsyncHoming(f"http://127.0.0.1:{port}", retry=NO_RETRY) as homing,
        homing.publisher(in_flight=1) as publisher,
    ):
        for _ in range(2):
            asked.clear()
            sending = asyncio.create_task(publisher.send("ops", "heard", 1))
            await asked.wait()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        with pytest.raises(UnreachableError, match="nobody waited"):
            await publisher.flush()


class SilentCluster:
    """A transport on which no connection is ever opened."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    @asynccontextmanager
    async def connect(self, *_: Any) -> AsyncIterator[Any]:
        self.asked.set()
        try:
            await asyncio.Event().wait()
            yield None
        finally:
            self.left.set()

    async def aclose(self) -> None:
        pass


async def test_a_publisher_whose_beginning_is_cancelled_leaves_nothing_behind() -> None:
    cluster = SilentCluster()
    transport: Any = cluster  # of a publisher that only begins nothing else is asked
    async with AsyncHoming("http://homing.example", transport=transport) as homing:
        beginning = asyncio.create_task(homing.publisher().__aenter__())
        await cluster.asked.wait()
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        async with asyncio.timeout(PATIENCE):
            await cluster.left.wait()  # else it would try again for ever
