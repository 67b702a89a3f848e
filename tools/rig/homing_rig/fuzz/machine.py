"""The broker without sockets: conversations are fed to it, and two clients beside them must notice nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from app.broker.stream import ClientStream
from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.codes import PacketType, ProtocolVersion
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.journal import BrokerJournal
from app.core.broker.packets import Connack, Connect, Disconnect, FilterOptions, Packet, Publish, PublishAck, Subscribe
from app.core.broker.restore import restore
from app.core.broker.rows import rows_of
from app.core.broker.wire import Framing
from homing_rig.fuzz.packets import PacketMaker

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
ROUND: Final = 500
"""Packets between two looks at the clients beside."""
BOUNDS: Final = BrokerBounds(sessions=40, retained=200, waiting=200, waiting_bytes=4_000_000, inflight=20)


class FuzzClock:
    """Time passes with the packets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self.now

    def wall(self) -> float:
        """Return the same: the machine was never off."""
        return self.now


class FuzzStream(ClientStream):
    """A connection whose other end has heard all that was said. AssertionError for what no client may be told."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, None)
        self.heard: list[Packet] = []
        self.version = V5
        self.ended = False
        self._answers = Framing()
        self.begin()

    @property
    def unsent(self) -> int:
        """See UnsentLink."""
        return 0

    def abort(self) -> None:
        """See ClientStream."""
        self.close()

    def write(self, data: bytes) -> None:
        """Read what the broker says; see ClientLink."""
        if self.ended:
            raise AssertionError("something is said after the end of the connection")
        for first, body in self._answers.feed(data):
            kind, known = first >> 4, self.version
            if kind == PacketType.CONNACK:  # a refusal may be in the form of the other version
                known = V3 if len(body) == 2 else V5  # noqa: PLR2004 - 3.1.1 has no properties there
            self.heard.append(decode(first, body, known))

    def close(self) -> None:
        """See ClientLink."""
        self.ended = True

    def pause_reading(self) -> None:
        """See PausableLink."""

    def resume_reading(self) -> None:
        """See PausableLink."""


@dataclass(slots=True)
class FuzzResult:
    """The findings of a run. `outcomes` are the last packets of connections that the broker ended."""

    packets: int = 0
    conversations: int = 0
    witnessed: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


class FuzzRun:
    """A broker that keeps what it has in a dictionary, two clients who speak with each other, and the others."""

    def __init__(self, seed: int) -> None:
        self.result = FuzzResult()
        self.clock = FuzzClock()
        self.rows: dict[bytes, bytes] = {}
        self.broker = self._new_broker(self.result.refused)
        self._maker = PacketMaker(Random(seed))
        self._random = Random(seed + 1)
        self._reader = self._beside("witness-reader", V5)
        self._writer = self._beside("witness-writer", V3)
        self._say(self._reader, Subscribe(1, (FilterOptions("witness/+/here", 1),)))
        self._reader.heard.clear()

    def run(self, packets: int) -> None:
        """Feed at least so many packets. Whatever is raised is a fault of the broker."""
        last = self.result.packets + packets
        seen = self.result.packets
        while self.result.packets < last:
            self._converse()
            if self.result.packets - seen >= ROUND:
                seen = self.result.packets
                self._look()

    def finish(self) -> None:
        """Let all sessions end; AssertionError if anything of them is left, or cannot be read again."""
        self._look()
        self.check_rows()
        for stream in (self._reader, self._writer):
            self._say(stream, Disconnect())
        self._pass(BOUNDS.session_expiry + 10)
        broker = self.broker
        left = (len(broker.sessions), len(broker.connections), len(broker.subscriptions), broker.waiting_bytes)
        if left != (0, 0, 0, 0):
            raise AssertionError(f"sessions, connections, subscriptions, bytes are left: {left}")
        if len(broker.journal.messages) > len(broker.retained):
            raise AssertionError("messages are kept that nobody will get")

    def check_rows(self) -> None:
        """Read what is kept, as after `kill -9`."""
        again = self._new_broker(Counter())
        if damaged := restore(again, self.rows):
            raise AssertionError(f"rows cannot be read: {damaged}")

    def _new_broker(self, counters: Counter[str]) -> Broker:
        numbers = iter(range(1, 10**9))
        return Broker(
            clock=self.clock,
            new_client_id=lambda: f"auto-{next(numbers)}",
            counters=counters,
            bounds=BOUNDS,
            journal=BrokerJournal(keeps=True),
        )

    def _converse(self) -> None:
        version, said = self._maker.conversation()
        stream = FuzzStream(self.broker)
        stream.version = ProtocolVersion(version)
        self.result.conversations += 1
        for data in said:
            self.result.packets += 1
            cut = self._random.randrange(len(data) + 1) if data else 0
            stream.feed(data[:cut])
            stream.feed(data[cut:])
            if stream.ended:
                break
        last = stream.heard[-1] if stream.heard and stream.ended else None
        told = last.reason.name if isinstance(last, Connack | Disconnect) else "closed"
        self.result.outcomes[told if stream.ended else "went on"] += 1
        stream.lost()

    def _look(self) -> None:
        """Time passes, changes are kept, and the clients beside speak with each other."""
        many = len(self.broker.sessions) > BOUNDS.sessions // 2  # else every CONNECT would be refused before long
        self._pass(BOUNDS.session_expiry if many else self._random.choice((0.1, 1, 10)))
        self.result.witnessed += 1
        number = b"%d" % self.result.witnessed
        self._say(self._writer, Publish(f"witness/{number.decode()}/here", number, 1, packet_id=1))
        expected = PublishAck(PacketType.PUBACK, 1)
        if self._writer.heard != [expected]:
            raise AssertionError(f"the publisher beside heard {self._writer.heard}")
        heard = self._reader.heard
        message = heard[0] if len(heard) == 1 else None
        if not isinstance(message, Publish) or message.payload != number or message.dup:
            raise AssertionError(f"the subscriber beside heard {heard}")
        self._say(self._reader, PublishAck(PacketType.PUBACK, message.packet_id))
        self._writer.heard.clear()
        self._reader.heard.clear()

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds
        for stream in (self._reader, self._writer):
            if not stream.ended:
                stream.feed(b"\xc0\0")
                stream.heard.clear()
        self.broker.tick()
        for key, row in rows_of(self.broker, self.broker.journal.take()).items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row

    def _beside(self, client_id: str, version: ProtocolVersion) -> FuzzStream:
        stream = FuzzStream(self.broker)
        stream.version = version
        self._say(stream, Connect(version, client_id))
        stream.heard.clear()
        return stream

    def _say(self, stream: FuzzStream, packet: Packet) -> None:
        stream.feed(encode(packet, stream.version))
