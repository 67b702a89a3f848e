"""A feeder of windows, and time: what left the log meanwhile, what is dated, and delays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.events.event import Entry
from app.core.queues.dated import dated
from app.core.queues.hints import QueueHint
from app.core.queues.loans import SettleHow, Settlement
from app.core.queues.model import TopicRoute
from app.queues import shard_feed
from tests.unit.queues.stage import SHARD, QueueStage


async def test_a_delay_that_is_declared_later_holds_from_then_on() -> None:
    stage = QueueStage()
    await stage.say()
    await stage.feeder.round()
    stage.change(delay=timedelta(hours=1))
    await stage.say(2)
    await stage.feeder.round()
    assert await stage.size() == 1
    stage.clock.advance(3601)
    await stage.feeder.round()
    assert await stage.size() == 3


async def test_what_left_the_log_before_it_was_fed_is_missed_and_the_rest_is_not() -> None:
    stage = QueueStage()
    await stage.say(3)
    await stage.log.rotate("events", 1)
    await stage.say()
    await stage.log.drop("events", 1)
    while await stage.feeder.round():
        pass
    assert await stage.size() == 1


async def test_what_left_the_log_after_it_was_fed_is_expired_and_counted() -> None:
    stage = QueueStage()
    await stage.say(2)
    await stage.feeder.round()
    await stage.log.rotate("events", 1)
    await stage.say()
    await stage.log.drop("events", 1)
    await stage.feeder.round()
    taken = await stage.new_taker().take(stage.queue, 10, "w1", 10, 1000)
    assert len(taken) == 1
    state = await stage.state()
    assert state is not None
    assert (state.size, state.lent, state.expired) == (1, 1, 2)
    counted = {name: stage.counters[f"queues.{name}"] for name in ("fed", "lent", "expired", "settled", "over")}
    assert counted == {"fed": 3, "lent": 3, "expired": 2, "settled": 2, "over": 0}


async def test_what_left_the_log_while_it_was_lent_can_be_settled_and_is_not_lent_again() -> None:
    stage = QueueStage(loan=timedelta(seconds=10))
    await stage.say(2)
    await stage.feeder.round()
    first, second = await stage.new_taker().take(stage.queue, 10, "w1", 10, 1000)
    await stage.log.rotate("events", 1)
    await stage.log.drop("events", 1)
    done = [Settlement(first.token.number, SettleHow.DONE, (first.token.index,))]
    settled = await stage.store.settle(stage.source, stage.queue.options.rules, first.token.life, done, 1000)
    assert settled.count == 1
    stage.clock.advance(11)
    assert await stage.new_taker().take(stage.queue, 10, "w2", 0, 1000) == []
    state = await stage.state()
    assert state is not None
    assert (state.size, state.done, state.expired) == (0, 1, 1)
    assert first.token.number == second.token.number


async def test_what_is_dated_is_fed_with_its_instant_and_told_to_those_who_wait() -> None:
    stage = QueueStage()
    now, told = await stage.store.now(), list[QueueHint]()
    stage.store.hear(told.append)
    ahead = dated(Entry("$exchange/-/ops/a", b"1"), now + 10_000_000)
    past = dated(Entry("$exchange/-/ops/a", b"2"), now - 1)
    forged = Entry("alarm", b"3", kind=ahead.kind)  # a device says so: it is no message of an exchange
    stage.change(routes=(*stage.queue.options.routes, TopicRoute("events", "$exchange/#")))
    await stage.log.append(SHARD, [ahead])
    await stage.feeder.round()
    assert told, "they learn when it is due"
    await stage.log.append(SHARD, [past, forged])
    await stage.feeder.round()
    state = await stage.state()
    assert state is not None
    assert (state.size, state.dated) == (3, 1)
    loan = await stage.take()
    assert loan is not None
    assert len(loan.references) == 2
    stage.clock.advance(10)
    assert await stage.take() is not None


async def test_a_queue_full_of_what_is_dated_waits_and_is_not_looked_at_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_feed, "MOST_DATED", 3)
    stage = QueueStage()
    stage.change(routes=(TopicRoute("events", "$exchange/#"),))
    later = await stage.store.now() + 10_000_000
    for number in range(5):
        await stage.log.append(SHARD, [dated(Entry("$exchange/-/ops/a", b"%d" % number), later)])
    for _ in range(3):
        await stage.feeder.round()
    (progress,) = stage.feeder._feeds[SHARD].full.values()
    assert (progress.dated, progress.is_left) == (3, True)
    stage.clock.advance(11)
    taken = await stage.take()
    assert taken is not None
    assert len(taken.references) == 3
    stage.feeder.kick(stage.queue.id)
    await stage.feeder.round()
    await stage.feeder.round()
    assert await stage.size() == 5


async def test_a_redriven_letter_that_left_the_log_is_missed_and_holds_nothing_up() -> None:
    stage = QueueStage(max_deliveries=1, retry=(timedelta(),))
    await stage.write()
    book = stage.new_book()
    await book.refresh()
    await stage.say(2)
    await stage.feeder.round()
    loan = await stage.take()
    assert loan is not None
    dead = [Settlement(loan.number, SettleHow.DEAD)]
    await stage.store.settle(stage.source, stage.queue.options.rules, loan.life, dead, 1000)
    await stage.new_burials(book).bury(SHARD)
    assert len(await stage.letters()) == 2
    source = stage.sources.dead(stage.queue)
    await stage.store.redrive(source, await stage.store.now() + 1)
    await stage.log.rotate("events", 1)
    await stage.log.drop("events", 1)
    stage.feeder.changed()
    while await stage.feeder.round():
        pass
    assert await stage.new_taker().take(stage.queue, 10, "w1", 0, 1000) == []
    (state,) = await stage.store.states([source])
    assert state is not None
    assert state.size == 0
    await stage.say()
    await stage.feeder.round()
    assert len(await stage.new_taker().take(stage.queue, 10, "w1", 0, 1000)) == 1
