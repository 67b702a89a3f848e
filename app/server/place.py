"""The place of one connection in the limiter: that it counts, which queue it waits in, and what is held for it."""

from __future__ import annotations

from typing import Final

from app.server.limiter import Admission, Connection, ConnectionLimiter, TimeoutQueue


class LimiterPlace:
    """Belongs to one connection at a time; an upgrade passes it on to the connection in its new protocol."""

    __slots__ = ("_limiter", "_owner", "held", "line", "standing")

    def __init__(self, limiter: ConnectionLimiter) -> None:
        self.standing: Admission | None = None
        """None before the connection is made, and once it is lost."""
        self.line: TimeoutQueue | None = None
        self.held = 0
        """Bytes of messages that are not complete."""
        self._limiter: Final = limiter
        self._owner: Connection | None = None

    @property
    def peer(self) -> str:
        """The peer whose place it is."""
        return "" if self._owner is None else self._owner.peer

    def enter(self, owner: Connection) -> Admission:
        """Find out whether there is room."""
        self._owner = owner
        self.standing = self._limiter.admit(owner)
        return self.standing

    def turn_away(self) -> None:
        """Count a request that the connection may not make in this place."""
        if self._owner is not None:
            self._limiter.turn_away(self._owner)

    def pass_on(self, owner: Connection) -> None:
        """Let the same connection go on as another object, which waits for nothing yet."""
        self.stand_in(None)
        self.release()
        self._owner = owner

    def stand_in(self, line: TimeoutQueue | None) -> None:
        """Wait in this queue from now on, and in no other one."""
        owner = self._owner
        if owner is None:
            return
        if self.line is not None:
            self.line.since.pop(owner, None)
        self.line = line
        if line is not None:
            line.since[owner] = self._limiter.now()

    def hold(self, size: int) -> bool:
        """Account for so many bytes more; False if that is too much for all connections together."""
        self.held += size
        self._limiter.held += size
        return self._limiter.held <= self._limiter.limits.held

    def release(self) -> None:
        """Nothing is held any more."""
        self._limiter.held -= self.held
        self.held = 0

    def leave(self) -> None:
        """The connection is lost, or as good as lost."""
        self.stand_in(None)
        self.release()
        if self.standing is not None and self._owner is not None:
            self._limiter.gone(self._owner, self.standing)
            self.standing = None
