"""Held commands are claimed by several nodes at once, while nodes and Redis die: R31."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import aiohttp
import orjson

from app.core.commands.command import CommandState
from app.core.errors import HomingError
from app.core.messages import Publication
from homing_rig.chaos.fleet import Fleet
from homing_rig.chaos.load import Call
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE, kills_of_any
from homing_rig.chaos.schedule import REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import ANSWERED, SOUND, measure

HOLD: Final = 1800.0
BRIEF_HOLD: Final = 1.0
ONE_IN: Final = 10
"""One command in so many is cancelled while it waits, and beside as many the hold of one ends."""
GREETING_SECONDS: Final = 1.0
OVER_SECONDS: Final = 120.0
"""How long the commands may take when all is well again."""
AGAIN_SECONDS: Final = 0.2


async def _race(rig: Rig) -> None:
    rig.phase = "holding commands for devices that are away"
    kept = await rig.load.run(rig.job(hold=HOLD))
    lapsing = await rig.load.run(rig.job(hold=BRIEF_HOLD, group="brief", commands=max(1, len(kept) // ONE_IN)))
    cancelled = kept[::ONE_IN]
    for call in cancelled:
        await _ask(rig, "DELETE", call)
    ended = [*cancelled, *lapsing]
    await _all_final(rig, ended)
    fleet = await rig.start_fleet()
    rig.phase = "devices come back, and nodes and Redis die"
    greeting = asyncio.create_task(_greet(rig, fleet))
    rig.stack.callback(greeting.cancel)
    await rig.nemesis.run(rig.schedule)
    await rig.nemesis.heal()
    rig.phase = "waiting for what was held"
    forgotten = await _all_final(rig, kept)
    greeting.cancel()
    await rig.settle()
    measure(rig)
    books = fleet.executions
    states = [_state(rig, call) for call in kept]
    rig.measures |= {
        "held": len(kept) + len(lapsing),
        "held_twice": sum(count - 1 for count in books.values() if count > 1),
        "held_after_end": sum(books[call.command_id or ""] for call in ended),
        "held_forgotten": forgotten + sum(call.command_id is None for call in (*kept, *lapsing)),
        "held_not_sent": states.count(CommandState.UNSENT),
        "held_sent": len(books),
    }


def _state(rig: Rig, call: Call) -> str:
    return str(rig.finals.commands.get(call.command_id or "", {}).get("state", "gone"))


async def _all_final(rig: Rig, calls: Sequence[Call]) -> int:
    """Wait until all of them have an outcome; how many have none when the time is over."""
    left = {call.command_id: call for call in calls if call.command_id is not None}
    with suppress(TimeoutError):
        async with asyncio.timeout(OVER_SECONDS):
            while left:
                for command_id, call in [*left.items()]:
                    if CommandState((await _ask(rig, "GET", call))["state"]).final:
                        del left[command_id]
                await asyncio.sleep(AGAIN_SECONDS)
    return len(left)


async def _ask(rig: Rig, verb: str, call: Call) -> dict[str, Any]:
    """Read or cancel a command at any node that answers."""
    while True:
        _, url = rig.turns()
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(rig.form.attempt):
                request = rig.session.request(verb, f"{url}/v1/commands/{call.command_id}")
                async with request as response:
                    if response.ok:
                        said: dict[str, Any] = orjson.loads(await response.read())
                        return said
        await asyncio.sleep(AGAIN_SECONDS)


async def _greet(rig: Rig, fleet: Fleet) -> None:
    """Have the devices say something, one after the other over the time of the load, and then again and again."""
    loop = asyncio.get_running_loop()
    began, lasts = loop.time(), rig.form.seconds or 1.0
    while True:
        share = min(1.0, (loop.time() - began) / lasts)
        for number, device in enumerate(rig.devices[: round(share * len(rig.devices))]):
            hello = orjson.dumps({"id": "hello", "status": "ok"})
            with suppress(HomingError):
                _ = fleet.clients[number % len(fleet.clients)].publish(Publication(f"homing/{device}/response", hello))
        await asyncio.sleep(GREETING_SECONDS)


def _deaths(rng: random.Random, form: Form) -> list[Fault]:
    """Kills of random nodes, and one of Redis in every other interval."""
    count = int((form.seconds or 0) / form.every)
    redis = [Fault(form.every * index + 1.0, Kind.KILL, REDIS, form.down) for index in range(0, count, 2)]
    return [*kills_of_any(rng, form), *redis]


R31 = Scenario(
    name="R31",
    title="held commands are claimed while nodes and Redis die",
    provoke="commands are held for devices that are away, some are cancelled or lapse; the devices come back one after "
    "the other, while a random node is killed again and again, and Redis (appendfsync always) as well",
    figures=(
        *SOUND,
        ANSWERED,
        Figure("held_twice", "=", 0, "commands that a device got twice"),
        Figure("held_after_end", "=", 0, "commands that a device got although they were cancelled or had lapsed"),
        Figure("held_forgotten", "=", 0, "commands that were held and have no outcome when all is well again"),
        Figure("held_not_sent", "=", 0, "commands that were not sent although their device was there in time"),
    ),
    full=Form(commands=10_000, seconds=300, rate=200, devices=500, share_async=1.0, timeout=10.0, patience=60.0),
    short=Form(
        commands=120,
        seconds=6,
        rate=60,
        devices=30,
        share_async=1.0,
        timeout=4.0,
        every=3.0,
        down=1.0,
        settings=QUICK_LEASE,
    ),
    act=_race,
    plan=_deaths,
    fsync="always",
)
