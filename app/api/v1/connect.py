"""One connection with channels: a program takes from queues and publishes to exchanges over one WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

import orjson
import structlog
from fastapi import Response as Reply
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.access.origin import ASKING
from app.api.dependencies import Asker
from app.api.http import asking, headers_of
from app.api.ports import Ports
from app.api.problems import answer_to, of_error
from app.api.routers import GuardedRouter
from app.api.sse import SseStreams
from app.api.v1.connect_channel import ConnectChannel, closed_json
from app.api.v1.connect_models import (
    MOST_CHANNELS,
    CloseCall,
    ConnectCall,
    OpenCall,
    OpenedChannel,
    OpenPublishingCall,
    PrefetchCall,
    PublishCall,
    SettleCall,
    call_of,
    frame_of,
    refused_message,
)
from app.api.v1.connect_publisher import PublishingChannel, problem_frame
from app.api.v1.exchange_messages import keyed_message
from app.api.v1.settlements import settlement_of
from app.api.websockets import CONNECT, WebSocketClose, upgrade_required
from app.core.access.rules import Action
from app.core.clock import Clock
from app.core.errors import (
    AccessError,
    CapacityError,
    HomingError,
    InvalidInputError,
    UnauthenticatedError,
)
from app.core.queues.exchanges import validate_exchange_name
from app.core.queues.model import validate_queue_name
from app.queues.plane import QueuePlane, needed_queues
from app.runtime.tasks import end

_log = structlog.get_logger(__name__)

MOST_CALLS: Final = 64
"""Settlements and messages of one connection that are under way; what comes then is read later."""
CHECK_SECONDS: Final = 15.0
"""The time between two looks at what a caller may still have, though nobody says that rules have changed."""
DRAIN_SECONDS: Final = 2.0
"""A connection that ends waits for so long to confirm the messages that it has read."""
SENT_AWAY: Final = "the node stops; go on with another one"
MOVED: Final = "the caller belongs to another tenant now; connect again"


class ConnectSession:
    """A connection of one caller. It ends when either side closes; what its channels were lent is given back then.

    `name` is the consumer of channels that are given none: a queue for one at a time tells connections apart by it.
    """

    def __init__(self, wire: WebSocket, plane: QueuePlane, asker: Asker, clock: Clock, name: str) -> None:
        self._wire: Final = wire
        self._plane: Final = plane
        self._asker: Final = asker
        self._clock: Final = clock
        self._name: Final = name
        self._tenant: Final = asker.tenant()
        self._channels: dict[int, ConnectChannel] = {}
        self._publishing: dict[int, PublishingChannel] = {}
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._places: Final = asyncio.Semaphore(MOST_CALLS)
        self._due: Final = asyncio.Event()
        self._ending: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve it to its end."""
        parts = [self._begin(one) for one in (self._listen(), self._keep())]
        try:
            either: list[asyncio.Future[Any]] = [self._ending, *parts]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(parts)
            await self._drain()
            await end([*self._workers.values(), *self._calls])
            await asyncio.gather(*(one.release() for one in self._channels.values()))
        if self._ending.done():
            with suppress(WebSocketDisconnect):
                await self._wire.close(*self._ending.result())

    def finish(self, code: int, reason: str) -> None:
        """Let it end; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result((code, reason))

    def recheck(self) -> None:
        """Close what the caller may not have any more."""
        try:
            tenant = self._asker.tenant()
        except UnauthenticatedError as error:
            self.finish(WebSocketClose.POLICY, str(error))
            return
        if tenant != self._tenant:
            self.finish(WebSocketClose.POLICY, MOVED)
            return
        for channel in tuple(self._channels.values()):
            try:
                self._asker.check_queue(Action.CONSUME, channel.name)
            except AccessError as error:
                self._workers[channel.number].cancel()
                self._start(self._close(channel, error))

    async def _listen(self) -> None:
        while True:
            message = await self._wire.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                await self._refuse(InvalidInputError("frame", "it is binary; allowed: JSON as text"))
                return
            try:
                frame = frame_of(text.encode())
            except InvalidInputError as error:
                number = refused_message(text.encode())
                if number is None:
                    await self._refuse(error)
                    return
                await self._send(problem_frame(number, error))
                continue
            await self._answer(frame)

    async def _refuse(self, error: InvalidInputError) -> None:
        """End the connection, as this is no frame at all: nobody can tell to what an answer would belong."""
        await self._send(b'{"problem":%b}' % bytes(of_error(error).body))
        self.finish(WebSocketClose.UNSUPPORTED, str(error))

    async def _answer(self, frame: dict[str, object]) -> None:
        """Calls are begun in the order in which they came; settlements need not wait for each other."""
        number = frame.get("id")
        try:
            call = call_of(frame)
            if isinstance(call, SettleCall):
                await self._places.acquire()
                self._start(self._settle(call), self._places.release)
                return
            if isinstance(call, PublishCall):
                await self._publish(call)
                return
            await self._control(call)
        except HomingError as error:
            await self._send(problem_frame(number, error))
        else:
            await self._send(orjson.dumps({"id": number, "ok": True}))

    async def _control(self, call: ConnectCall) -> None:
        if isinstance(call, OpenCall):
            await self._open(call.open)
        elif isinstance(call, OpenPublishingCall):
            self._open_publishing(call.open.channel)
        elif isinstance(call, PrefetchCall):
            self._channel(call.channel).prefetch(call.prefetch)
        elif isinstance(call, CloseCall) and call.close.channel in self._publishing:
            number = call.close.channel
            self._publishing[number].finish()
            await asyncio.wait([self._workers[number]])  # a connection that ends meanwhile waits for it as well
            del self._publishing[number], self._workers[number]
        elif isinstance(call, CloseCall):
            channel = self._channel(call.close.channel)
            await end([self._workers[channel.number]])
            await self._forget(channel)

    def _check_new(self, number: int) -> None:
        if number in self._channels or number in self._publishing:
            raise InvalidInputError("open.channel", f"channel {number} is open already")
        if len(self._channels) + len(self._publishing) >= MOST_CHANNELS:
            raise CapacityError(f"{MOST_CHANNELS} channels are open on this connection already")

    def _open_publishing(self, number: int) -> None:
        self._check_new(number)
        channel = self._publishing[number] = PublishingChannel(number, self._plane, self._send)
        self._workers[number] = self._begin(self._confirm(channel))

    async def _confirm(self, channel: PublishingChannel) -> None:
        with suppress(WebSocketDisconnect):  # whoever listens learns of it as well
            await channel.run()

    async def _publish(self, call: PublishCall) -> None:
        """Hand a message to its channel: the rights and bounds of each are those of a call over HTTP."""
        channel = self._publishing.get(call.channel)
        if channel is None:
            raise InvalidInputError("channel", f"channel {call.channel} is not open for publishing")
        said = call.publish
        self._asker.check_exchange(Action.PUBLISH, validate_exchange_name(said.exchange, "publish.exchange"))
        exchange = await self._plane.find_exchange(self._tenant, said.exchange)
        message = keyed_message(self._asker, exchange, said, said.idempotency_key, "publish")
        await self._places.acquire()
        channel.publish(call.id, message, self._places.release)

    async def _drain(self) -> None:
        """Let messages that were read be appended and confirmed, as far as that takes no longer than a moment."""
        for channel in self._publishing.values():
            channel.finish()
        if self._publishing:
            await asyncio.wait([self._workers[one] for one in self._publishing], timeout=DRAIN_SECONDS)

    async def _open(self, told: OpenedChannel) -> None:
        self._check_new(told.channel)
        self._asker.check_queue(Action.CONSUME, validate_queue_name(told.queue))
        queue = await self._plane.find(self._tenant, told.queue)
        channel = ConnectChannel(
            told.channel,
            queue,
            self._plane,
            self._clock,
            self._send,
            prefetch=told.prefetch,
            consumer=told.consumer or self._name,
            auto=told.auto,
        )
        self._channels[told.channel] = channel
        self._workers[told.channel] = self._begin(self._work(channel))

    async def _work(self, channel: ConnectChannel) -> None:
        try:
            await channel.run(self._due.set)
        except HomingError as error:
            await self._close(channel, error)
        except WebSocketDisconnect:
            pass  # whoever listens learns of it as well

    async def _close(self, channel: ConnectChannel, error: HomingError) -> None:
        await self._forget(channel)
        with suppress(WebSocketDisconnect):
            await self._send(closed_json(channel.number, error))

    async def _forget(self, channel: ConnectChannel) -> None:
        if self._channels.get(channel.number) is channel:
            del self._channels[channel.number]
            self._workers.pop(channel.number, None)
        await channel.release()

    def _channel(self, number: int) -> ConnectChannel:
        channel = self._channels.get(number)
        if channel is None:
            raise InvalidInputError("channel", f"channel {number} is not open")
        return channel

    async def _settle(self, call: SettleCall) -> None:
        try:
            told = settlement_of(call)
            over = await self._channel(call.channel).settle(told)
            answer = orjson.dumps({"id": call.id, "ok": True, "settled": told.total - len(over), "over": over})
        except HomingError as error:
            answer = problem_frame(call.id, error)
        self._due.set()
        with suppress(WebSocketDisconnect):
            await self._send(answer)

    async def _keep(self) -> None:
        """Extend loans in time, and look now and then whether the caller may still have them."""
        while True:
            now = self._clock.monotonic()
            dues = [due for one in self._channels.values() if (due := one.loans.next_due()) is not None]
            self._due.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min([*dues, now + CHECK_SECONDS]) - now)):
                    await self._due.wait()
            for channel in tuple(self._channels.values()):
                await channel.keep()
            with suppress(HomingError):
                self.recheck()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="connection")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A part of it has ended; by a mistake, if with an error."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("connection_failed", exc_info=error)
            self.finish(WebSocketClose.FAILED, "the node has failed unexpectedly; its log says why")

    def _start(self, work: Coroutine[Any, Any, None], done: Callable[[], None] | None = None) -> None:
        task = self._begin(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        if done is not None:
            task.add_done_callback(lambda _task: done())

    async def _send(self, frame: bytes) -> None:
        await self._wire.send_text(frame.decode())


class ConnectSessions:
    """The connections with channels that are open on this node."""

    def __init__(self, ports: Ports, streams: SseStreams) -> None:
        self._ports = ports
        self._streams = streams
        self._open: set[ConnectSession] = set()
        self._numbers = count(1)

    def dismiss(self) -> None:
        """End all of them now, or they would keep the node from stopping. They go on elsewhere."""
        for one in tuple(self._open):
            one.finish(WebSocketClose.AWAY, SENT_AWAY)

    def recheck(self) -> None:
        """End what callers may not have any more."""
        for one in tuple(self._open):
            with suppress(HomingError):
                one.recheck()

    async def serve(self, wire: WebSocket) -> None:
        """Serve a request for a connection; it is refused in plain HTTP where it may not be."""
        ports, free = self._ports, None
        try:
            plane, asker = needed_queues(ports.queues), self._asker(wire)
            free = self._streams.admit(asker.principal())
            name = f"{ports.node.member.info.node_id}-{next(self._numbers)}"
            session = ConnectSession(wire, plane, asker, ports.node.clock, name)
        except HomingError as error:
            if free is not None:
                free()
            await wire.receive()
            await wire.send_denial_response(answer_to(error, ports.node.counters))
            return
        self._open.add(session)
        try:
            await wire.accept()
            await session.run()
        finally:
            self._open.discard(session)
            free()

    def _asker(self, wire: WebSocket) -> Asker:
        """Return who asks. A session of the console does not count: no page can send what goes with its cookie."""
        headers = headers_of(wire.scope)
        caller = self._ports.access.caller(headers.get(b"authorization"))
        ASKING.set(asking(caller, wire.scope, headers))
        return Asker(self._ports.access, caller)


router = GuardedRouter(include_in_schema=False)


@router.get(CONNECT)
async def refuse_plain_request() -> Reply:
    """Say that this is a WebSocket: OpenAPI has no words for one."""
    return upgrade_required()


def connect_route(sessions: ConnectSessions) -> WebSocketRoute:
    """The route of the WebSocket itself."""
    return WebSocketRoute(CONNECT, partial(_serve, sessions))


async def _serve(sessions: ConnectSessions, wire: WebSocket) -> None:
    await sessions.serve(wire)
