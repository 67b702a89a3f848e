"""A limit over three real nodes that are asked for more (A9)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from http import HTTPStatus
from statistics import mean
from time import perf_counter
from typing import Annotated, Final

from typer import Option

from app.core.access.keys import Key
from app.store.directory import AccessDirectory
from homing_rig.directory import add_service, bearer, guarded_site, opened, until_known
from homing_rig.figures.calls import COMMAND, HEADERS, Calls, unlimited_session
from homing_rig.figures.flood import Spec, flood, request
from homing_rig.figures.kit import Findings, paced
from homing_rig.harness import Cluster

SPREAD: Final = (7, 2, 1)
"""The shares of three nodes in the load."""
OTHERS: Final = 30
"""Commands a second of a caller without a limit."""
FROM: Final = 3
"""The second from which on the shares have to follow."""
MULTIPLES: Final = (3, 20)
"""The multiple of the limit that is offered."""


async def limited(directory: AccessDirectory, name: str, limit: int) -> Key:
    """The key of a new service that may send so often in a second."""
    rules = ("allow * *:* on *", f"limit send *:* on * {limit}/s burst {limit}")
    return await add_service(directory, name, f"{name}-limited", rules=rules)


async def send(calls: Calls, cluster: Cluster, seconds: float) -> None:
    """Commands of a caller without a limit, to the nodes in turn."""
    async with asyncio.TaskGroup() as group:
        async for number in paced(OTHERS, round(OTHERS * seconds)):
            group.create_task(calls.send(cluster.nodes[number % len(cluster.nodes)].url, number))


def offered(cluster: Cluster, key: Key, rate: float, seconds: float) -> Spec:
    """Commands with one key, spread over the nodes."""
    headers = [f"{name}: {value}" for name, value in (bearer(key) | HEADERS).items()]
    nodes = random.Random(1).choices(cluster.nodes, SPREAD, k=round(rate * seconds))
    requests = []
    for number, node in enumerate(nodes):
        path = f"/v1/devices/dock-{number % 100}/commands"
        requests.append((node.port, request("POST", path, headers, {**COMMAND, "timeout": "1s"})))
    return Spec(requests, rate, seconds)


async def limits(
    findings: Findings,
    *,
    seconds: Annotated[float, Option(min=FROM + 3, help="The seconds of each part.")] = 20.0,
    limit: Annotated[int, Option(min=1, help="Commands a second.")] = 100,
) -> None:
    """A limit over three nodes that are offered 3 times and 20 times as much, 70:20:10."""
    async with AsyncExitStack() as stack:
        cluster, _, url, _ = stack.enter_context(guarded_site())
        directory = await stack.enter_async_context(opened(url))
        greedy, polite = await limited(directory, "greedy", limit), await limited(directory, "polite", limit)
        other = await add_service(directory, "other")
        session = await stack.enter_async_context(unlimited_session())
        for key in (greedy, polite, other):
            await until_known(session, cluster, key)
        for multiple in MULTIPLES:
            rate = multiple * limit
            before, beside = Calls(session, other), Calls(session, other)
            await send(before, cluster, seconds / 2)
            load, _ = await asyncio.gather(
                flood(offered(cluster, greedy, rate, seconds)), send(beside, cluster, seconds)
            )
            rates = load.admitted[FROM : int(seconds) - 1]
            findings.note(f"{rate}/s offered at {limit}/s in {load.seconds:.1f} s: statuses {dict(load.statuses)}")
            findings.figure(f"× {multiple}: admitted on average, from second {FROM} on", mean(rates), "/s")
            findings.figure(f"× {multiple}: in the second with the fewest", min(rates), "/s", least=0.95 * limit)
            findings.figure(f"× {multiple}: in the second with the most", max(rates), "/s", most=1.1 * limit)
            findings.figure(f"× {multiple}: p99 of another caller before", before.p99, " ms")
            findings.figure(f"× {multiple}: p99 of another caller beside it", beside.p99, " ms", most=2 * before.p99)
        await retry(findings, Calls(session, polite), cluster, seconds)


async def retry(findings: Findings, calls: Calls, cluster: Cluster, seconds: float) -> None:
    """Callers on each node who wait as long as they are told, and come again."""
    enough: Counter[bool] = Counter()
    until = perf_counter() + seconds

    async def call(node: int) -> None:
        wait, number = 0.0, 0
        while perf_counter() < until:
            answer = await calls.send(cluster.nodes[node].url, number)
            number += 1
            if wait:
                enough[answer.status == HTTPStatus.ACCEPTED] += 1
            wait = answer.retry_after if answer.status == HTTPStatus.TOO_MANY_REQUESTS else 0.0
            await asyncio.sleep(wait)

    await asyncio.gather(*(call(node) for node in (0, 0, 0, 0, 1, 1, 2) for _ in range(4)))
    total = enough.total()
    findings.figure(f"Retry-After was enough, of {total} cases", 100 * enough[True] / max(1, total), " %", least=95)
