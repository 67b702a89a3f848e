"""Entries that were appended together, as one piece of bytes: each topic once, and compressed where that pays.

All of it is a zlib stream (RFC 1950), as that ends with a checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Container, Sequence
from struct import Struct, error
from typing import Final

from app.core.errors import DamagedEventsError
from app.core.events.event import Entry, Event, Position
from app.core.events.record import pack_name

VERSION: Final = 1
COMPRESS_FROM: Final = 512
"""Bytes; smaller blocks are stored as they are, which takes 11 bytes more and no work: see `_stored`."""
_PLAIN, _ZLIB = 0, 1
_ROOM: Final = 1024 * 1024
"""Bytes that are set aside for a body before it is there: what says its size may be damaged."""
_HEAD: Final = Struct(">BBHHI")  # version, codec, entries, topics, bytes of the body
_TOPIC: Final = Struct(">H")
_ENTRY: Final = Struct(">HBBBI")
_STORED: Final = Struct("<HBHH")  # header of the stream, one last block that is stored, its length, and that inverted
_CHECKSUM: Final = Struct(">I")


def pack_block(entries: Sequence[Entry]) -> bytes:
    """The entries as bytes, which `unpack_block` reads."""
    numbers: dict[str, int] = {}
    rows: list[bytes] = []
    for entry in entries:
        number = numbers.setdefault(entry.topic, len(numbers))
        device, kind, identity = pack_name(entry.device), pack_name(entry.kind), pack_name(entry.id)
        rows += (
            _ENTRY.pack(number, len(device), len(kind), len(identity), len(entry.value)),
            device,
            kind,
            identity,
            entry.value,
        )
    topics: list[bytes] = []
    for topic in numbers:
        name = topic.encode()
        topics += (_TOPIC.pack(len(name)), name)
    body = b"".join(topics + rows)
    kept = zlib.compress(body, 1) if len(body) >= COMPRESS_FROM else _stored(body)
    return _HEAD.pack(VERSION, _ZLIB, len(entries), len(numbers), len(body)) + kept


def count_of(data: bytes) -> int:
    """The number of entries in the block; DamagedEventsError."""
    return _head(data)[1]


def unpack_block(
    data: bytes, last: Position, shard: int, fits: Callable[[str], bool], wanted: Container[Position] | None = None
) -> list[Event]:
    """Return the block's events whose topics fit, and that are `wanted`; all are where this is None.

    DamagedEventsError.

    `last` is the position of the last one.
    """
    codec, count, topics, size = _head(data)
    try:
        kept = data[_HEAD.size :]
        body = zlib.decompress(kept, bufsize=min(size, _ROOM)) if codec == _ZLIB else kept
        if len(body) != size:
            raise DamagedEventsError(f"a block of {size} bytes has {len(body)}")
        at = 0
        names: list[str | None] = []
        for _ in range(topics):
            (length,) = _TOPIC.unpack_from(body, at)
            at += _TOPIC.size
            name = body[at : at + length].decode()
            at += length
            names.append(name if fits(name) else None)
        positions = range(last - count + 1, last + 1)
        try:
            return _events(body, at, names, positions, shard, wanted, "strict")
        except UnicodeDecodeError:  # 0.2.0 may have cut a name within a character
            return _events(body, at, names, positions, shard, wanted, "ignore")
    except (error, zlib.error, UnicodeDecodeError, IndexError) as fault:
        raise DamagedEventsError(f"a block of {len(data)} bytes cannot be read: {fault}") from None


def _stored(body: bytes) -> bytes:
    """The zlib stream of a short body; the library would set aside a quarter of a megabyte for it (RFC 1951, 3.2.4)."""
    head = _STORED.pack(0x0178, 1, len(body), len(body) ^ 0xFFFF)
    return head + body + _CHECKSUM.pack(zlib.adler32(body))


def _events(
    body: bytes,
    at: int,
    names: Sequence[str | None],
    positions: range,
    shard: int,
    wanted: Container[Position] | None,
    errors: str,
) -> list[Event]:
    found: list[Event] = []
    if all(name is None for name in names):
        return found
    for position in positions:
        number, device, kind, identity, length = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        topic = names[number]
        if topic is None or (wanted is not None and position not in wanted):
            at += device + kind + identity + length
            continue
        about = []
        for one in (device, kind, identity):
            about.append(body[at : at + one].decode("utf-8", errors))
            at += one
        found.append(Event(position, shard, Entry(topic, body[at : at + length], *about)))
        at += length
    if at != len(body):
        raise DamagedEventsError(f"a block of {len(positions)} entries has {len(body)} bytes, and they take {at}")
    return found


def _head(data: bytes) -> tuple[int, int, int, int]:
    try:
        version, codec, count, topics, size = _HEAD.unpack_from(data)
    except error as fault:
        raise DamagedEventsError(f"a block of {len(data)} bytes cannot be read: {fault}") from None
    if version != VERSION or codec not in (_PLAIN, _ZLIB):
        raise DamagedEventsError(f"a block has version {version}.{codec}, and this node reads {VERSION}")
    if not 0 < topics <= count:
        raise DamagedEventsError(f"a block has {topics} topics in {count} entries")
    return codec, count, topics, size
