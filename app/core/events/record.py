"""An entry as bytes: four lengths, then topic, device, kind, id and value. The first byte is the version."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from app.core.errors import DamagedEventsError
from app.core.events.event import Entry

VERSION: Final = 1
MOST_NAME_BYTES: Final = 255
_HEAD: Final = Struct(">BHBBB")


def pack_name(text: str) -> bytes:
    """A device, a kind or an id as bytes: at most 255, and no part of a character."""
    data = text.encode()
    return data if len(data) <= MOST_NAME_BYTES else data[:MOST_NAME_BYTES].decode(errors="ignore").encode()


def pack_entry(entry: Entry) -> bytes:
    """The entry as bytes; longer names of devices and kinds, and longer ids, are cut."""
    topic, device = entry.topic.encode(), pack_name(entry.device)
    kind, identity = pack_name(entry.kind), pack_name(entry.id)
    head = _HEAD.pack(VERSION, len(topic), len(device), len(kind), len(identity))
    return b"".join((head, topic, device, kind, identity, entry.value))


def value_size(entry: Entry) -> int:
    """The bytes that an entry takes as a last value: its topic, and its record."""
    return len(entry.topic.encode()) + len(pack_entry(entry))


def topic_of(data: bytes) -> str:
    """The topic alone; DamagedEventsError."""
    try:
        return data[_HEAD.size : _HEAD.size + _HEAD.unpack_from(data)[1]].decode()
    except (error, UnicodeDecodeError) as fault:
        raise DamagedEventsError(f"a record of {len(data)} bytes cannot be read: {fault}") from None


def unpack_entry(data: bytes) -> Entry:
    """The entry; DamagedEventsError when these are not its bytes."""
    try:
        version, topic, device, kind, identity = _HEAD.unpack_from(data)
        if version != VERSION:
            raise DamagedEventsError(f"a record has version {version}, and this node reads {VERSION}")
        at = _HEAD.size + topic
        names = [data[_HEAD.size : at].decode()]
        for length in (device, kind, identity):
            names.append(data[at : at + length].decode(errors="ignore"))  # 0.2.0 may have cut it within a character
            at += length
        if at > len(data):
            raise DamagedEventsError(f"a record of {len(data)} bytes ends too early")
    except (error, UnicodeDecodeError) as fault:
        raise DamagedEventsError(f"a record of {len(data)} bytes cannot be read: {fault}") from None
    return Entry(names[0], data[at:], *names[1:])
