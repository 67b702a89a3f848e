"""A store that fails over and forgets: what its replica has not got is gone, though nodes were told of it.

The commands that this touched are excused, all that was done and said about them; everything else holds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from app.core.commands.command import Command
from app.store.memory.commands.records import Indexes, Record
from homing_rig.chaos.history import (
    AnswerAcked,
    Answered,
    Event,
    Executed,
    Fail,
    FinalRead,
    Invoke,
    Ok,
    OperationKind,
    Unknown,
)
from homing_rig.simulation.redis import Value
from homing_rig.simulation.store import StoreHost
from homing_simulator.families import ECHO


@dataclass(frozen=True, slots=True)
class Replica:
    """The content of a store at an instant."""

    records: dict[str, Record]
    indexes: Indexes
    keys: dict[str, tuple[Value, float]]

    @classmethod
    def of(cls, host: StoreHost) -> Replica:
        """Copy what it has now."""
        table = host.commands.table
        records = {name: _copied(record) for name, record in table.records.items()}
        return cls(records, copy.deepcopy(table.indexes), host.keys.kept())

    def take_over(self, host: StoreHost) -> list[Command]:
        """Let the store be as this is; the commands of which it has forgotten something."""
        table = host.commands.table
        changed = [one for name, one in table.records.items() if self.records.get(name) != one]
        table.records.clear()
        table.records.update(self.records)
        table.indexes = self.indexes
        table.taken = sum(one.taken for one in self.records.values())
        host.keys.restore(self.keys)
        host.lives += 1
        return [one.command for one in changed]


def _copied(record: Record) -> Record:
    return replace(record, waiting=[*record.waiting], watching=[*record.watching], reports=[*record.reports])


class Excused:
    """The commands of which something was forgotten, with all that their callers have tried."""

    def __init__(self) -> None:
        self._ids: Final[set[str]] = set()
        self._nonces: Final[set[str]] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, commands: Iterable[Command]) -> None:
        """Excuse them."""
        for one in commands:
            self._ids.add(one.id)
            self._nonces.add(str(orjson.loads(one.params).get(ECHO)))

    def others(self, events: Sequence[Event]) -> Sequence[Event]:
        """The history without them."""
        if not self._ids:
            return events
        ids, operations = set(self._ids), set[int]()
        for event in events:
            match event:
                case Invoke(kind=OperationKind.COMMAND) if event.nonce in self._nonces:
                    operations.add(event.op)
                case Invoke() if event.command_id in ids:
                    operations.add(event.op)
                case Ok() | Fail() | Unknown() if event.op in operations and event.command_id is not None:
                    ids.add(event.command_id)
                case Executed() if event.nonce in self._nonces:
                    ids.add(event.command_id)
        return [event for event in events if not _concerns(event, ids, operations)]


def _concerns(event: Event, ids: set[str], operations: set[int]) -> bool:
    match event:
        case Invoke() | Ok() | Fail() | Unknown():
            return event.op in operations
        case Executed() | Answered() | AnswerAcked() | FinalRead():
            return event.command_id in ids
        case _:
            return False
