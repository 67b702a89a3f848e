"""Queues in a folder whose disk fails, whose rows are damaged, or whose consumers come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from rocksdict import Rdict

from app.core.errors import ConfigurationError, StoreUnavailableError
from app.core.events.event import Shard
from app.core.queues.loans import LendingRules, LoanWish, QueueSource, Reference, SettleHow, Settlement, grouped
from app.store.declared import DocumentChange
from app.store.queues import TakeCall
from app.store.rocks.folder import RocksFolder, options
from app.store.rocks.queues import RocksQueues
from app.store.rocks.rows import rows_from
from tests.contract.queue_places import QueueClock
from tests.waiting import eventually

SOURCE = QueueSource("01QUEUE", Shard("events", 0))
RULES = LendingRules()


class Disk:
    def __init__(self) -> None:
        self.fails = False
        self.syncs = 0

    def flush(self, database: Rdict) -> None:
        if self.fails:
            raise OSError(28, "No space left on device")
        self.syncs += 1
        database.flush_wal(True)


@asynccontextmanager
async def opened(path: Path, disk: Disk | None = None, clock: QueueClock | None = None) -> AsyncIterator[RocksQueues]:
    lives = count(1)
    folder = RocksFolder(path, flush=(disk or Disk()).flush)
    queues = RocksQueues(folder, clock or QueueClock(), lambda: f"{next(lives):08x}")
    await queues.start()
    try:
        yield queues
    finally:
        await queues.close()


async def feed(queues: RocksQueues, *positions: int, expected: int = 0) -> None:
    groups = grouped([Reference(one) for one in positions])
    fed = await queues.feed(SOURCE, 0, expected, max(positions), groups, 100)
    assert fed.fed == max(positions)


async def take(queues: RocksQueues, most: int = 10, consumer: str = "w1") -> list[int]:
    call = TakeCall("n1", f"{await queues.now()}")
    (loan,) = (await queues.take(SOURCE, RULES, [LoanWish(most, consumer)], call)).loans
    return [] if loan is None else [one.position for one in loan.references]


async def test_what_a_disk_did_not_sync_is_lent_again(tmp_path: Path) -> None:
    disk, clock = Disk(), QueueClock()
    async with opened(tmp_path, disk, clock) as queues:
        await feed(queues, 1, 2, 3)
        assert await queues.apply([DocumentChange("q -/a", b"{}")], 0) == 1
        disk.fails = True
        with pytest.raises(StoreUnavailableError):
            await take(queues, 2)
        with pytest.raises(StoreUnavailableError):
            await queues.apply([DocumentChange("q -/b", b"{}")], 1)
        with pytest.raises(StoreUnavailableError):
            await queues.version()
        disk.fails = False

        async def is_back() -> bool:
            try:
                return await queues.version() == 1
            except StoreUnavailableError:
                return False

        await eventually(is_back)
        assert (await queues.read()).documents == {"q -/a": b"{}"}
        clock.micros += 1
        assert await take(queues) in ([1, 2, 3], [3]), "the loan of which nobody was told may be there or not"
        clock.micros += 2 * RULES.loan
        assert set(await take(queues, 8) + await take(queues, 8)) == {1, 2, 3}


async def test_a_consumer_that_asks_in_vain_costs_no_sync(tmp_path: Path) -> None:
    disk, clock = Disk(), QueueClock()
    async with opened(tmp_path, disk, clock) as queues:
        await feed(queues, 1)
        assert await take(queues) == [1]
        before = disk.syncs
        for number in range(50):
            clock.micros += 1_000_000
            assert await take(queues, consumer=f"w{number % 3}") == ([] if number < 29 else [1] if number == 29 else [])
        assert disk.syncs - before == 1, "as a loan came back"
        (state,) = await queues.states([SOURCE])
    async with opened(tmp_path, clock=clock) as queues:
        assert await queues.states([SOURCE]) == [state], "that somebody asked is told at the end"


async def test_loans_stand_no_longer_where_the_clock_was_set_back_while_the_process_was_away(tmp_path: Path) -> None:
    clock = QueueClock()
    async with opened(tmp_path, clock=clock) as queues:
        await feed(queues, 1)
        assert await take(queues) == [1]
    clock.ahead = -86_400_000_000  # an edge box without a battery, as it was switched off
    async with opened(tmp_path, clock=clock) as queues:
        assert await take(queues, consumer="w2") == []
        clock.micros += RULES.loan
        assert await take(queues, consumer="w2") == [1]


async def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as queues:
        await feed(queues, 1)
    database = Rdict(str(tmp_path), options(), {"queues": options()})
    table = database.get_column_family("queues")
    table[b"w01QUEUE events.0\0f"] = b"{"
    table.close()
    database.close()
    with pytest.raises(ConfigurationError, match=r"HOMING_EVENTS_URL: the rows of queues in .*events.0"):
        async with opened(tmp_path):
            pass


async def test_a_window_that_was_forgotten_leaves_no_rows(tmp_path: Path) -> None:
    clock = QueueClock()
    rules = LendingRules(ordered=True, max_deliveries=1)
    async with opened(tmp_path, clock=clock) as queues:
        groups = grouped([Reference(one, 1 + one % 2) for one in range(1, 9)])
        await queues.feed(SOURCE, 0, 0, 8, groups, 100)
        (loan,) = (await queues.take(SOURCE, rules, [LoanWish(8, "w1")], TakeCall("n1", "1"))).loans
        assert loan is not None
        assert len(loan.references) == 2
        said = [Settlement(loan.number, SettleHow.DEAD, (0,), reason="poison")]
        await queues.settle(SOURCE, rules, loan.life, said, 1000)
        (dying,) = await queues.dying(SOURCE.shard, 5)
    async with opened(tmp_path, clock=clock) as queues:
        assert await queues.dying(SOURCE.shard, 5) == [dying], "sealed, and so the same ones"
        await queues.buried(SOURCE.shard, dying.number)
        await queues.forget([SOURCE])
    database = Rdict(str(tmp_path), options(), {"queues": options()})
    table = database.get_column_family("queues")
    assert [key for key, _ in rows_from(table, b"")] == [b"zevents.0"], "the last number, so that none comes twice"
    table.close()
    database.close()
