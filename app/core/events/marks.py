"""Marks of a block: which topics may be in it, in so few bytes that a block without what is read is not even opened.

A Bloom filter of the topics and of their levels, each with its place. It never misses a topic that is there; it may
name some that are not. Its bits are folded onto half as many, again and again, so that a small block has small marks.
They end with a checksum: marks that are damaged say nothing, and the block is opened.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache, reduce
from operator import or_
from struct import Struct
from typing import Final
from zlib import crc32

LEVELS: Final = 6
"""Levels of a topic that leave a mark, the first ones: more cost whoever appends more than readers gain."""
BITS_PER_TOPIC: Final = 16
FEWEST_BITS: Final = 64
MOST_BITS: Final = 1024
_WHOLE: Final = LEVELS
"""The place of a topic as a whole."""
_CACHED: Final = 32_768
_CHECKSUM: Final = Struct(">I")


def pack_marks(topics: Collection[str]) -> bytes:
    """Marks of a block with these topics."""
    bits, size = reduce(or_, map(_marks_of, topics)), MOST_BITS
    while size > FEWEST_BITS and size >= 2 * BITS_PER_TOPIC * len(topics):
        bits = _folded(bits, size := size // 2)
    data = bits.to_bytes(size // 8)
    return data + _CHECKSUM.pack(crc32(data))


class MarkFilter:
    """The bits that a topic filter looks for in marks."""

    def __init__(self, topic_filter: str) -> None:
        levels = topic_filter.split("/") if topic_filter else []
        bits = 0
        for place, level in enumerate(levels[:LEVELS]):
            if level not in ("+", "#"):
                bits |= _mark(level.encode(), place)
        if topic_filter and "+" not in levels and levels[-1] != "#":
            bits |= _mark(topic_filter.encode(), _WHOLE)
        self._by_size: Final[dict[int, int]] = {}
        size = MOST_BITS
        while size >= FEWEST_BITS:
            self._by_size[size // 8] = bits = _folded(bits, size)
            size //= 2

    def may_be_in(self, marks: bytes) -> bool:
        """True if a block with these marks may have a topic that fits. Marks that cannot be read rule nothing out."""
        data = marks[: -_CHECKSUM.size]
        wanted = self._by_size.get(len(data))
        if wanted is None or _CHECKSUM.pack(crc32(data)) != marks[-_CHECKSUM.size :]:
            return True
        return int.from_bytes(data) & wanted == wanted


@lru_cache(maxsize=_CACHED)
def _marks_of(topic: str) -> int:
    name = topic.encode()
    bits = _mark(name, _WHOLE)
    for place, level in enumerate(name.split(b"/", LEVELS)[:LEVELS]):
        bits |= 1 << (crc32(level, place) % MOST_BITS)
    return bits


def _mark(part: bytes, place: int) -> int:
    return 1 << (crc32(part, place) % MOST_BITS)


def _folded(bits: int, size: int) -> int:
    return (bits | bits >> size) & ((1 << size) - 1)
