"""Watchers of single commands while nodes are killed (B3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import cycle
from random import Random
from time import perf_counter
from typing import Annotated, Final

import aiohttp
from typer import Option

from homing_rig.figures.kit import Findings
from homing_rig.figures.stream_events import REPORTS, demand_accepted, events, sent, site
from homing_rig.harness import Caller, Cluster, Device, Json, caller, devices

REPORT_EVERY: Final = 0.03
"""Seconds."""
LOST: Final = (aiohttp.ClientError, TimeoutError, ConnectionError)
"""The errors of calls whose node dies."""


@dataclass
class Watched:
    """The events that watchers saw, and what was wrong with them."""

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
    kills: int = 0

    def see(self, last: int, at: int) -> int:
        """Take the event number `at` of a command after the number `last`; the later one of both."""
        self.events += 1
        self.repeated += 0 <= at <= last
        self.missed += max(0, at - last - 1)
        self.disordered += at < last
        return max(last, at)


async def single(
    findings: Findings,
    *,
    commands: Annotated[int, Option(min=1, help="The number of commands.")] = 10_000,
    watchers: Annotated[int, Option(min=1, help="The number of watchers, each of one command at a time.")] = 50,
    kill_every: Annotated[float, Option(min=0.1, help="The seconds from a start to the next kill.")] = 5.0,
) -> None:
    """Watchers of single commands with 20 reports each, while one of four nodes after the other is killed."""

    def react(device: Device, command: Json) -> None:
        loop = asyncio.get_running_loop()
        for number in range(REPORTS):
            loop.call_later(REPORT_EVERY * number, device.report, command, number * 5)
        loop.call_later(REPORT_EVERY * REPORTS, device.answer, command)

    with site(4, HOMING_CLUSTER_SWEEP_INTERVAL="500ms") as cluster:
        async with devices(cluster.broker, react), caller(cluster) as client:
            seen, numbers = Watched(), iter(range(commands))
            began = perf_counter()
            killer = asyncio.create_task(kill(cluster, kill_every, seen))
            await asyncio.gather(*(watch(client, number, numbers, seen) for number in range(watchers)))
            seconds = perf_counter() - began
            killer.cancel()
            with suppress(asyncio.CancelledError):
                await killer
    findings.note(f"{commands} commands, {watchers} watchers, {seconds:.0f} s: {seen}")
    findings.figure("streams that ended", seen.ended, least=commands)
    findings.figure("events missed", seen.missed, most=0)
    findings.figure("events out of order", seen.disordered, most=0)
    findings.figure("events repeated", 100 * seen.repeated / max(1, seen.events), " %", most=1)
    findings.figure("reconnects after the end that did not get 204", seen.not_over, most=0)


async def kill(cluster: Cluster, every: float, seen: Watched) -> None:
    """Kill one node after the other; the next one not before the last one is there again."""
    for node in cycle(cluster.nodes):
        await asyncio.sleep(every)
        await asyncio.to_thread(node.kill)
        seen.kills += 1
        await asyncio.to_thread(node.start)


async def watch(client: Caller, number: int, numbers: Iterator[int], seen: Watched) -> None:
    """Send commands, and follow each until its outcome, on another node whenever a stream breaks."""
    chance = Random(number)
    for one in numbers:
        identity = await sent(client, one, chance)
        last, reported, outcome = -1, 0, ""
        while not outcome:
            headers = {"Accept": "text/event-stream"} | ({} if last < 0 else {"Last-Event-ID": f"{identity}/{last}"})
            url = f"{chance.choice(client.cluster.nodes).url}/v1/commands/{identity}/events"
            with suppress(*LOST):
                async with client.session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(90)) as response:
                    await demand_accepted(response)
                    response.raise_for_status()
                    async for event in events(response):
                        if "id" not in event:
                            continue
                        last = seen.see(last, int(event["id"].rpartition("/")[2]))
                        reported += event["event"] == "progress"
                        if event["event"] == "outcome":
                            outcome = event["data"]["state"]
            if not outcome:
                seen.broken += 1
                await asyncio.sleep(0.2)
        seen.ended += 1
        seen.outcomes[outcome] += 1
        seen.fewer += reported < REPORTS
        is_over = await over(client, identity, last, chance)
        seen.not_over += not is_over


async def over(client: Caller, identity: str, last: int, chance: Random) -> bool:
    """True if a watcher that returns after the end is told that there is no more."""
    while True:
        url = f"{chance.choice(client.cluster.nodes).url}/v1/commands/{identity}/events?after={identity}/{last}"
        with suppress(*LOST):
            async with client.session.get(url) as response:
                if response.status in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
                    return response.status == HTTPStatus.NO_CONTENT
        await asyncio.sleep(0.2)
