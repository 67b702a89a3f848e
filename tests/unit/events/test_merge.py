"""Several shards as one order: every event once, whoever reads, in pages of any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.events.event import END, Entry, Event, Shard
from app.core.events.reading import Cursor, Reading, Slice
from app.events.merge import MOST_HIDDEN, Merge, MergedPage
from app.store.events import ArchivedError, EventStore

POSITIONS = st.sets(st.integers(1, 60), max_size=20)
DATABASES = ("a", "a", "b", "b")


class Log:
    """Shards of two databases; each event says whom it is of. A reading looks at so many events at most."""

    def __init__(self, shards: Sequence[set[int]], scanned: int = 1000) -> None:
        self.shards = [Shard(DATABASES[number], number % 2) for number in range(len(shards))]
        self._events = dict(zip(self.shards, map(sorted, shards), strict=True))
        self._scanned = scanned
        self.read_events = 0

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        ahead = [one for one in self._events[shard] if reading.after < one <= reading.until]
        found = ahead[: min(limit, self._scanned)]
        self.read_events += len(found)
        more = len(found) < len(ahead)
        position = found[-1] if more else max(reading.after, 10_000)
        return Slice([Event(one, shard.number, entry(one)) for one in found], position, more)

    async def page(
        self, cursor: Cursor, limit: int, *, may_third: bool | None = None, most_hidden: int = MOST_HIDDEN
    ) -> MergedPage:
        may = None if may_third is None else (lambda one: may_third and one.device == "mine")
        merge = Merge(self.shards, cursor, limit, may, most_hidden=most_hidden)
        return await merge.page(cast("EventStore", self), "#", END)

    @property
    def start(self) -> Cursor:
        return Cursor((0,) * len(self.shards))


def entry(position: int) -> Entry:
    return Entry("t", b"1", "mine" if position % 3 == 0 else "theirs")


@given(shards=st.lists(POSITIONS, min_size=1, max_size=4), scanned=st.integers(1, 9), limit=st.integers(1, 7))
@settings(deadline=None)
async def test_all_shards_read_in_pages_give_every_event_once(shards: list[set[int]], scanned: int, limit: int) -> None:
    log = Log(shards, scanned)
    everything = sorted((one, number) for number, of in enumerate(shards) for one in of)
    for may, wanted in ((None, everything), (True, [one for one in everything if one[0] % 3 == 0])):
        read: list[tuple[int, int]] = []
        page = MergedPage((), log.start, more=True)
        while page.more:
            page = await log.page(page.cursor, limit, may_third=may)
            given = [(event.position, event.shard) for event in page.events]
            assert len(given) <= limit
            assert given == sorted(given)
            read += given
        assert read == wanted


async def test_what_is_in_a_cold_tier_that_the_node_does_not_know_is_lost_and_the_rest_is_read() -> None:
    """Without HOMING_EVENTS_COLD, a page of a log that had one before was an unexpected failure."""

    class WithoutColdTier(Log):
        async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
            if reading.after < 20:
                raise ArchivedError(20)
            return await super().read(shard, reading, limit)

    log = WithoutColdTier([{10, 30}, {20, 21}])
    events, lost, page = [], 0, MergedPage((), log.start, more=True)
    while page.more:
        page = await log.page(page.cursor, 1)
        events += [one.position for one in page.events]
        lost = max(lost, page.lost)
    assert (events, lost) == ([21, 30], 20)


@given(mine=st.lists(POSITIONS, min_size=1, max_size=4), limit=st.integers(1, 7))
@settings(deadline=None)
async def test_what_others_have_shows_in_no_page(mine: list[set[int]], limit: int) -> None:
    own = [{one * 3 for one in of} for of in mine]
    both = [{one * 3 for one in of} | {one * 3 + 1 for one in range(150)} for of in mine]
    pages: list[list[Any]] = []
    for shards in (own, both):
        log, told, page = Log(shards), [], MergedPage((), Cursor((0,) * len(shards)), more=True)
        while page.more:
            page = await log.page(page.cursor, limit, may_third=True)
            told.append(([one[:2] for one in page.events], page.more, page.lost))
        pages.append(told)
    assert pages[0] == pages[1]


async def test_a_reader_of_nothing_costs_a_page_so_much_at_most() -> None:
    log = Log([set(range(1, 1000)), set(range(1, 1000))], scanned=20)
    page = await log.page(log.start, 10, may_third=False, most_hidden=50)
    assert (page.events, page.more) == ([], True)
    assert log.read_events <= 50 + 2 * 20
    assert min(page.cursor.positions) > 0  # the next page goes on there


async def test_no_more_is_read_of_each_shard_than_its_part_of_a_page() -> None:
    shards = [set(range(number, 4000, 4)) for number in (1, 2, 3, 4)]
    log = Log(shards)
    page = await log.page(log.start, 1000)
    assert len(page.events) == 1000
    assert log.read_events < 1700  # four times a page would be 4,000
