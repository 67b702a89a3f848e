"""Consumers that wait: the sources of which somebody hints are asked for them, and all of them once a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from app.core.errors import CapacityError, QueueNotFoundError, StoreUnavailableError
from app.core.events.event import Entry, Position, Shard
from app.core.events.reading import Picked
from app.core.queues.hints import ANY_QUEUE, QueueHint, hint_text, hints_of, read_hints
from app.core.queues.loans import LendingRules, LoanWish, QueueSource, Reference, SettleHow, Settlement, grouped
from app.core.queues.model import TopicRoute
from app.queues import taker
from app.queues.originals import Originals
from app.queues.plane import QueuePlane
from app.queues.settler import Settler
from app.queues.taker import QueueMessage
from app.store.memory.events import MemoryEventLog
from app.store.memory.queues import MemoryQueues
from app.store.queues import TakeCall, Taken
from tests.unit.queues.stage import SHARD, QueueStage
from tests.waiting import PATIENCE, eventually, turns


class AskedQueues(MemoryQueues):
    """Notes which sources were asked, and lets each answer wait."""

    def watch(self) -> None:
        self.asked: list[QueueSource] = []
        self.open = asyncio.Event()
        self.open.set()

    async def take(self, source: QueueSource, rules: LendingRules, wishes: Sequence[LoanWish], call: TakeCall) -> Taken:
        found = await super().take(source, rules, wishes, call)
        self.asked.append(source)
        await self.open.wait()
        return found


class TakerStage(QueueStage):
    """A taker that hears hints, and a store that is watched."""

    def __init__(self, **options: timedelta | tuple[timedelta, ...]) -> None:
        super().__init__(**options)
        self.watched = AskedQueues(self.clock, lambda: "00000001")
        self.watched.watch()
        self.store = self.watched
        self.feeder = self.new_feeder()
        self.taker = self.new_taker()
        self.store.hear(self.taker.wake)
        self.both = {self.source, self.sources.dead(self.queue)}

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[asyncio.Task[list[QueueMessage]]]:
        """A consumer for whom there was nothing yet."""
        taking = asyncio.create_task(self.taker.take(self.queue, 10, "w1", 600, 1_000_000))
        try:
            await eventually(lambda: len(self.watched.asked) >= len(self.both))
            yield taking
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            await self.taker.close()

    @asynccontextmanager
    async def again(self) -> AsyncIterator[asyncio.Task[list[QueueMessage]]]:
        """The same consumer once more, where nothing is known to be there."""
        self.taker.wake(QueueHint(self.queue.id, frozenset({str(self.source)})))
        taking = asyncio.create_task(self.taker.take(self.queue, 10, "w1", 600, 1_000_000))
        try:
            yield taking
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            await self.taker.close()


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks without a hint."""
    monkeypatch.setattr(taker, "LOOK_SECONDS", 600.0)


@pytest.mark.usefixtures("no_looks")
async def test_only_the_source_of_a_hint_is_asked() -> None:
    stage = TakerStage()
    async with stage.waiting() as taking:
        assert set(stage.watched.asked) == stage.both
        stage.watched.asked.clear()
        await stage.say()
        await stage.feeder.round()
        assert [one.event.entry.topic for one in await taking] == ["alarm"]
        assert stage.watched.asked == [stage.source]


@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("hint", [QueueHint("01QUEUE"), ANY_QUEUE])
async def test_a_hint_that_names_no_source_is_about_all_of_them(hint: QueueHint) -> None:
    stage = TakerStage()
    async with stage.waiting():
        stage.watched.asked.clear()
        stage.taker.wake(hint)
        await eventually(lambda: set(stage.watched.asked) == stage.both)


@pytest.mark.usefixtures("no_looks")
async def test_whoever_comes_again_asks_no_source_that_is_known_to_be_dry(no_looks: None) -> None:
    """A channel takes again and again: what the look before has learned is not forgotten between."""
    stage = TakerStage()
    async with stage.waiting() as taking:
        await stage.say()
        await stage.feeder.round()
        assert len(await taking) == 1
    stage.watched.asked.clear()
    async with stage.again() as taking:
        await eventually(lambda: bool(stage.watched.asked))
        await stage.say()
        await stage.feeder.round()
        assert len(await taking) == 1
    assert set(stage.watched.asked) == {stage.source}


async def test_who_does_not_wait_is_told_what_the_store_says(no_looks: None) -> None:
    stage = TakerStage()
    async with stage.waiting():
        await stage.store.feed(stage.source, 0, 0, 1, grouped([Reference(1)]), 10)  # and no hint of it arrives
    await stage.say()
    taken = await stage.taker.take(stage.queue, 10, "w1", 0, 1000)
    assert stage.watched.asked[-2:] != [stage.source] * 2
    assert stage.source in stage.watched.asked[-2:]
    assert taken == [], "the event of this reference is not there"
    await stage.taker.close()


async def test_the_desk_of_a_queue_that_was_deleted_is_cleared(no_looks: None) -> None:
    stage = TakerStage()
    await stage.taker.take(stage.queue, 1, "w1", 0, 1000)
    stage.taker.wake(ANY_QUEUE)
    await eventually(lambda: not any(one.busy for one in stage.taker._desks.values()))
    stage.taker._by_id = lambda _: None
    stage.taker.wake(ANY_QUEUE)
    assert not stage.taker._desks


@pytest.mark.usefixtures("no_looks")
async def test_the_desk_of_a_queue_that_is_deleted_while_somebody_waits_is_cleared() -> None:
    stage = TakerStage()
    async with stage.waiting() as taking:
        stage.taker._by_id = lambda _: None
        stage.taker.wake(QueueHint(stage.queue.id))
        with pytest.raises(QueueNotFoundError):
            await taking
        assert not stage.taker._desks


@pytest.mark.usefixtures("no_looks")
async def test_a_queue_that_is_declared_wakes_nobody_who_waits_for_others() -> None:
    """A thousand consumers wait for queues in which nothing happens, and programs that start declare theirs."""
    stage = TakerStage()
    await stage.write()
    book = stage.new_book()
    untouched: Any = None
    plane = QueuePlane(
        store=stage.store,
        book=book,
        sources=stage.sources,
        feeders=[stage.feeder],
        taker=stage.taker,
        settler=stage.taker._settler,
        shares=untouched,
        publisher=untouched,
        moves=untouched,
        chores=untouched,
    )
    async with stage.waiting():
        await book.refresh()
        await eventually(lambda: len(stage.watched.asked) == 2 * len(stage.both))
        desk = stage.taker._desks[stage.queue.id]
        await turns()
        other, new = await plane.book.declare("", "other", stage.queue.options, 1, 1, lambda _: True)
        assert new
        assert not desk.woken.is_set()
        await book.declare_exchange("", "ops", "topic", 1)
        await book.delete(other)
        assert not desk.woken.is_set()
        await book.move(stage.queue, 2)
        assert desk.woken.is_set()


async def test_a_hint_that_comes_while_its_source_is_asked_is_not_lost() -> None:
    stage = TakerStage()
    async with stage.waiting() as taking:
        stage.watched.asked.clear()
        stage.watched.open.clear()
        stage.taker.wake(QueueHint("01QUEUE", frozenset([str(stage.source)])))
        await eventually(lambda: stage.watched.asked == [stage.source])
        await stage.say()
        await stage.feeder.round()
        stage.watched.open.set()
        assert len(await taking) == 1
        assert stage.watched.asked == [stage.source] * 2


async def test_consumers_that_wait_are_bounded_though_the_store_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer for whom it is asked at this moment counts as well: each look would let as many more in."""
    monkeypatch.setattr(taker, "MOST_WAITING", 2)
    stage = TakerStage()
    async with stage.waiting():
        stage.watched.asked.clear()
        stage.watched.open.clear()
        stage.taker.wake(ANY_QUEUE)
        await eventually(lambda: len(stage.watched.asked) == 1)
        second = asyncio.create_task(stage.taker.take(stage.queue, 10, "w2", 600, 1_000_000))
        await turns()
        assert stage.taker.waiting == 2
        with pytest.raises(CapacityError):
            await asyncio.wait_for(stage.taker.take(stage.queue, 10, "w3", 600, 1_000_000), PATIENCE)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert stage.taker.waiting == 1
        stage.watched.open.set()


async def test_consumers_that_wait_on_a_node_are_bounded_of_all_queues_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taker, "MOST_CONSUMERS", 1)
    stage = TakerStage()
    async with stage.waiting():
        other = replace(stage.queue, id="01OTHER", name="others")
        with pytest.raises(CapacityError, match="1 consumers wait on this node already"):
            await asyncio.wait_for(stage.taker.take(other, 10, "w2", 600, 1_000_000), PATIENCE)
        assert stage.taker.waiting == 1


async def test_a_queue_for_one_consumer_stays_with_it_when_it_gets_a_route_of_another_database() -> None:
    class TwoDatabases(QueueStage):
        databases = ("events", "alarms")

    stage = TwoDatabases(single=True)
    taker = stage.new_taker()

    async def say(database: str) -> None:
        position = await stage.log.append(Shard(database, 0), [Entry("alarm", b"1")])
        source, groups = QueueSource(stage.queue.id, Shard(database, 0)), grouped([Reference(position)])
        await stage.store.feed(source, 0, 0, position, groups, 10)

    async def taken(consumer: str) -> list[str]:
        return [one.database for one in await taker.take(stage.queue, 10, consumer, 0, 1000)]

    await stage.store.feed(stage.sources.dead(stage.queue), 0, 0, 0, (), 0)
    await say("events")
    assert await taken("w1") == ["events"]
    options = replace(stage.queue.options, routes=(TopicRoute("alarms", "alarm"), *stage.queue.options.routes))
    stage.queue = replace(stage.queue, options=options)
    await say("alarms")
    assert await taken("w2") == [], "w1 works on what it has, and asks again"
    assert await taken("w1") == ["alarms"]
    await taker.close()


class AwayLog(MemoryEventLog):
    """A log that answers for the first loan, and is away for the next: what it keeps of old is elsewhere."""

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> Picked:
        if positions[0] > 1:
            raise StoreUnavailableError("the bucket is away")
        return await super().pick(shard, positions)


async def test_a_log_that_is_away_uses_up_no_delivery_of_what_was_lent(no_looks: None) -> None:
    """Loans of two sources in one answer: neither was handed on, so both are given back, and not only the one."""
    stage = TakerStage(loan=timedelta(seconds=1))
    log = AwayLog(stage.plan.databases, stage.clock)
    stage.taker._originals = Originals(log)
    for source, place in ((stage.source, 1), (stage.sources.dead(stage.queue), 2)):
        await stage.store.feed(source, 0, 0, place, grouped([Reference(place)]), 10)
    with pytest.raises(StoreUnavailableError):
        await stage.taker.take(stage.queue, 10, "w1", 0, 1000)
    await stage.taker._settler.close()
    states = await stage.store.states(list(stage.both))
    assert [(one.size, one.lent) for one in states if one is not None] == [(1, 0)] * 2
    await stage.taker.close()


async def test_what_nobody_hints_of_is_found_by_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint was lost."""
    monkeypatch.setattr(taker, "LOOK_SECONDS", 0.05)
    stage = TakerStage()
    async with stage.waiting() as taking, asyncio.timeout(PATIENCE):
        position = await stage.log.append(SHARD, [Entry("alarm", b"1")])
        await stage.store.feed(stage.source, 0, 0, position, grouped([Reference(position)]), 10)
        assert [one.delivery for one in await taking] == [1]


@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("after", [20_000, -1])
async def test_what_comes_back_is_found_when_it_is_due_without_a_hint(after: int) -> None:
    """A retry, or a loan that nobody settles."""
    stage = TakerStage(loan=timedelta(seconds=1))
    async with stage.waiting() as taking:
        await stage.say()
        await stage.feeder.round()
        (message,) = await taking
        if after >= 0:
            said = [Settlement(message.token.number, SettleHow.RETRY, (message.token.index,), after)]
            await stage.store.settle(stage.source, stage.queue.options.rules, message.token.life, said, 1000)
        again = asyncio.create_task(stage.taker.take(stage.queue, 10, "w1", 600, 1_000_000))
        stage.watched.asked.clear()
        await eventually(lambda: stage.source in stage.watched.asked)
        stage.clock.advance(2)
        assert [one.delivery for one in await again] == [2]


@pytest.mark.parametrize(("after", "hinted"), [(0, True), (999_000, True), (5_000_000, False), (-1, False)])
async def test_others_are_told_of_a_retry_that_comes_before_they_look(after: int, hinted: bool) -> None:  # noqa: FBT001 - a parameter
    stage = TakerStage(retry=(timedelta(seconds=10),))
    heard: list[QueueHint] = []
    await stage.say()
    await stage.feeder.round()
    loan = await stage.take()
    assert loan is not None
    stage.store.hear(heard.append)
    settler = Settler(stage.store, lambda *_: None, Random(1), stage.counters)
    said = [Settlement(loan.number, SettleHow.RETRY, (0,), after)]
    await settler.settle(stage.queue, stage.source, loan.life, said)
    assert bool(heard) is hinted


def test_hints_are_read_as_both_versions_write_them() -> None:
    stage = QueueStage()
    sources = [stage.source, stage.sources.dead(stage.queue), QueueSource("01OTHER", stage.source.shard)]
    told = hint_text(hints_of(sources))
    assert told == "01OTHER :events.0 01QUEUE :events.0 :events.0d"
    assert read_hints(told) == hints_of(sources)
    assert read_hints("01QUEUE 01OTHER") == [QueueHint("01QUEUE"), QueueHint("01OTHER")]
    assert read_hints("") == [ANY_QUEUE]
    assert read_hints(":events.0 01QUEUE") == [QueueHint("01QUEUE")], "a source without a queue is about nothing"
