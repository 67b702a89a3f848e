"""A run that is over: what a frozen driver registers after that is nobody's to send."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.access.ports import Everybody
from app.commands.held.held_judge import DeviceSigns, HeldJudge, Readiness
from app.commands.held.run_standings import RunStanding, RunStandings
from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest
from app.core.access.callers import Caller
from app.core.commands.command import Command
from app.core.events.presence import Whereabouts
from app.core.fleets.run import RunState
from tests.unit.fleets.driver_world import RUN, World, rounds, world_of

THERE = DeviceSigns(online=True, heard=True)


class Frozen:
    """Registers what a driver asks for, once the process of that driver goes on."""

    def __init__(self, world: World) -> None:
        self._children = world.children
        self.frozen = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def invoke(self, request: CommandRequest, caller: Caller | None, *, park: bool) -> Invocation:
        self.frozen.set()
        await self.goes_on.wait()
        return await self._children.invoke(request, caller, park=park)


def judge_of(world: World) -> HeldJudge:
    async def there(_device: str) -> Whereabouts:
        return Whereabouts(True)

    async def admit(_request: object) -> SimpleNamespace:
        return SimpleNamespace(check=lambda: None)

    admission = SimpleNamespace(ready_after=lambda _profile: timedelta(), binds=lambda *_: False, admit=admit)
    return HeldJudge(
        store=world.store,
        publisher=cast("Any", SimpleNamespace(connected=True)),
        admission=cast("Any", admission),
        may=lambda _command: None,
        renew=Everybody().renew,
        whereabouts=there,
        run_stands=RunStandings(world.store.fleets, world.clock).of,
        time=cast("Any", None),
        now_us=lambda: 0,
    )


async def held_of(world: World) -> Command:
    (entry,) = await world.store.held()
    return await world.store.read(entry.command_id)


async def test_what_a_frozen_driver_registers_after_the_end_of_its_run_is_not_sent() -> None:
    world = await world_of(1, lasts=60)
    frozen, first = Frozen(world), await world.driver()
    first._ports = cast("Any", SimpleNamespace(**{**_fields(world), "children": frozen}))
    asleep = asyncio.create_task(first.round())
    await frozen.frozen.wait()
    world.clock.now += 61
    second = await world.driver()
    await rounds(second, world, 13, step=1)
    assert (await world.known()).run.state is RunState.LAPSED
    assert await world.counts() == {"skipped": 1}, "its result says that it was not sent"
    frozen.goes_on.set()
    await asleep
    assert await judge_of(world).judge(await held_of(world), THERE) is Readiness.RUN_OVER


def _fields(world: World) -> dict[str, Any]:
    ports = world.ports()
    return {name: getattr(ports, name) for name in type(ports).__slots__}


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        (RunState.WAITING, RunStanding.GOES_ON),
        (RunState.RUNNING, RunStanding.GOES_ON),
        (RunState.PAUSED, RunStanding.STANDS),
        (RunState.FINISHING, RunStanding.GOES_ON),
        (RunState.ABORTING, RunStanding.STANDS),
        (RunState.SUCCEEDED, RunStanding.OVER),
        (RunState.FAILED, RunStanding.OVER),
        (RunState.LAPSED, RunStanding.OVER),
        (RunState.ABORTED, RunStanding.OVER),
    ],
)
async def test_each_state_of_a_run_lets_what_is_held_of_it_go_or_not(state: RunState, standing: RunStanding) -> None:
    world = await world_of(1)

    async def read(_run_id: str) -> SimpleNamespace:
        record = await world.store.fleets.read(RUN)
        return SimpleNamespace(status={**(record.status if record else {}), "state": str(state)})

    assert await RunStandings(cast("Any", SimpleNamespace(read=read)), world.clock).of(RUN) is standing
