"""Clients of a broker without sockets: packets go through bytes both ways, and time passes when a test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TypeVar

from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.codes import PacketType, Property, ProtocolVersion, ReasonCode
from app.core.broker.connection import BrokerConnection
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.journal import BrokerJournal
from app.core.broker.packets import (
    Connack,
    Connect,
    FilterOptions,
    Packet,
    Publish,
    PublishAck,
    Suback,
    Subscribe,
    WillMessage,
)
from app.core.broker.properties import NO_PROPERTIES, Properties, Value
from app.core.broker.rights import Door
from app.core.broker.wire import Framing

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
_Packet = TypeVar("_Packet")


class HandClock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.ahead = 0.0
        """The time by which the wall clock is ahead of the time that passes."""

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.ahead


class Peer:
    """A client, and the socket between it and the broker. `said` is what it was sent and has not looked at."""

    def __init__(self, bench: BrokerBench, version: ProtocolVersion) -> None:
        self.version = version
        self.saturated = False
        self.unread = False
        self.closed = False
        self.gone = False
        """True once the client has ended the connection: what is still sent to it is lost."""
        self.connack = Connack()
        self.said: list[Packet] = []
        self._framing = Framing()
        self._numbers = count(1)
        self._bench = bench
        self.connection = bench.open(self)

    def write(self, data: bytes) -> None:
        if self.gone:
            return
        assert not self.closed, "nothing is sent on a closed connection"
        for first, body in self._framing.feed(data):
            self.said.append(decode(first, body, self.connection.version))

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def say(self, packet: Packet) -> list[Packet]:
        """Return what the client is answered."""
        for first, body in Framing().feed(encode(packet, self.version)):
            self.connection.receive(decode(first, body, self.connection.version))
        while not self._bench.patient and self.connection.wait is not None:
            self.connection.resume()
        self._bench.settle()
        return self.hear()

    def hear(self) -> list[Packet]:
        """Return what it was sent since it looked last."""
        said, self.said = self.said, []
        return said

    def only(self, kind: type[_Packet], said: Sequence[Packet] | None = None) -> _Packet:
        """The one packet that it was sent, which is of this type."""
        (one,) = self.hear() if said is None else said
        assert isinstance(one, kind), one
        return one

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, **more: object) -> list[Packet]:
        packet_id = next(self._numbers) if qos else 0
        return self.say(Publish(topic, payload, qos, packet_id=packet_id, **more))  # type: ignore[arg-type]  # shorter tests

    def subscribe(self, *filters: str | FilterOptions, identifier: int = 0, qos: int = 2) -> list[Packet]:
        """Return what follows the SUBACK."""
        suback, *more = self.subscribe_only(*filters, identifier=identifier, qos=qos)
        assert isinstance(suback, Suback)
        assert all(one < ReasonCode.UNSPECIFIED_ERROR for one in suback.reasons), suback
        return more

    def subscribe_only(self, *filters: str | FilterOptions, identifier: int = 0, qos: int = 2) -> list[Packet]:
        """Return what the client is answered."""
        options = tuple(FilterOptions(one, qos) if isinstance(one, str) else one for one in filters)
        said = properties(SUBSCRIPTION_IDENTIFIER=identifier) if identifier else NO_PROPERTIES
        return self.say(Subscribe(next(self._numbers), options, said))

    def ack(self, kind: PacketType, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> list[Packet]:
        return self.say(PublishAck(kind, packet_id, reason))

    def drop(self) -> None:
        """Lose the connection."""
        self.closed = self.gone = True
        self.connection.lost()
        self._bench.settle()


class BrokerBench:
    """A broker, its clock and its counters."""

    def __init__(self, door: Door | None = None, /, **bounds: int) -> None:
        self.clock = HandClock()
        self.counters: Counter[str] = Counter()
        self.patient = False
        """True where a CONNECT that takes over again and again waits."""
        self._names = count(1)
        self._bounds = BrokerBounds(**bounds)
        self._door = door
        self.broker = self.new_broker(BrokerJournal())

    def new_broker(self, journal: BrokerJournal) -> Broker:
        return Broker(
            clock=self.clock,
            new_client_id=lambda: f"auto-{next(self._names)}",
            counters=self.counters,
            bounds=self._bounds,
            journal=journal,
            door=self._door,
        )

    def open(self, peer: Peer) -> BrokerConnection:
        return self.broker.open(peer)

    def settle(self) -> None:
        """Something was said to the broker."""

    def peer(self, version: ProtocolVersion = V5) -> Peer:
        return Peer(self, version)

    def connected(
        self,
        client_id: str = "",
        version: ProtocolVersion = V5,
        *,
        clean: bool = True,
        will: WillMessage | None = None,
        keep_alive: int = 0,
        **values: Value,
    ) -> Peer:
        """A client whose CONNECT was accepted; `values` are properties of CONNECT in lower case."""
        peer = self.peer(version)
        said = properties(**{name.upper(): one for name, one in values.items()}) if version is V5 else NO_PROPERTIES
        connect = Connect(version, client_id, clean_start=clean, keep_alive=keep_alive, will=will, properties=said)
        connack, *peer.said = peer.say(connect)
        assert isinstance(connack, Connack)
        assert connack.reason is ReasonCode.SUCCESS
        peer.connack = connack
        return peer

    def pass_seconds(self, seconds: float) -> None:
        self.clock.now += seconds
        self.broker.tick()
        self.settle()


def properties(**values: Value) -> Properties:
    """Properties by their names."""
    return Properties({Property[name]: one for name, one in values.items()})


def payloads(packets: Sequence[Packet]) -> list[bytes]:
    """The payloads of the messages among them."""
    return [one.payload for one in packets if isinstance(one, Publish)]
