"""A feeder of windows meets others that do so, too, and stores that forget."""

from __future__ import annotations

from datetime import timedelta

from app.core.queues.loans import HELD, SettleHow, Settlement
from tests.unit.queues.stage import QueueStage


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


async def test_nobody_takes_from_a_queue_for_one_before_there_is_a_turn() -> None:
    stage = QueueStage(single=True)
    assert await stage.take() is HELD
    await stage.feeder.round()
    assert await stage.take() is None
    await stage.say()
    await stage.feeder.round()
    assert await stage.take("w2") is HELD
    assert await stage.take() not in (None, HELD)


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
