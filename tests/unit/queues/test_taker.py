"""Consumers that wait: the sources of which somebody hints are asked for them, and all of them once a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from app.core.queues.hints import ANY_QUEUE, QueueHint, hint_text, hints_of, read_hints
from app.core.queues.loans import LendingRules, Loan, LoanWish, QueueSource
from app.queues import taker
from app.queues.taker import QueueMessage
from app.store.memory.queues import MemoryQueues
from app.store.queues import TakeCall
from tests.unit.queues.stage import QueueStage
from tests.waiting import eventually


class AskedQueues(MemoryQueues):
    """Notes which sources were asked, and lets each answer wait."""

    def watch(self) -> None:
        self.asked: list[QueueSource] = []
        self.open = asyncio.Event()
        self.open.set()

    async def take(
        self, source: QueueSource, rules: LendingRules, wishes: Sequence[LoanWish], call: TakeCall
    ) -> list[Loan | None]:
        found = await super().take(source, rules, wishes, call)
        self.asked.append(source)
        await self.open.wait()
        return found


class TakerStage(QueueStage):
    """A taker that hears hints, and a store that is watched."""

    def __init__(self) -> None:
        super().__init__()
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


async def test_what_comes_back_without_a_hint_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taker, "LOOK_SECONDS", 0.05)
    stage = TakerStage()
    async with stage.waiting() as taking:
        await stage.say()
        await stage.feeder.round()
        assert await taking
        again = asyncio.create_task(stage.taker.take(stage.queue, 10, "w1", 600, 1_000_000))
        stage.clock.advance(31)
        assert [one.delivery for one in await again] == [2]


def test_hints_are_read_as_both_versions_write_them() -> None:
    stage = QueueStage()
    sources = [stage.source, stage.sources.dead(stage.queue), QueueSource("01OTHER", stage.source.shard)]
    told = hint_text(hints_of(sources))
    assert told == "01OTHER :events.0 01QUEUE :events.0 :events.0d"
    assert read_hints(told) == hints_of(sources)
    assert read_hints("01QUEUE 01OTHER") == [QueueHint("01QUEUE"), QueueHint("01OTHER")]
    assert read_hints("") == [ANY_QUEUE]
    assert read_hints(":events.0 01QUEUE") == [QueueHint("01QUEUE")], "a source without a queue is about nothing"
