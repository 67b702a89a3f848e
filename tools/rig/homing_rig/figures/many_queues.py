"""Many queues that nobody takes from: what they take of the memory of Redis, and of the processors."""

from __future__ import annotations

from typing import Annotated, Final

from typer import Option

from homing_rig.figures.kit import MIB, Findings
from homing_rig.figures.queues import bench

BEHIND: Final = 100
"""Queues that have all events before them."""
IDLE: Final = 1000
"""Queues for which no event comes."""


async def many(
    findings: Findings,
    *,
    events: Annotated[int, Option(min=1000, help="The number of events that each of 100 queues has before it.")] = (
        100_000
    ),
    nodes: Annotated[int, Option(min=1, help="The number of nodes.")] = 3,
) -> None:
    """Memory of 100 queues that are far behind, and of 1,000 idle ones, with what these let nodes and Redis do."""
    async with bench(nodes, events) as site:
        await site.fill()
        calm = sum(await site.rest())
        empty = await site.memory()
        names = [f"behind-{number}" for number in range(BEHIND)]
        for name in names:
            await site.declare(name, "site/#", "-1h")
        await site.rest()
        used = (await site.memory() - empty) / MIB
        findings.figure(f"memory of {BEHIND} queues with {events} events before each", used, " MiB", most=20)
        for name in names:
            await site.delete(name)
        await site.rest()
        empty = await site.memory()
        for number in range(IDLE):
            await site.declare(f"idle-{number}", f"nobody/{number}", "now")
        busy = sum(await site.rest())
        findings.figure(f"memory of {IDLE} idle queues", (await site.memory() - empty) / MIB, " MiB", most=10)
        findings.figure(f"processors for {IDLE} idle queues", (busy - calm) * 100, " % of one", most=1)
