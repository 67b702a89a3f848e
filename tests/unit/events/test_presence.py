"""The keeper of presence: what was on record is known, silence is told, and deafness is no silence."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from app.core.events.event import Entry, Shard
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.presence import change_of
from app.core.profiles.device_events import PresenceSign
from app.events.presence import PresenceKeeper
from app.store.memory.events import MemoryEventLog
from tests.unit.assembly import ManualClock


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.plan = Plan([NamedDatabase("events", timedelta(days=1))], [], 4)
        self.log = MemoryEventLog(self.plan.databases, self.clock)
        self.told: list[tuple[Shard, Entry]] = []
        self.keeper = self.another()

    def another(self) -> PresenceKeeper:
        return PresenceKeeper(self.log, self.plan, self.clock, Counter())

    async def hears(self, device: str) -> None:
        sign = PresenceSign("dji", "t", device, online=True, offline_after=timedelta(seconds=90))
        told = self.keeper.heard(sign, self.clock.monotonic())
        if told is not None:
            await self.log.append(told[0], [told[1]])

    def look(self, *, hears: bool = True) -> list[str]:
        self.told.clear()
        self.keeper.look(lambda shard, entry: self.told.append((shard, entry)), hears=hears)
        changes = [change_of(entry) for _, entry in self.told]
        return [one[0].device_id for one in changes if one is not None and not one[0].online]


async def test_silence_is_told_and_the_next_holder_goes_on() -> None:
    stage = Stage()
    await stage.keeper.begin()
    for number in range(30):
        await stage.hears(f"SN{number}")
    assert stage.look() == []
    stage.clock.advance(60)
    await stage.hears("SN7")
    stage.clock.advance(31)
    assert sorted(stage.look()) == sorted(f"SN{number}" for number in range(30) if number != 7)
    for shard, entry in stage.told:
        await stage.log.append(shard, [entry])
    stage.keeper = stage.another()
    await stage.keeper.begin()
    assert stage.look() == []
    stage.clock.advance(89)
    assert stage.look() == [], "the holder that went may have heard it"
    stage.clock.advance(2)
    assert stage.look() == ["SN7"]


async def test_while_nothing_can_be_heard_nobody_has_gone() -> None:
    stage = Stage()
    await stage.keeper.begin()
    await stage.hears("SN1")
    assert stage.look() == []
    stage.clock.advance(1000)
    assert stage.look(hears=False) == []
    stage.clock.advance(1000)
    assert stage.look() == [], "what the broker has kept is about to come"
    stage.clock.advance(91)
    assert stage.look() == ["SN1"]


async def test_what_there_was_no_room_for_is_told_with_the_next_sign() -> None:
    stage = Stage()
    await stage.keeper.begin()
    sign = PresenceSign("dji", "t", "SN1", online=True, offline_after=timedelta(seconds=90))
    for _ in range(2):
        told = stage.keeper.heard(sign, stage.clock.monotonic())
        assert told is not None
        stage.keeper.untold(told[1])
    await stage.hears("SN1")
    assert stage.keeper.heard(sign, stage.clock.monotonic()) is None
    assert stage.look() == []
    stage.clock.advance(91)
    for _ in range(2):
        assert stage.look() == ["SN1"]
        ((_, entry),) = stage.told
        stage.keeper.untold(entry)
    assert stage.look() == ["SN1"]
    assert stage.look() == []
