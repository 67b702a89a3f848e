"""A broker of a few lines that says what a test wants, also what no real broker says."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from app.mqtt.packets import packet, packet_bounds
from tests.tcp import listening
from tests.waiting import PATIENCE

CONNACK_V5 = b"\x20\x03\x00\x00\x00"


class FakeBroker:
    """Speaks MQTT 5. `received` has (first byte, body) of all packets; `send` goes to the latest connection."""

    def __init__(self, *, connack: bytes = CONNACK_V5, suback_code: int = 1, puback_code: int | None = 0) -> None:
        self.connack = connack
        self.suback_code = suback_code
        self.puback_code = puback_code
        self.answer_pings = True
        self.before_suback = b""
        self.before_pingresp = b""
        """Sent once, with the first PINGRESP."""
        self.hangs_up_on = 0
        """The type of a packet after which it closes the connection."""
        self.received: list[tuple[int, bytes]] = []
        self.connections = 0
        self._news = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._listening = listening(self._serve)
        self._port = 0

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self._port}"

    def packets(self, kind: int) -> list[bytes]:
        return [body for first_byte, body in self.received if first_byte & 0xF0 == kind]

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.close()

    async def wait_for_packets(self, kind: int, number: int) -> list[bytes]:
        async with asyncio.timeout(PATIENCE):
            while len(self.packets(kind)) < number:
                self._news.clear()
                await self._news.wait()
        return self.packets(kind)

    async def __aenter__(self) -> Self:
        self._port = await self._listening.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listening.__aexit__(kind, error, trace)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.connections += 1
        data = b""
        while chunk := await reader.read(65536):
            data += chunk
            start = 0
            while start < len(data) and (bounds := packet_bounds(data, start)) and bounds[1] <= len(data):
                self._on_packet(data[start], data[bounds[0] : bounds[1]])
                start = bounds[1]
            data = data[start:]

    def _on_packet(self, first_byte: int, body: bytes) -> None:
        self.received.append((first_byte, body))
        self._news.set()
        kind = first_byte & 0xF0
        if kind == self.hangs_up_on:
            self.hang_up()
        elif kind == 0x10:
            self.send(self.connack)
        elif kind == 0x80:
            self.send(self.before_suback + packet(0x90, body[:2] + b"\x00" + bytes([self.suback_code])))
        elif kind == 0xA0:
            self.send(packet(0xB0, body[:2] + b"\x00\x00"))
        elif kind == 0xC0 and self.answer_pings:
            self.send(self.before_pingresp + b"\xd0\x00")
            self.before_pingresp = b""
        elif first_byte & 0xF6 == 0x32 and self.puback_code is not None:
            topic_end = 2 + int.from_bytes(body[:2])
            self.send(packet(0x40, body[topic_end : topic_end + 2] + bytes([self.puback_code])))
