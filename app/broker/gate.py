"""The gate holds back what clients are told until the rows that it promises are on the disk. No socket, no wait.

Everything that is said in one go, on whatever connection, leaves after one sync. PINGRESP, messages of QoS 0 and a
CONNACK that refuses promise nothing, and leave at once unless they would overtake something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from app.core.broker.codes import PacketType
from app.core.broker.connection import ClientLink
from app.core.broker.unsent import UnsentBytes

HELD_BYTES: Final = 262_144
"""The bytes of a connection that may be held back: above, messages wait in its session, and nothing is read from it."""
_QOS: Final = 6
_REFUSAL: Final = 5
"""Bytes of the longest CONNACK that refuses: its fourth one is the reason."""


class PausableLink(ClientLink, Protocol):
    """A socket that need not be read."""

    def pause_reading(self) -> None:
        """Read nothing for now."""

    def resume_reading(self) -> None:
        """Read again."""


class SyncGate:
    """All connections of a broker. `notice` is called when something is held back for the first time after `seal`.

    What is held back counts as `unsent`.
    """

    def __init__(self, notice: Callable[[], None], unsent: UnsentBytes) -> None:
        self.unsent: Final = unsent
        self._notice = notice
        self._held: dict[GatedLink, None] = {}
        self._sealed: dict[GatedLink, None] = {}

    @property
    def holds(self) -> bool:
        """True if something was said since `seal`."""
        return bool(self._held)

    def hold(self, link: GatedLink) -> None:
        """This link holds something back."""
        first = not self._held
        self._held[link] = None
        if first:
            self._notice()

    def seal(self) -> None:
        """Tie all that was said up to now to the rows that are taken now."""
        self._sealed, self._held = self._held, {}
        for link in self._sealed:
            link.seal()

    def release(self) -> None:
        """These rows are on the disk."""
        sealed, self._sealed = self._sealed, {}
        for link in sealed:
            link.release()

    def drop(self) -> None:
        """These rows are not on the disk: whoever was to be told anything is told nothing."""
        links, self._sealed, self._held = {**self._sealed, **self._held}, {}, {}
        for link in links:
            link.drop()


class GatedLink:
    """The link of one connection. `drained` is called when it was saturated, and takes more again."""

    def __init__(self, gate: SyncGate, link: PausableLink) -> None:
        self.drained: Callable[[], None] = lambda: None
        self._gate = gate
        self._link = link
        self._said: list[bytes] = []
        self._sealed = b""
        self._held = 0
        self._paused = False
        self._closing = False

    @property
    def saturated(self) -> bool:
        """See ClientLink."""
        return self._held > HELD_BYTES or self._link.saturated

    @property
    def unread(self) -> bool:
        """See ClientLink."""
        return self._paused or self._link.unread

    def write(self, data: bytes) -> None:
        """See ClientLink."""
        if not self._held and _promises_nothing(data):
            self._link.write(data)
            return
        self._said.append(data)
        self._hold(len(data))
        if self._held > HELD_BYTES and not self._paused:
            self._paused = True
            self._link.pause_reading()
        self._gate.hold(self)

    def close(self) -> None:
        """Close the socket after what is held back; see ClientLink."""
        self._closing = True
        if not self._held:
            self._link.close()

    def seal(self) -> None:
        """Make all that was said up to now the next to leave."""
        self._sealed = b"".join(self._said)
        self._said.clear()

    def release(self) -> None:
        """Let that leave."""
        was_saturated = self.saturated
        self._hold(-len(self._sealed))
        data, self._sealed = self._sealed, b""
        self._link.write(data)
        if self._paused and self._held <= HELD_BYTES:
            self._paused = False
            self._link.resume_reading()
        if self._closing and not self._held:
            self._link.close()
        elif was_saturated and not self.saturated:
            self.drained()

    def drop(self) -> None:
        """Close the socket without what is held back."""
        self._said.clear()
        self._hold(-self._held)
        self._sealed, self._closing = b"", True
        self._link.close()

    def _hold(self, more: int) -> None:
        self._held += more
        self._gate.unsent.held += more


def _promises_nothing(data: bytes) -> bool:
    kind = data[0] >> 4
    if kind == PacketType.PUBLISH:
        return not data[0] & _QOS
    return kind == PacketType.PINGRESP or (kind == PacketType.CONNACK and len(data) <= _REFUSAL and data[3] > 0)
