"""Targets as they are shown: those of one version of their run, whatever its driver does meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from app.core.commands.command import CommandState
from app.core.commands.faults import fault
from app.core.fleets.marks import TargetMark
from app.core.payload import JsonValue
from app.fleets.administration import TOGETHER, FleetAdministrator
from app.fleets.target_note import MOST_ANSWERED, MOST_SAID
from tests.unit.fleets.driver_world import World, cancelled, rounds, succeed, world_of


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


async def test_who_may_know_of_no_target_keeps_nobody_waiting_while_all_of_them_are_judged() -> None:
    world, turns, read = await world_of(20 * TOGETHER), [], asyncio.Event()
    shown, known = administrator(world), await world.known()

    async def others() -> None:
        while not read.is_set():
            turns.append(1)
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    assert await shown.targets(known, None, -1, 50, lambda *_: False) == ([], None)
    read.set()
    await other
    assert len(turns) >= 20


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        (42, 42),
        ({"why": ["no", None]}, {"why": ["no", None]}),
        ("x" * 10_000, "x" * MOST_SAID),
        (["x" * 10_000], '["' + "x" * (MOST_SAID - 2)),
    ],
    ids=["number", "object", "long", "long-list"],
)
async def test_of_what_a_device_calls_its_fault_a_result_keeps_no_more_than_a_line(
    code: JsonValue, kept: object
) -> None:
    world = await world_of(1)
    driver = await world.driver()
    await rounds(driver, world)
    (entry,) = await world.store.held()
    await world.store.finish(entry.command_id, CommandState.CANCELLED, "node-a", fault(code, "y" * 10_000))
    await rounds(driver, world)
    (row,) = await administrator(world).all_targets(await world.known(), None, everything)
    assert [*row.result][1:] == [kept, "y" * MOST_SAID]


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (b'{"height":20.50,"serial":18446744073709551616}', '{"height":20.50,"serial":18446744073709551616}'),
        (b'"' + b"x" * (MOST_ANSWERED - 2) + b'"', '"' + "x" * (MOST_ANSWERED - 2) + '"'),
        (b'"' + b"x" * (MOST_ANSWERED - 1) + b'"', None),
        (b"null", None),
        (b"0", "0"),
    ],
    ids=["to-the-digit", "longest", "too-long", "nothing", "zero"],
)
async def test_what_a_device_has_answered_is_kept_where_it_is_short(result: bytes, kept: str | None) -> None:
    world = await world_of(1)
    driver = await world.driver()
    await rounds(driver, world)
    await succeed(world, result)
    await rounds(driver, world)
    (row,) = await administrator(world).all_targets(await world.known(), None, everything)
    assert (row.mark, row.answer) == (TargetMark.SUCCEEDED, kept)
    assert row.ended_at == row.result[0]
