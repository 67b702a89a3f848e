"""Which batches a shard has taken, so that one that comes again is known: its answer was lost, not the batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from app.core.events.event import Position

MOST_WRITERS: Final = 64
"""Writers of a shard whose last batch is known: of those that have appended last."""


class BatchId(NamedTuple):
    """Whose batch it is, and which of his. Within a shard his numbers grow, and he appends one after the other."""

    writer: str
    number: int


class LastBatches:
    """The last batch of each writer of a shard, and where it ended."""

    def __init__(self, known: Iterable[tuple[BatchId, Position]] = ()) -> None:
        self._known: dict[str, tuple[int, Position]] = {}
        for batch, position in sorted(known, key=lambda one: one[1]):
            self.put(batch, position)

    def position_of(self, batch: BatchId | None) -> Position | None:
        """Where a batch ended that was taken before; None for what is new, and for what has no number."""
        if batch is None:
            return None
        number, position = self._known.get(batch.writer, (0, None))
        return position if batch.number <= number else None

    def put(self, batch: BatchId, position: Position) -> str | None:
        """A batch was taken, and ends here. Which writer is forgotten for this one, if any."""
        self._known.pop(batch.writer, None)
        self._known[batch.writer] = (batch.number, position)
        if len(self._known) <= MOST_WRITERS:
            return None
        oldest = next(iter(self._known))
        del self._known[oldest]
        return oldest
