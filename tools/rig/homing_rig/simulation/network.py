"""Connections between simulated processes. TCP loses and reorders nothing within one: it is slow, or it breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, Final, NamedTuple

from homing_rig.simulation.loop import SimLoop

LAWS: Final = ("near", "rack", "far", "spiky")
"""The time of a packet under way: 0.1 to 0.3 ms; 0.2 to 2 ms; 5 to 30 ms; mostly near, and one in fifty up to 0.3 s."""
_SECONDS: Final = {"near": (0.0001, 0.0002), "rack": (0.0002, 0.0018), "far": (0.005, 0.025), "spiky": (0.0001, 0.0002)}
"""The least time, and how much more it may be; spikes besides."""
PLACES: Final = ("store", "broker", "devices", "callers")
"""Ways to the first two are those of nodes; devices have theirs to the broker, and callers theirs to nodes."""


class Link:
    """The way between two places, over which there may be many connections one after the other."""

    def __init__(self, loop: SimLoop, name: str, law: str, chance: Random) -> None:
        self.name: Final = name
        self.up = True
        """True if a new connection can be made."""
        self.connections: dict[Connection, None] = {}
        self.half_open: dict[Connection, None] = {}
        """Broken connections whose client will find that out by itself, and has not yet."""
        self._loop = loop
        self._least, self._more = _SECONDS[law]
        self._spikes = law == "spiky"
        self._random = chance.random
        self._stalled_until = 0.0

    def delay(self) -> float:
        """The time that what is sent now takes, in seconds."""
        drawn = self._random()
        seconds = self._least + self._more * drawn
        if self._spikes and drawn >= 0.98:  # noqa: PLR2004
            seconds = 0.3 * self._random()
        if self._stalled_until:
            seconds += max(0.0, self._stalled_until - self._loop.time())
        return seconds

    def stall(self, seconds: float) -> None:
        """Hold back what is sent from now on, for so long; nothing is lost."""
        self._stalled_until = max(self._stalled_until, self._loop.time() + seconds)

    def cut(self, *, silent: bool = False) -> None:
        """Break all connections: with a reset, or so that neither side is told."""
        for connection in tuple(self.connections):
            connection.cut(silent=silent)


class Side(NamedTuple):
    """One end of a connection: whose steps its events are, and who is told that it has broken."""

    context: Context
    ended: Callable[[], None]
    patience: float
    """Seconds after which this side finds out by itself that the other one is silent."""


class _Way:
    """One direction: in order, and nothing arrives after its end."""

    __slots__ = ("_context", "_last", "_link", "_loop", "_under_way", "ends", "vanishes")

    def __init__(self, loop: SimLoop, link: Link, context: Context) -> None:
        self._loop = loop
        self._link = link
        self._context = context
        self._last = 0.0
        self._under_way: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        """In the order in which it was sent: timers of one instant come in any order on a loop of asyncio."""
        self.ends = float("inf")
        """The instant after which arrivals are lost."""
        self.vanishes = False

    def send(self, take: Callable[..., object], *arguments: Any) -> None:
        if self.vanishes:
            return
        self._last = at = max(self._loop.time() + self._link.delay(), self._last)
        if at <= self.ends:
            self._under_way.append((take, arguments))
            self._loop.call_at(at, self._arrive, context=self._context)

    def _arrive(self) -> None:
        take, arguments = self._under_way.popleft()
        if self._loop.time() <= self.ends:
            take(*arguments)


class Connection:
    """Between a client and a server; each side is told once when it has ended, unless it ended it itself."""

    def __init__(self, loop: SimLoop, link: Link, client: Side, server: Side) -> None:
        self.open = True
        self._loop = loop
        self._link = link
        self._sides = (client, server)
        self._told = [False, False]
        self.to_server: Final = _Way(loop, link, server.context)
        self.to_client: Final = _Way(loop, link, client.context)
        link.connections[self] = None

    def cut(self, *, silent: bool = False) -> None:
        """Break it on the way. What is under way arrives up to a drawn instant."""
        if not self.open:
            return
        self._end()
        for number, (side, way) in enumerate(zip(self._sides, (self.to_client, self.to_server), strict=True)):
            way.ends = self._loop.time() + (0.0 if silent else self._link.delay())
            later = side.patience if silent else way.ends - self._loop.time()
            if later < float("inf"):
                if silent and number == 0:
                    self._link.half_open[self] = None
                self._loop.call_later(later, self._tell, number, context=side.context)

    def close(self) -> None:
        """The client, or the kernel after its death, closes it: what it has sent arrives first."""
        self._leave(0)

    def drop(self) -> None:
        """The server closes it: what it has sent arrives first."""
        self._leave(1)

    def vanish(self) -> None:
        """The client's host is gone: nothing more arrives, and the server has to find out."""
        if self.open:
            self._end()
            self.to_server.ends = self.to_client.ends = self._loop.time()
            self._told[0] = True
            self._loop.call_later(self._sides[1].patience, self._tell, 1, context=self._sides[1].context)

    def _leave(self, who: int) -> None:
        self._knows(who)
        if not self.open:
            return
        (self.to_server if who == 0 else self.to_client).send(self._tell, 1 - who)
        self._end()
        (self.to_client if who == 0 else self.to_server).ends = self._loop.time()

    def _end(self) -> None:
        self.open = False
        self.to_server.vanishes = self.to_client.vanishes = True
        self._link.connections.pop(self, None)

    def _tell(self, number: int) -> None:
        if not self._told[number]:
            self._knows(number)
            self._sides[number].ended()

    def _knows(self, number: int) -> None:
        self._told[number] = True
        if number == 0:
            self._link.half_open.pop(self, None)
