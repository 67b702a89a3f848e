"""Has second persons decide about held commands, once for each: what is approved is tried at once."""

from __future__ import annotations

from app.callbacks.open_commands import OpenCommands
from app.commands.held.drainer import Drainer
from app.core.commands.approval import ApprovalDecision
from app.core.commands.command import Command
from app.core.errors import ApprovalOverError
from app.runtime.telemetry import Counters
from app.store.holds import HoldStore


class Approver:
    """Takes decisions of second persons on this node. That they may decide is another's to judge."""

    def __init__(
        self, *, store: HoldStore, open_commands: OpenCommands, drainer: Drainer, node_id: str, counters: Counters
    ) -> None:
        self._store = store
        self._open_commands = open_commands
        self._drainer = drainer
        self._node_id = node_id
        self._counters = counters

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
