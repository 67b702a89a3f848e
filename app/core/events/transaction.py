"""Optimistic transactions: what must hold of last values so that entries are appended, all of them or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.core.errors import InvalidInputError
from app.core.events.event import Entry, Position, Shard

MOST_PARTS: Final = 64
"""Conditions and entries of one transaction, each."""


@dataclass(frozen=True, slots=True)
class ValueCondition:
    """The last value of the topic stands at this position; None: the topic has none."""

    topic: str
    position: Position | None


@dataclass(frozen=True, slots=True)
class Transaction:
    """Everything of it is of one shard. An entry without value deletes the last value of its topic."""

    shard: Shard
    conditions: tuple[ValueCondition, ...]
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.entries) <= MOST_PARTS:
            raise InvalidInputError("write", f"has {len(self.entries)} entries; allowed are 1 to {MOST_PARTS}")
        if len(self.conditions) > MOST_PARTS:
            raise InvalidInputError("if", f"has {len(self.conditions)} conditions; allowed are {MOST_PARTS}")
