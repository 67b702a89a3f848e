r"""A broker as rows, and back. Numbers are big-endian, instants are seconds since 1970.

| key | value |
|---|---|
| `c` client id | JSON: the head of a session; a line below it a CONNECT packet with its will, if it has one |
| `s` client id `\0` filter | a subscription: options (1 byte, as in SUBSCRIBE), identifier (4 bytes) |
| `r` client id `\0` packet id | empty: a message of QoS 2 from the client, which it has not released |
| `q` client id `\0` place | a message for the client: number (8 bytes), packet id (2), flags, identifiers, share |
| `m` number | a message: when it expires (8 bytes, 0 is never), its publisher, a PUBLISH packet of MQTT 5 |
| `t` topic | the number (8 bytes) of the message that is retained |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

from app.core.broker.codes import ProtocolVersion
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.journal import BrokerChanges
from app.core.broker.message import Message
from app.core.broker.packets import Connect, FilterOptions, Publish, WillMessage
from app.core.broker.session import ClientSession, Outgoing
from app.core.broker.subscriptions import Subscribed
from app.core.broker.wire import Framing

if TYPE_CHECKING:
    from app.core.broker.broker import Broker

Rows = Mapping[bytes, bytes | None]
"""The rows to write, by key; None deletes the row."""

_NUMBER: Final = Struct(">Q")
_PACKET_ID: Final = Struct(">H")
_SUBSCRIPTION: Final = Struct(">BI")
_REFERENCE: Final = Struct(">QHBB")
_IDENTIFIER: Final = Struct(">I")
_MESSAGE: Final = Struct(">dH")
_RETAIN, _RELEASED = 4, 8
_MORE_IDENTIFIERS: Final = 4
"""The lowest bit of the flags that tell how many times 256 identifiers there are besides the count."""

_Packet = TypeVar("_Packet", Connect, Publish)


@dataclass(frozen=True, slots=True)
class SessionHead:
    """A session without what it holds. `since` is when it was connected, or lost its connection; both are of 1970."""

    connected: bool
    since: float
    expiry: float
    durable: bool
    will: WillMessage | None = None
    will_at: float | None = None
    owner: str = ""
    """Empty in rows of versions that did not keep it."""
    reminder: str = ""
    """The reminder of its permit; empty in rows of versions that did not keep it."""


@dataclass(frozen=True, slots=True)
class MessageReference:
    """A message for a session, by its number; `packet_id` is 0 while it was not sent."""

    number: int
    qos: int
    retain: bool
    released: bool
    packet_id: int
    identifiers: tuple[int, ...]
    share: str


@dataclass(slots=True)
class BrokerRows:
    """All rows, read. `damaged` are keys, and why their rows cannot be read."""

    heads: dict[str, SessionHead] = field(default_factory=dict)
    subscriptions: dict[tuple[str, str], Subscribed] = field(default_factory=dict)
    received: set[tuple[str, int]] = field(default_factory=set)
    references: dict[tuple[str, int], MessageReference] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    """Their `expires_at` is of 1970."""
    retained: dict[str, int] = field(default_factory=dict)
    damaged: dict[bytes, str] = field(default_factory=dict)


def rows_of(broker: Broker, changes: BrokerChanges) -> dict[bytes, bytes | None]:
    """The rows of these things as they are now."""
    journal, epoch = broker.journal, broker.epoch
    rows: dict[bytes, bytes | None] = {}
    for client_id in changes.sessions:
        rows[_head_key(client_id)] = _head_row(broker.sessions.get(client_id), epoch)
    for client_id, name in changes.subscriptions:
        session = _durable(broker, client_id)
        subscribed = None if session is None else session.subscriptions.get(name)
        rows[_part_key(b"s", client_id, name.encode())] = None if subscribed is None else _subscription_row(subscribed)
    for client_id, packet_id in changes.received:
        session = _durable(broker, client_id)
        there = session is not None and packet_id in session.received
        rows[_part_key(b"r", client_id, _PACKET_ID.pack(packet_id))] = b"" if there else None
    for client_id, place in changes.references:
        outgoing = journal.references.get(place)
        row = None if outgoing is None else _reference_row(outgoing, journal.number_of(outgoing.message))
        rows[_part_key(b"q", client_id, _NUMBER.pack(place))] = row
    for number in changes.messages:
        message = journal.messages.get(number)
        rows[b"m" + _NUMBER.pack(number)] = None if message is None else _message_row(message, epoch)
    for topic in changes.retained:
        retained = broker.retained.get(topic)
        row = None if retained is None else _NUMBER.pack(journal.number_of(retained))
        rows[b"t" + topic.encode()] = row
    return rows


def read_rows(rows: Mapping[bytes, bytes]) -> BrokerRows:
    """All that is in these rows; those that cannot be read are named."""
    found = BrokerRows()
    for key, row in rows.items():
        try:
            _read(found, key[:1], key[1:], row)
        except Exception as error:  # noqa: BLE001 - a row may be damaged in any way
            found.damaged[key] = f"{type(error).__name__}: {error}"[:200]
    return found


def _read(found: BrokerRows, kind: bytes, name: bytes, row: bytes) -> None:
    client, _, rest = name.partition(b"\0")
    if kind == b"c":
        found.heads[name.decode()] = _head(row)
    elif kind == b"s":
        options, identifier = _SUBSCRIPTION.unpack(row)
        found.subscriptions[client.decode(), rest.decode()] = Subscribed(_options(rest.decode(), options), identifier)
    elif kind == b"r":
        found.received.add((client.decode(), _PACKET_ID.unpack(rest)[0]))
    elif kind == b"q":
        found.references[client.decode(), _NUMBER.unpack(rest)[0]] = _reference(row)
    elif kind == b"m":
        found.messages[_NUMBER.unpack(name)[0]] = _message(row)
    elif kind == b"t":
        found.retained[name.decode()] = _NUMBER.unpack(row)[0]
    else:
        raise ValueError("its key is none that this version writes")


def _durable(broker: Broker, client_id: str) -> ClientSession | None:
    session = broker.sessions.get(client_id)
    return session if session is not None and session.durable else None


def _head_key(client_id: str) -> bytes:
    return b"c" + client_id.encode()


def _part_key(kind: bytes, client_id: str, name: bytes) -> bytes:
    return b"%b%b\0%b" % (kind, client_id.encode(), name)


def _head_row(session: ClientSession | None, epoch: float) -> bytes | None:
    if session is None or not (session.durable or session.will is not None):
        return None
    facts = {
        "connected": session.outlet is not None,
        "since": session.since + epoch,
        "expiry": session.expiry,
        "durable": session.durable,
        "will_at": None if session.will_at is None else session.will_at + epoch,
        "owner": session.owner,
        "reminder": session.permit.reminder,
    }
    connect = b"" if session.will is None else encode(_with_will(session.will), ProtocolVersion.V5)
    return json.dumps(facts).encode() + b"\n" + connect


def _with_will(will: WillMessage) -> Connect:
    return Connect(ProtocolVersion.V5, "", will=will)


def _head(row: bytes) -> SessionHead:
    line, _, packet = row.partition(b"\n")
    facts: dict[str, Any] = json.loads(line)
    will = None
    if packet:
        will = _packet(packet, Connect).will
    return SessionHead(
        bool(facts["connected"]),
        float(facts["since"]),
        float(facts["expiry"]),
        bool(facts["durable"]),
        will,
        None if facts["will_at"] is None else float(facts["will_at"]),
        _text(facts, "owner"),
        _text(facts, "reminder"),
    )


def _text(facts: Mapping[str, Any], name: str) -> str:
    told = facts.get(name, "")
    if not isinstance(told, str):
        raise TypeError(f"its {name} is no text")
    return told


def _subscription_row(subscribed: Subscribed) -> bytes:
    one = subscribed.options
    options = one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
    return _SUBSCRIPTION.pack(options, subscribed.identifier)


def _options(topic_filter: str, options: int) -> FilterOptions:
    return FilterOptions(topic_filter, options & 3, bool(options & 4), bool(options & 8), options >> 4)


def _reference_row(outgoing: Outgoing, number: int) -> bytes:
    flags = outgoing.qos | (_RETAIN if outgoing.retain else 0) | (_RELEASED if outgoing.released else 0)
    identifiers = b"".join(map(_IDENTIFIER.pack, outgoing.identifiers))
    more, count = divmod(len(outgoing.identifiers), 256)
    head = _REFERENCE.pack(number, outgoing.packet_id, flags | more << _MORE_IDENTIFIERS, count)
    return head + identifiers + outgoing.share.encode()


def _reference(row: bytes) -> MessageReference:
    number, packet_id, flags, count = _REFERENCE.unpack_from(row)
    count += (flags >> _MORE_IDENTIFIERS) * 256
    end = _REFERENCE.size + count * _IDENTIFIER.size
    identifiers = tuple(one for (one,) in _IDENTIFIER.iter_unpack(row[_REFERENCE.size : end]))
    retain, released = bool(flags & _RETAIN), bool(flags & _RELEASED)
    return MessageReference(number, flags & 3, retain, released, packet_id, identifiers, row[end:].decode())


def _message_row(message: Message, epoch: float) -> bytes:
    expires_at = 0.0 if message.expires_at is None else message.expires_at + epoch
    publisher = message.publisher.encode()
    packet = Publish(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        packet_id=1 if message.qos else 0,
        properties=message.properties,
    )
    return b"".join((_MESSAGE.pack(expires_at, len(publisher)), publisher, encode(packet, ProtocolVersion.V5)))


def _message(row: bytes) -> Message:
    expires_at, length = _MESSAGE.unpack_from(row)
    start = _MESSAGE.size + length
    packet = _packet(row[start:], Publish)
    return Message(
        topic=packet.topic,
        payload=packet.payload,
        qos=packet.qos,
        retain=packet.retain,
        publisher=row[_MESSAGE.size : start].decode(),
        properties=packet.properties,
        expires_at=expires_at or None,
    )


def _packet(data: bytes, kind: type[_Packet]) -> _Packet:
    ((first, body),) = Framing().feed(data)
    packet = decode(first, body, ProtocolVersion.V5)
    if not isinstance(packet, kind):
        raise TypeError(f"there is no {kind.__name__} in it")
    return packet


def without_packet_ids(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the rows to write over these, so that no packet id of before counts any more.

    A message that was on the way waits again, as nobody knows whether it was acknowledged since; one that the client
    had already is gone. Rows that cannot be read stay.
    """
    for key, row in rows:
        if key.startswith(b"r"):
            yield key, None
        elif key.startswith(b"q") and len(row) >= _REFERENCE.size:
            number, packet_id, flags, count = _REFERENCE.unpack_from(row)
            if flags & _RELEASED:
                yield key, None
            elif packet_id:
                yield key, _REFERENCE.pack(number, 0, flags, count) + row[_REFERENCE.size :]
