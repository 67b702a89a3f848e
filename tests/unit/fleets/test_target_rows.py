"""Targets as they are shown: those of one version of their run, whatever its driver does meanwhile."""

from __future__ import annotations

from typing import Any, cast

from app.core.fleets.marks import TargetMark
from app.fleets.administration import FleetAdministrator
from tests.unit.fleets.driver_world import World, cancelled, rounds, world_of


def administrator(world: World) -> FleetAdministrator:
    nobody = cast("Any", None)
    return FleetAdministrator(
        store=world.store.fleets,
        commands=world.store,
        holder=nobody,
        selection=nobody,
        drivers=nobody,
        new_ulid=nobody,
    )


def everything(_device: str, _profile: str, _method: str) -> bool:
    return True


async def test_a_target_that_ends_while_it_is_read_is_shown_as_it_was() -> None:
    world = await world_of(2)
    driver = await world.driver()
    await rounds(driver, world)
    before, shown = await world.known(), administrator(world)
    await world.answer(cancelled)
    await rounds(driver, world)
    rows = await shown.all_targets(before, None, everything)
    assert [(one.mark, [*one.result]) for one in rows] == [(TargetMark.HANDED, [])] * 2
    rows = await shown.all_targets(await world.known(), None, everything)
    assert [(one.mark, [*one.result][1:]) for one in rows] == [(TargetMark.CANCELLED, ["x", "no"])] * 2
