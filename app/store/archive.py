"""The port of the cold tier: files of events that were sealed, in a place that many can read.

What exists is said by the catalogue (`Generations`), never by what lies there. Calls raise StoreUnavailableError when
the place does not answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.core.events.event import Event, Position, Shard
from app.core.events.generation import ColdFile
from app.core.events.reading import Reading, Slice
from app.runtime.telemetry import Fill
from app.store.lifetime import Lifetime


class Archive(Lifetime, Protocol):
    """Keeps files and reads them. One object serves all databases. Nothing is asked of the place when it starts."""

    def fills(self) -> dict[str, Fill]:
        """The fills of its own queues."""

    async def put(self, shard: Shard, generation: int, events: AsyncIterator[Sequence[Event]]) -> Sequence[ColdFile]:
        """Write all of them, in the order of their positions, read it again and compare; DamagedEventsError.

        The same events get the same files, so it may be repeated.
        """

    async def read(self, database: str, generation: int, file: ColdFile, reading: Reading, limit: int) -> Slice:
        """At most `limit` events of a file, in order; `more` is about the file. DamagedEventsError says what is wrong.

        What is in the file behind `reading.until` is not read.
        """

    async def pick(
        self, database: str, generation: int, file: ColdFile, positions: Sequence[Position]
    ) -> Sequence[Event]:
        """Return the events of a file at these positions, in the order of them. DamagedEventsError."""

    async def sweep(self, database: str, before: Position, named: Collection[tuple[int, ColdFile]]) -> int:
        """Delete files of hours that ended before this position, and that nobody names; and what was left half written.

        `named` are the generations and files of the catalogue. Returns how many files went.
        """


@dataclass(frozen=True, slots=True)
class ArchiveFacts:
    """The facts about the place where the files lie."""

    trouble: str = ""
    """The trouble that keeps it from being used; empty if there is none."""
    oldest: Mapping[str, Position] = field(default_factory=dict)
    """The beginning of the first hour of which each database has a folder, where it has one."""
