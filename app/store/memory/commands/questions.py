"""Turns to ask devices for their state, in memory."""

from __future__ import annotations

from app.store.memory.commands.records import CommandTable
from app.store.questions import ASKED_EVERY
from app.store.rules import micros


class MemoryQuestionTurns:
    """The turns of the last second: the process that forgets them with its end asks nobody meanwhile."""

    def __init__(self, table: CommandTable) -> None:
        self._table = table
        self._turns: dict[str, tuple[int, str]] = {}
        """The instant (µs) and the question of each device's turn, the oldest first."""

    async def turn_to_ask(self, device_id: str, command_id: str) -> str:
        now = self._table.now()
        self._forget(now - micros(ASKED_EVERY))
        return self._turns.setdefault(device_id, (now, command_id))[1]

    def _forget(self, before: int) -> None:
        while self._turns and self._turns[device := next(iter(self._turns))][0] <= before:
            del self._turns[device]
