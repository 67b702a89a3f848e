"""Dead letters are there once, whoever dies while they are written, and whatever the one who writes them knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from app.core.errors import StoreUnavailableError
from app.core.events.event import Entry, Shard
from app.core.events.reading import Picked, Reading
from app.core.queues.loans import LoanWish, QueueSource, SettleHow, Settlement
from app.core.queues.model import encode_queue
from app.queues.originals import Originals
from app.store.queues import TakeCall
from tests.unit.queues.stage import SHARD, QueueStage


@pytest.fixture
async def stage() -> QueueStage:
    """Two events are dying."""
    stage = QueueStage()
    await stage.write()
    await stage.say(2)
    await stage.feeder.round()
    loan = await stage.take()
    assert loan is not None
    dead = [Settlement(loan.number, SettleHow.DEAD, reason="no such dock")]
    await stage.store.settle(stage.source, stage.queue.options.rules, loan.life, dead, 1000)
    return stage


async def test_what_was_appended_and_not_taken_off_is_appended_once(
    stage: QueueStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: Any) -> None:
        raise StoreUnavailableError("killed")

    book = stage.new_book()
    await book.refresh()
    with monkeypatch.context() as patched:
        patched.setattr(stage.store, "buried", killed)
        with pytest.raises(StoreUnavailableError):
            await stage.new_burials(book).bury(SHARD)
    assert len(await stage.letters()) == 2
    await stage.new_burials(book).bury(SHARD)
    assert len(await stage.letters()) == 2
    assert not await stage.store.dying(SHARD, 64)


async def test_what_dies_while_the_log_takes_nothing_is_buried_later(
    stage: QueueStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("full")

    book = stage.new_book()
    await book.refresh()
    with monkeypatch.context() as patched:
        patched.setattr(stage.log, "append", full)
        with pytest.raises(StoreUnavailableError):
            await stage.new_burials(book).bury(SHARD)
    assert len(await stage.store.dying(SHARD, 64)) == 2
    await stage.new_burials(book).bury(SHARD)
    assert len(await stage.letters()) == 2


async def test_a_queue_that_is_newer_than_what_is_known_here_is_read_first(stage: QueueStage) -> None:
    await stage.new_burials(stage.new_book()).bury(SHARD)
    assert len(await stage.letters()) == 2


async def test_letters_of_a_queue_of_a_later_version_wait_for_a_node_that_reads_it(stage: QueueStage) -> None:
    later = {**orjson.loads(encode_queue(stage.queue)), "v": 2}
    await stage.write(orjson.dumps(later))
    book = stage.new_book()
    assert not await stage.new_burials(book).bury(SHARD)
    assert len(await stage.store.dying(SHARD, 64)) == 2
    assert not await stage.letters()
    await stage.write()
    await stage.new_burials(book).bury(SHARD)
    assert len(await stage.letters()) == 2


async def test_what_dies_in_a_queue_that_was_deleted_is_forgotten(stage: QueueStage) -> None:
    book = stage.new_book()
    await book.refresh()
    await book.delete(stage.queue)
    await stage.new_burials(book).bury(SHARD)
    assert not await stage.letters()
    assert not await stage.store.dying(SHARD, 64)


async def test_a_shard_that_cannot_be_read_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class TwoShards(QueueStage):
        shards = 2

    stage = TwoShards()
    await stage.write()
    book = stage.new_book()
    await book.refresh()
    for shard in stage.sources.shards("events"):
        source, rules = QueueSource(stage.queue.id, shard), stage.queue.options.rules
        await stage.log.append(shard, [Entry("alarm", b"1")])
        await stage.feeder.round()
        (loan,) = (await stage.store.take(source, rules, [LoanWish(1, "w1")], TakeCall("n1", "1"))).loans
        assert loan is not None
        await stage.store.settle(source, rules, loan.life, [Settlement(loan.number, SettleHow.DEAD)], 1000)
    pick = stage.log.pick

    async def newer(shard: Shard, positions: Sequence[int]) -> Picked:
        if shard == SHARD:
            raise StoreUnavailableError("a block was written by a later version")
        return await pick(shard, positions)

    stage.originals = Originals(stage.log)
    monkeypatch.setattr(stage.log, "pick", newer)
    with pytest.raises(StoreUnavailableError, match="later version"):
        await stage.new_burials(book).bury_all(stage.sources.shards("events"))
    letters = await stage.log.read(stage.sources.dead_shard(stage.queue), Reading(stage.queue.dead_topic), 10)
    assert len(letters.events) == 1
