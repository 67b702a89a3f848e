"""The end of what a schedule replaces: what is held goes, and what was sent where that stops no lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.access.ports import Everybody
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import Outcome
from app.core.profiles.lanes import CommandLane
from app.core.schedules.schedule import Occurrence, OccurrenceResult, Schedule, ScheduleSpec
from app.fleets.replaced import ReplacedCommands
from app.fleets.scheduled_work import ScheduledWork, WorkPorts
from app.store.commands import Finished
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import ManualClock, registration

HOUR = timedelta(hours=1)
STRICT = CommandLane("mission", stops=True)
S = CommandState


class StoreOfLaterVersion(MemoryStateStore):
    """Has records that nobody here can read."""

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        return [None for _ in command_ids]

    async def outcomes(self, command_ids: Sequence[str]) -> list[Outcome | None]:
        return [None for _ in command_ids]


class World:
    """A store, and the work of a schedule that has begun one command."""

    def __init__(self, store: MemoryStateStore | None = None) -> None:
        self.store = store or MemoryStateStore(ManualClock())
        nobody: Any = None
        self.work = ScheduledWork(
            WorkPorts(
                access=Everybody(),
                runs=nobody,
                commands=self.store,
                holder=nobody,
                audit=None,
                read_run=nobody,
                read_command=nobody,
                replaced=ReplacedCommands(self.store, self.cancel),
                retention=HOUR,
                profile="dji",
            )
        )

    async def cancel(self, identity: str, *, only_held: bool = False) -> Finished:
        return await self.store.finish(identity, S.CANCELLED, "node-a", only_held=only_held)

    async def begun(self, lane: CommandLane | None, *, sent: bool) -> Schedule:
        wanted = registration(held=HOUR, lane=lane)
        await self.store.register(wanted)
        if sent:
            await self.store.claim(wanted.command_id, "node-a", "t")
        last = Occurrence(at=0, result=OccurrenceResult.BEGAN, noted_at=0, node="node-a", began=wanted.command_id)
        spec = ScheduleSpec(cron="* * * * *", zone="UTC", device="dock-1", command={}, catch_up=0, overlap="replace")
        return Schedule(name="s", tenant="", by="", who="", spec=spec, generation=0, decided=0, occurrences=(last,))

    async def state_of(self, schedule: Schedule) -> CommandState:
        return (await self.store.read(schedule.last_begun)).state


@pytest.mark.parametrize(
    ("lane", "sent", "state"),
    [
        (None, False, S.CANCELLED),
        (None, True, S.CANCELLED),
        (CommandLane("plain"), True, S.CANCELLED),
        (STRICT, False, S.CANCELLED),
        (STRICT, True, S.PENDING),
    ],
)
async def test_what_is_replaced_stops_no_lane(lane: CommandLane | None, *, sent: bool, state: CommandState) -> None:
    world = World()
    schedule = await world.begun(lane, sent=sent)
    await world.work.end_last(schedule)
    assert await world.state_of(schedule) is state
    assert await world.work.has_ended(schedule) is state.final
    assert (await world.store.lane_now("dock-1", STRICT)).stop is None


async def test_what_leaves_while_it_is_replaced_is_left_alone_too() -> None:
    world = World()
    schedule = await world.begun(STRICT, sent=False)
    cancel = world.cancel

    async def claimed_meanwhile(identity: str, *, only_held: bool = False) -> Finished:
        await world.store.claim(identity, "node-b", "t")
        return await cancel(identity, only_held=only_held)

    await ReplacedCommands(world.store, claimed_meanwhile).end(schedule.last_begun)
    assert await world.state_of(schedule) is S.PENDING


async def test_nobody_is_told_of_what_is_spared() -> None:
    """Else each look would put on record that it was cancelled."""
    world, told = World(), list[Command]()
    schedule = await world.begun(STRICT, sent=True)
    await ReplacedCommands(world.store, world.cancel).end(schedule.last_begun, told.append)
    assert not told


async def test_what_this_node_cannot_read_has_not_ended() -> None:
    """A node of a later version has begun it, and another one beside it would be a second one."""
    world = World(StoreOfLaterVersion(ManualClock()))
    schedule = await world.begun(None, sent=True)
    assert not await world.work.has_ended(schedule)


async def test_what_is_not_on_record_any_more_has_ended() -> None:
    world = World()
    schedule = await world.begun(None, sent=True)
    assert not await world.work.has_ended(schedule)
    gone = replace(schedule, occurrences=(replace(schedule.occurrences[0], began="239-01JD0000000000000000000000"),))
    assert await world.work.has_ended(gone)
