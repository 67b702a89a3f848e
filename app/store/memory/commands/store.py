"""The state store of one node alone: the same semantics as in Redis, in this process's memory."""

from __future__ import annotations

from typing import Final

from app.core.clock import Clock
from app.core.cluster.wakekey import WakeKey
from app.core.memory import RECORDS_BYTES
from app.runtime.telemetry import Fill
from app.store.memory.commands.echo_states import MemoryEchoStates
from app.store.memory.commands.history import MemoryCommandHistory
from app.store.memory.commands.holds import MemoryHolds
from app.store.memory.commands.questions import MemoryQuestionTurns
from app.store.memory.commands.reader import MemoryCommandReader
from app.store.memory.commands.records import Changed, CommandTable, nobody
from app.store.memory.commands.writer import MemoryCommandWriter, Tell, Wake
from app.store.server_starts import OneStart


class MemoryStateStore(
    MemoryCommandReader, MemoryCommandWriter, MemoryCommandHistory, MemoryHolds, MemoryQuestionTurns
):
    """Everything in dictionaries of this process. No operation awaits anything, so each is atomic on its event loop.

    It promises nothing across the end of the process: `changed` is told what somebody else may keep, and `not_before`
    is the least instant (µs) of its clock. No command is registered while those that are there take `max_bytes`.
    `wake` is for tests that model several nodes on one store: it is called for each waiting node but the receiver or
    finisher, where Redis would publish; `tell` likewise.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_bytes: int = RECORDS_BYTES,
        wake: Wake | None = None,
        wake_key: WakeKey | None = None,
        tell: Tell | None = None,
        changed: Changed = nobody,
        not_before: int = 0,
    ) -> None:
        table = CommandTable(clock, max_bytes, changed, not_before)
        MemoryCommandReader.__init__(self, table)
        MemoryCommandWriter.__init__(self, table, wake, wake_key, tell)
        MemoryCommandHistory.__init__(self, table)
        MemoryHolds.__init__(self, table, self.give_way)
        MemoryQuestionTurns.__init__(self, table)
        self.states: Final = MemoryEchoStates(table)
        self.starts: Final = OneStart()

    @property
    def table(self) -> CommandTable:
        """All commands."""
        return self._table

    @property
    def size(self) -> int:
        """The number of records and index entries: 0 when nothing is left."""
        self._table.forget_expired()
        return self._table.size

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return

    def fills(self) -> dict[str, Fill]:
        return {"records": Fill(self._table.taken, self._table.max_bytes)}

    async def ping(self) -> None:
        return
