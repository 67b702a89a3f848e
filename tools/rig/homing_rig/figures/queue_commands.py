"""Commands beside a queue: what those who send them notice of consumers that settle events at a steady rate.

The time of a command that fails counts as well.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Final

from typer import Option

from homing_client import AsyncHoming, HomingError
from homing_rig.figures.kit import Findings, p99, timed
from homing_rig.figures.queues import QueueTurns, bench
from homing_rig.harness import Device, devices
from homing_rig.statistics import median
from homing_rig.turns import in_turns

PREFETCH: Final = 128
DEVICES: Final = 50
WARM_SECONDS: Final = 5.0
"""The time for which commands are sent before anything is measured."""
LEAD_SECONDS: Final = 3.0
"""The part of each turn that is left out: a queue begins with as much as its consumers take at once, in one burst."""
TIMEOUT: Final = "30s"


async def beside(
    findings: Findings,
    *,
    rate: Annotated[float, Option(min=1, help="The events a second that consumers may settle.")] = 5_000,
    commands: Annotated[float, Option(min=1, help="The commands a second.")] = 20,
    rounds: Annotated[int, Option(min=1, help="The number of turns, calm and beside the queue.")] = 3,
    seconds: Annotated[float, Option(min=1, help="The length of a turn.")] = 20.0,
    nodes: Annotated[int, Option(min=1, help="The number of nodes.")] = 3,
) -> None:
    """Commands at a steady rate, calm and beside ten consumers of one queue that settle events at one, in turns."""
    settling, failed = QueueTurns(), Counter[str]()
    took: dict[bool, list[list[float]]] = {False: [], True: []}
    async with bench(nodes, round(rate * (LEAD_SECONDS + seconds))) as site:
        urls = ",".join(one.url for one in site.cluster.nodes)
        async with devices(site.cluster.broker, Device.answer), AsyncHoming(urls) as homing:

            async def call(number: int) -> None:
                try:
                    await homing.call(f"SN{number % DEVICES:04}", "cover_open", {"n": number}, timeout=TIMEOUT)
                except HomingError as error:
                    failed[str(error)[:200]] += 1

            await site.fill()
            await timed(call, commands, WARM_SECONDS)
            for busy in in_turns((False, True), rounds):
                turn = asyncio.create_task(site.turn(settling, PREFETCH, rate=rate)) if busy else None
                await asyncio.sleep(LEAD_SECONDS)
                took[busy].append(await timed(call, commands, seconds, turn))
                if turn is not None:
                    await turn
    counts = {busy: sum(map(len, turns)) for busy, turns in took.items()}
    findings.note(f"{commands:g} commands a second: {counts[False]} calm, {counts[True]} beside")
    if failed:
        findings.note(f"failed were: {dict(failed)}")
    findings.figure("commands that failed", failed.total(), most=0)
    findings.spread("events settled a second", settling.rate)
    findings.figure("the same to those that were offered", median(settling.rate) / rate, " ×", least=0.95)
    for busy, name in ((False, "calm"), (True, "beside")):
        findings.spread(f"median of commands, {name}", [median(one) * 1000 for one in took[busy]], " ms")
        findings.spread(f"p99 of commands, {name}", [p99(one) * 1000 for one in took[busy]], " ms")
    ratios = [p99(after) / p99(before) for before, after in zip(took[False], took[True], strict=True)]
    findings.spread("p99 beside to p99 calm", ratios, " ×", most=1.5)
