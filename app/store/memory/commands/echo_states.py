"""States that devices tell, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from app.core.commands.command import Command
from app.store.echo_states import MOST_EXPECTING
from app.store.memory.commands.records import CommandTable
from app.store.rules import micros

STATE_ROW: Final = "t"
MOST_REMEMBERED: Final = 100_000
"""Topics whose last state is remembered; the one that was told first is forgotten for a further one."""


class MemoryEchoStates:
    """`app/store/echo_states.py`."""

    def __init__(self, table: CommandTable) -> None:
        self._table = table
        self._states: dict[tuple[str, str], tuple[int, bytes]] = {}

    def kept(self, device_id: str, topic: str) -> tuple[int, bytes] | None:
        """The instant until which (µs) a state is remembered, and the state."""
        return self._states.get((device_id, topic))

    def restore(self, device_id: str, topic: str, ends: int, state: bytes) -> None:
        """Remember a state until that instant (µs)."""
        self._states[device_id, topic] = ends, state

    async def expecting(self, device_id: str, topic: str, within: timedelta) -> Sequence[Command]:
        since = self._table.now() - micros(within)
        waiting = islice(self._table.indexes.topics.get(topic, ()), MOST_EXPECTING)
        commands = (self._table.records[one].command for one in waiting)
        return [one for one in commands if not one.state.final and one.device_id == device_id and one.begun_at >= since]

    async def tell_state(self, device_id: str, topic: str, state: bytes, keep: timedelta) -> None:
        self._states.pop((device_id, topic), None)
        while len(self._states) >= MOST_REMEMBERED:
            oldest = next(iter(self._states))
            del self._states[oldest]
            self._table.changed((STATE_ROW, *oldest))
        self.restore(device_id, topic, self._table.now() + micros(keep), state)
        self._table.changed((STATE_ROW, device_id, topic))

    async def last_state(self, device_id: str, topic: str) -> bytes | None:
        ends, state = self._states.get((device_id, topic), (0, None))
        return state if ends > self._table.now() else None
