"""Occurrences of a schedule whose last one goes on, which was written again meanwhile, or which begin later."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from app.core.errors import (
    ForbiddenError,
    StoreUnavailableError,
)
from app.core.schedules.schedule import KEPT_OCCURRENCES, OccurrenceResult, Schedule, ScheduleSpec
from app.fleets.timetable import Timetable
from tests.unit.fleets.scheduler_world import MINUTE, World


@pytest.fixture
def world() -> World:
    return World()


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


async def test_one_that_skips_does_so_however_long_the_last_one_goes_on(world: World) -> None:
    """More occurrences are skipped than are kept."""
    await world.put()
    world.advance(MINUTE)
    await world.look()
    begun = (await world.known()).last_begun
    world.work.open = {begun}
    for _ in range(2 * KEPT_OCCURRENCES):
        world.advance(MINUTE)
        await world.look()
    known = await world.known()
    assert list(world.work.begun) == [known.last_begun] == [begun]
    assert await world.results() == ["skipped"] * (KEPT_OCCURRENCES - 1) + ["began"]
    world.work.open = set()
    world.advance(MINUTE)
    await world.look()
    assert len(world.work.begun) == 2


async def test_one_that_may_be_parallel_asks_for_no_end(world: World) -> None:
    await world.put(overlap="parallel")
    for _ in range(3):
        world.advance(MINUTE)
        await world.look()
        world.work.open.add((await world.known()).last_begun)
    assert await world.results() == ["began"] * 3


@pytest.mark.parametrize("overlap", ["queue_one", "replace"])
async def test_what_waits_for_hours_is_not_found_anew_from_the_first_instant_in_each_look(
    world: World, overlap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be hundreds that do, and each node looks each second."""
    await world.put(overlap=overlap, catch_up=24 * 3_600_000_000)
    world.advance(MINUTE)
    await world.look()
    begun = (await world.known()).last_begun
    world.work.open = {begun}
    world.advance(MINUTE * 600)
    await world.look()
    asked, plain = list[int](), Timetable.after

    def counted(table: Timetable, instant: int) -> Iterator[int]:
        for at in plain(table, instant):
            asked.append(at)
            yield at

    monkeypatch.setattr(Timetable, "after", counted)
    await world.look("node-a")
    assert len(asked) <= 5
    world.advance(MINUTE)
    await world.look("node-a")
    assert len(asked) <= 10
    world.work.open = set()
    world.advance(MINUTE)
    await world.look()
    known = await world.known()
    assert await world.results() == ["began", "began"]
    assert known.occurrences[0].at == world.clock.wall() // 60 * 60_000_000, "the latest one"


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
