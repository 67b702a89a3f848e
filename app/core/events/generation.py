"""Generations: cuts of a database by time or size, which are dropped whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from app.core.errors import DamagedEventsError
from app.core.events.event import Position

CUTS: Final = 24
"""Generations that a retention consists of, when events come evenly: how much more than it may be kept."""
HOUR_US: Final = 3_600_000_000


class GenerationState(StrEnum):
    """The state of a generation, which says what may be done with it."""

    CURRENT = "current"
    SEALED = "sealed"
    COLD = "cold"
    """Its events are in files of the cold tier, and nowhere else."""
    DAMAGED = "damaged"
    """Something in it cannot be read any more: it is left out, and the others are served."""


class ColdFile(NamedTuple):
    """Events of one shard and hour in the cold tier, between two positions, both included.

    `size` is in bytes, `checksum` is of what was said and when, and `note` says why the file is left out.
    """

    shard: int
    first: Position
    last: Position
    events: int
    size: int
    checksum: str
    note: str = ""


def pack_files(files: Sequence[ColdFile]) -> str:
    """Files of one shard as text, which `unpack_files` reads."""
    return json.dumps([file[1:] for file in files], separators=(",", ":"))


def unpack_files(shard: int, text: str) -> list[ColdFile]:
    """The files that became this text; DamagedEventsError."""
    try:
        return [ColdFile(shard, *file) for file in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise DamagedEventsError(f"the catalogue of cold files cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class Generation:
    """A cut of all shards of a database. `first` and `last` are the positions of its events, 0 while there are none.

    `size` is in bytes, as quotas count them; `note` says what is damaged; `files` are those of the cold tier.
    """

    number: int
    state: GenerationState
    first: Position = 0
    last: Position = 0
    count: int = 0
    size: int = 0
    note: str = ""
    files: tuple[ColdFile, ...] = ()

    @property
    def hot_size(self) -> int:
        """Bytes that it takes in the log itself."""
        return 0 if self.state is GenerationState.COLD else self.size


def is_full(current: Generation, now: Position, retention_us: int, most_bytes: int, *, hourly: bool = False) -> bool:
    """True if a new generation has to begin; `hourly` when one file of it is to have an hour at most."""
    if current.count == 0:
        return False
    ended = now - current.first >= retention_us // CUTS or (hourly and now // HOUR_US > current.first // HOUR_US)
    return ended or current.size >= most_bytes


def over(generations: Sequence[Generation], now: Position, retention_us: int) -> list[int]:
    """The numbers of the generations of which every event is older than the retention."""
    return [
        one.number for one in generations if one.state is not GenerationState.CURRENT and one.last + retention_us < now
    ]
