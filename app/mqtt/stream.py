"""A TCP or TLS connection on the event loop, cut into MQTT packets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from app.mqtt.packets import MalformedPacketError, packet_bounds

WRITE_BUFFER_LIMIT: Final = 4 * 1024 * 1024
"""Bytes that may wait for a slow broker before `choked` turns true."""
_WRITE_BATCH: Final = 256
"""Packets that leave at the latest, so that `choked` also stops a burst within one iteration of the loop."""


class MqttStream(asyncio.Protocol):
    """Calls `on_packet(first byte, body)` for every packet and `on_end(reason)` once, when the connection is gone.

    What is written during one iteration of the loop leaves in one system call. `pause` stops reading, so that TCP holds
    the broker back; at most one read of the socket waits here meanwhile.
    """

    def __init__(self, on_packet: Callable[[int, bytes], None], on_end: Callable[[str], None]) -> None:
        self.choked = False
        self.last_received = 0.0
        self.last_sent = 0.0
        self._on_packet = on_packet
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._inbox = bytearray()
        self._outbox: list[bytes] = []
        self._paused = False

    def write(self, data: bytes) -> None:
        """Send at the end of this iteration of the loop; lost without a word when the connection is gone."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(data)
        if len(self._outbox) >= _WRITE_BATCH:
            self._flush()

    def pause(self) -> None:
        """Stop reading; packets that were read but not handed out wait too."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on reading, from the next iteration of the loop on."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._resume)

    def close(self) -> None:
        """Send what is written and close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._outbox.clear()
        if self._transport is not None:
            self._transport.abort()

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        # Not isinstance: the transports of uvloop have no common base class with those of asyncio.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_LIMIT)
        # asyncio sets it too; said here because one command at a time takes 40 ms without it.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.last_received = self.last_sent = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Hand out all packets that are complete."""
        self.last_received = self._loop.time()
        if self._inbox or self._paused:
            self._inbox += data
            self._drain_inbox()
        else:
            self._inbox += data[self._hand_out(data) :]

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        self._transport = None
        self._on_end("the broker closed the connection" if exc is None else f"connection lost: {exc}")

    def pause_writing(self) -> None:
        """The broker reads too slowly."""
        self.choked = True

    def resume_writing(self) -> None:
        """The broker caught up."""
        self.choked = False

    def _flush(self) -> None:
        if self._outbox and self._transport is not None:
            self.last_sent = self._loop.time()
            self._transport.write(b"".join(self._outbox))
        self._outbox.clear()

    def _resume(self) -> None:
        # It may have been paused again in the meantime, and here it may be paused again by what is handed out.
        if self._paused or self._transport is None:
            return
        self.last_received = self._loop.time()
        self._drain_inbox()
        if self._may_read():
            self._transport.resume_reading()

    def _may_read(self) -> bool:
        return not self._paused and self._transport is not None and not self._transport.is_closing()

    def _drain_inbox(self) -> None:
        del self._inbox[: self._hand_out(self._inbox)]

    def _hand_out(self, data: bytes | bytearray) -> int:
        """Hand out packets until the data ends or reading is paused; return how many bytes that used."""
        start, size = 0, len(data)
        while start < size:
            if self._paused:  # by what was handed out
                break
            try:
                bounds = packet_bounds(data, start)
            except MalformedPacketError as error:
                self._on_end(str(error))
                return size
            if bounds is None or bounds[1] > size:
                break
            self._on_packet(data[start], bytes(data[bounds[0] : bounds[1]]))
            start = bounds[1]
        return start
