"""A client of bytes: it writes and reads MQTT by itself, and shares nothing with the codec of the broker."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.waiting import PATIENCE

V3, V5 = 4, 5
CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = range(1, 9)
SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(9, 16)
PINGREQ_BYTES: Final = b"\xc0\x00"

BYTES_OF: Final = {0x01: 1, 0x17: 1, 0x19: 1, 0x24: 1, 0x25: 1, 0x28: 1, 0x29: 1, 0x2A: 1} | {
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
"""Properties that are numbers of so many bytes."""
SUBSCRIPTION_IDENTIFIER, USER_PROPERTY = 0x0B, 0x26
BINARY: Final = frozenset({0x09, 0x16})
STRINGS: Final = frozenset({0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F})

Value = int | bytes | tuple[bytes, bytes]
Pairs = Sequence[tuple[int, Value]]


def number(value: int) -> bytes:
    """A variable byte integer."""
    encoded = b""
    while value > 127:
        encoded += bytes((value & 127 | 128,))
        value >>= 7
    return encoded + bytes((value,))


def string(value: bytes | str) -> bytes:
    """A string or binary data with its length."""
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2) + data


def packet(first: int, body: bytes = b"") -> bytes:
    return bytes((first,)) + number(len(body)) + body


def prop(key: int, value: Value) -> bytes:
    if isinstance(value, tuple):
        return bytes((key,)) + string(value[0]) + string(value[1])
    if isinstance(value, bytes):
        return bytes((key,)) + string(value)
    if key == SUBSCRIPTION_IDENTIFIER:
        return bytes((key,)) + number(value)
    return bytes((key,)) + value.to_bytes(BYTES_OF[key])


def props(pairs: Pairs) -> bytes:
    body = b"".join(prop(*pair) for pair in pairs)
    return number(len(body)) + body


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: Pairs = ()


def connect(
    client_id: str = "",
    version: int = V5,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    properties: Pairs = (),
    will: Will | None = None,
    flags: int | None = None,
    name: bytes = b"MQTT",
    level: int | None = None,
    end: bytes = b"",
) -> bytes:
    """`flags`, `name`, `level` and `end` are for what no client says."""
    bits = clean << 1
    if will is not None:
        bits |= 4 | will.qos << 3 | will.retain << 5
    body = string(name) + bytes((version if level is None else level, bits if flags is None else flags))
    body += keep_alive.to_bytes(2) + (props(properties) if version == V5 else b"") + string(client_id)
    if will is not None:
        body += (props(will.properties) if version == V5 else b"") + string(will.topic) + string(will.payload)
    return packet(0x10, body + end)


def publish(
    topic: bytes | str,
    payload: bytes = b"x",
    version: int = V5,
    *,
    qos: int = 0,
    packet_id: int = 1,
    retain: bool = False,
    dup: bool = False,
    properties: Pairs = (),
) -> bytes:
    body = string(topic) + (packet_id.to_bytes(2) if qos else b"") + (props(properties) if version == V5 else b"")
    return packet(0x30 | dup << 3 | qos << 1 | retain, body + payload)


def exactly(size: int, topic: str, qos: int) -> bytes:
    """Return a payload with which a PUBLISH of 5 to a subscriber has this size."""
    head = 1 + 2 + 2 + len(topic) + (2 if qos else 0) + 1
    assert 130 < size < 16_384
    return b"x" * (size - head)


def subscribe(
    filters: Iterable[tuple[bytes | str, int]], version: int = V5, packet_id: int = 1, properties: Pairs = ()
) -> bytes:
    """Each filter with the byte of its options."""
    body = packet_id.to_bytes(2) + (props(properties) if version == V5 else b"")
    return packet(0x82, body + b"".join(string(one) + bytes((options,)) for one, options in filters))


def unsubscribe(filters: Iterable[bytes | str], version: int = V5, packet_id: int = 1, properties: Pairs = ()) -> bytes:
    body = packet_id.to_bytes(2) + (props(properties) if version == V5 else b"")
    return packet(0xA2, body + b"".join(map(string, filters)))


def ack(kind: int, packet_id: int, reason: int | None = None) -> bytes:
    """PUBACK, PUBREC, PUBREL, PUBCOMP."""
    first = kind << 4 | (2 if kind == PUBREL else 0)
    return packet(first, packet_id.to_bytes(2) + (b"" if reason is None else bytes((reason,))))


def disconnect(reason: int | None = None, properties: Pairs = ()) -> bytes:
    if reason is None:
        return packet(0xE0)
    return packet(0xE0, bytes((reason,)) + (props(properties) if properties else b""))


class Scan:
    """Walks through what the broker has said; an AssertionError where it is not MQTT."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        assert len(self.data) >= size, "a packet of the broker ends too early"
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.integer(1)
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            assert shift < 28

    def string(self) -> bytes:
        return self.take(self.integer(2))

    def properties(self) -> list[tuple[int, Value]]:
        part = Scan(self.take(self.number()))
        found: list[tuple[int, Value]] = []
        while part.data:
            key = part.number()
            if key in BYTES_OF:
                found.append((key, part.integer(BYTES_OF[key])))
            elif key == SUBSCRIPTION_IDENTIFIER:
                found.append((key, part.number()))
            elif key == USER_PROPERTY:
                found.append((key, (part.string(), part.string())))
            else:
                assert key in BINARY | STRINGS, f"a property 0x{key:02x}"
                found.append((key, part.string()))
        return found


@dataclass(frozen=True)
class Heard:
    """A packet of the broker. `codes` are the reason codes that it has, and `flags` those of its first byte."""

    kind: int
    flags: int
    version: int
    packet_id: int = 0
    codes: tuple[int, ...] = ()
    properties: tuple[tuple[int, Value], ...] = ()
    present: bool = False
    topic: str = ""
    payload: bytes = b""
    size: int = 0

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def code(self) -> int:
        (one,) = self.codes
        return one

    def all(self, key: int) -> list[Value]:
        return [value for known, value in self.properties if known == key]

    def get(self, key: int) -> Value | None:
        found = self.all(key)
        assert len(found) < 2, f"property 0x{key:02x} several times"
        return found[0] if found else None


def understood(first: int, body: bytes, version: int) -> Heard:
    """The packet, whose every byte is accounted for."""
    kind, flags, scan, five = first >> 4, first & 15, Scan(body), version == V5
    size = 1 + len(number(len(body))) + len(body)
    assert kind == PUBLISH or flags == (2 if kind == PUBREL else 0), "reserved flags"
    packet_id, codes, found, present, topic, payload = 0, b"", [], False, "", b""
    if kind == CONNACK:
        bits = scan.integer(1)
        assert bits < 2, "reserved bits"
        present, codes = bool(bits), scan.take(1)
        found = scan.properties() if five else []
    elif kind == PUBLISH:
        topic = scan.string().decode()
        packet_id = scan.integer(2) if flags & 6 else 0
        found = scan.properties() if five else []
        payload = scan.take(len(scan.data))
    elif kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        packet_id, codes = scan.integer(2), b"\0"
        if scan.data:
            assert five
            codes = scan.take(1)
        found = scan.properties() if scan.data else []
    elif kind in (SUBACK, UNSUBACK):
        packet_id = scan.integer(2)
        found = scan.properties() if five else []
        codes = scan.take(len(scan.data))
    elif kind in (DISCONNECT, AUTH):
        assert five, "3.1.1 has no such packet of a server"
        codes = scan.take(1) if scan.data else b"\0"
        found = scan.properties() if scan.data else []
    else:
        assert kind == PINGRESP, f"a packet of type {kind} from a broker"
    assert not scan.data, "bytes follow what belongs to the packet"
    assert packet_id or kind not in (PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK)
    return Heard(kind, flags, version, packet_id, tuple(codes), tuple(found), present, topic, payload, size)


class RawClient:
    """One connection. Whatever it reads is checked by `understood`."""

    def __init__(self, port: int, version: int = V5) -> None:
        self.version = version
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def send(self, *packets: bytes) -> None:
        self._socket.sendall(b"".join(packets))

    def read(self) -> Heard | None:
        """The next packet; None at the end of the connection."""
        while (found := self._cut()) is None:
            try:
                data = self._socket.recv(65_536)
            except ConnectionResetError:
                data = b""
            if not data:
                assert not self._buffer, "half a packet, and the end"
                return None
            self._buffer += data
        return found

    def _cut(self) -> Heard | None:
        length = 0
        for index, byte in enumerate(self._buffer[1:5]):
            length |= (byte & 127) << 7 * index
            if byte < 128:
                end = 2 + index + length
                if len(self._buffer) < end:
                    return None
                body, first = self._buffer[2 + index : end], self._buffer[0]
                self._buffer = self._buffer[end:]
                return understood(first, body, self.version)
        return None

    def next(self, kind: int) -> Heard:
        """The next packet, which is of this type."""
        heard = self.read()
        assert heard is not None, "the connection has ended"
        assert heard.kind == kind, heard
        return heard

    def ask(self, data: bytes, kind: int) -> Heard:
        self.send(data)
        return self.next(kind)

    def settle(self) -> list[Heard]:
        """Return what was said before the answer to a PINGREQ."""
        self.send(PINGREQ_BYTES)
        found: list[Heard] = []
        while True:
            heard = self.read()
            assert heard is not None, f"the connection has ended, after {found}"
            if heard.kind == PINGRESP:
                return found
            found.append(heard)

    def end(self) -> list[Heard]:
        """Return what is said until the end of the connection."""
        found = []
        while (heard := self.read()) is not None:
            found.append(heard)
        return found

    def refused(self, *reasons: int) -> None:
        """The connection ends: in MQTT 5 after DISCONNECT with one of these, in 3.1.1 without a word."""
        said = self.end()
        if self.version == V3:
            assert said == []
        else:
            assert [one.kind for one in said] == [DISCONNECT], said
            assert said[0].code in reasons, f"0x{said[0].code:02x}"

    def subscribe(self, *filters: str, options: int = 2, properties: Pairs = ()) -> Heard:
        return self.ask(subscribe([(one, options) for one in filters], self.version, 9, properties), SUBACK)

    def publish(
        self,
        topic: str,
        payload: bytes = b"x",
        *,
        qos: int = 1,
        packet_id: int = 1,
        retain: bool = False,
        properties: Pairs = (),
    ) -> None:
        """Publish with QoS 1 by default, and wait for the acknowledgements."""
        data = publish(topic, payload, self.version, qos=qos, packet_id=packet_id, retain=retain, properties=properties)
        self.send(data)
        if qos == 0:
            assert self.settle() == []
        elif qos == 1:
            assert self.next(PUBACK).packet_id == packet_id
        else:
            assert self.next(PUBREC).packet_id == packet_id
            assert self.ask(ack(PUBREL, packet_id), PUBCOMP).packet_id == packet_id

    def leave(self) -> None:
        """DISCONNECT, and the broker has closed."""
        self.send(disconnect())
        assert self.end() == []
        self.drop()

    def drop(self) -> None:
        self._socket.close()
