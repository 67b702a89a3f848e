"""The runs that a node drives: those that fall to it, those that nobody drives, and no more than it may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from app.cluster.shares import falls_to
from app.commands.held.run_standings import RunStanding, RunStandings
from app.core.errors import NotYetError
from app.fleets.driver import LEASE
from app.fleets.drivers import FAILED_SECONDS, PATIENCE_SECONDS, FleetDrivers
from app.store.fleets import RunChange, Written
from tests.unit.fleets.driver_world import RUN, World, world_of
from tests.unit.fleets.test_target_rows import administrator
from tests.waiting import eventually

NODES = ("node-a", "node-b")
OWNER = next(one for one in NODES if falls_to(one, NODES, RUN))
OTHER = next(one for one in NODES if one != OWNER)
Join = Callable[[str], FleetDrivers]


@pytest.fixture
async def world() -> World:
    return await world_of(1)


@pytest.fixture
async def join(world: World) -> AsyncIterator[Join]:
    """Nodes of a cluster of two, by their ids."""
    made = []

    async def live() -> Sequence[str]:
        return NODES

    def node(node_id: str) -> FleetDrivers:
        drivers = FleetDrivers(ports=world.ports(), live=live, node_id=node_id, secret="s", interval=1)
        made.append(drivers)
        return drivers

    yield node
    for one in made:
        await one.close()


def driven(drivers: FleetDrivers) -> int:
    return drivers.fills()["fleet_runs"].size


async def test_a_run_is_driven_by_the_node_that_it_falls_to(join: Join) -> None:
    owner, other = join(OWNER), join(OTHER)
    for one in (other, owner, other, owner):
        await one.look()
    assert (driven(owner), driven(other)) == (1, 0)


async def test_a_run_that_its_own_node_leaves_is_taken_by_another_after_a_while(world: World, join: Join) -> None:
    other = join(OTHER)
    await other.look()
    world.clock.now += PATIENCE_SECONDS
    await other.look()
    assert driven(other) == 0
    world.clock.now += 0.1
    await other.look()
    assert driven(other) == 1


async def test_c120_what_a_dead_node_drove_is_taken_when_its_will_tells(world: World, join: Join) -> None:
    owner, other = join(OWNER), join(OTHER)
    await other.look()
    world.clock.now += PATIENCE_SECONDS + 0.1
    await other.look()
    await owner.look()
    assert (driven(owner), driven(other)) == (0, 1), "its lease lasts"
    owner.gone(OTHER)
    await owner.look()
    assert driven(owner) == 1
    drive = world.store.fleets.drive
    assert await drive(RUN, f"{OTHER} s", LEASE) == 0, "who comes back is not the driver any more"


async def test_a_word_of_a_death_counts_no_longer_than_a_lease(world: World, join: Join) -> None:
    """A node that has come back under its name since is alive."""
    owner, other = join(OWNER), join(OTHER)
    owner.gone(OTHER)
    world.clock.now += LEASE.total_seconds() + 0.1
    await other.look()
    world.clock.now += PATIENCE_SECONDS + 0.1
    await other.look()
    await owner.look()
    assert (driven(owner), driven(other)) == (0, 1)


async def test_a_node_drives_so_many_at_most(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.fleets.drivers.MOST_DRIVEN", 0)
    owner = join(OWNER)
    await owner.look()
    assert driven(owner) == 0


async def test_a_node_that_ends_lets_others_go_on_before_its_lease_is_over(world: World, join: Join) -> None:
    owner, other = join(OWNER), join(OTHER)
    await owner.look()
    await other.look()
    await owner.close()
    world.clock.now += PATIENCE_SECONDS + 0.1
    assert LEASE.total_seconds() > PATIENCE_SECONDS + 0.1
    await other.look()
    assert driven(other) == 1


async def of_a_later_version(world: World) -> None:
    """Change the run as a later version may, which has further states and reasons."""
    known = await world.known()
    status = {**known.run.kept(), "state": "healing"}
    change = RunChange(version=known.record.version, status=status, marks=bytes(known.run.marks))
    assert await world.store.fleets.write(RUN, change) is Written.YES


async def test_a_run_of_a_later_version_is_left_to_nodes_that_can_read_it(world: World, join: Join) -> None:
    owner = join(OWNER)

    async def has_given_up() -> bool:
        return driven(owner) == 0

    await of_a_later_version(world)
    await owner.look()
    await eventually(has_given_up)
    world.clock.now += LEASE.total_seconds() + 0.1
    await owner.look()
    assert driven(owner) == 0
    assert await world.store.fleets.drive(RUN, "node-of-later s", LEASE), "its lease is free"
    assert world.counters["fleet.failed"] == 1
    world.clock.now += FAILED_SECONDS
    assert await world.store.fleets.drive(RUN, "node-of-later s", LEASE)
    await owner.look()
    assert driven(owner) == 0, "the other one drives it"


async def test_a_run_of_a_later_version_keeps_nobody_from_the_others(world: World) -> None:
    shown = administrator(world)
    assert [one.record.run_id for one in await shown.all(None)] == [RUN]
    await of_a_later_version(world)
    assert list(await shown.all(None)) == []
    with pytest.raises(NotYetError, match=f"fleet run {RUN} was written by a later version"):
        await shown.get(None, RUN)
    assert await RunStandings(world.store.fleets, world.clock).of(RUN) is RunStanding.STANDS
