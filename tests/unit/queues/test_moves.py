"""Queues that are moved: by where the log is, as its positions may be ahead of a clock that was set back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from app.core.errors import StoreUnavailableError
from app.core.events.event import Position
from app.core.queues.loans import SettleHow, Settlement
from app.queues.moves import QueueMoves
from app.queues.unread import UnreadEvents
from tests.unit.queues.stage import SHARD, QueueStage

HOUR_US = 3_600_000_000


class MovesStage(QueueStage):
    """A queue on record, and a feeder that reads there what is declared."""

    async def begin(self) -> None:
        await self.write()
        self.book = self.new_book()
        await self.book.refresh()
        self.feeder = self.new_feeder(self.book)
        self.book.changed.add(lambda _: self.feeder.changed())
        unread = UnreadEvents(log=self.log, store=self.store, sources=self.sources)
        self.moves = QueueMoves(log=self.log, store=self.store, sources=self.sources, book=self.book, unread=unread)

    async def rounds(self) -> None:
        while await self.feeder.round():
            pass

    async def die(self) -> None:
        """Make a dead letter of all that can be taken."""
        await self.rounds()
        loan = await self.take()
        assert loan is not None
        dead = [Settlement(loan.number, SettleHow.DEAD)]
        await self.store.settle(self.source, self.queue.options.rules, loan.life, dead, 1000)
        await self.new_burials(self.book).bury(SHARD)

    async def redriven(self) -> int:
        """Return how many dead letters are in the window again."""
        await self.rounds()
        (state,) = await self.store.states([self.sources.dead(self.queue)])
        return 0 if state is None else state.size


@pytest.fixture
async def stage() -> MovesStage:
    stage = MovesStage(retry=(timedelta(),))
    await stage.begin()
    return stage


def set_back(stage: MovesStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock on the wall back by a day."""
    begin = stage.clock.wall() - 86_400 - stage.clock.monotonic()
    monkeypatch.setattr(stage.clock, "wall", lambda: begin + stage.clock.monotonic())


async def test_a_purge_forgets_what_is_there_though_the_clock_was_set_back(
    stage: MovesStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.say(3)
    await stage.rounds()
    set_back(stage, monkeypatch)
    await stage.say(2)
    await stage.moves.rewind(stage.queue, None)
    await stage.rounds()
    assert await stage.size() == 0, "none is delivered once more"
    await stage.say()
    await stage.rounds()
    assert await stage.size() == 1


async def test_a_redrive_reads_all_letters_though_the_clock_was_set_back(
    stage: MovesStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.say(3)
    await stage.die()
    set_back(stage, monkeypatch)
    await stage.moves.redrive(stage.queue, None)
    assert await stage.redriven() == 3


async def test_a_redrive_up_to_an_instant_ahead_keeps_no_later_letter_from_the_next_one(stage: MovesStage) -> None:
    await stage.say(2)
    await stage.die()
    await stage.moves.redrive(stage.queue, await stage.store.now() + HOUR_US)
    assert await stage.redriven() == 2
    stage.clock.advance(60)
    await stage.say()
    await stage.die()
    await stage.moves.redrive(stage.queue, None)
    assert await stage.redriven() == 3


async def test_a_redrive_takes_back_nothing_of_the_one_before(stage: MovesStage) -> None:
    """Both callers were told that letters are in the queue again; the first ones are not looked at yet."""
    early = await stage.store.now()
    stage.clock.advance(60)
    await stage.say(2)
    await stage.die()
    await stage.moves.redrive(stage.queue, None)
    await stage.moves.redrive(stage.queue, early)
    assert await stage.redriven() == 2


async def test_a_rewind_to_an_instant_ahead_leaves_out_nothing_that_comes_until_then(stage: MovesStage) -> None:
    await stage.say(2)
    await stage.rounds()
    await stage.moves.rewind(stage.queue, await stage.store.now() + HOUR_US)
    await stage.say()
    await stage.rounds()
    assert await stage.size() == 1


async def test_a_queue_is_not_moved_to_where_nobody_can_look(
    stage: MovesStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one server of a Redis Cluster, which has its shard, is away, and others are not."""
    await stage.say(2)
    await stage.rounds()
    real = stage.log.wait

    async def wait(database: str, after: Sequence[Position]) -> Sequence[Position]:
        heads = await real(database, after)
        return [
            at if number == SHARD.number else head for number, (at, head) in enumerate(zip(after, heads, strict=True))
        ]

    monkeypatch.setattr(stage.log, "wait", wait)
    with pytest.raises(StoreUnavailableError):
        await stage.moves.rewind(stage.queue, None)
    assert await stage.size() == 2


async def test_a_purge_of_a_log_in_which_nothing_was_said_yet_waits_for_nothing(stage: MovesStage) -> None:
    await stage.moves.rewind(stage.queue, None)
    await stage.say()
    await stage.rounds()
    assert await stage.size() == 1
