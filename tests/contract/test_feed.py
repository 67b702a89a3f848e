"""Followers of all commands miss nothing without being told: the reader of a node
(app/commands/follow/stream.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from app.commands.follow.stream import KEPT, Begun, CommandStream, StreamFollower
from app.core.commands.callback import Registration
from app.core.commands.command import CommandState
from app.core.commands.stream import MOST_HAPPENINGS, CommandChange, Mark, Marks, Position
from app.store.memory.commands.store import MemoryStateStore
from app.store.state import StateStore
from tests.contract.store_backends import Backend, ManualClock, answer, registration


class Reader:
    """Writes down what one who follows is told: progress as `p1`, `p2` …, and gaps."""

    def __init__(self) -> None:
        self.gaps: list[int] = []
        self.latest = Position(0, 0, 0)
        self.dismissed = False

    @property
    def view(self) -> Hashable:
        return self

    def event(self, one: CommandChange) -> bytes:
        self.latest = one.position
        return b"p%b " % (one.text or b"")

    def gap(self, since: int) -> bytes:
        self.gaps.append(since)
        return b"gap "

    def cut_off(self) -> None:
        self.dismissed = True


async def read_all(feed: CommandStream) -> None:
    while not await feed.read():
        pass


class Node:
    """One with a feed, whose reads a test makes itself."""

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self.counters: Counter[str] = Counter()
        self.feed = CommandStream(store.changes, store, self.counters, always=False)

    async def begin(self, after: Position | None = None) -> tuple[Begun, StreamFollower, Reader]:
        begun, reader = await self.feed.begin(after), Reader()
        return begun, self.feed.follower(begun, reader), reader

    @contextmanager
    def following(self, follower: StreamFollower) -> Iterator[None]:
        with self.feed.follow(follower):
            follower.caught_up()
            yield

    async def catch_up(self, follower: StreamFollower) -> bytes:
        told = b""
        while True:
            page = await self.feed.page(follower.marks)
            told += follower.took(page)
            if page.complete:
                return told

    async def told(self, follower: StreamFollower) -> str:
        """Return what those who follow are told with the next reads."""
        await read_all(self.feed)
        return follower.take().decode()


@pytest.fixture
def node(store: StateStore) -> Node:
    return Node(store)


async def running(store: StateStore) -> Registration:
    one = registration()
    await store.register(one)
    return one


async def report(store: StateStore, one: Registration, number: int) -> None:
    await store.respond(answer(one, CommandState.RUNNING, b"%d" % number), "node-b")


async def test_who_has_it_open_is_told_once_of_what_another_node_had_written_again(
    backend: Backend, node: Node, other_node: StateStore
) -> None:
    begun, follower, reader = await node.begin()
    one = await running(node.store)
    with node.following(follower):
        await report(node.store, one, 1)
        assert await node.told(follower) == "p1 "
        await report(node.store, one, 2)
        await backend.lose_happenings()
        await Node(other_node).feed.begin(None)
        await report(node.store, one, 3)
        assert await node.told(follower) == "gap p3 "
        assert await node.told(follower) == ""
    assert begun.whole < reader.gaps[0] <= reader.latest.ms
    assert node.counters["happening.gaps"] == 1


async def test_what_is_not_written_any_more_is_noticed_by_reading_and_written_again(
    backend: Backend, node: Node
) -> None:
    begun, follower, _ = await node.begin()
    one = await running(node.store)
    with node.following(follower):
        assert (await node.store.changes.after(begun.marks)).kept
        await backend.lose_happenings()
        assert not (await node.store.changes.after(begun.marks)).kept
        assert await node.told(follower) == "gap "
        await report(node.store, one, 1)
        assert await node.told(follower) == "p1 "


async def test_who_comes_back_right_after_a_loss_is_told_of_it_whatever_the_node_believes(
    backend: Backend, node: Node, other_node: StateStore
) -> None:
    _, follower, reader = await node.begin()
    one = await running(node.store)
    with node.following(follower):
        await report(node.store, one, 1)
        await node.told(follower)
    await backend.lose_happenings()
    await Node(other_node).feed.begin(None)
    await report(node.store, one, 2)
    begun, follower, _ = await node.begin(reader.latest)
    assert not begun.gap  # it asked less than a second ago
    assert await node.catch_up(follower) == b"gap p2 "


async def test_who_comes_back_too_late_is_told_of_one_gap(backend: Backend, node: Node) -> None:
    _, _, _ = await node.begin()
    one = await running(node.store)
    await report(node.store, one, 1)
    begun, follower, reader = await node.begin(Position(1000, 0, 0))
    assert begun.gap
    assert await node.catch_up(follower) == b"p1 "
    with node.following(follower):
        assert await node.told(follower) == ""
    assert reader.gaps == []


async def test_a_reader_that_paused_while_events_were_dropped_says_so_once(node: Node) -> None:
    begun, follower, reader = await node.begin()
    one = await running(node.store)
    with node.following(follower):
        await report(node.store, one, 0)
        assert await node.told(follower) == "p0 "
        for number in range(1, MOST_HAPPENINGS + 200):
            await report(node.store, one, number)
        told = (await node.told(follower)).split()
    assert told[0] == "gap"
    assert told[-1] == f"p{MOST_HAPPENINGS + 199}"
    assert MOST_HAPPENINGS < len(told) < MOST_HAPPENINGS + 200
    assert len(reader.gaps) == 1
    assert begun.whole <= reader.gaps[0]


async def test_a_reader_that_paused_for_less_says_nothing(node: Node) -> None:
    _, follower, reader = await node.begin()
    one = await running(node.store)
    with node.following(follower):
        for number in range(MOST_HAPPENINGS - 100):
            await report(node.store, one, number)
        assert len((await node.told(follower)).split()) == MOST_HAPPENINGS - 100
    assert reader.gaps == []


async def test_a_gap_that_is_noticed_while_another_page_is_read_comes_before_what_it_is_about(
    backend: Backend, node: Node, other_node: StateStore
) -> None:
    _, first, _ = await node.begin()
    with node.following(first):
        _, follower, _ = await node.begin()
        one = await running(node.store)
        with node.feed.follow(follower):
            late = await node.feed.page(follower.marks)
            await backend.lose_happenings()
            await Node(other_node).feed.begin(None)
            await report(node.store, one, 1)
            await read_all(node.feed)
            assert follower.took(late) == b""
            follower.caught_up()
            assert follower.take() == b"gap p1 "


async def test_what_is_told_while_pages_are_read_is_told_once(node: Node) -> None:
    _, first, _ = await node.begin()
    one = await running(node.store)
    with node.following(first):
        _, follower, _ = await node.begin()
        with node.feed.follow(follower):
            await report(node.store, one, 1)
            await read_all(node.feed)
            assert await node.catch_up(follower) == b"p1 "
            await report(node.store, one, 2)
            await read_all(node.feed)
            follower.caught_up()
            assert follower.take() == b"p2 "
            assert first.take() == b"p1 p2 "


async def test_a_bookmark_stands_before_what_waits(backend: Backend, node: Node) -> None:
    begun, follower, reader = await node.begin()
    one = await running(node.store)
    with node.following(follower):
        assert follower.until == begun.whole
        await backend.advance(timedelta(milliseconds=5))
        await read_all(node.feed)
        bookmark = follower.until
        assert bookmark > begun.whole
        await report(node.store, one, 1)
        await backend.advance(timedelta(milliseconds=5))
        await read_all(node.feed)
        await read_all(node.feed)
        assert follower.until <= reader.latest.ms
        _, resumed, _ = await node.begin(Position(follower.until, 0, 0))
        assert await node.catch_up(resumed) == b"p1 "
        follower.take()
        assert follower.until > reader.latest.ms


async def test_the_first_bookmark_is_a_place_to_come_back_to(node: Node) -> None:
    begun, _, _ = await node.begin()
    one = await running(node.store)
    await report(node.store, one, 1)
    again, follower, _ = await node.begin(Position(begun.whole, 0, 0))
    assert not again.gap
    assert await node.catch_up(follower) == b"p1 "


def test_a_bookmark_says_nothing_of_the_first_position_of_its_millisecond() -> None:
    assert Marks.after(Position(1000, 0, 0))[0] < Mark(1000, 0)
    assert Marks.after(Position(1000, 0, 7))[7] == Mark(1000, 0)


async def test_what_happens_after_the_clock_was_set_back_stands_behind_what_was_told(
    node: Node, other_node: StateStore
) -> None:
    """The reader of this node knows what was told; the clock here is that of a store that does not know it."""
    begun, follower, reader = await node.begin()
    one = await running(node.store)
    with node.following(follower):
        await report(node.store, one, 1)
        told = await node.store.now() // 1000 + 3_600_000
        since = await other_node.changes.keep(KEPT, told)
        assert since == told + 1
        assert await other_node.changes.keep(KEPT, told) == since
        await report(node.store, one, 2)
        await report(node.store, one, 3)
        assert await node.told(follower) == "gap p2 p3 "
        assert await node.told(follower) == ""
        assert reader.gaps == [since]
        assert (reader.latest.ms, follower.until) == (since, since)
    before, late, _ = await node.begin(Position(begun.whole, 0, 0))
    assert (before.gap, before.whole) == (True, since)
    assert await node.catch_up(late) == b"p2 p3 "
    again, resumed, _ = await Node(other_node).begin(reader.latest)
    assert not again.gap
    assert await node.catch_up(resumed) == b""
    fresh, _, _ = await Node(other_node).begin()
    assert fresh.whole == since


async def test_a_node_that_has_told_of_later_ones_notices_that_the_clock_was_set_back() -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock)
    node = Node(store)
    _, follower, reader = await node.begin()
    one = await running(store)
    with node.following(follower):
        await report(store, one, 1)
        clock.now += 50
        assert await node.told(follower) == "p1 "
        told = follower.until
        clock.now -= 40
        await report(store, one, 2)
        await node.told(follower)
        assert follower.until >= told
        await report(store, one, 3)
        assert await node.told(follower) == "gap p3 "
        assert reader.gaps == [told + 1]
        clock.now += 20
        await report(store, one, 4)
        assert await node.told(follower) == "p4 "
        assert reader.latest.ms == told + 1
        clock.now += 60
        await report(store, one, 5)
        assert await node.told(follower) == "p5 "
        assert reader.latest.ms > told + 1
    assert len(reader.gaps) == 1


async def test_who_begins_after_the_clock_was_set_back_begins_behind_what_was_told() -> None:
    clock = ManualClock()
    node = Node(MemoryStateStore(clock))
    await node.begin()
    clock.now += 50
    before, _, _ = await node.begin()
    clock.now -= 40
    begun, follower, _ = await node.begin()
    assert begun.whole == before.whole + 1
    one = await running(node.store)
    await report(node.store, one, 1)
    assert await node.catch_up(follower) == b"p1 "
    again, _, _ = await node.begin(Position(before.whole, 0, 0))
    assert again.gap


async def test_who_leaves_too_much_is_told_no_more(node: Node) -> None:
    node.feed.most_waiting_bytes = 20
    _, follower, reader = await node.begin()
    one = await running(node.store)
    with node.following(follower):
        for number in range(10):
            await report(node.store, one, number)
            await read_all(node.feed)
        assert reader.dismissed
        assert follower.take() == b""


async def test_who_leaves_too_much_while_pages_are_read_is_told_no_more(node: Node) -> None:
    node.feed.most_waiting_bytes = 1000
    _, follower, reader = await node.begin()
    one = await running(node.store)
    with node.feed.follow(follower):
        for number in range(10):
            await report(node.store, one, number)
            await read_all(node.feed)
        assert reader.dismissed
