"""Watchers of single commands while nodes are killed: what they saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from time import perf_counter

import aiohttp

from tests.cluster.harness import Caller, Cluster, Device, Json, caller, devices
from tests.cluster.stream_rig import REPORTS, events, judge, not_refused, say, sent, site


@dataclass
class Watched:
    """What watchers of single commands saw."""

    ended: int = 0
    events: int = 0
    missed: int = 0
    disordered: int = 0
    repeated: int = 0
    broken: int = 0
    not_over: int = 0
    """Reconnects after the end that did not get 204."""
    outcomes: Counter[str] = field(default_factory=Counter)
    fewer: int = 0
    """Commands with fewer reports on record than their device made."""


async def single(commands: int, watchers: int, kill_every: float) -> None:
    def react(device: Device, command: Json) -> None:
        loop = asyncio.get_running_loop()
        for number in range(REPORTS):
            loop.call_later(0.03 * number, device.report, command, number * 5)
        loop.call_later(0.03 * REPORTS, device.answer, command)

    with site(4, HOMING_CLUSTER_SWEEP_INTERVAL="500ms") as cluster:
        async with devices(cluster.broker, react), caller(cluster) as client:
            seen, numbers = Watched(), iter(range(commands))
            began = perf_counter()
            killer = asyncio.create_task(kill(cluster, kill_every))
            said = asyncio.create_task(progress(seen, commands))
            await asyncio.gather(*(watch(client, number, numbers, seen) for number in range(watchers)))
            seconds = perf_counter() - began
            said.cancel()
            killer.cancel()
            with suppress(asyncio.CancelledError):
                await killer
    say(f"{commands} commands, {watchers} watchers, {seconds:.0f} s, {KILLED['nodes']} nodes killed: {seen}")
    judge("streams that ended", seen.ended, least=commands)
    judge("events missed", seen.missed, most=0)
    judge("events out of order", seen.disordered, most=0)
    judge("events repeated", 100 * seen.repeated / max(1, seen.events), " %", most=1)
    judge("comings back after the end that did not get 204", seen.not_over, most=0)


KILLED: Counter[str] = Counter()


async def progress(seen: Watched, commands: int) -> None:
    while True:
        await asyncio.sleep(30)
        say(f"  {seen.ended}/{commands}, {KILLED['nodes']} killed, {seen}")


async def kill(cluster: Cluster, every: float) -> None:
    """One after the other; the next one not before the last one is there again."""
    number = 0
    while True:
        await asyncio.sleep(every)
        node = cluster.nodes[number % len(cluster.nodes)]
        await asyncio.to_thread(node.kill)
        KILLED["nodes"] += 1
        await asyncio.to_thread(node.start)
        number += 1


async def watch(client: Caller, number: int, numbers: Iterator[int], seen: Watched) -> None:
    chance = Random(number)
    for one in numbers:
        identity = await sent(client, one, chance)
        last, reported = -1, 0
        while True:
            node = chance.choice(client.cluster.nodes)
            headers = {"Accept": "text/event-stream"} | ({} if last < 0 else {"Last-Event-ID": f"{identity}/{last}"})
            try:
                async with client.session.get(
                    f"{node.url}/v1/commands/{identity}/events", headers=headers, timeout=aiohttp.ClientTimeout(90)
                ) as response:
                    await not_refused(response)
                    response.raise_for_status()
                    outcome = None
                    async for event in events(response):
                        if "id" not in event:
                            continue
                        at = int(event["id"].rpartition("/")[2])
                        seen.events += 1
                        seen.repeated += 0 <= at <= last
                        seen.missed += max(0, at - last - 1)
                        seen.disordered += at < last
                        last = max(last, at)
                        reported += event["event"] == "progress"
                        if event["event"] == "outcome":
                            outcome = event["data"]["state"]
            except (aiohttp.ClientError, TimeoutError, ConnectionError):
                outcome = None
            if outcome is not None:
                break
            seen.broken += 1
            await asyncio.sleep(0.2)
        seen.ended += 1
        seen.outcomes[outcome] += 1
        seen.fewer += reported < REPORTS
        seen.not_over += not await over(client, identity, last, chance)


async def over(client: Caller, identity: str, last: int, chance: Random) -> bool:
    while True:
        url = f"{chance.choice(client.cluster.nodes).url}/v1/commands/{identity}/events?after={identity}/{last}"
        with suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
            async with client.session.get(url) as response:
                if response.status in (200, 204):
                    return response.status == 204
        await asyncio.sleep(0.2)
