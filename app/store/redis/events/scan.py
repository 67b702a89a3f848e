"""Reads the blocks of a shard in Redis, generation by generation. Marks tell which of them are not worth opening."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from app.core.errors import DamagedEventsError
from app.core.events import keys
from app.core.events.block import count_of, unpack_block
from app.core.events.event import BEGINNING, Event, Position, Shard
from app.core.events.marks import MarkFilter
from app.core.events.reading import (
    MOST_READ_BYTES,
    MOST_SCANNED,
    ForgottenSpan,
    Picked,
    Reading,
    Slice,
    forgotten_until,
)
from app.runtime.telemetry import BurstLog
from app.store.events import ArchivedError
from app.store.redis.driver.lane import Argument
from app.store.redis.driver.scripts import PICK_EVENTS
from app.store.redis.events.calls import EventCalls
from app.store.redis.events.catalogue import int_of, numbers_of
from app.store.redis.events.ends import ShardEnds, spans_of

FIRST_FETCHED: Final = 8
"""Blocks of the first round trip; each further one brings twice as many."""
MOST_FETCHED: Final = 64
MOST_FETCHED_BYTES: Final = 4 * 1024 * 1024
"""The bytes that a round trip brings, if blocks are as large as those of the last one."""
MOST_BESIDE: Final = 16
"""Events of a block that are opened, at most, for each one that is picked: whoever picks some soon picks the others."""
SKIPPED: Final = 16
"""Events that are left out unopened and count as one that is looked at."""
MOST_NAMED: Final = 10_000
"""Damaged blocks that are remembered so that each is counted once. With more of them some are counted again."""

_Block = tuple[bytes, Sequence[bytes]]
"""Its id, and its fields: `b` and the block, then `h` and its marks, if it was written by a version that has them."""


class BlockReader:
    """Raises StoreUnavailableError. What is damaged is counted and named once, and left out."""

    def __init__(self, calls: EventCalls, drops: BurstLog, ends: ShardEnds) -> None:
        self._calls = calls
        self._drops = drops
        self._ends = ends
        self._damaged: set[tuple[Shard, Position]] = set()

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        """See EventLog."""
        known = self._ends.known(shard)
        state, cuts = await self._begin(shard)
        if await self._ends.agreed(shard, known, state.head) != state.head:
            state, cuts = await self._begin(shard)
        until = min(reading.until, state.head)
        if until <= reading.after:
            return Slice([], reading.after, more=False)
        if reading.generation is None:
            _check_here(state, reading)
        found = await self._scanned(_Scan(state, reading, until, limit, self._failed), cuts)
        forgotten = forgotten_until(state.forgotten, reading.after, found.position)
        return found if forgotten <= found.lost else found._replace(lost=forgotten)

    async def _begin(self, shard: Shard) -> tuple[_State, Sequence[bytes]]:
        """The state of the shard, and its generations."""
        (head, cold, forgotten), cuts = await self._calls.call_many(
            [("HMGET", keys.state(shard), "head", "cold", "forgot"), ("HGETALL", keys.cuts(shard))]
        )
        key = keys.state(shard)
        return _State(shard, int_of(key, head), int_of(key, cold), spans_of(key, forgotten)), cuts

    async def _scanned(self, scan: _Scan, cuts: Sequence[bytes]) -> Slice:
        shard, reading, until = scan.shard, scan.reading, scan.until
        for number in numbers_of(shard, cuts, reading.after, until):
            if reading.generation in (None, number):
                found = await self._of_generation(scan, number)
                if found is not None:
                    return found
        return scan.ended(until, more=False)

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> Picked:
        """See Pickable. The positions are in their order, each once."""
        found: dict[Position, Event] = {}
        damaged: set[Position] = set()
        beside: list[Event] = []
        archived = BEGINNING
        names, wanted = [keys.state(shard), keys.cuts(shard)], frozenset(positions)
        while positions:
            reply = await self._calls.run(PICK_EVENTS, names, [keys.slabs(shard), MOST_FETCHED_BYTES, *positions])
            archived, looked, blocks = int_of(keys.state(shard), reply[0]), int(reply[1]), reply[2]
            for first, identity, fields in blocks:
                last = int(identity.partition(b"-")[0])
                asked = bisect_right(positions, last) - bisect_left(positions, int(first))
                try:
                    opened = None if count_of(fields[1]) <= MOST_BESIDE * asked else wanted
                    events = unpack_block(fields[1], last, shard.number, _everything, opened)
                except DamagedEventsError as error:
                    self._failed(shard, last, error)
                    damaged.update(one for one in positions if int(first) <= one <= last)
                else:
                    found.update((event.position, event) for event in events if event.position in wanted)
                    beside += (event for event in events if event.position not in wanted)
            positions = positions[looked:]
        return Picked(found, damaged, archived, beside)

    async def _of_generation(self, scan: _Scan, number: int) -> Slice | None:
        """All of the reading, if it ends within this generation."""
        shard, reading = scan.shard, scan.reading
        slab, start, fetched = f"{keys.slabs(shard)}{number}", reading.after + 1, FIRST_FETCHED
        while True:
            commands: list[tuple[Argument, ...]] = [
                ("XRANGE", slab, f"{start}-0", "+", "COUNT", str(fetched)),
                # Asked behind it: whether the slab was still there.
                ("HGET", keys.state(shard), "cold"),
                ("HGET", keys.cuts(shard), str(number)),
            ]
            blocks, cold, cut = await self._calls.call_many(commands)
            if reading.generation is None:
                _check_here(scan.state._replace(cold=int_of(keys.state(shard), cold)), reading)
            elif cut is None:
                raise ArchivedError(int_of(keys.state(shard), cold))
            for block in blocks:
                found = scan.add(block)
                if found is not None:
                    return found
            if len(blocks) < fetched:
                return None
            start = int(blocks[-1][0].partition(b"-")[0]) + 1
            each = max(1, sum(len(fields[1]) for _, fields in blocks) // len(blocks))
            fetched = max(1, min(2 * fetched, MOST_FETCHED, MOST_FETCHED_BYTES // each))

    def _failed(self, shard: Shard, last: Position, error: DamagedEventsError) -> None:
        """It stays where it is, and is left out of every reading."""
        if (shard, last) not in self._damaged:
            if len(self._damaged) >= MOST_NAMED:
                self._damaged.clear()
            self._damaged.add((shard, last))
            self._drops.drop("damaged_block", topic=f"{shard} at {last}", why=str(error))


class _State(NamedTuple):
    """A shard: its last position, up to where it is cold, and what it has forgotten."""

    shard: Shard
    head: Position
    cold: Position
    forgotten: Sequence[ForgottenSpan]


class _Scan:
    """One reading, block by block."""

    def __init__(
        self,
        state: _State,
        reading: Reading,
        until: Position,
        limit: int,
        failed: Callable[[Shard, Position, DamagedEventsError], None],
    ) -> None:
        self.state = state
        self.shard = state.shard
        self.reading = reading
        self.until = until
        self._limit = limit
        self._failed = failed
        self._fits = reading.matcher()
        self._wanted = MarkFilter(reading.topic_filter)
        self._found: list[Event] = []
        self._scanned = 0
        self._size = 0
        self._lost = BEGINNING

    def add(self, block: _Block) -> Slice | None:
        """The whole of it, when nothing further is to be read."""
        identity, fields = block
        last = int(identity.partition(b"-")[0])
        try:
            self._open(last, fields)
        except DamagedEventsError as error:
            self._failed(self.shard, last, error)
            self._lost = max(self._lost, min(last, self.until))
            self._scanned += 1
        found = self._found
        if len(found) > self._limit:
            return Slice(found[: self._limit], found[self._limit].position - 1, more=True, lost=self._lost)
        if last >= self.until:
            return self.ended(self.until, more=False)
        if self._scanned >= MOST_SCANNED or self._size >= MOST_READ_BYTES:
            return self.ended(last, more=True)
        return None

    def ended(self, position: Position, *, more: bool) -> Slice:
        return Slice(self._found, position, more, self._lost)

    def _open(self, last: Position, fields: Sequence[bytes]) -> None:
        """DamagedEventsError."""
        data, count = fields[1], count_of(fields[1])
        if len(fields) > 2 and fields[2] == b"h" and not self._wanted.may_be_in(fields[3]):  # noqa: PLR2004 - see _Block
            self._scanned += 1 + count // SKIPPED
            return
        self._scanned += count
        after, until = self.reading.after, self.until
        for event in unpack_block(data, last, self.shard.number, self._fits):
            if after < event.position <= until:
                self._found.append(event)
                self._size += len(event.entry.value)


def _everything(_topic: str) -> bool:
    return True


def _check_here(state: _State, reading: Reading) -> None:
    if reading.after < state.cold:
        raise ArchivedError(state.cold, state.forgotten)
