"""Generations: cuts of a database by time or size, which are dropped whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.core.eventlog.event import Position

CUTS: Final = 24
"""Generations that a retention consists of, when events come evenly: how much more than it may be kept."""


class GenerationState(StrEnum):
    """What may be done with a generation."""

    CURRENT = "current"
    SEALED = "sealed"
    DAMAGED = "damaged"
    """Something in it cannot be read any more: it is left out, and the others are served."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A cut of all shards of a database. `first` and `last` are the positions of its events, 0 while there are none.

    `size` is in bytes, as quotas count them; `note` says what is damaged.
    """

    number: int
    state: GenerationState
    first: Position = 0
    last: Position = 0
    count: int = 0
    size: int = 0
    note: str = ""


def is_full(current: Generation, now: Position, retention_us: int, most_bytes: int) -> bool:
    """Whether a new generation has to begin."""
    return current.count > 0 and (now - current.first >= retention_us // CUTS or current.size >= most_bytes)


def over(generations: Sequence[Generation], now: Position, retention_us: int) -> list[int]:
    """Those of which every event is older than the retention."""
    return [
        one.number for one in generations if one.state is not GenerationState.CURRENT and one.last + retention_us < now
    ]
