"""Values that the window of a queue is made of, and the tokens by which consumers settle what they were lent.

Positions and instants are microseconds since 1970 on the clock of the event log's engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from app.core.events.event import Entry, Position, Shard

MOST_IN_GROUP: Final = 128
"""References of a group, and so of a loan."""
WINDOW: Final = 1024
"""References of one source that may be in its window."""
WINDOW_IN_ORDER: Final = 4096
"""The same with an order by device: what waits behind a device counts as well."""
WINDOW_UNASKED: Final = 128
"""The same while nobody takes."""
NOTED_US: Final = 1_000_000
"""A take is noted so often, so that one that finds nothing changes nothing."""
UNASKED_US: Final = 60_000_000
"""A queue without a take for so long has nobody who takes."""
SUSPECTS: Final = 8
"""References of a loan that were delivered once before. Those that were delivered more often are lent singly."""
LATELY_US: Final = 10_000_000
"""Consumers that asked within this time share what is ready."""
CONSUMER_US: Final = 60_000_000
"""Consumers are known for so long after they asked."""
MOST_CONSUMERS: Final = 256
MOST_DATED: Final = 1024
"""References of one source that wait for an instant, beside those in its window."""
MOST_DUE: Final = 32
"""Loans and later groups that one take brings back."""
MOST_LOOKED_AT: Final = 512
"""References that one take looks at."""
MOST_DYING: Final = 10_000
"""References of a shard that are on the way to become dead letters."""
MOST_BURIED: Final = 64
"""The dying references that are buried together."""
LONGEST_LOAN_US: Final = 12 * 3_600_000_000
"""The longest time of a loan, with all extensions."""

CONSUMER_BYTES: Final = 64

_REFERENCE: Final = Struct(">QI")
_TOKEN: Final = re.compile(
    r"([0-9a-f]{8})\.([a-z][a-z0-9_-]{0,31})\.(0|[1-9][0-9]{0,3})(d?)\.([1-9][0-9]{0,16})\.(0|[1-9][0-9]{0,2})",
    re.ASCII,
)
"""Each token in one way only: what is said of one event twice in a call is found by the texts."""


class Reference(NamedTuple):
    """An event of the log by its position. `key` is a hash of its device in a queue with an order, else 0."""

    position: Position
    key: int = 0


class ReferenceGroup(NamedTuple):
    """References that were delivered equally often without success."""

    deliveries: int
    references: tuple[Reference, ...]


class DatedGroup(NamedTuple):
    """References that are not to be lent before an instant."""

    at: Position
    group: ReferenceGroup


class QueueSource(NamedTuple):
    """A shard that a queue reads. With `dead`, it reads its own dead letters there."""

    queue_id: str
    shard: Shard
    dead: bool = False

    def __str__(self) -> str:
        return f"{self.shard}d" if self.dead else str(self.shard)


@dataclass(frozen=True, slots=True)
class LoanToken:
    """Names one event of a loan. A source that was rewound has another life, and knows no loans of the one before."""

    life: str
    shard: Shard
    dead: bool
    number: int
    index: int

    def __str__(self) -> str:
        return f"{self.life}.{self.shard}{'d' if self.dead else ''}.{self.number}.{self.index}"


class LoanWish(NamedTuple):
    """The wish of one consumer for events. `announce`: it is to be noted that this consumer asked."""

    most: int
    consumer: str
    announce: bool = True


class Loan(NamedTuple):
    """The events that a consumer was lent, until an instant. `deliveries` is how often that was tried before."""

    life: str
    number: int
    consumer: str
    deliveries: int
    until: Position
    references: tuple[Reference, ...]


HELD: Final = Loan("", 0, "", 0, 0, ())
"""Stands for a loan where another consumer holds a queue that is for one at a time."""


class SettleHow(StrEnum):
    """The verdict of a consumer on what it was lent."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    RELEASE = "release"
    EXTEND = "extend"
    EXPIRED = "expired"
    """A node says it: the log does not have the event any more."""


class Settlement(NamedTuple):
    """A verdict on a loan: on these indexes, or on all that is not settled yet, where there are none.

    `amount` is µs: after how long to retry, negative as the queue says; or by how much to extend. `reason` is why it is
    dead.
    """

    number: int
    how: SettleHow
    indexes: tuple[int, ...] = ()
    amount: int = -1
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """The number of settled events, and the loans and indexes that were over; index -1 is a whole loan."""

    count: int
    over: tuple[tuple[int, int], ...]


class Fed(NamedTuple):
    """Up to where a source was fed, and how full its window is, apart from `dated` references that wait."""

    fed: Position
    size: int
    asked: Position
    """The instant at which somebody last took; 0: never."""
    dated: int = 0


class Dying(NamedTuple):
    """A reference on the way to become a dead letter; numbers grow within a shard, and none comes twice."""

    number: int
    source: QueueSource
    deliveries: int
    reason: str
    consumer: str
    reference: Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class LendingRules:
    """The rules of a queue's loans, in µs. `retry`: the last one repeats."""

    loan: int = 30_000_000
    retry: tuple[int, ...] = (1_000_000, 10_000_000, 60_000_000)
    max_deliveries: int = 5
    """0: for ever."""
    ordered: bool = False
    ttl: int = 0
    """0: for ever."""
    single: bool = False

    @property
    def window(self) -> int:
        """References that a window may have."""
        return WINDOW_IN_ORDER if self.ordered else WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The state of one source of a queue."""

    fed: Position = 0
    until: Position = 0
    """The position up to which dead letters are read."""
    size: int = 0
    lent: int = 0
    later: int = 0
    dated: int = 0
    """The references, among the later ones, that were never lent, and wait for an instant."""
    held_back: int = 0
    """References that wait behind their device."""
    asked: Position = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    expired: int = 0
    missed: int = 0
    """The expired events, among these, that the log dropped before they were lent."""
    delivered: int = 0
    again: int = 0
    oldest: Position = 0
    """The position of the first reference that is ready; 0: none is."""
    consumers: tuple[tuple[str, Position], ...] = ()

    @property
    def ready(self) -> int:
        """References that can be lent now."""
        return self.size - self.lent - self.later - self.held_back


def parse_token(text: str) -> LoanToken | None:
    """The token that was given out as this text; None for what is none."""
    found = _TOKEN.fullmatch(text)
    if found is None or int(found[6]) >= MOST_IN_GROUP:
        return None
    return LoanToken(found[1], Shard(found[2], int(found[3])), bool(found[4]), int(found[5]), int(found[6]))


def key_of(entry: Entry) -> int:
    """By what a queue orders an event: its device, else its topic. Two that share a key are ordered, too."""
    return crc32((entry.device or entry.topic).encode()) or 1


def pack_references(references: Iterable[Reference]) -> bytes:
    """As bytes."""
    return b"".join(_REFERENCE.pack(*one) for one in references)


def unpack_references(data: bytes) -> tuple[Reference, ...]:
    """The references that were packed."""
    return tuple(Reference(*one) for one in _REFERENCE.iter_unpack(data))


def grouped(references: Sequence[Reference]) -> list[ReferenceGroup]:
    """New references in groups."""
    return [
        ReferenceGroup(0, tuple(references[start : start + MOST_IN_GROUP]))
        for start in range(0, len(references), MOST_IN_GROUP)
    ]


def micros_of(duration: timedelta) -> int:
    """µs of a duration."""
    return duration // timedelta(microseconds=1)
