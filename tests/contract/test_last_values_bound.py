"""The bound on last values, over every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.errors import (
    QuotaError,
)
from app.core.events.event import Database, Shard
from app.core.events.transaction import Transaction
from app.store.events import EventStore
from tests.contract.event_places import EventPlace, RocksEvents
from tests.contract.test_event_log import everything, log, place, said

__all__ = ["log", "place"]  # fixtures


class TestBoundOnLastValues:
    """A device that makes topics up fills neither memory nor disk with their last values."""

    FEW = (Database("events", 2, (), 6),)
    SMALL = Shard("events", 1)

    async def values(self, log: EventStore) -> list[str]:
        return [one.entry.topic for one in await log.values(self.SMALL, "#", "", 100)]

    async def test_what_comes_on_more_topics_is_in_the_log_alone(self, place: EventPlace) -> None:
        log = await place.fresh(self.FEW)
        for number in range(5):
            await log.append(self.SMALL, said(f"made/up/{number}", "1"))
        assert await self.values(log) == ["made/up/0", "made/up/1", "made/up/2"]
        assert len(await everything(log, self.SMALL)) == 5
        await log.append(self.SMALL, [*said("made/up/1", "2"), *said("made/up/4", "2")])
        known = await log.value(self.SMALL, "made/up/1")
        assert known is not None
        assert known.entry.value == b"2", "those that are there go on"
        assert await log.value(self.SMALL, "made/up/4") is None
        await log.append(self.SMALL, [*said("made/up/0", ""), *said("made/up/4", "3")])
        assert await self.values(log) == ["made/up/1", "made/up/2", "made/up/4"]
        await log.append(Shard("events", 0), said("made/up/5", "1"))
        assert await log.value(Shard("events", 0), "made/up/5") is not None, "each shard has its part"

    async def test_topics_of_homing_have_room_that_others_lack(self, place: EventPlace) -> None:
        log = await place.fresh(self.FEW)
        for number in range(4):
            await log.append(self.SMALL, said(f"made/up/{number}", "1"))
        for number in range(5):
            await log.append(self.SMALL, said(f"$homing/devices/SN{number}/presence", "1"))
        own = await log.values(self.SMALL, "$homing/#", "", 100)
        assert len(own) == 3, "twice as many as others, and no more"

    async def test_whoever_must_have_a_last_value_is_refused_and_nothing_is_written(self, place: EventPlace) -> None:
        log = await place.fresh(self.FEW)
        await log.append(self.SMALL, [*said("a", "1"), *said("b", "1")])
        both = Transaction(self.SMALL, (), (*said("c", "1"), *said("d", "1")))
        with pytest.raises(
            QuotaError, match="'d' can have no last value: its part of the database 'events' has as many"
        ):
            await log.commit(both)
        assert await self.values(log) == ["a", "b"]
        await log.commit(Transaction(self.SMALL, (), (*said("a", "2"), *said("c", "1"))))
        assert await self.values(log) == ["a", "b", "c"]
        await log.commit(Transaction(self.SMALL, (), (*said("a", ""),)))
        assert await self.values(log) == ["b", "c"]


async def test_how_many_last_values_there_are_is_known_after_a_restart(tmp_path: Path) -> None:
    place = RocksEvents(tmp_path)
    few = (Database("events", 1, (), 2),)
    log = await place.open(few)
    await log.append(Shard("events", 0), [*said("a", "1"), *said("b", "1")])
    await log.close()
    log = await place.open(few)
    await log.append(Shard("events", 0), said("c", "1"))
    assert await log.value(Shard("events", 0), "c") is None
    await place.close()
