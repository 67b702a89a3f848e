"""A TCP proxy that breaks connections on demand, as networks do."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import Final, Self, cast

HELD_BYTES: Final = 1 << 22
"""The bytes that a connection keeps per direction before it stops reading."""
_RST: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, for no time: closing sends RST."""


class Direction(Enum):
    """The direction in which a fault works."""

    UP = "up"
    """The direction from the client to the target."""
    DOWN = "down"
    """The direction from the target to the client."""
    BOTH = "both"


@dataclass(slots=True)
class _Faults:
    """The faults of one direction. Seconds and bytes."""

    delay: float = 0.0
    jitter: float = 0.0
    piece: int = 0
    gap: float = 0.0
    blackhole: bool = False
    limit: int | None = None

    @property
    def none(self) -> bool:
        return not (self.delay or self.jitter or self.piece or self.blackhole) and self.limit is None

    def clear(self) -> None:
        self.delay = self.jitter = self.gap = 0.0
        self.piece, self.blackhole, self.limit = 0, False, None


class _End(asyncio.Protocol):
    """One end of a connection: reads its socket and delivers at the other end, its peer."""

    def __init__(self, proxy: FaultProxy, faults: _Faults, *, is_client: bool = False) -> None:
        self.is_client = is_client
        self.peer: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.passed = 0
        """Bytes delivered since there is a limit."""
        self._proxy = proxy
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, bytes]] = deque()
        """Pieces with the instant of their delivery; an empty one is the end of the stream."""
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._peer_full = False
        self._ended = False
        """The end of the stream was delivered."""
        self._lost: bool | None = None
        """The socket is gone: whether with an error."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport.pause_reading()  # until the other end is there
        self._proxy.add(self)

    def data_received(self, data: bytes) -> None:
        if self._faults.none and not self._held:
            self._write(data)
        else:
            self._hold(data)

    def eof_received(self) -> bool:
        self._hold(b"")
        return True  # the other direction goes on

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._lost = exc is not None
        self.flow()

    def pause_writing(self) -> None:
        self._tell_peer(full=True)

    def resume_writing(self) -> None:
        self._tell_peer(full=False)

    def flow(self) -> None:
        """Go on as far as the faults and the other end allow: deliver, pass on the end, read or pause."""
        self._deliver()
        if self._lost is not None and not self._faults.blackhole:
            self._hang_up(with_reset=self._lost)
        if self.transport is None or self.peer is None or self.transport.is_closing():
            return
        if self._peer_full or self._faults.blackhole or self._held_bytes >= HELD_BYTES:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def abort(self) -> None:
        """Close with RST; harmless when closed."""
        self._drop_held()
        if self.transport is not None:
            with suppress(OSError):
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
            self.transport.abort()

    def _tell_peer(self, *, full: bool) -> None:
        if self.peer is not None:
            self.peer._peer_full = full  # noqa: SLF001 - the same class
            self.peer.flow()

    def _hang_up(self, *, with_reset: bool) -> None:
        """This end is gone, so the connection is."""
        self._drop_held()
        self._proxy.remove(self)
        if self.peer is not None and with_reset:
            self.peer.abort()
        elif self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()

    def _drop_held(self) -> None:
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _hold(self, data: bytes) -> None:
        faults = self._faults
        at = self._proxy.due(faults)
        if self._held:
            at = max(at, self._held[-1][0] + faults.gap)  # in order
        for start in range(0, max(len(data), 1), faults.piece or max(len(data), 1)):
            self._held.append((at, data[start : start + faults.piece] if faults.piece else data))
            at += faults.gap
        self._held_bytes += len(data)
        self.flow()

    def _deliver(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._held and not self._faults.blackhole:
            at, data = self._held[0]
            if at > self._loop.time() and not self._faults.none:
                self._timer = self._loop.call_at(at, self.flow)
                return
            self._held.popleft()
            self._held_bytes -= len(data)
            self._write(data)

    def _write(self, data: bytes) -> None:
        out = None if self.peer is None else self.peer.transport
        if out is None or out.is_closing():
            return
        if not data:
            self._end_stream(out)
        elif self._faults.limit is not None and self.passed + len(data) >= self._faults.limit:
            out.write(data[: self._faults.limit - self.passed])
            self._drop_held()
            out.close()
        else:
            self.passed += len(data)
            out.write(data)

    def _end_stream(self, out: asyncio.Transport) -> None:
        self._ended = True
        if self.peer is not None and self.peer._ended:  # noqa: SLF001 - the same class
            out.close()
        else:
            out.write_eof()


class FaultProxy:
    """Listens on `host`:`port` (0: any free one) and passes everything to the target. Async context manager.

    Faults apply at once, to open connections too, add up, and last until `heal`. Chance comes from `seed`. Methods are
    plain functions, to be called on the event loop that entered the context. A client whose target cannot be reached
    gets RST. OSError when the port is taken.
    """

    def __init__(
        self, target_host: str, target_port: int, *, host: str = "127.0.0.1", port: int = 0, seed: int = 0
    ) -> None:
        self.accepted = 0
        """Connections taken so far."""
        self.target = (target_host, target_port)
        """The host and port to which new connections lead."""
        self._address = (host, port)
        self._random = random.Random(seed).random
        self._faults = {Direction.UP: _Faults(), Direction.DOWN: _Faults()}
        self._reachable = asyncio.Event()
        self._reachable.set()
        self._socket: socket.socket | None = None
        self._listening = False
        self._ends: set[_End] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        if self._socket is not None:
            self._socket.close()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        self.reset()
        await asyncio.sleep(0)  # sockets close in the next round of the loop

    @property
    def port(self) -> int:
        """The port to which clients connect; stays the same through `refuse` and `heal`."""
        return self._address[1]

    @property
    def open(self) -> int:
        """Connections open now."""
        return sum(end.is_client for end in self._ends)

    def latency(self, delay: timedelta, jitter: timedelta = timedelta(), direction: Direction = Direction.BOTH) -> None:
        """Deliver later by `delay` plus up to `jitter`, in order."""
        for faults in self._of(direction):
            faults.delay, faults.jitter = delay.total_seconds(), jitter.total_seconds()

    def blackhole(self, direction: Direction = Direction.BOTH) -> None:
        """Pass nothing and tell nobody; connections stay, new ones are taken. After `heal` what was sent arrives."""
        for faults in self._of(direction):
            faults.blackhole = True
        self._reachable.clear()
        self._flow()

    def slice(
        self, size: int, gap: timedelta = timedelta(milliseconds=1), direction: Direction = Direction.BOTH
    ) -> None:
        """Deliver in pieces of `size` bytes, one per `gap`."""
        for faults in self._of(direction):
            faults.piece, faults.gap = size, gap.total_seconds()

    def limit(self, size: int, direction: Direction = Direction.BOTH) -> None:
        """Cut each connection when `size` bytes have passed in that direction, from now on or from its beginning."""
        for faults in self._of(direction):
            faults.limit = size
        for end in self._ends:
            end.passed = 0

    def refuse(self) -> None:
        """Stop listening: new connections are refused, open ones stay."""
        if self._socket is None or not self._listening:
            return
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._listening = False
        self._socket = _bound(self._address)  # and not listening: nobody else can take the port meanwhile

    def reset(self) -> int:
        """Cut all open connections with RST, once; returns how many."""
        count = self.open
        for end in tuple(self._ends):
            end.abort()
        return count

    def heal(self) -> None:
        """End all faults; listen again."""
        for faults in self._faults.values():
            faults.clear()
        self._reachable.set()
        if not self._listening:
            self._listen()
        self._flow()

    def add(self, end: _End) -> None:
        """For the ends: a socket is open."""
        self._ends.add(end)

    def remove(self, end: _End) -> None:
        """For the ends: a socket is gone, and the other end knows."""
        self._ends.discard(end)

    def due(self, faults: _Faults) -> float:
        """For the ends: when what arrives now is delivered."""
        return self._loop.time() + faults.delay + faults.jitter * self._random()

    def _of(self, direction: Direction) -> list[_Faults]:
        return list(self._faults.values()) if direction is Direction.BOTH else [self._faults[direction]]

    def _flow(self) -> None:
        for end in tuple(self._ends):
            end.flow()

    def _listen(self) -> None:
        if self._socket is None:
            self._socket = _bound(self._address)
            self._address = self._socket.getsockname()[:2]
        self._socket.listen(1024)
        self._loop.add_reader(self._socket, self._accept, self._socket)
        self._listening = True

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the client is gone already
            connection, _ = listener.accept()
            connection.setblocking(False)
            self.accepted += 1
            task = self._loop.create_task(self._connect(connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        client = _End(self, self._faults[Direction.UP], is_client=True)
        target = _End(self, self._faults[Direction.DOWN])
        await self._loop.connect_accepted_socket(lambda: client, connection)
        await self._reachable.wait()
        try:
            await self._loop.create_connection(lambda: target, *self.target)
        except OSError:
            client.abort()
            return
        client.peer, target.peer = target, client
        client.flow()
        target.flow()


def _bound(address: tuple[str, int]) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setblocking(False)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
