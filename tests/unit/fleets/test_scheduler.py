"""The schedulers of several nodes over one store: each occurrence once, and a reason where it begins nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from app.access.conditions import Precondition
from app.core.errors import (
    CapacityError,
    ForbiddenError,
    NoTargetsError,
    PreconditionFailedError,
    ScheduleNotFoundError,
    StoreUnavailableError,
    UnreadableRecordError,
)
from app.core.schedules.schedule import OccurrenceResult, Schedule, ScheduleSpec
from app.fleets.administration import RunOwner
from app.fleets.scheduler import ABANDONED_US, PATIENCE_US, Scheduler
from app.fleets.schedules import ScheduleAdministrator, schedule_tag
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import ManualClock

MINUTE = timedelta(minutes=1)
NODES = ("node-a", "node-b", "node-c")
ANY = Precondition()


class Killed(BaseException):
    """The process of the node is gone."""


class Work:
    """Begins things as nodes do, by their ids, and fails as it is told to."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.fails: BaseException | None = None
        self.dies_after: BaseException | None = None
        self.ends_nothing: BaseException | None = None
        self.open: set[str] = set()
        self.ended: list[str] = []

    async def check(self, spec: ScheduleSpec, owner: RunOwner) -> None:
        del spec, owner

    def id_of(self, schedule: Schedule, at: int) -> str:
        return schedule.command_id_of(at)

    async def begin(self, schedule: Schedule, at: int) -> None:
        if self.fails is not None:
            raise self.fails
        self.begun[self.id_of(schedule, at)] += 1
        if self.dies_after is not None:
            raise self.dies_after

    async def end_last(self, schedule: Schedule) -> None:
        if self.ends_nothing is not None:
            raise self.ends_nothing
        self.ended.append(schedule.last_begun)

    async def has_ended(self, schedule: Schedule) -> bool:
        await asyncio.sleep(0)  # the others have read the same meanwhile
        return schedule.last_begun not in self.open


class World:
    """Nodes, a clock and a store."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStateStore(self.clock)
        self.work = Work()
        self.live: Sequence[str] = NODES
        self.counters: Counter[str] = Counter()
        work: Any = self.work
        self.nodes = {one: self.node(one) for one in NODES}
        self.desk = ScheduleAdministrator(store=self.store.schedules, commands=self.store, work=work)

    def node(self, node_id: str) -> Scheduler:
        async def live() -> Sequence[str]:
            return self.live

        work: Any = self.work
        return Scheduler(
            store=self.store.schedules,
            commands=self.store,
            work=work,
            live=live,
            node_id=node_id,
            interval=1.0,
            counters=self.counters,
        )

    async def put(self, **members: Any) -> Schedule:
        plain = {"cron": "* * * * *", "zone": "UTC", "device": "dock-1", "command": {"method": "ok"}}
        spec = ScheduleSpec(**{**plain, "catch_up": 600_000_000, **members})
        return (await self.desk.put("nightly", spec, RunOwner(tenant="", principal="pat", caller=None), ANY))[0]

    def advance(self, duration: timedelta) -> None:
        self.clock.now += duration.total_seconds()

    async def look(self, *nodes: str) -> None:
        for one in nodes or NODES:
            await self.nodes[one].look()

    async def known(self) -> Schedule:
        return await self.desk.get("", "nightly")

    async def results(self) -> list[str]:
        return [str(one.result) for one in (await self.known()).occurrences]


@pytest.fixture
def world() -> World:
    return World()


async def test_each_occurrence_is_begun_once_whoever_looks(world: World) -> None:
    await world.put()
    for _ in range(10):
        await world.look()
        world.advance(timedelta(seconds=30))
    assert list(world.work.begun.values()) == [1] * len(world.work.begun)
    assert len(world.work.begun) in (4, 5)
    known = await world.known()
    assert [one.began for one in reversed(known.occurrences)] == list(world.work.begun)
    assert len({one.node for one in known.occurrences}) == 1, "it falls to one of them"
    assert world.counters["schedule.began"] == len(world.work.begun)


async def test_a_clock_that_is_set_ahead_is_that_of_schedules(world: World) -> None:
    """One process goes by a clock that nobody sets, but for what is due by the wall."""
    await world.put()
    await world.look()
    assert not world.work.begun
    world.clock.ahead = 8 * 3600
    await world.look()
    assert list(world.work.begun.values()) == [1]
    (coming, *_) = (await world.desk.coming([await world.known()]))[0]
    assert 0 < coming - world.clock.wall() * 1_000_000 <= 60_000_000


async def test_others_take_over_after_two_seconds(world: World) -> None:
    schedule = await world.put()
    at = (await world.desk.coming([schedule]))[0][0]
    world.advance(timedelta(microseconds=at - await world.store.now()))
    owner = await owner_of()
    others = [one for one in NODES if one != owner]
    await world.look(*others)
    assert not world.work.begun
    world.advance(timedelta(microseconds=PATIENCE_US))
    await world.look(*others)
    assert list(world.work.begun.values()) == [1]
    await world.look(owner)
    assert list(world.work.begun.values()) == [1]


async def test_of_nodes_that_see_it_at_the_same_time_one_decides(world: World) -> None:
    await world.put()
    world.advance(MINUTE * 2 + timedelta(microseconds=PATIENCE_US))
    await asyncio.gather(*(world.look(one) for one in NODES))
    assert list(world.work.begun.values()) == [1]
    assert await world.results() == ["began"]


async def owner_of() -> str:
    """The node to which the schedule falls, as another world shows."""
    other = World()
    await other.put()
    other.advance(MINUTE)
    await other.look()
    return (await other.known()).occurrences[0].node


async def test_a_node_that_dies_while_it_begins_leaves_no_second_one(world: World) -> None:
    await world.put()
    world.advance(MINUTE)
    world.work.dies_after = Killed()
    owner = await owner_of()
    with pytest.raises(Killed):
        await world.look(owner)
    world.work.dies_after = None
    assert await world.results() == ["beginning"]
    others = [one for one in NODES if one != owner]
    await world.look(*others)
    assert await world.results() == ["beginning"], "its node may be about to"
    world.live = others
    await world.look(*others)
    assert await world.results() == ["began"]
    assert list(world.work.begun.values()) == [2], "the same one, repeated"


async def test_what_a_living_node_has_left_is_begun_by_another(world: World) -> None:
    await world.put()
    world.advance(MINUTE)
    world.work.fails = StoreUnavailableError("away")
    owner = await owner_of()
    await world.look(owner)
    assert await world.results() == ["beginning"]
    world.work.fails = CapacityError("full")
    await world.look(owner)
    assert await world.results() == ["beginning"]
    world.work.fails = None
    world.advance(timedelta(microseconds=ABANDONED_US + 1))
    await world.look(*(one for one in NODES if one != owner))
    assert await world.results() == ["began"]


async def test_what_nobody_could_begin_in_time_has_failed(world: World) -> None:
    await world.put(catch_up=30_000_000, cron="*/10 * * * *")
    due = (await world.desk.coming([await world.known()]))[0][0]
    world.advance(timedelta(microseconds=due - await world.store.now()))
    world.work.fails = StoreUnavailableError("away")
    await world.look()
    world.advance(MINUTE)
    await world.look()
    world.work.fails = None
    await world.look()
    (first, *_) = (await world.known()).occurrences
    assert (first.at, first.result) == (due, OccurrenceResult.FAILED)
    assert first.began, "it may have begun all the same"
    assert not world.work.begun


async def test_it_skips_while_the_last_one_goes_on(world: World) -> None:
    await world.put()
    world.advance(MINUTE)
    await world.look()
    begun = (await world.known()).last_begun
    world.work.open = {begun}
    world.advance(MINUTE)
    await world.look()
    assert await world.results() == ["skipped", "began"]
    assert (await world.known()).occurrences[0].reason == f"{begun} has not ended"
    world.work.open = set()
    world.advance(MINUTE)
    await world.look()
    assert await world.results() == ["began", "skipped", "began"]


async def test_of_what_was_missed_the_latest_runs_once(world: World) -> None:
    await world.put()
    world.advance(MINUTE * 45)
    await world.look()
    await world.look()
    assert await world.results() == ["began"]
    assert "passed over" in (await world.known()).occurrences[0].reason
    await world.put(cron="0 0 1 1 *", catch_up=60_000_000)
    world.advance(timedelta(days=366))
    await world.look()
    assert await world.results() == ["missed", "began"]
    assert len(world.work.begun) == 1


async def test_it_pauses_itself_without_the_right_and_goes_on_when_it_is_written_again(world: World) -> None:
    await world.put()
    world.advance(MINUTE)
    world.work.fails = ForbiddenError("pat may not send ok to dock-1")
    await world.look()
    known = await world.known()
    assert known.paused == "pat may not do this any more: pat may not send ok to dock-1"
    assert [one.result for one in known.occurrences] == [OccurrenceResult.REFUSED]
    assert await world.desk.coming([known]) == [[]]
    world.work.fails = None
    world.advance(MINUTE)
    await world.look()
    assert not world.work.begun
    assert world.counters["schedule.refused"] == 1
    await world.put()
    world.advance(MINUTE)
    await world.look()
    assert await world.results() == ["began", "refused"]


async def test_where_there_is_nothing_to_begin_it_has_failed_and_goes_on(world: World) -> None:
    await world.put()
    world.advance(MINUTE)
    world.work.fails = NoTargetsError("no device is meant")
    await world.look()
    world.work.fails = None
    world.advance(MINUTE)
    await world.look()
    assert await world.results() == ["began", "failed"]


async def test_a_fault_of_one_schedule_ends_no_node(world: World) -> None:
    await world.put()
    world.advance(MINUTE)
    world.work.fails = UnreadableRecordError("151-X", "it is of a later version")
    await world.look()
    assert await world.results() == ["failed"]


async def test_a_disabled_schedule_begins_nothing_and_a_deleted_one_is_gone(world: World) -> None:
    await world.put(enabled=False)
    world.advance(MINUTE * 3)
    await world.look()
    known = await world.known()
    assert (known.occurrences, await world.desk.coming([known])) == ((), [[]])
    with pytest.raises(PreconditionFailedError):
        await world.desk.delete("", "nightly", Precondition(frozenset({"other"})))
    await world.desk.delete("", "nightly", Precondition(frozenset({schedule_tag(known)})))
    await world.look()
    with pytest.raises(ScheduleNotFoundError):
        await world.known()


async def test_tenants_of_odd_names_see_their_own_schedules_alone(world: World) -> None:
    tenants = (None, "-", "--", "north", "north 2", "north 2 3")
    for one in tenants:
        spec = ScheduleSpec(cron="* * * * *", zone="UTC", device="dock-1", command={"method": "ok"}, catch_up=1)
        name = "of-none" if one is None else f"of-{len(one)}"
        _, made = await world.desk.put(name, spec, RunOwner(tenant=one, principal="pat", caller=None), ANY)
        assert made
    for one in tenants:
        assert [found.tenant for found in await world.desk.all(one)] == [one]
    with pytest.raises(ScheduleNotFoundError):
        await world.desk.get("-", "of-none")
    with pytest.raises(ScheduleNotFoundError):
        await world.desk.delete(None, "of-1", ANY)


async def test_what_cannot_be_read_keeps_no_other_schedule_from_its_work(world: World) -> None:
    await world.store.schedules.write("- broken", b'{"v":9}', None)
    await world.put()
    world.advance(MINUTE)
    await world.look()
    assert await world.results() == ["began"]


async def test_one_that_queues_begins_when_the_last_one_has_ended_and_of_several_the_latest(world: World) -> None:
    await world.put(overlap="queue_one")
    world.advance(MINUTE)
    await world.look()
    begun = (await world.known()).last_begun
    world.work.open = {begun}
    for _ in range(3):
        world.advance(MINUTE)
        await world.look()
    assert await world.results() == ["began"], "nothing is decided while they wait"
    world.work.open = set()
    await world.look()
    await world.look()
    assert await world.results() == ["began", "began"]
    first, _ = (await world.known()).occurrences
    assert "passed over" in first.reason
    assert first.began != begun


async def test_one_that_queues_waits_no_longer_than_its_catch_up(world: World) -> None:
    await world.put(cron="0 * * * *", overlap="queue_one")
    world.advance(MINUTE * 60)
    await world.look()
    world.work.open = {(await world.known()).last_begun}
    world.advance(MINUTE * 60)
    await world.look()
    assert await world.results() == ["began"]
    world.advance(MINUTE * 11)
    await world.look()
    assert await world.results() == ["missed", "began"]
    assert "did not end" in (await world.known()).occurrences[0].reason


async def test_one_that_may_be_parallel_asks_for_no_end(world: World) -> None:
    await world.put(overlap="parallel")
    for _ in range(3):
        world.advance(MINUTE)
        await world.look()
        world.work.open.add((await world.known()).last_begun)
    assert await world.results() == ["began"] * 3


async def test_one_that_replaces_ends_what_began_before_and_begins_after_that(world: World) -> None:
    await world.put(overlap="replace")
    world.advance(MINUTE)
    await world.look()
    begun = (await world.known()).last_begun
    world.work.open = {begun}
    world.advance(MINUTE)
    await world.look()
    assert set(world.work.ended) == {begun}
    assert await world.results() == ["began"], "it waits until that has ended"
    world.work.open = set()
    await world.look()
    assert await world.results() == ["began", "began"]
    assert set(world.work.ended) == {begun}


async def test_one_that_replaces_pauses_itself_where_it_may_not_end_what_began_before(world: World) -> None:
    await world.put(overlap="replace")
    world.advance(MINUTE)
    await world.look()
    world.work.open = {(await world.known()).last_begun}
    world.work.ends_nothing = ForbiddenError("pat may not cancel ok of dock-1")
    world.advance(MINUTE)
    await world.look()
    known = await world.known()
    assert await world.results() == ["refused", "began"]
    assert known.paused == "pat may not do this any more: pat may not cancel ok of dock-1"
    assert known.occurrences[0].reason == known.paused
    assert world.counters["schedule.refused"] == 1


@pytest.mark.parametrize("members", [{"device": "dock-2"}, {"enabled": False}])
async def test_what_was_about_to_begin_when_it_was_written_again_begins_no_second_time(
    world: World, members: dict[str, Any]
) -> None:
    """The command has another id now, so the occurrence would begin twice, and as something else."""
    await world.put(cron="0 * * * *")
    world.advance(MINUTE * 60)
    world.work.dies_after = StoreUnavailableError("nobody knows")
    await world.look()
    (begun,) = world.work.begun
    assert await world.results() == ["beginning"]
    world.work.dies_after = None
    await world.put(cron="0 * * * *", **members)
    await world.look()
    assert list(world.work.begun) == [begun]
    (occurrence,) = (await world.known()).occurrences
    assert (occurrence.result, occurrence.began) == (OccurrenceResult.FAILED, begun), "it may have begun"
    assert "was written again" in occurrence.reason


async def test_with_jitter_an_occurrence_begins_later_and_at_the_same_instant_for_all_nodes(world: World) -> None:
    schedule = await world.put(cron="0 * * * *", jitter=240_000_000)
    world.advance(MINUTE * 60 - timedelta(seconds=world.clock.wall() % 3600))
    now = await world.store.now()
    (at,) = [one for one in (now // 3_600_000_000 * 3_600_000_000,) if one <= now]
    offset = schedule.begins_at(at) - at
    assert 0 < offset <= 240_000_000
    await world.look()
    assert await world.results() == []
    world.advance(timedelta(microseconds=at + offset - now - 1_000))
    await world.look()
    assert await world.results() == []
    world.advance(timedelta(milliseconds=1))
    await world.look()
    assert await world.results() == ["began"]
    assert (await world.known()).occurrences[0].at == at, "it is still the occurrence of its hour"


def test_a_jitter_spreads_schedules_and_occurrences() -> None:
    spec = ScheduleSpec(cron="0 * * * *", zone="UTC", catch_up=1, jitter=60_000_000)
    made = [Schedule(name=f"s{i}", tenant="", by="", who="", spec=spec, generation=0, decided=0) for i in range(50)]
    found = {one.begins_at(0) for one in made} | {made[0].begins_at(hour) for hour in range(50)}
    assert len(found) > 90
    assert all(0 <= one <= 60_000_050 for one in found)
