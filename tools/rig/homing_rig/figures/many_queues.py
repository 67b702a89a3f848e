"""Many queues: what those that nobody takes from cost, and what they cost the ones from which somebody takes."""

from __future__ import annotations

from typing import Annotated, Final

from typer import Option

from homing_rig.figures.kit import MIB, Findings
from homing_rig.figures.queues import QueueBench, bench

BEHIND: Final = 100
"""Queues that have all events before them."""
IDLE: Final = 1000
"""Queues for which no event comes."""
FED: Final = 10
"""Queues to which all events go of which the feeding is measured, alone and among IDLE."""
ROUTES: Final = 10
"""Routes of each queue then: one of those that are fed is for the events, all others are for none."""


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
            await site.declare(name, "-1h", "site/#")
        await site.rest()
        used = (await site.memory() - empty) / MIB
        findings.figure(f"memory of {BEHIND} queues with {events} events before each", used, " MiB", most=20)
        for name in names:
            await site.delete(name)
        await site.rest()
        empty = await site.memory()
        for number in range(IDLE):
            await site.declare(f"idle-{number}", "now", f"nobody/{number}")
        busy = sum(await site.rest())
        findings.figure(f"memory of {IDLE} idle queues", (await site.memory() - empty) / MIB, " MiB", most=10)
        findings.figure(f"processors for {IDLE} idle queues", (busy - calm) * 100, " % of one", most=1)
        for number in range(IDLE):
            await site.delete(f"idle-{number}")
        await _feeding(findings, site, events // 10)


async def _feeding(findings: Findings, site: QueueBench, events: int) -> None:
    """Measure the same events for the same queues, alone, and then among others."""
    fed = [f"fed-{number}" for number in range(FED)]
    for name in fed:
        await site.declare(name, "now", "fed/#", *(f"nobody/{name}/{route}" for route in range(1, ROUTES)))
    await site.rest()
    await site.feed(fed, events)
    alone = await site.feed(fed, events)
    for number in range(FED, IDLE):
        await site.declare(f"other-{number}", "now", *(f"nobody/{number}/{route}" for route in range(ROUTES)))
    await site.rest()
    among = await site.feed(fed, events)
    findings.figure(f"nodes and Redis for an event that {FED} queues get", alone, " µs")
    findings.figure(f"the same among {IDLE} queues with {ROUTES} routes each", among, " µs")
    findings.figure("the second to the first", among / alone, " ×", most=2)
