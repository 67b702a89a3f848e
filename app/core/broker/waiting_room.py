"""Messages that wait for sessions or are on the way to them, and the room that these may take."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from app.core.broker.session import ClientSession, Outgoing

AIR: Final = 64
"""This part of the room is made free at once when it is full, so that not each message looks for the fullest."""

LOOK_SECONDS: Final = 1.0
"""All that waits is looked at no more often: it may be some hundred thousand messages."""


class Backlog:
    """The messages that wait for one session, the oldest first."""

    __slots__ = ("_waiting", "size", "unsure")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of them, roughly, whoever else holds them."""
        self.unsure = 0
        """The number of those with QoS 0."""
        self._waiting: deque[Outgoing] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._waiting)

    @property
    def first(self) -> Outgoing:
        """The oldest one; IndexError where there is none."""
        return self._waiting[0]

    def append(self, outgoing: Outgoing) -> None:
        """Have it wait."""
        self._waiting.append(outgoing)
        self.size += outgoing.size + outgoing.message.size
        self.unsure += not outgoing.qos

    def popleft(self) -> Outgoing:
        """Take the oldest one out; IndexError where there is none."""
        outgoing = self._waiting.popleft()
        self.size -= outgoing.size + outgoing.message.size
        self.unsure -= not outgoing.qos
        return outgoing

    def take_expired(self, now: float) -> list[Outgoing]:
        """Take out those that nobody should get any more."""
        expired = [one for one in self._waiting if one.message.expired(now)]
        if expired:
            self._waiting = deque(one for one in self._waiting if not one.message.expired(now))
            self.size -= sum(one.size + one.message.size for one in expired)
            self.unsure -= sum(not one.qos for one in expired)
        return expired

    def clear(self) -> None:
        """Take all out."""
        self._waiting.clear()
        self.size = self.unsure = 0


class WaitingRoom:
    """Counts the bytes of all messages that sessions hold: each message once, however many sessions hold it."""

    def __init__(self, bound: int, sessions: Mapping[str, ClientSession], now: Callable[[], float]) -> None:
        self._bound = bound
        self._sessions = sessions
        self._now = now
        self._looked = -LOOK_SECONDS
        """The instant at which what has expired was looked for."""
        self._holders: Counter[int] = Counter()
        """The number of holders, by the identity of the message, which somebody holds as long as it is in here."""
        self.taken = 0
        self.will_bytes = 0
        """Bytes of the wills of all sessions, which have a bound of their own."""
        self.received = 0
        """Packet identifiers of QoS 2 that clients have not released, likewise."""

    def take(self, outgoing: Outgoing) -> bool:
        """Hold its message once more, if there is room."""
        size = self._size_of(outgoing)
        if self.taken + size > self._bound:
            return False
        self._holders[id(outgoing.message)] += 1
        self.taken += size
        return True

    def take_from_fullest(self, outgoing: Outgoing) -> bool:
        """Hold it where there was no room: the sessions for which most waits lose their oldest messages.

        Before them go those that have expired. So nobody is harmed by a client that stays away, or does not read. False
        if that does not make room.
        """
        wanted = self._bound - self._size_of(outgoing)
        if wanted >= 0:
            self._shrink_to(wanted - min(wanted, self._bound // AIR))
        return self.take(outgoing)

    def give(self, outgoing: Outgoing) -> None:
        """Hold its message once less."""
        message = outgoing.message
        self.taken -= outgoing.size
        self._holders[id(message)] -= 1
        if not self._holders[id(message)]:
            del self._holders[id(message)]
            self.taken -= message.size

    def _forget_expired(self) -> None:
        now = self._now()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for session in self._sessions.values():
            session.forget_expired(now)

    def _size_of(self, outgoing: Outgoing) -> int:
        message = outgoing.message
        return outgoing.size + (0 if id(message) in self._holders else message.size)

    def _shrink_to(self, most: int) -> None:
        self._forget_expired()
        fullest = [(-one.waiting.size, name) for name, one in self._sessions.items() if one.waiting]
        heapq.heapify(fullest)
        while fullest and self.taken > most:
            _, name = heapq.heappop(fullest)
            session = self._sessions[name]
            session.forget_oldest("memory_full")
            if session.waiting:
                heapq.heappush(fullest, (-session.waiting.size, name))
