"""Events that are lent are read once: with those of a loan come its neighbours, which are lent next."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.events.event import Entry, Event, Position, Shard
from app.core.events.reading import Picked
from app.queues.originals import Originals

SHARD = Shard("events", 0)


class BlockLog:
    """A log whose events are in blocks of ten, each of which is read as a whole."""

    def __init__(self) -> None:
        self.picks: list[Sequence[Position]] = []

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> Picked:
        self.picks.append(positions)
        blocks = {one // 10 for one in positions}
        events = [Event(one, shard.number, Entry("alarm", b"%d" % one)) for block in blocks for one in whole(block)]
        wanted = {one.position: one for one in events if one.position in positions}
        return Picked(wanted, beside=[one for one in events if one.position not in positions])


def whole(block: int) -> range:
    return range(10 * block, 10 * block + 10)


async def test_neighbours_of_what_was_read_are_not_read_again() -> None:
    log = BlockLog()
    originals = Originals(log)
    for positions in ([1, 2], [3, 4], [0, 9]):
        found = await originals.pick(SHARD, positions)
        assert [one and one.entry.value for one in found] == [b"%d" % one for one in positions]
    assert log.picks == [[1, 2]]
    await originals.pick(SHARD, [9, 10])
    assert log.picks == [[1, 2], [10]]
