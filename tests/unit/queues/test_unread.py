"""Events that are in the log for a queue count as waiting, though nobody has looked at them for it yet."""

from __future__ import annotations

from datetime import timedelta

from app.core.events.event import Entry
from app.core.queues.loans import SettleHow, Settlement
from app.queues.unread import UnreadEvents
from tests.unit.queues.stage import SHARD, QueueStage


def unread_of(stage: QueueStage) -> UnreadEvents:
    return UnreadEvents(log=stage.log, store=stage.store, sources=stage.sources)


async def test_what_was_said_a_moment_ago_waits_until_it_is_fed() -> None:
    stage = QueueStage()
    unread = unread_of(stage)
    assert not await unread.wait_for(stage.queue)
    await stage.say(1, "other")
    assert not await unread.wait_for(stage.queue), "it is for nobody here"
    await stage.say(1)
    assert await unread.wait_for(stage.queue)
    await stage.feeder.round()
    assert not await unread.wait_for(stage.queue), "it is in the window, which others count"


async def test_what_waits_out_a_delay_waits() -> None:
    stage = QueueStage(delay=timedelta(hours=1))
    await stage.say(1)
    while await stage.feeder.round():
        pass
    assert await stage.size() == 0
    assert await unread_of(stage).wait_for(stage.queue)


async def test_dead_letters_wait_once_they_are_redriven() -> None:
    stage = QueueStage(max_deliveries=1)
    await stage.say(1)
    await stage.feeder.round()
    loan = await stage.take(most=1)
    assert loan is not None
    said = [Settlement(loan.number, SettleHow.DEAD, (0,), reason="poison")]
    await stage.store.settle(stage.source, stage.queue.options.rules, loan.life, said, 1000)
    unread, dead = unread_of(stage), stage.sources.dead(stage.queue)
    letter = await stage.log.append(SHARD, [Entry(stage.queue.dead_topic, b"1")])
    await stage.store.redrive(dead, 0)
    assert not await unread.wait_for(stage.queue), "they stay aside until somebody wants them again"
    await stage.store.redrive(dead, letter)
    assert await unread.wait_for(stage.queue)
