"""The messages of nodes to each other, over their channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.core.commands.routing import Outcome

WakeUpHandler = Callable[[str, Outcome | None], None]
"""Called with a command id and, where the wake-up had room for it, its outcome."""

CarriedHandler = Callable[[str], None]
"""Called with the secret of a canary of this node that came in at another one."""


WatchedHandler = Callable[[str], None]
"""Called with the id of a command to which something has happened; this node has asked to be told."""


NoteHandler = Callable[[bytes], None]
"""Called with what another node asks, or answers: app/commands/peer_query.py."""


def _nobody(_what: object) -> None:
    """Takes no notice."""


@dataclass(frozen=True, slots=True)
class ChannelHandlers:
    """Handlers of what comes over the channel of this node. `resubscribed`: messages may have been lost until now."""

    wake: WakeUpHandler
    resubscribed: Callable[[], None]
    carried: CarriedHandler
    watched: WatchedHandler = _nobody
    noted: NoteHandler = _nobody


class WakeUps(Protocol):
    """A wake-up is a hint: it may be lost, so the store is read as well."""

    @property
    def listening(self) -> bool:
        """True while wake-ups can arrive and the lease is being renewed, as far as the last heartbeat tells."""

    async def carry(self, node_id: str, secret: str) -> None:
        """Tell a node that a canary of it came in here."""

    async def note(self, node_id: str, what: bytes) -> None:
        """Ask a node something, or answer it; StoreUnavailableError. Nobody promises that it is heard."""
