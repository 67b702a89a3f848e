"""The batches that a shard has taken, so that one that comes again is known: its answer was lost, not the batch."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from app.core.errors import CallMismatchError
from app.core.events.event import Entry, Position

MOST_WRITERS: Final = 64
"""Writers of a shard whose last batch is known: of those that have appended last."""
CALL_KNOWN_US: Final = 120_000_000
"""The time for which the call of an append is known: a caller who repeats it does so sooner."""
MOST_CALLS: Final = 65_536
"""Calls of a shard that are known, where they are kept in the memory of the process."""


class BatchId(NamedTuple):
    """The writer of a batch, and which of theirs it is.

    Within a shard their numbers grow, and they append one after the other.
    """

    writer: str
    number: int


class CallId(NamedTuple):
    """The name that a caller gives an append, so that it happens once in a shard however often it comes."""

    text: str
    key: str = ""
    """The key that the caller may use for this call alone."""


def call_of(caller: str, key: str, database: str, entries: Iterable[Entry]) -> CallId:
    """The call of whoever says this with an idempotency key. A key is its caller's, and of one database.

    Only what was said counts, and nothing that a node adds: another one may have other profiles.
    """
    whose = _digest([caller.encode(), key.encode(), database.encode()])
    said = (part for entry in entries for part in (entry.topic.encode(), entry.value))
    return CallId(_digest([whose.encode(), *said]), whose)


def _digest(parts: Iterable[bytes]) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(4))
        digest.update(part)
    return digest.hexdigest()


class ClaimedKeys:
    """The keys of a database's calls of the last two minutes, in the memory of a process."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        self._most = most
        self._known: dict[str, tuple[str, Position]] = {}

    def claim(self, call: CallId, now: Position) -> None:
        """From `now` on the key stands for this call; CallMismatchError while it stands for another one."""
        text, since = self._known.get(call.key, ("", 0))
        if text and now - since <= CALL_KNOWN_US:
            check_claim(call, text)
            return
        self._known.pop(call.key, None)
        self._known[call.key] = (call.text, now)
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]


def check_claim(call: CallId, text: str) -> None:
    """CallMismatchError where the key of a call stands for one with another text."""
    if text != call.text:
        raise CallMismatchError("the idempotency key was used within two minutes for other events")


class KnownCalls:
    """The calls of a shard of the last two minutes, and where each ended."""

    def __init__(self, known: Iterable[tuple[str, Position]] = (), most: int = MOST_CALLS) -> None:
        self._most = most
        self._known = dict(sorted(known, key=lambda one: one[1]))

    def position_of(self, call: CallId) -> Position | None:
        """Return the position where a known call ended; None for one that is not known."""
        return self._known.get(call.text)

    def put(self, call: CallId, position: Position) -> list[str]:
        """A call has ended here. Which others are forgotten, as they are older, or too many."""
        self._known[call.text] = position
        forgotten: list[str] = []
        for text, ended in self._known.items():
            if position - ended <= CALL_KNOWN_US and len(self._known) - len(forgotten) <= self._most:
                break
            forgotten.append(text)
        for text in forgotten:
            del self._known[text]
        return forgotten


class LastBatches:
    """The last batch of each writer of a shard, and where it ended."""

    def __init__(self, known: Iterable[tuple[BatchId, Position]] = ()) -> None:
        self._known: dict[str, tuple[int, Position]] = {}
        for batch, position in sorted(known, key=lambda one: one[1]):
            self.put(batch, position)

    def position_of(self, batch: BatchId | None) -> Position | None:
        """Return where a batch ended that was taken before; None for what is new, and for what has no number."""
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
