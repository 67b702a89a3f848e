"""The data types of MQTT on the wire (MQTT 5, section 1.5), and where a packet ends (section 2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.core.broker.codes import PacketError, ReasonCode, malformed

MOST_REMAINING: Final = 268_435_455
"""The largest number that four bytes of remaining length can say [MQTT-1.5.5]."""
MOST_STRING: Final = 65_535
"""Bytes of the longest string or binary data."""
_MOST_BYTES: Final = 4
_CONTINUED: Final = 0x80


class Reader:
    """Walks through the body of a packet. Every method raises PacketError where it is not what it must be."""

    __slots__ = ("_data", "_end", "at")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self._data = data
        self._end = len(data) if end is None else end
        self.at = at

    @property
    def left(self) -> int:
        """Return how many bytes are not read yet."""
        return self._end - self.at

    def byte(self) -> int:
        """One byte."""
        return self._take(1)[0]

    def uint16(self) -> int:
        """A two byte integer."""
        return int.from_bytes(self._take(2))

    def uint32(self) -> int:
        """A four byte integer."""
        return int.from_bytes(self._take(4))

    def variable(self) -> int:
        """A variable byte integer in as few bytes as possible [MQTT-1.5.5-1]."""
        value = 0
        for index in range(_MOST_BYTES):
            byte = self.byte()
            value |= (byte & ~_CONTINUED) << (7 * index)
            if byte < _CONTINUED:
                if index and not byte:
                    raise malformed("a variable byte integer has more bytes than it needs")
                return value
        raise malformed("a variable byte integer has more than four bytes")

    def binary(self) -> bytes:
        """Binary data."""
        return self._take(self.uint16())

    def text(self) -> str:
        """A string of well-formed UTF-8 without U+0000 [MQTT-1.5.4-1, -2]; U+FEFF stays [MQTT-1.5.4-3]."""
        raw = self.binary()
        try:
            found = raw.decode()
        except UnicodeDecodeError:
            raise malformed("a string is not well-formed UTF-8") from None
        if "\0" in found:
            raise malformed("a string has U+0000")
        return found

    def part(self) -> Reader:
        """Return what follows a length, to be read by itself."""
        size = self.variable()
        self._take(size)
        return Reader(self._data, self.at - size, self.at)

    def rest(self) -> bytes:
        """All that is left."""
        return self._take(self.left)

    def since(self, start: int) -> bytes:
        """Return what was read since `at` was there."""
        return self._data[start : self.at]

    def finish(self) -> None:
        """PacketError when something is left."""
        if self.left:
            raise malformed(f"{self.left} bytes follow what belongs to the packet")

    def _take(self, size: int) -> bytes:
        at = self.at
        if at + size > self._end:
            raise malformed("a packet ends too early")
        self.at = at + size
        return self._data[at : self.at]


def variable_of(value: int) -> bytes:
    """A variable byte integer; ValueError when four bytes cannot say it."""
    if 0 <= value < _CONTINUED:
        return bytes((value,))
    if not 0 <= value <= MOST_REMAINING:
        raise ValueError(f"{value} is no variable byte integer; allowed: 0 to {MOST_REMAINING}")
    encoded = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        encoded.append(byte | (_CONTINUED if value else 0))
        if not value:
            return bytes(encoded)


def binary_of(data: bytes) -> bytes:
    """Binary data with its length; ValueError when it is too long."""
    if len(data) > MOST_STRING:
        raise ValueError(f"a string or binary value of {len(data)} bytes; allowed: up to {MOST_STRING}")
    return len(data).to_bytes(2) + data


def text_of(text: str) -> bytes:
    """A string with its length; ValueError when MQTT has none such."""
    if "\0" in text:
        raise ValueError("a string has U+0000")
    return binary_of(text.encode())


class Framing:
    """Cuts packets out of a stream of bytes. `largest` is the greatest packet that is taken, with its fixed header."""

    def __init__(self, largest: int = MOST_REMAINING + 5) -> None:
        self.largest = largest
        self._buffer = bytearray()

    @property
    def held(self) -> int:
        """Return how many bytes wait for the rest of their packet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield first byte and body of each packet that is whole now; PacketError, after which nothing more is fed.

        Each is cut when it is asked for, so `largest` may change in between.
        """
        self._buffer += data
        start = 0
        try:
            while (bounds := self._bounds(start)) is not None and bounds[1] <= len(self._buffer):
                body, end = bounds
                first, start = start, end
                yield self._buffer[first], bytes(self._buffer[body:end])
        finally:
            del self._buffer[:start]

    def _bounds(self, start: int) -> tuple[int, int] | None:
        """Return where the body begins and ends; None while nobody can know."""
        length = 0
        for index, byte in enumerate(self._buffer[start + 1 : start + 1 + _MOST_BYTES]):
            length |= (byte & ~_CONTINUED) << (7 * index)
            if byte < _CONTINUED:
                if index and not byte:
                    raise malformed("the remaining length has more bytes than it needs")
                body = start + 2 + index
                if body - start + length > self.largest:
                    raise PacketError(
                        ReasonCode.PACKET_TOO_LARGE,
                        f"a packet of {body - start + length} bytes; allowed: {self.largest}",
                    )
                return body, body + length
        if len(self._buffer) - start > _MOST_BYTES:
            raise malformed("the remaining length has more than four bytes")
        return None
