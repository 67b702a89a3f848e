"""Queues whose shards are at several servers, as on a Redis Cluster: one that is away holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from app.core.errors import StoreUnavailableError
from app.core.events.event import Entry, Shard
from app.core.queues.loans import LendingRules, LoanWish, QueueSource, SourceState
from app.queues import taker
from app.queues.taker import QueueMessage
from app.store.memory.queues import MemoryQueues
from app.store.queues import TakeCall, Taken
from tests.unit.queues.stage import QueueStage
from tests.waiting import PATIENCE, eventually

SHARDS = [Shard("events", number) for number in range(6)]


class SpreadQueues(MemoryQueues):
    """Two servers, and shards in turns."""

    def spread(self) -> None:
        self.away: set[str] = set()
        self.asked: list[QueueSource] = []

    def server_of(self, source: QueueSource) -> str:
        return f"r{source.shard.number % 2}"

    def _ask(self, source: QueueSource) -> None:
        self.asked.append(source)
        if self.server_of(source) in self.away:
            raise StoreUnavailableError("the store did not answer in time")

    async def states(self, sources: Sequence[QueueSource]) -> Sequence[SourceState | None]:
        for one in sources:
            self._ask(one)
        return await super().states(sources)

    async def take(self, source: QueueSource, rules: LendingRules, wishes: Sequence[LoanWish], call: TakeCall) -> Taken:
        self._ask(source)
        return await super().take(source, rules, wishes, call)


class SpreadStage(QueueStage):
    shards = len(SHARDS)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.spreaded = SpreadQueues(self.clock, lambda: "00000001")
        self.spreaded.spread()
        self.store = self.spreaded
        self.feeder = self.new_feeder()
        self.taker = self.new_taker()

    async def say_everywhere(self) -> None:
        for one in SHARDS:
            await self.log.append(one, [Entry("alarm", b"1")])

    async def sizes(self) -> list[int]:
        windows = [self.store.windows.get(QueueSource(self.queue.id, one)) for one in SHARDS]
        return [0 if one is None else one.state(self.store._clock.time()).size for one in windows]

    async def take_some(self, seconds: float = 0) -> list[QueueMessage]:
        async with asyncio.timeout(PATIENCE):
            return await self.taker.take(self.queue, 100, "w1", seconds, 1_000_000)


@pytest.mark.parametrize("away", ["r0", "r1"])
async def test_shards_of_the_servers_that_are_there_are_fed(away: str) -> None:
    stage = SpreadStage()
    await stage.say_everywhere()
    stage.spreaded.away.add(away)
    await stage.feeder.round()
    there = [int(f"r{one.number % 2}" != away) for one in SHARDS]
    assert await stage.sizes() == there
    await stage.say_everywhere()
    await stage.feeder.round()
    assert await stage.sizes() == [2 * one for one in there]
    stage.spreaded.away.clear()
    await stage.feeder.round()
    assert await stage.sizes() == [2] * len(SHARDS)


async def test_a_feeder_of_which_no_server_is_there_says_so() -> None:
    stage = SpreadStage()
    stage.spreaded.away |= {"r0", "r1"}
    with pytest.raises(StoreUnavailableError):
        await stage.feeder.round()


@pytest.mark.parametrize("away", ["r0", "r1"])
async def test_what_is_at_the_servers_that_are_there_is_lent(away: str) -> None:
    stage = SpreadStage()
    await stage.say_everywhere()
    await stage.feeder.round()
    stage.spreaded.away.add(away)
    stage.spreaded.asked.clear()
    lent = await stage.take_some()
    assert {f"r{one.token.shard.number % 2}" for one in lent} == {"r0", "r1"} - {away}
    assert len(lent) == 3
    asked = [stage.spreaded.server_of(one) for one in stage.spreaded.asked]
    assert asked.count(away) == 1, "each call to a server that is away takes its time"
    stage.spreaded.away.clear()
    assert len(await stage.take_some()) == 3


async def test_who_waits_while_a_server_is_away_gets_what_comes_at_others() -> None:
    stage = SpreadStage()
    stage.spreaded.away.add("r1")
    taking = asyncio.create_task(stage.take_some(600))
    await eventually(lambda: len({one.shard.number for one in stage.spreaded.asked}) >= 4)
    await stage.log.append(SHARDS[2], [Entry("alarm", b"1")])
    await stage.feeder.round()
    assert [one.token.shard for one in await taking] == [SHARDS[2]]


async def test_who_takes_while_all_servers_are_away_is_told() -> None:
    stage = SpreadStage()
    stage.spreaded.away |= {"r0", "r1"}
    with pytest.raises(StoreUnavailableError):
        await stage.take_some(600)


async def test_a_queue_for_one_consumer_lends_nothing_while_nobody_says_whose_turn_it_is() -> None:
    stage = SpreadStage(single=True)
    await stage.say_everywhere()
    await stage.feeder.round()
    stage.spreaded.away.add(stage.spreaded.server_of(stage.sources.dead(stage.queue)))
    with pytest.raises(StoreUnavailableError):
        await stage.take_some()


async def test_a_loan_that_runs_out_at_a_server_that_is_away_neither_refuses_nor_wakes_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taker, "LOOK_SECONDS", 0.1)
    stage = SpreadStage(loan=timedelta(milliseconds=1))
    await stage.log.append(SHARDS[1], [Entry("alarm", b"1")])
    await stage.feeder.round()
    assert len(await stage.take_some()) == 1
    taking = asyncio.create_task(stage.take_some(600))
    await eventually(lambda: len({one.shard.number for one in stage.spreaded.asked}) == len(SHARDS))
    stage.spreaded.away.add("r1")
    desk = stage.taker._desks[stage.queue.id]
    await eventually(lambda: not desk.due)
    stage.spreaded.asked.clear()
    await eventually(lambda: len(stage.spreaded.asked) > 2 * len(SHARDS))  # two looks and more
    asked = [stage.spreaded.server_of(one) for one in stage.spreaded.asked]
    assert asked.count("r1") < asked.count("r0"), "none of them is asked beside the looks"
    assert not taking.done()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
