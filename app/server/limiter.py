"""Bounds the connections of a node: how many it has, how long each may take for what, and which one has to go.

A connection waits in at most one queue, and all in a queue have the same time-out: so the first has waited longest, and
looking for those whose time is up costs nothing while there are none. Connections that write have a queue of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from itertools import chain
from typing import Final, Protocol

import structlog

from app.core.clock import Clock
from app.runtime.telemetry import Bursts, Counters, Fill

TICK_SECONDS: Final = 1.0
"""The time between two calls of `tick`."""
SUSPICIOUS_SECONDS: Final = 1.0
"""A head that takes longer is the first to go when there is no room."""


class CloseReason(StrEnum):
    """The limiter's reasons to close a connection: those of `homing_http_connections_closed_total`."""

    IDLE = "idle"
    SLOW_HEAD = "slow_head"
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"
    MADE_ROOM = "made_room"
    TOO_MANY = "too_many"
    TOO_MANY_OF_PEER = "too_many_of_peer"
    UNREADABLE = "unreadable"
    HEAD_TOO_LARGE = "head_too_large"
    TARGET_TOO_LONG = "target_too_long"
    BODY_TOO_LARGE = "body_too_large"
    TOO_MUCH_HELD = "too_much_held"
    NO_PONG = "no_pong"


class Admission(Enum):
    """The limiter's decision on a new connection."""

    ADMITTED = auto()
    PROBE = auto()
    """There was no room, but for a question after the node's health."""
    REJECTED = auto()
    """There was no room at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The bounds that the limiter keeps; times in seconds, sizes in bytes."""

    connections: int = 10_000
    per_peer: int = 6_000
    probes: int = 32
    """Connections beyond the others, for questions after the node's health."""
    idle: float = 75.0
    """The time for which a connection may be without a request, also before its first one."""
    head: float = 10.0
    body: float = 15.0
    stall: float = 30.0
    """The time that a peer may take to read 16 KiB of what was written."""
    pong: float = 20.0
    """The time that a WebSocket may be silent until it is sent a ping, and again after that."""
    held: int = 64 * 1024 * 1024
    """The bytes of incomplete requests that may be held, over all connections."""


class Connection(Protocol):
    """A connection, as the limiter sees it."""

    peer: str

    def dismiss(self, why: CloseReason) -> None:
        """Close."""

    def unread(self) -> int:
        """Bytes that were written and that the peer has not taken."""

    def ping(self) -> None:
        """Ask the peer for a sign of life. Only those are asked that stand in the queue `silent`."""


class TimeoutQueue:
    """Connections that wait for one thing, in the order in which they began; each may wait equally long."""

    def __init__(self, patience: float, why: CloseReason) -> None:
        self.since: Final[dict[Connection, float]] = {}
        self.why: Final = why
        self._patience = patience

    def overdue(self, now: float) -> Iterator[Connection]:
        """Take out those whose time is up."""
        while self.since:
            connection = next(iter(self.since))
            if now - self.since[connection] < self._patience:
                return
            del self.since[connection]
            yield connection


class ConnectionLimiter:
    """Admits connections, and closes those that take too long or stand in the way. Counts each under its reason."""

    def __init__(self, limits: Limits, clock: Clock, counters: Counters) -> None:
        self.limits: Final = limits
        self.now: Final = clock.monotonic
        self.idle: Final = TimeoutQueue(limits.idle, CloseReason.IDLE)
        self.head: Final = TimeoutQueue(limits.head, CloseReason.SLOW_HEAD)
        self.body: Final = TimeoutQueue(limits.body, CloseReason.SLOW_BODY)
        self.silent: Final = TimeoutQueue(limits.pong, CloseReason.NO_PONG)
        """WebSockets that have said something lately."""
        self.pinged: Final = TimeoutQueue(limits.pong, CloseReason.NO_PONG)
        self.held = 0
        """Bytes of requests that are not complete."""
        self._stalled: Final[dict[Connection, tuple[float, int]]] = {}
        self._probes: Final[dict[Connection, CloseReason]] = {}
        self._peers: Final[Counter[str]] = Counter()
        self._count = 0
        self.counters: Final = counters
        self._bursts = Bursts(clock)
        self._log = structlog.get_logger()

    def fill(self) -> Fill:
        """The number of connections, and its bound."""
        return Fill(self._count, self.limits.connections)

    def admit(self, connection: Connection) -> Admission:
        """Decide where a new connection stands. Room is made by closing one that nobody is being answered on."""
        self.counters["http.opened"] += 1
        full = self._full(connection.peer)
        if full is not None and self._make_room(None if full is CloseReason.TOO_MANY else connection.peer):
            full = self._full(connection.peer)
        if full is None:
            self._count += 1
            self._peers[connection.peer] += 1
            return Admission.ADMITTED
        if len(self._probes) >= self.limits.probes and not self._dismiss_first(self._waiting_probes()):
            self.note(full, connection.peer)
            return Admission.REJECTED
        self._probes[connection] = full
        return Admission.PROBE

    def gone(self, connection: Connection, standing: Admission) -> None:
        """The connection is closed."""
        self._stalled.pop(connection, None)
        self._probes.pop(connection, None)
        if standing is Admission.ADMITTED:
            self._count -= 1
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def turn_away(self, probe: Connection) -> None:
        """Count a connection that asked for more than there was room for."""
        self.note(self._probes[probe], probe.peer)

    def stalls(self, connection: Connection) -> None:
        """The peer does not read what was written; its patience begins."""
        self._stalled.setdefault(connection, (self.now(), connection.unread()))

    def reads(self, connection: Connection) -> None:
        """The peer has read."""
        self._stalled.pop(connection, None)

    def tick(self) -> None:
        """Close the connections whose time is up."""
        now = self.now()
        for line in (self.idle, self.head, self.body, self.pinged):
            for connection in line.overdue(now):
                self.note(line.why, connection.peer)
                connection.dismiss(line.why)
        for connection in self.silent.overdue(now):
            connection.ping()
        for connection in self._overdue_readers(now):
            self.note(CloseReason.SLOW_READER, connection.peer)
            connection.dismiss(CloseReason.SLOW_READER)

    def note(self, why: CloseReason, peer: str) -> None:
        """Count a connection that is closed, and log it unless that happens all the time."""
        self.counters[f"http.closed.{why}"] += 1
        if why is not CloseReason.IDLE:
            count = self._bursts.count(why)
            if count:
                self._log.warning("http_connection_closed", reason=str(why), count=count, peer=peer)

    def _full(self, peer: str) -> CloseReason | None:
        if self._peers[peer] >= self.limits.per_peer:
            return CloseReason.TOO_MANY_OF_PEER
        return CloseReason.TOO_MANY if self._count >= self.limits.connections else None

    def _make_room(self, peer: str | None) -> bool:
        """Close the connection that is missed least: of this peer, or of anybody."""
        slow_since = self.now() - SUSPICIOUS_SECONDS
        slow = (connection for connection, since in self.head.since.items() if since < slow_since)
        return self._dismiss_first(
            connection
            for connection in chain(slow, self.idle.since, self.head.since)
            if connection not in self._probes and (peer is None or connection.peer == peer)
        )

    def _waiting_probes(self) -> Iterator[Connection]:
        return (connection for connection in self._probes if connection in self.head.since)

    def _dismiss_first(self, connections: Iterable[Connection]) -> bool:
        connection = next(iter(connections), None)
        if connection is None:
            return False
        self.note(CloseReason.MADE_ROOM, connection.peer)
        connection.dismiss(CloseReason.MADE_ROOM)
        return True

    def _overdue_readers(self, now: float) -> list[Connection]:
        """Return the connections that read next to nothing in their time; the others get as much again."""
        overdue = [connection for connection, (since, _) in self._stalled.items() if now - since >= self.limits.stall]
        slow = []
        for connection in overdue:
            unread, (_, before) = connection.unread(), self._stalled.pop(connection)
            if before - unread >= _LEAST_READ:
                self._stalled[connection] = (now, unread)
            else:
                slow.append(connection)
        return slow


_LEAST_READ: Final = 16 * 1024
