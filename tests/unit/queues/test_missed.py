"""Events that the log drops before a queue has looked at them are counted, once, and before they are gone."""

from __future__ import annotations

import pytest

from app.core.errors import StoreUnavailableError
from app.core.events.generation import Generation
from app.core.queues.loans import SourceState
from app.events.keeper import Keeper
from app.queues.missed import MissedEvents
from app.queues.unread import PAGE, UnreadEvents
from tests.unit.queues.stage import QueueStage


def counter_of(stage: QueueStage, most_pages: int = 10) -> MissedEvents:
    return MissedEvents(
        unread=UnreadEvents(log=stage.log, store=stage.store, sources=stage.sources),
        store=stage.store,
        sources=stage.sources,
        queues=lambda: stage.queues,
        counters=stage.counters,
        most_pages=most_pages,
    )


async def seal(stage: QueueStage) -> Generation:
    """End the current generation."""
    *_, current = await stage.log.generations("events")
    await stage.log.rotate("events", current.number)
    return next(one for one in await stage.log.generations("events") if one.number == current.number)


async def state_of(stage: QueueStage) -> SourceState:
    state = await stage.state()
    assert state is not None
    return state


async def test_what_nobody_has_looked_at_is_counted_and_passed_over() -> None:
    stage = QueueStage()
    await stage.say(3)
    sealed = await seal(stage)
    await stage.say(2)
    await counter_of(stage).count("events", sealed)
    state = await state_of(stage)
    assert (state.fed, state.size, state.expired, state.missed) == (sealed.last, 0, 3, 3)
    await stage.log.drop("events", sealed.number)
    while await stage.feeder.round():
        pass
    state = await state_of(stage)
    assert (state.size, state.expired, state.missed) == (2, 3, 3)
    assert stage.counters["queues.missed"] == 3


async def test_what_is_in_a_window_already_is_not_counted_twice() -> None:
    stage = QueueStage()
    await stage.say(2)
    await stage.feeder.round()
    await stage.say(1)
    sealed = await seal(stage)
    await counter_of(stage).count("events", sealed)
    await counter_of(stage).count("events", sealed)  # another node that drops it at the same time
    await stage.log.drop("events", sealed.number)
    assert await stage.new_taker().take(stage.queue, 10, "w1", 0, 1000) == []
    state = await state_of(stage)
    assert (state.size, state.expired, state.missed) == (0, 3, 3)
    assert (stage.counters["queues.missed"], stage.counters["queues.expired"]) == (1, 2)


async def test_a_queue_that_is_not_behind_misses_nothing() -> None:
    stage = QueueStage()
    await stage.say(2)
    sealed = await seal(stage)
    while await stage.feeder.round():
        pass
    await stage.say()
    while await stage.feeder.round():
        pass
    await counter_of(stage).count("events", sealed)
    assert ((await state_of(stage)).missed, stage.counters["queues.missed"]) == (0, 0)


async def test_events_of_others_are_not_missed() -> None:
    stage = QueueStage()
    await stage.say(2, topic="other")
    sealed = await seal(stage)
    await counter_of(stage).count("events", sealed)
    assert stage.counters["queues.missed"] == 0


async def test_it_does_not_look_for_ever() -> None:
    stage = QueueStage()
    await stage.say(PAGE + 3)
    sealed = await seal(stage)
    await counter_of(stage, most_pages=1).count("events", sealed)
    state = await state_of(stage)
    assert (state.missed, state.fed < sealed.last) == (PAGE, True)


@pytest.mark.parametrize("away", [False, True])
async def test_the_keeper_lets_them_be_counted_before_it_drops_them(*, away: bool) -> None:
    stage = QueueStage()
    keeper = Keeper(
        stage.log,
        stage.plan.kept,
        generation_bytes=1_000_000,
        quota_bytes=1_000_000,
        discard="new",
        clock=stage.clock,
        counters=stage.counters,
    )
    await stage.say(3)
    await seal(stage)
    await stage.say()
    counter = counter_of(stage)

    async def dropping(database: str, generation: Generation) -> None:
        if away:
            raise StoreUnavailableError("away")
        await counter.count(database, generation)

    keeper.dropping.append(dropping)
    stage.clock.advance(25 * 3600)
    await keeper.look()
    assert stage.counters["events.dropped.retention"] == 1
    assert stage.counters["queues.missed"] == (0 if away else 3)
