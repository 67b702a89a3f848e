"""Has second persons decide about held commands, once for each: what is approved is tried at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from app.callbacks.open_commands import OpenCommands
from app.commands.held.claim_keeper import ClaimKeeper
from app.commands.held.drainer import Drainer
from app.core.commands.approval import ApprovalDecision
from app.core.commands.command import Command
from app.core.errors import ApprovalOverError
from app.runtime.telemetry import Counters
from app.store.commands import CommandReader
from app.store.holds import HoldStore

MOST_LOOKED_AT: Final = 10_000
"""The number of held commands that are looked at, the soonest to end first."""
AT_ONCE: Final = 200


class Approver:
    """Takes decisions of second persons on this node. That they may decide is another's to judge."""

    def __init__(
        self,
        *,
        store: HoldStore,
        commands: CommandReader,
        open_commands: OpenCommands,
        drainer: Drainer,
        claims: ClaimKeeper,
        node_id: str,
        counters: Counters,
    ) -> None:
        self._store = store
        self._commands = commands
        self._others: set[str] = set()
        """Held commands that wait for no second person. None of them ever will, unless the store forgets a decision."""
        self._open_commands = open_commands
        self._drainer = drainer
        self._node_id = node_id
        self._counters = counters
        claims.settled.add(self.read_anew)

    def read_anew(self) -> None:
        """Read each held command again, as the store may have forgotten what was decided.

        A reading that is under way ends with what it knew: it may have read from before the store forgot.
        """
        self._others = set()

    async def waiting(self) -> AsyncIterator[Command | None]:
        """Yield the commands that wait for a second person, the soonest end first; None where more were not looked at.

        Of thousands that are held few wait for a person, so each of the others is read once. StoreUnavailableError.
        """
        others = self._others
        held = await self._store.held()
        entries = sorted(held, key=lambda one: one.until)
        ids = [one.command_id for one in entries[:MOST_LOOKED_AT]]
        others.intersection_update(ids)
        unknown = [one for one in ids if one not in others]
        for first in range(0, len(unknown), AT_ONCE):
            for command in await self._commands.get(unknown[first : first + AT_ONCE]):
                if command is None:
                    continue
                if command.awaits_approval:
                    yield command
                else:
                    others.add(command.id)
        if held.unread or len(entries) > MOST_LOOKED_AT:
            yield None

    async def decide(self, command: Command, decision: ApprovalDecision) -> None:
        """Approve or refuse a command that waits for that; ApprovalOverError if it does not, or not any more."""
        decided = await self._store.decide(command.id, decision, self._node_id)
        if not decided.won:
            raise ApprovalOverError(
                command.id, f"command {command.id} waits for no second person: somebody has decided, or it has ended"
            )
        self._counters["approval.approved" if decision.approves else "approval.refused"] += 1
        if decided.outcome is not None:
            self._open_commands.ended(decided.outcome)
        else:
            self._drainer.begin(command.device_id, command.id)
