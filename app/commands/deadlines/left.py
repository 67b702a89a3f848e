"""Commands that an earlier start under this node's id left open."""

from __future__ import annotations

from datetime import timedelta

import structlog

from app.callbacks.open_commands import OpenCommands
from app.commands.deadlines.expirer import Expirer
from app.commands.deadlines.prober import Prober
from app.commands.send.repeater import Repeater
from app.core.errors import UnavailableError
from app.store.commands import CommandReader


class CommandRecovery:
    """Keeps their deadlines, for which the sweep of the other nodes would be late, and sends those not yet sent.

    Probes look for them as for others.
    """

    def __init__(
        self,
        *,
        store: CommandReader,
        open_commands: OpenCommands,
        expirer: Expirer,
        repeater: Repeater,
        prober: Prober,
        node_id: str,
    ) -> None:
        self._store = store
        self._open_commands = open_commands
        self._expirer = expirer
        self._repeater = repeater
        self._prober = prober
        self._node_id = node_id
        self._before: int | None = None
        """The instant since which (on the store's clock) this start registers commands of its own."""
        self._log = structlog.get_logger()

    async def take_up(self) -> None:
        """Keep their deadlines from now on; StoreUnavailableError."""
        left = await self._store.pending_of(self._node_id)
        now = await self._store.now()
        for command in left:
            self._open_commands.reopen(command)
            self._expirer.keep(command.id, timedelta(microseconds=max(0, command.deadline - now)))
        self._prober.take_up(left, now)
        if left:
            self._before = now
            self._log.info("commands_taken_up", count=len(left))

    async def repeat(self) -> None:
        """Send those that may be sent again. What the store's absence prevents is left for the next time."""
        if self._before is None:
            return
        try:
            await self._repeater.take_over(self._node_id, registered_before=self._before)
        except UnavailableError as error:
            self._log.debug("commands_not_repeated", reason=str(error))
        else:
            self._before = None
