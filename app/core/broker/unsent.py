"""Bytes that clients were told and that their sockets have not taken: those of all clients together have a bound.

Each socket has a copy of its own of a message, so one message for all clients may be a gigabyte. In the sessions it is
one message, so above the bound that is where it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

STALLED_SECONDS: Final = 10.0
"""A client that reads nothing for so long, while others have to wait for it, has to go."""
AGAIN_SECONDS: Final = 0.05
SMALL_MESSAGE: Final = 4_096
"""Bytes that a client may always have unsent: commands and their answers wait for nobody who reads nothing."""


class UnsentLink(Protocol):
    """The socket of a client."""

    @property
    def unsent(self) -> int:
        """The bytes that it has not taken."""

    def give_up(self) -> None:
        """End the connection of a client that does not read."""


class WaitingSession(Protocol):
    """A session with something to send."""

    def pump(self) -> None:
        """Send what may be sent now."""


class UnsentBytes:
    """Sockets are looked at when somebody waits. `notice` is called then, and whoever hears it calls `look` soon."""

    def __init__(self, bound: int, now: Callable[[], float]) -> None:
        self.notice: Callable[[], None] = lambda: None
        self.links: Final[set[UnsentLink]] = set()
        self.held = 0
        """Bytes that wait for the disk."""
        self._bound = bound
        self._now = now
        self._said = 0
        """Bytes since the last look, whoever has taken them."""
        self._left = 0
        """Bytes that no socket had taken at the last look."""
        self._waiting: dict[WaitingSession, None] = {}
        self._noticed = False
        self._stalled: dict[UnsentLink, tuple[int, float]] = {}
        """The bytes of each socket at the last look, and the instant since which they have not become fewer."""

    @property
    def full(self) -> bool:
        """True if messages are to wait in their sessions."""
        return self.held + self._said + self._left > self._bound

    def said(self, size: int) -> None:
        """Count bytes that a socket was given."""
        self._said += size

    def wait(self, session: WaitingSession) -> None:
        """Pump this session when there is room."""
        self._waiting[session] = None
        if not self._noticed:
            self._noticed = True
            self._stalled.clear()
            self.notice()

    def look(self) -> float | None:
        """Let those who wait go on, as far as they may; the seconds until the next look, if there is to be one."""
        self._said = 0
        self._left = sum(link.unsent for link in self.links)
        if self.full:
            self._end_stalled()
        else:
            self._stalled.clear()
        waiting, self._waiting = self._waiting, {}
        for session in waiting:
            session.pump()  # and it waits again, in its place, if there is no room
        self._noticed = bool(self._waiting)
        if not self._noticed:
            return None
        return 0.0 if self._said else AGAIN_SECONDS

    def _end_stalled(self) -> None:
        now, before = self._now(), self._stalled
        self._stalled = {}
        for link in [*self.links]:
            if not (size := link.unsent):
                continue
            last, since = before.get(link, (size, now))
            self._stalled[link] = size, since if size >= last else now
            if now - self._stalled[link][1] > STALLED_SECONDS:
                link.give_up()
