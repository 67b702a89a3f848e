"""A device that publishes as fast as its broker takes it: QoS 1 over a bare socket, so many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

import orjson

from app.mqtt.packets import packet, publish

WINDOW: Final = 800
"""Messages that wait for PUBACK."""
DEVICES: Final = 100
_PACKET_IDS: Final = 60_000
_CONNECT: Final = 0x10
_PUBACK_SIZE: Final = 4
_CONNACK: Final = b"\x20\x02\x00\x00"


class Publisher(asyncio.Protocol):
    """An MQTT 3.1.1 session, which every broker speaks."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._opened = asyncio.Event()
        self._inbox = b""
        self._left: Iterator[bytes] = iter(())
        self._waiting = 0
        self._done = asyncio.Event()
        self._ended = "the broker let it not in"

    @classmethod
    async def connected(cls, port: int) -> Publisher:
        """To a broker on this machine; ConnectionError."""
        _, one = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        name = b"publisher"
        one._write(packet(_CONNECT, b"\0\4MQTT\4\2\0\0" + len(name).to_bytes(2) + name))  # noqa: SLF001 - it made this one
        await one._opened.wait()  # noqa: SLF001 - as above
        one._check()  # noqa: SLF001 - as above
        return one

    async def publish(self, count: int) -> None:
        """Return when all of it has PUBACK; ConnectionError."""
        self._left = events(count)
        self._done.clear()
        self._fill()
        await self._done.wait()
        self._check()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        self._transport = transport  # type: ignore[assignment] # a TCP connection can be written to

    def data_received(self, data: bytes) -> None:
        """CONNACK, then PUBACKs."""
        self._inbox += data
        if not self._opened.is_set():
            if len(self._inbox) < len(_CONNACK):
                return
            if self._inbox.startswith(_CONNACK):
                self._ended = ""
            self._inbox = self._inbox[len(_CONNACK) :]
            self._opened.set()
        count = len(self._inbox) // _PUBACK_SIZE
        self._inbox = self._inbox[count * _PUBACK_SIZE :]
        self._waiting -= count
        self._fill()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits."""
        self._ended = f"the broker closed the connection: {exc}"
        self._opened.set()
        self._done.set()

    def _fill(self) -> None:
        more = list(islice(self._left, WINDOW - self._waiting))
        self._waiting += len(more)
        self._write(b"".join(more))
        if not self._waiting:
            self._done.set()

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    def _check(self) -> None:
        if self._ended:
            raise ConnectionError(self._ended)


def events(count: int) -> Iterator[bytes]:
    """PUBLISH packets of 220 bytes of payload, from devices of two families in turn."""
    for number in range(count):
        device = f"SN{number % DEVICES:04d}"
        topic = f"homing/{device}/event" if number % 2 else f"thing/product/{device}/osd"
        places = dict.fromkeys(("latitude", "longitude", "height", "speed", "heading"), number % 89989 / 1000)
        body = orjson.dumps(
            {
                "id": f"{number:08x}-7c1d-4b7e-9a5e-5f1c0242ac13",
                "type": "osd",
                "battery": number % 100,
                "data": places,
                "x": "",
            }
        )
        payload = body[:-2] + b"x" * (220 - len(body)) + b'"}'
        yield publish(topic.encode(), payload, 1, number % _PACKET_IDS + 1, None)
