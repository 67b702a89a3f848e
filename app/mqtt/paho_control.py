"""The part of MQTT that paho speaks: CONNECT, SUBSCRIBE, UNSUBSCRIBE and DISCONNECT, with their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from app.core.topics import shown_filter
from app.mqtt.base import Subscription, Will
from app.mqtt.options import MqttOptions
from app.mqtt.packets import MAX_PACKET_SIZE

FIRST_FREE_PACKET_ID: Final = 1024
"""paho numbers SUBSCRIBE and UNSUBSCRIBE from 1; PUBLISH shares the number space (MQTT 5, section 2.2.1)."""
SESSION_TAKEN_OVER: Final = 0x8E


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The limits that the broker sets in CONNACK; `keepalive` in seconds, `max_packet_size` in bytes."""

    keepalive: float
    receive_maximum: int
    max_packet_size: int


class PahoControl:
    """The control packets of one connection. The owner moves the bytes: `send` takes ours, `feed` the broker's.

    `on_end(reason, reason code)` is called when the broker disconnects or paho cannot go on.
    """

    def __init__(
        self,
        options: MqttOptions,
        send: Callable[[bytes], None],
        on_end: Callable[[str, int], None],
        *,
        clean: bool,
        will: Will | None = None,
    ) -> None:
        self._options = options
        self._will = will
        self._is_v5 = options.version == "5"
        self._clean = clean
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._pipe = _Pipe(send)
        self._replies: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self._connack: asyncio.Future[BrokerLimits] = self._loop.create_future()
        self._ended = ""
        """The reason why the connection is gone."""
        self._paho = self._make_client()

    async def connect(self) -> BrokerLimits:
        """CONNECT and wait for CONNACK; raises ConnectionError when the broker refuses or the connection breaks."""
        keepalive = int(self._options.keepalive.total_seconds())
        if self._is_v5:
            properties = _properties(
                PacketTypes.CONNECT,
                SessionExpiryInterval=int(self._options.session_expiry.total_seconds()),
                ReceiveMaximum=self._options.receive_maximum,
                MaximumPacketSize=self._options.max_packet_size,
            )
            self._paho.connect(
                self._options.host, self._options.port, keepalive, clean_start=self._clean, properties=properties
            )
        else:
            self._paho.connect(self._options.host, self._options.port, keepalive)
        self._paho.loop_write()
        return await self._connack

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[str]:
        """SUBSCRIBE and wait for SUBACK; ConnectionRefusedError when a needed one is refused, else those refused."""
        _, mid = self._paho.subscribe([(subscription.topic_filter, subscription.qos) for subscription in subscriptions])
        reason_codes = await self._reply_to(mid)
        refused = [
            (f"{shown_filter(subscription.topic_filter)} ({reason})", subscription.needed)
            for subscription, reason in zip(subscriptions, reason_codes, strict=False)
            if reason.is_failure
        ]
        needed = [said for said, is_needed in refused if is_needed]
        if needed or len(reason_codes) < len(subscriptions):
            raise ConnectionRefusedError(f"SUBSCRIBE refused: {', '.join(needed) or 'SUBACK is too short'}")
        return [said for said, _ in refused]

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """UNSUBSCRIBE and wait for UNSUBACK; raises ConnectionError when the connection breaks."""
        _, mid = self._paho.unsubscribe([subscription.topic_filter for subscription in subscriptions])
        await self._reply_to(mid)

    def disconnect(self, *, keep_session: bool) -> None:
        """Write DISCONNECT; the owner closes the connection. 3.1.1 always keeps the session."""
        self._paho.on_disconnect = None
        drop = self._is_v5 and not keep_session
        self._paho.disconnect(properties=_properties(PacketTypes.DISCONNECT, SessionExpiryInterval=0) if drop else None)
        self._paho.loop_write()

    def feed(self, packet: bytes) -> None:
        """Take one whole packet from the broker."""
        self._pipe.inbox += packet
        self._paho.loop_read()

    def fail(self, reason: str) -> None:
        """The connection is gone: nobody needs to wait any longer, now or later."""
        self._ended = self._ended or reason
        for future in [self._connack, *self._replies.values()]:
            _fail(cast("asyncio.Future[Any]", future), ConnectionError(reason))

    def _make_client(self) -> _PahoClient:
        version = MQTTProtocolVersion.MQTTv5 if self._is_v5 else MQTTProtocolVersion.MQTTv311
        client = _PahoClient(
            CallbackAPIVersion.VERSION2,
            client_id=self._options.client_id,
            protocol=version,
            clean_session=None if self._is_v5 else self._clean,
            reconnect_on_failure=False,
        )
        client.pipe = self._pipe
        if self._options.username is not None:
            client.username_pw_set(self._options.username, self._options.password)
        if self._will is not None:
            client.will_set(self._will.topic, self._will.payload, qos=1)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = client.on_unsubscribe = self._on_reply
        client.on_socket_register_write = self._on_register_write
        return client

    async def _reply_to(self, mid: int | None) -> list[ReasonCode]:
        if mid is None or self._ended:
            raise ConnectionError(self._ended or "the connection ended")
        reply: asyncio.Future[list[ReasonCode]] = self._loop.create_future()
        self._replies[mid] = reply
        try:
            return await reply
        finally:
            del self._replies[mid]

    # paho calls these

    def _on_register_write(self, client: paho.Client, _data: object, _socket: object) -> None:
        self._loop.call_soon(client.loop_write)

    def _on_connect(
        self, _client: object, _data: object, _flags: object, code: ReasonCode, properties: Properties | None
    ) -> None:
        if self._connack.done():
            return
        if code.is_failure:
            _fail(self._connack, ConnectionRefusedError(f"the broker refused the connection: {code}"))
            return
        limits = BrokerLimits(
            keepalive=getattr(properties, "ServerKeepAlive", self._options.keepalive.total_seconds()),
            receive_maximum=getattr(properties, "ReceiveMaximum", self._options.send_window),
            max_packet_size=getattr(properties, "MaximumPacketSize", MAX_PACKET_SIZE),
        )
        self._connack.set_result(limits)

    def _on_disconnect(
        self, _client: object, _data: object, _flags: object, code: ReasonCode, _properties: object
    ) -> None:
        self._on_end(str(code), code.value)

    def _on_reply(self, _client: object, _data: object, mid: int, codes: list[ReasonCode], _properties: object) -> None:
        reply = self._replies.get(mid)
        if reply is not None and not reply.done():
            reply.set_result(codes)


class _Pipe:
    """The socket that paho believes to have."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self.inbox = bytearray()

    def recv(self, buffer_size: int) -> bytes:
        if not self.inbox:
            raise BlockingIOError
        chunk = bytes(self.inbox[:buffer_size])
        del self.inbox[:buffer_size]
        return chunk

    def send(self, buffer: bytes | bytearray) -> int:
        self._send(bytes(buffer))
        return len(buffer)

    def close(self) -> None:
        """Leave it to the owner, who has packets of its own to send."""

    def fileno(self) -> int:
        return -1

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - as a socket has it
        pass


class _PahoClient(paho.Client):
    pipe: _Pipe

    def _create_socket(self) -> _Pipe:
        # The one private name of paho that we use. Its own version blocks: name look-up, TCP, TLS.
        return self.pipe


def _properties(packet_type: int, **values: int) -> Properties:
    properties = Properties(packet_type)  # type: ignore[no-untyped-call] # paho has no types here
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # it may be that nobody waits any more
