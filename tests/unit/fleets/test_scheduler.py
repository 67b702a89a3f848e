"""The schedulers of several nodes over one store: each occurrence once, and a reason where it begins nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

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
from app.core.schedules.schedule import OccurrenceResult, ScheduleSpec
from app.fleets.administration import RunOwner
from app.fleets.scheduler import ABANDONED_US, PATIENCE_US
from app.fleets.schedules import schedule_tag
from tests.unit.fleets.scheduler_world import ANY, MINUTE, NODES, Killed, World


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
