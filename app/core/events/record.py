"""An entry as bytes: four lengths, then topic, device, kind, id and value. The first byte is the version."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from app.core.errors import DamagedEventsError
from app.core.events.event import Entry

VERSION: Final = 1
_HEAD: Final = Struct(">BHBBB")


def pack_entry(entry: Entry) -> bytes:
    """The entry as bytes. Names of devices and kinds have at most 255 bytes; longer ones are cut."""
    topic, device = entry.topic.encode(), entry.device.encode()[:255]
    kind, identity = entry.kind.encode()[:255], entry.id.encode()[:255]
    head = _HEAD.pack(VERSION, len(topic), len(device), len(kind), len(identity))
    return b"".join((head, topic, device, kind, identity, entry.value))


def value_size(entry: Entry) -> int:
    """What it takes as a last value: its topic, and its record."""
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
        at = _HEAD.size
        names = []
        for length in (topic, device, kind, identity):
            names.append(data[at : at + length].decode())
            at += length
        if at > len(data):
            raise DamagedEventsError(f"a record of {len(data)} bytes ends too early")
    except (error, UnicodeDecodeError) as fault:
        raise DamagedEventsError(f"a record of {len(data)} bytes cannot be read: {fault}") from None
    return Entry(names[0], data[at:], *names[1:])
