"""A feeder of windows meets others that do so, too, and stores that forget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from app.core.events.event import BEGINNING, Entry, Event, Position, Shard
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.reading import Reading, Slice
from app.core.queues.dated import dated
from app.core.queues.loans import HELD, DatedGroup, Fed, LoanWish, QueueSource, ReferenceGroup, SourceState
from app.core.queues.model import TopicRoute, encode_queue
from app.core.queues.portion import portion_of
from app.queues.sources import QueueSources
from app.store.memory.events import MemoryEventLog
from app.store.memory.queues import MemoryQueues
from app.store.queues import TakeCall
from tests.unit.queues.stage import SHARD, QueueStage
from tests.waiting import eventually

SHARDS: Final = 4


class ReadLog(MemoryEventLog):
    """Notes which shards are read."""

    reads: list[Shard]
    silent = False
    """Nobody is told that something came."""

    async def wait(self, database: str, after: Sequence[Position]) -> Sequence[Position]:
        found = await super().wait(database, after)
        if self.silent:
            await asyncio.Event().wait()
        return found

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        self.reads.append(shard)
        return await super().read(shard, reading, limit)


class FedQueues(MemoryQueues):
    """Notes which sources are fed."""

    feeds: list[QueueSource]

    async def feed(
        self,
        source: QueueSource,
        start: Position,
        expected: Position,
        fed: Position,
        groups: Sequence[ReferenceGroup],
        most: int,
        missed: int = 0,
        dated: Sequence[DatedGroup] = (),
    ) -> Fed:
        self.feeds.append(source)
        return await super().feed(source, start, expected, fed, groups, most, missed, dated)


class WideStage(QueueStage):
    """The log has several shards, and notes who reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = Plan([NamedDatabase("events", timedelta(days=1))], [], SHARDS)
        self.watched = ReadLog(self.plan.databases, self.clock)
        self.watched.reads = []
        self.log = self.watched
        self.fed = FedQueues(self.clock, lambda: "00000001")
        self.fed.feeds = []
        self.store = self.fed
        self.sources = QueueSources(self.plan, lambda _: "")
        self.feeder = self.new_feeder()

    async def say_in(self, shard: int) -> None:
        await self.log.append(Shard("events", shard), [Entry("alarm", b"1")])

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """The feeder runs, and has read all there was."""
        running = asyncio.create_task(self.feeder.run())
        try:
            await eventually(lambda: len(set(self.watched.reads)) == SHARDS)
            await self.log.append(Shard("events", 1), [Entry("alarm", b"1")])  # it learns the heads of all shards
            await eventually(lambda: self.fed.windows.get(QueueSource(self.queue.id, Shard("events", 1))) is not None)
            self.watched.reads.clear()
            self.fed.feeds.clear()
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_only_the_shard_in_which_something_came_is_read() -> None:
    stage = WideStage()
    async with stage.at_rest():
        await stage.log.append(Shard("events", 2), [Entry("alarm", b"1")])
        await eventually(lambda: bool(stage.fed.feeds))
        assert stage.fed.feeds == [QueueSource(stage.queue.id, Shard("events", 2))]
        assert set(stage.watched.reads) == {Shard("events", 2)}


async def test_a_shard_of_which_somebody_says_that_something_came_is_read_at_once() -> None:
    """A log that many share is looked at so often and no oftener; here nobody ever looks."""
    stage = WideStage()
    async with stage.at_rest():
        stage.watched.silent = True
        await stage.say_in(2)
        stage.feeder.appended({"events.3", "other.2"})
        stage.feeder.appended({"events.2"})
        await eventually(lambda: bool(stage.fed.feeds))
        assert stage.fed.feeds == [QueueSource(stage.queue.id, Shard("events", 2))]


async def test_a_hint_about_the_log_wakes_nobody_who_feeds_for_no_queue() -> None:
    stage = QueueStage()
    stage.queues.clear()
    await stage.feeder.round()
    stage.feeder.appended({str(SHARD)})
    assert not stage.feeder._kicked.is_set()


async def test_of_many_queues_those_are_touched_that_get_something() -> None:
    stage = WideStage()
    for number in range(100):
        other = replace(stage.queue.options, routes=(TopicRoute("events", f"other/{number}"),))
        starts = {"events": BEGINNING}
        stage.queues.append(replace(stage.queue, id=f"02{number:03}", name=f"o{number}", options=other, starts=starts))
    while await stage.feeder.round():
        pass
    await stage.log.append(Shard("events", 0), [Entry("other/7", b"1")])
    while await stage.feeder.round():
        pass  # all of them are told that there was nothing for so long
    stage.fed.feeds.clear()
    await stage.log.append(Shard("events", 0), [Entry("other/7", b"1"), Entry("nobody", b"1")])
    await stage.feeder.round()
    assert stage.fed.feeds == [QueueSource("02007", Shard("events", 0))]
    stage.clock.advance(61)
    await stage.say(topic="nobody")
    await stage.feeder.round()
    assert len(set(stage.fed.feeds)) == 101, "each minute the store is told how far nothing was found"


class AskedQueues(MemoryQueues):
    """Notes of which sources the state is asked."""

    asked: list[QueueSource]

    async def states(self, sources: Sequence[QueueSource]) -> Sequence[SourceState | None]:
        self.asked += sources
        return await super().states(sources)


async def test_a_queue_that_comes_to_many_lets_the_store_be_asked_of_it_alone() -> None:
    """Though many are full, and nobody takes from them."""
    stage = QueueStage()
    store = stage.store = AskedQueues(stage.clock, lambda: "00000001")
    store.asked = []
    stage.feeder = stage.new_feeder()
    stage.queues += [replace(stage.queue, id=f"02{number:03}", name=f"o{number}") for number in range(50)]
    await stage.say(200)
    while await stage.feeder.round():
        pass
    store.asked.clear()
    new = replace(stage.queue, id="03NEW", name="new")
    stage.queues.append(new)
    stage.feeder.changed()
    await stage.feeder.round()
    assert store.asked == stage.sources.of(new)
    (state,) = await store.states([QueueSource(new.id, SHARD)])
    assert state is not None
    assert state.size == 128
    store.asked.clear()
    stage.queues[7] = moved = replace(stage.queues[7], moved_us=1)
    stage.feeder.changed()
    await stage.feeder.round()
    assert store.asked == stage.sources.of(moved), "it was rewound, perhaps"


async def test_a_queue_that_changes_its_routes_gets_nothing_by_the_old_ones() -> None:
    stage = QueueStage()
    await stage.feeder.round()
    await stage.say(2)
    stage.change(routes=(TopicRoute("events", "other"), TopicRoute("events", "+")))
    await stage.feeder.round()
    assert await stage.size() == 2
    stage.change(routes=(TopicRoute("events", "other"),))
    await stage.say(3)
    await stage.say(topic="other")
    await stage.feeder.round()
    assert await stage.size() == 3
    stage.queues.clear()
    stage.feeder.changed()
    await stage.feeder.round()
    assert stage.feeder._tree.match(["other"]) == set()


async def test_a_kick_wakes_for_a_queue_that_waits_for_room_and_for_no_other() -> None:
    stage = QueueStage()
    await stage.say(200)
    kicked = stage.feeder._kicked
    await stage.feeder.round()
    assert await stage.size() == 128, "nobody takes from it"
    stage.feeder.kick("01OTHER")
    assert not kicked.is_set()
    assert await stage.take(most=100) is not None
    stage.feeder.kick(stage.queue.id)
    assert kicked.is_set()
    await stage.feeder.round()
    assert await stage.size() == 200
    stage.feeder.kick(stage.queue.id)
    assert not kicked.is_set(), "it has room"


async def test_of_two_feeders_of_a_shard_each_event_is_fed_once() -> None:
    stage = QueueStage()
    other = stage.new_feeder()
    for first, second in ((stage.feeder, other), (other, stage.feeder), (stage.feeder, other)):
        await stage.say(5)
        await first.round()
        await second.round()
    await other.round()
    assert await stage.size() == 15
    loan = await stage.take(most=100)
    assert loan is not None
    assert len({one.position for one in loan.references}) == 15


async def test_a_window_that_was_lost_is_fed_again_from_where_the_queue_began() -> None:
    stage = QueueStage()
    await stage.say(3)
    await stage.feeder.round()
    await stage.store.forget([stage.source])
    await stage.say()
    await stage.feeder.round()
    await stage.feeder.round()
    assert await stage.size() == 4


async def test_a_store_that_went_back_is_asked_where_it_is_when_hints_were_lost() -> None:
    """A replica that took over may lack the last second; nothing new has to come for that to be noticed."""
    stage = QueueStage()
    await stage.say(3)
    await stage.feeder.round()
    await stage.store.seek(stage.source, 0)
    await stage.feeder.round()
    assert await stage.size() == 0
    stage.feeder.kick("")
    await stage.feeder.round()
    assert await stage.size() == 3


async def test_a_deleted_queue_that_a_late_feeder_began_anew_is_forgotten() -> None:
    stage = QueueStage()
    await stage.say()
    await stage.feeder.round()
    stage.queues.clear()
    await stage.store.forget([stage.source])
    await stage.say()
    await stage.feeder.round()
    assert await stage.state() is not None
    stage.feeder.changed()
    await stage.feeder.round()
    assert await stage.state() is None


async def test_a_deleted_queue_from_which_a_late_node_took_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer may wait on a node that learns a moment later, and each take begins the source of dead letters."""
    monkeypatch.setattr("app.queues.feeder.SLOW_SECONDS", 0)
    stage = QueueStage()
    dead = stage.sources.dead(stage.queue)
    await stage.feeder.round()
    stage.queues.clear()
    stage.feeder.changed()
    await stage.feeder.round()
    await stage.store.take(dead, stage.queue.options.rules, [LoanWish(1, "late")], TakeCall("n2", "1"))
    await stage.feeder.round()
    assert await stage.store.states([dead]) == [None]


async def test_nobody_takes_from_a_queue_for_one_before_there_is_a_turn() -> None:
    stage = QueueStage(single=True)
    assert await stage.take() is HELD
    await stage.feeder.round()
    assert await stage.take() is None
    await stage.say()
    await stage.feeder.round()
    assert await stage.take("w2") is HELD
    assert await stage.take() not in (None, HELD)


def test_a_portion_ends_with_what_has_no_room() -> None:
    def event(position: int, at: int = 0) -> Event:
        entry = Entry("$exchange/-/ops/a", b"")
        return Event(position, 0, dated(entry, at) if at else entry)

    events = [event(1), event(2, 50), event(3), event(4, 50), event(5)]
    whole = portion_of(events, 10, 9, 9, ordered=False)
    assert (whole.references, whole.last, whole.complete) == (5, 5, True)
    assert [(one.at, one.group.references[0].position) for one in whole.dated] == [(50, 2), (50, 4)]
    for most, most_dated, last in ((0, 9, 0), (1, 9, 2), (9, 0, 1), (9, 1, 3), (2, 9, 4)):
        part = portion_of(events, 10, most, most_dated, ordered=False)
        assert (part.last, part.complete) == (last, False)
    assert not portion_of(events, 50, 9, 9, ordered=False).dated


async def test_the_window_of_a_queue_that_a_later_version_has_changed_is_left_as_it_is() -> None:
    stage = QueueStage()
    await stage.write()
    book = stage.new_book()
    await book.refresh()
    feeder = stage.new_feeder(book)
    book.changed.add(lambda _: feeder.changed())
    await stage.say(2)
    await feeder.round()
    loan = await stage.take()
    assert loan is not None
    await stage.write(encode_queue(stage.queue).replace(b'"v":1', b'"v":2'))
    await book.refresh()
    await feeder.round()
    state = await stage.state()
    assert state is not None
    assert (state.size, state.lent) == (2, 2), "its consumers are at other nodes, and settle what they have"
    await stage.say()
    await stage.write()
    await book.refresh()
    await feeder.round()
    assert await stage.size() == 3
