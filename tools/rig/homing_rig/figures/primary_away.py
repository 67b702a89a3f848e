"""Measures what callers notice while one of three primaries of a Redis Cluster is away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Annotated, Final

from typer import Option

from app.core.errors import StoreUnavailableError
from app.runtime.system import SystemClock, new_secret, new_wake_key
from app.store.redis.commands.store import RedisStateStore
from homing_rig.figures.kit import Findings, p99
from homing_rig.figures.primaries import DEVICES, send_and_answer
from homing_rig.redis_members import MemberRedis, members_url, third_of, three_primaries
from homing_rig.statistics import median

OTHERS_AIM: Final = 1.5
REFUSED_AIM_MS: Final = 500


@dataclass(frozen=True, slots=True)
class CommandTimes:
    """The milliseconds that commands took, from the moment in which each was due."""

    others: list[float] = field(default_factory=list)
    """The times for devices at the primaries that stay."""
    refused: list[float] = field(default_factory=list)
    """The times for devices at the primary that goes, whose callers were told that the store is away."""
    lost: Counter[str] = field(default_factory=Counter)
    """The number of commands of the others that were refused, by why."""


async def primary_away(
    findings: Findings,
    *,
    rounds: Annotated[int, Option(min=1, help="The number of clusters that lose a primary.")] = 3,
    rate: Annotated[float, Option(min=1, help="Commands per second, each of which is registered and answered.")] = 200,
    seconds: Annotated[float, Option(min=1, help="The time before a primary is killed, and that after it.")] = 10.0,
) -> None:
    """Time of commands at two primaries while the third is away, against calm, and how soon its own are refused."""
    calm, away = list[CommandTimes](), list[CommandTimes]()
    for _ in range(rounds):
        with three_primaries() as members:
            before, after = await _round(members, rate, seconds)
        calm.append(before)
        away.append(after)
    findings.note("One process sends all commands, as a node does; no replica takes the place of the one that goes.")
    findings.spread("p99 of the others in calm", [p99(one.others) for one in calm], " ms")
    findings.spread("p99 of the others while one is away", [p99(one.others) for one in away], " ms")
    ratios = [p99(there.others) / p99(here.others) for here, there in zip(calm, away, strict=True)]
    findings.spread("the latter against the former", ratios, " ×", most=OTHERS_AIM)
    findings.figure("commands of the others that were refused", sum(one.lost.total() for one in away), most=0)
    longest = [max(one.refused, default=0.0) for one in away]
    findings.spread("the longest that somebody waited to be refused", longest, " ms", most=REFUSED_AIM_MS)
    findings.spread("the median of these", [median(one.refused) for one in away], " ms")


async def _round(members: Sequence[MemberRedis], rate: float, seconds: float) -> tuple[CommandTimes, CommandTimes]:
    for one in members:
        await asyncio.to_thread(one.ask, "CONFIG", "SET", "cluster-require-full-coverage", "no")
    store = RedisStateStore(
        members_url(members), clock=SystemClock(), counters=Counter(), wake_key=new_wake_key(), new_secret=new_secret
    )
    await store.start()
    try:
        await _load(store, rate, 1.0)
        before = await _load(store, rate, seconds)
        await asyncio.to_thread(members[0].kill)
        return before, await _load(store, rate, seconds)
    finally:
        await store.close()


async def _load(store: RedisStateStore, rate: float, seconds: float) -> CommandTimes:
    """Send commands at a steady rate, whatever became of those before."""
    taken, began = CommandTimes(), perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - perf_counter()))
            group.create_task(_send(store, number % DEVICES, due, taken))
    return taken


async def _send(store: RedisStateStore, device: int, due: float, taken: CommandTimes) -> None:
    others = third_of(f"dock-{device}") != 0
    try:
        await send_and_answer(store, device)
    except StoreUnavailableError as error:
        if others:
            taken.lost[str(error)] += 1
        else:
            taken.refused.append((perf_counter() - due) * 1000)
        return
    if others:
        taken.others.append((perf_counter() - due) * 1000)
