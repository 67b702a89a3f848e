"""Packets as their fields, so that a mutation can break one field and leave the others as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MOST_STRING: Final = 65_535


def variable(value: int) -> bytes:
    """A variable byte integer, also one of more bytes than MQTT has."""
    encoded = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@dataclass(slots=True)
class RawField:
    """Bytes as they are: flags, identifiers, reason codes, payloads."""

    data: bytes

    def render(self) -> bytes:
        """Return the bytes."""
        return self.data


@dataclass(slots=True)
class StringField:
    """A string or binary data; `off` is what its length is wrong by."""

    data: bytes
    off: int = 0

    def render(self) -> bytes:
        """Return the bytes."""
        return min(max(len(self.data) + self.off, 0), MOST_STRING).to_bytes(2) + self.data[:MOST_STRING]


@dataclass(slots=True)
class PropertiesField:
    """Properties, each with its identifier; `off` is what their length is wrong by."""

    pairs: list[bytes] = field(default_factory=list)
    off: int = 0

    def render(self) -> bytes:
        """Return the bytes."""
        body = b"".join(self.pairs)
        return variable(max(len(body) + self.off, 0)) + body


PacketField = RawField | StringField | PropertiesField


@dataclass(slots=True)
class PacketDraft:
    """A packet that may still be broken; `off` is what its remaining length is wrong by."""

    first: int
    fields: list[PacketField]
    off: int = 0

    def render(self) -> bytes:
        """Return the bytes."""
        body = b"".join([one.render() for one in self.fields])
        return bytes((self.first,)) + variable(max(len(body) + self.off, 0)) + body
