"""All that a node needs of a state store."""

from __future__ import annotations

from typing import Protocol

from app.runtime.telemetry import Fill
from app.store.command_history import CommandHistory
from app.store.command_stream import CommandChanges
from app.store.commands import CommandStore
from app.store.echo_states import EchoStates
from app.store.fleets import FleetStore
from app.store.holds import HoldStore
from app.store.lifetime import Lifetime
from app.store.questions import QuestionTurns
from app.store.schedules import ScheduleStore
from app.store.server_starts import ServerStarts
from app.store.webhooks import WebhookStore


class StateStore(CommandStore, CommandHistory, HoldStore, QuestionTurns, Lifetime, Protocol):
    """All that an engine offers for commands. What StoreUnavailableError means is said in `CommandReader`."""

    async def ping(self) -> None:
        """Return when the store answers."""

    def fills(self) -> dict[str, Fill]:
        """The fills of the store's own queues."""

    @property
    def states(self) -> EchoStates:
        """The states that devices tell, on the same connections."""

    @property
    def webhooks(self) -> WebhookStore:
        """The store of who is told of outcomes, on the same connections."""

    @property
    def fleets(self) -> FleetStore:
        """The store of fleet runs, on the same connections."""

    @property
    def schedules(self) -> ScheduleStore:
        """The store of schedules, on the same connections."""

    @property
    def starts(self) -> ServerStarts:
        """The starts of the store's servers, on the same connections."""

    @property
    def changes(self) -> CommandChanges:
        """The changes of all commands, on the same connections."""
