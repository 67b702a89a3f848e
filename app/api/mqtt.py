"""MQTT over WebSocket (MQTT 5, chapter 6): clients of the node's own broker that come over HTTP, as browsers do."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

from fastapi import Response as Reply
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.api.ports import Ports
from app.api.problems import answer_to
from app.api.routers import PublicRouter
from app.api.websockets import MQTT, WebSocketClose, upgrade_required
from app.broker.plane import needed_broker
from app.broker.stream import MessageStream
from app.core.errors import HomingError, InvalidInputError
from app.runtime.tasks import end

SUBPROTOCOL: Final = "mqtt"
_SENT_AWAY: Final = "the node stops"


class MqttSockets:
    """The clients of the broker that are connected over WebSocket. Who they are is asked by CONNECT, as over TCP."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._open: dict[MessageStream, asyncio.Event] = {}

    def dismiss(self) -> None:
        """End all of them now. The broker is not told: no will is published because a node stops."""
        for ended in self._open.values():
            ended.set()

    async def serve(self, wire: WebSocket) -> None:
        """Serve a client; it is refused in plain HTTP where there is no broker, or where it speaks something else."""
        await wire.receive()
        try:
            broker = needed_broker(self._ports.broker)
            if SUBPROTOCOL not in wire.scope["subprotocols"]:
                raise InvalidInputError("Sec-WebSocket-Protocol", f"does not offer {SUBPROTOCOL}")  # [MQTT-6.0.0-3]
            stream = broker.open_stream()
        except HomingError as error:
            await wire.send_denial_response(answer_to(error, self._ports.node.counters))
            return
        await wire.accept(SUBPROTOCOL)
        stream.cut = wire.scope["extensions"]["homing.abort"]["abort"]
        ended = self._open[stream] = asyncio.Event()
        stream.begin()
        try:
            with suppress(WebSocketDisconnect):
                await _carry(wire, stream, ended)
        finally:
            del self._open[stream]
            if not ended.is_set():
                stream.lost()


async def _carry(wire: WebSocket, stream: MessageStream, ended: asyncio.Event) -> None:
    """Carry bytes both ways until somebody closes."""
    read, written, sent_away = parts = [
        asyncio.create_task(one, name="mqtt over websocket")
        for one in (_read(wire, stream), _write(wire, stream), ended.wait())
    ]
    try:
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(parts)
    if sent_away.done() and not sent_away.cancelled():
        await wire.close(WebSocketClose.AWAY, _SENT_AWAY)
    elif written.done() and not written.cancelled() and written.exception() is None:
        await wire.close()
    elif read.done() and not read.cancelled() and read.exception() is None and read.result() is not None:
        await wire.close(WebSocketClose.UNSUPPORTED, str(read.result()))


async def _read(wire: WebSocket, stream: MessageStream) -> str | None:
    """Read until the client closes; return what it did wrong, if it did [MQTT-6.0.0-1]."""
    while True:
        await stream.readable()
        message = await wire.receive()
        if message["type"] == "websocket.disconnect":
            return None
        data = message.get("bytes")
        if data is None:
            return "packets come in binary frames"
        stream.feed(data)  # which need not be whole packets [MQTT-6.0.0-2]


async def _write(wire: WebSocket, stream: MessageStream) -> None:
    while data := await stream.outgoing():
        await wire.send_bytes(data)


router = PublicRouter(include_in_schema=False)


@router.get(MQTT)
async def refuse_plain_request() -> Reply:
    """Say that this is a WebSocket: OpenAPI has no words for one."""
    return upgrade_required()


def mqtt_route(sockets: MqttSockets) -> WebSocketRoute:
    """The route of the WebSocket itself."""
    return WebSocketRoute(MQTT, partial(_serve, sockets))


async def _serve(sockets: MqttSockets, wire: WebSocket) -> None:
    await sockets.serve(wire)
