"""Held commands are claimed by several nodes at once, while nodes and Redis die: R31."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final

import orjson

from app.core.commands.command import FINAL_STATES, CommandState
from app.core.errors import HomingError
from app.core.messages import Publication
from app.mqtt.base import Puback
from homing_rig.chaos.fleet import Fleet
from homing_rig.chaos.load import Call
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE, kills_of_any
from homing_rig.chaos.schedule import REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import ANSWERED, NOBODY_WAITS, SOUND, measure, stands

HOLD: Final = 1800.0
BRIEF_HOLD: Final = 1.0
ROUND: Final = 5_000
"""The commands that are held at once at most: 100,000 take as many bytes of the store as 5,000, 20 times."""
ONE_IN: Final = 10
"""One command in so many is cancelled while it waits, another one while nodes die, and beside as many a hold ends."""
GREETING_SECONDS: Final = 1.0
OVER_SECONDS: Final = 120.0
"""The time that the commands of a round may take when all is well again."""
AGAIN_SECONDS: Final = 0.2
AT_A_TIME: Final = 16


@dataclass
class _Books:
    """The commands that were held, by what became of them."""

    kept: list[Call] = field(default_factory=list)
    raced: list[Call] = field(default_factory=list)
    """The kept commands that are cancelled while they may be sent."""
    ended: list[Call] = field(default_factory=list)
    """The commands that had their end while their device was away."""
    forgotten: int = 0


async def race(rig: Rig) -> None:
    """Hold commands for devices that are away, have these come back while the faults happen, and count."""
    books, total = _Books(), rig.form.commands or round((rig.form.seconds or 1.0) * (rig.form.rate or 1.0))
    rounds = ceil(total / ROUND)
    for number in range(rounds):
        commands = total * (number + 1) // rounds - total * number // rounds
        await _round(rig, books, commands, number, rounds)
    await rig.settle()
    measure(rig)
    got = sum((fleet.executions for fleet in rig.fleets), Counter[str]())
    never = [*books.ended, *(call for call in books.raced if _was_never_claimed(rig, call))]
    states = [_state(rig, call) for call in books.kept]
    rig.measures |= {
        "held": len(books.kept) + len(books.ended),
        "held_cancelled": states.count(CommandState.CANCELLED),
        "held_twice": sum(count - 1 for count in got.values() if count > 1),
        "held_after_end": sum(got[call.command_id or ""] for call in never),
        "held_forgotten": books.forgotten + sum(call.command_id is None for call in (*books.kept, *books.ended)),
        "held_not_sent": states.count(CommandState.UNSENT),
        "held_sent": len(got),
        "stands_s": stands(rig),
    }


async def _round(rig: Rig, books: _Books, commands: int, number: int, rounds: int) -> None:
    name = f"round {number + 1} of {rounds}"
    rig.phase = f"{name}: holding commands for devices that are away"
    held = await rig.load.run(rig.job(hold=HOLD, commands=commands))
    lapsing = await rig.load.run(rig.job(hold=BRIEF_HOLD, group="brief", commands=max(1, len(held) // ONE_IN)))
    cancelled, kept = held[::ONE_IN], [call for index, call in enumerate(held) if index % ONE_IN]
    await _each(cancelled, lambda call: rig.ask("DELETE", _place(call)))
    forgotten = await all_final(rig, [*cancelled, *lapsing])
    fleet = await rig.start_fleet()
    rig.phase = f"{name}: devices come back, and nodes and Redis die"
    over = asyncio.Event()
    greeting = asyncio.create_task(_greet(rig, fleet, _lasts(rig) / rounds, over))
    raced = kept[::ONE_IN]
    racing = asyncio.create_task(_each(raced, lambda call: rig.ask("DELETE", _place(call)), at_a_time=1))
    for task in (greeting, racing):
        rig.stack.callback(task.cancel)
    await rig.nemesis.run(_part(rig, number, rounds))
    await rig.nemesis.heal()
    rig.phase = f"{name}: waiting for what was held"
    await racing
    forgotten += await all_final(rig, kept)
    books.forgotten += forgotten
    over.set()
    await greeting
    async with asyncio.timeout(OVER_SECONDS):
        while fleet.open_answers:
            await asyncio.sleep(AGAIN_SECONDS)
    await fleet.stop()
    books.kept += kept
    books.raced += raced
    books.ended += [*cancelled, *lapsing]


def _lasts(rig: Rig) -> float:
    """Return the seconds in which devices come back, of all rounds together."""
    return rig.form.seconds or 1.0


def _part(rig: Rig, number: int, rounds: int) -> list[Fault]:
    """Return the faults of one round: those of its part of the time."""
    begin, end = (_lasts(rig) * one / rounds for one in (number, number + 1))
    last = number == rounds - 1
    return [replace(one, at=one.at - begin) for one in rig.schedule if begin <= one.at and (last or one.at < end)]


def _place(call: Call) -> str:
    return f"/v1/commands/{call.command_id}"


def _state(rig: Rig, call: Call) -> str:
    return str(rig.finals.commands.get(call.command_id or "", {}).get("state", "gone"))


def _was_never_claimed(rig: Rig, call: Call) -> bool:
    """True if its caller cancelled it before any node had taken it to send it."""
    said = rig.finals.commands.get(call.command_id or "", {})
    return said.get("state") == CommandState.CANCELLED and not (said.get("hold") or {}).get("claims", 1)


async def _each(
    calls: Sequence[Call], do: Callable[[Call], Coroutine[Any, Any, object]], at_a_time: int = AT_A_TIME
) -> None:
    """Do the same for all commands that are known, a few at a time."""
    left = iter([call for call in calls if call.command_id is not None])

    async def work() -> None:
        for call in left:
            await do(call)

    await asyncio.gather(*(work() for _ in range(at_a_time)))


async def all_final(rig: Rig, calls: Sequence[Call]) -> int:
    """Wait until all of them have an outcome; how many have none when the time is over, or are not on record."""
    loop, without = asyncio.get_running_loop(), 0
    over = loop.time() + OVER_SECONDS

    async def wait(call: Call) -> None:
        nonlocal without
        while (said := await rig.ask("GET", _place(call))).get("state") not in FINAL_STATES:
            if loop.time() >= over or not said:
                without += 1
                return
            await asyncio.sleep(AGAIN_SECONDS)

    await _each(calls, wait)
    return without


async def _greet(rig: Rig, fleet: Fleet, lasts: float, over: asyncio.Event) -> None:
    """Have the devices say something, one after the other over so many seconds, and then again and again.

    Nothing is on its way at the end: Mosquitto does not read the DISCONNECT of a client that has closed its connection
    before a PUBACK could be written, and keeps its session.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not over.is_set():
        share = min(1.0, (loop.time() - began) / max(lasts, AGAIN_SECONDS))
        said = list[Puback]()
        for number, device in enumerate(rig.devices[: round(share * len(rig.devices))]):
            hello = orjson.dumps({"id": "hello", "status": "ok"})
            with suppress(HomingError):
                client = fleet.clients[number % len(fleet.clients)]
                said.append(client.publish(Publication(f"homing/{device}/response", hello)))
        await asyncio.gather(*said, return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), GREETING_SECONDS)


def _deaths(rng: random.Random, form: Form) -> list[Fault]:
    """Kills of random nodes, and one of Redis in every other interval."""
    count = int((form.seconds or 0) / form.every)
    redis = [Fault(form.every * index + 1.0, Kind.KILL, REDIS, form.down) for index in range(0, count, 2)]
    return [*kills_of_any(rng, form), *redis]


HELD = (
    *SOUND,
    ANSWERED,
    Figure("held_twice", "=", 0, "commands that a device got twice"),
    Figure("held_after_end", "=", 0, "commands that a device got although they were cancelled or had lapsed"),
    Figure("held_forgotten", "=", 0, "commands that were held and have no outcome when all is well again"),
    Figure("held_not_sent", "=", 0, "commands that were not sent although their device was there in time"),
)

R31 = Scenario(
    name="R31",
    title="held commands are claimed while nodes and Redis die",
    provoke="commands are held for devices that are away, some are cancelled or lapse; the devices come back one after "
    "the other, and more are cancelled, while a random node is killed again and again, and Redis (appendfsync always) "
    "as well; more than 5,000 commands are held in rounds",
    figures=HELD,
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
    act=race,
    expects=NOBODY_WAITS,
    plan=_deaths,
    fsync="always",
)
