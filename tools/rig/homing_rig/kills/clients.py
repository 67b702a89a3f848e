"""Clients of MQTT 5 that never forget: they come back after each loss, and go on where the standard has them go on."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Final

from app.core.broker.codes import PacketType, Property, ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import (
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Packet,
    Publish,
    PublishAck,
    Subscribe,
    WillMessage,
)
from app.core.broker.properties import Properties
from app.core.broker.wire import Framing
from homing_rig.patience import eventually

V5: Final = ProtocolVersion.V5
EXPIRY_SECONDS: Final = 3_600
AGAIN_SECONDS: Final = 0.05
WINDOW: Final = 400
"""Messages of QoS 1 and 2 that a publisher has under way."""


class LastingClient:
    """A session that outlives its connections. `filters` are subscribed once, at QoS 2; with `will_topic`, each
    connection has a will with its number.
    """  # noqa: D205 - one sentence each

    def __init__(self, client_id: str, port: int, filters: tuple[str, ...] = (), will_topic: str = "") -> None:
        self.client_id: Final = client_id
        self.got: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """The times that each number has come, by topic."""
        self.promised: defaultdict[str, set[int]] = defaultdict(set)
        """The numbers of QoS 1 and 2 that the broker has acknowledged, by topic."""
        self.tried = 0
        """The number of the last connection that was asked for."""
        self.accepted: list[int] = []
        """The numbers of those that were accepted."""
        self.faults: list[str] = []
        self.ready = asyncio.Event()
        self._port = port
        self._filters = filters
        self._will_topic = will_topic
        self._ids = count()
        self._under_way: dict[int, Publish | PublishAck] = {}
        self._received: set[int] = set()
        self._writer: asyncio.StreamWriter | None = None
        self._leaving = False

    @property
    def under_way(self) -> int:
        """Messages that were not acknowledged yet."""
        return len(self._under_way)

    async def run(self) -> None:
        """Be there until `leave`."""
        while not self._leaving:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._connection()
            self.ready.clear()
            await asyncio.sleep(AGAIN_SECONDS)

    def leave(self) -> None:
        """Say DISCONNECT: no will is published."""
        self._leaving = True
        self._say(Disconnect())

    async def publish(self, topic: str, number: int, qos: int, *, retain: bool = False) -> None:
        """Publish a number, when there is room for it."""
        if not self._has_room():
            await eventually(self._has_room)
        packet_id = self._next_id() if qos else 0
        message = Publish(topic, b"%d" % number, qos, retain, packet_id=packet_id)
        if qos:
            self._under_way[packet_id] = message
        self._say(message)

    def _has_room(self) -> bool:
        return self.ready.is_set() and len(self._under_way) < WINDOW

    async def _connection(self) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            self.tried += 1
            will = WillMessage(self._will_topic, b"%d" % self.tried, 2) if self._will_topic else None
            properties = Properties({Property.SESSION_EXPIRY_INTERVAL: EXPIRY_SECONDS})
            self._say(Connect(V5, self.client_id, clean_start=False, keep_alive=60, will=will, properties=properties))
            framing = Framing()
            while data := await reader.read(65_536):
                for first, body in framing.feed(data):
                    self._hear(decode(first, body, V5))
        finally:
            self._writer.close()

    def _hear(self, packet: Packet) -> None:
        match packet:
            case Connack():
                self._connected(packet)
            case Publish():
                self._take(packet)
            case PublishAck(type=PacketType.PUBREL):
                self._received.discard(packet.packet_id)
                self._say(PublishAck(PacketType.PUBCOMP, packet.packet_id))
            case PublishAck():
                self._acknowledged(packet)

    def _connected(self, packet: Connack) -> None:
        if packet.reason is not ReasonCode.SUCCESS:
            return
        if packet.session_present != bool(self.accepted) and not (self.tried > 1 and not self.accepted):
            self.faults.append(f"{self.client_id}: session present is {packet.session_present}")
        self.accepted.append(self.tried)
        if self._filters:
            self._say(Subscribe(1, tuple(FilterOptions(one, 2, retain_handling=1) for one in self._filters)))
        for one in self._under_way.values():
            self._say(replace(one, dup=True) if isinstance(one, Publish) else one)
        self.ready.set()

    def _take(self, message: Publish) -> None:
        number = int(message.payload)
        if message.qos == 2:  # noqa: PLR2004 - it is the number of the standard
            if message.packet_id not in self._received:
                self._received.add(message.packet_id)
                self.got[message.topic][number] += 1
            self._say(PublishAck(PacketType.PUBREC, message.packet_id))
            return
        self.got[message.topic][number] += 1
        if message.qos:
            self._say(PublishAck(PacketType.PUBACK, message.packet_id))

    def _acknowledged(self, packet: PublishAck) -> None:
        found = self._under_way.get(packet.packet_id)
        if packet.reason >= ReasonCode.UNSPECIFIED_ERROR and not (
            packet.type is PacketType.PUBCOMP and packet.reason is ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        ):
            self.faults.append(f"{self.client_id}: {packet.type.name} {packet.reason.name}")
        if isinstance(found, Publish):
            self.promised[found.topic].add(int(found.payload))
        if packet.type is PacketType.PUBREC:
            release = PublishAck(PacketType.PUBREL, packet.packet_id)
            if found is not None:
                self._under_way[packet.packet_id] = release
            self._say(release)
        else:
            self._under_way.pop(packet.packet_id, None)

    def _say(self, packet: Packet) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(packet, V5))

    def _next_id(self) -> int:
        while True:
            packet_id = next(self._ids) % 65_535 + 1
            if packet_id not in self._under_way:
                return packet_id
