"""Commands to devices that nobody is subscribed for (B1), and many idle streams (B5)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import AsyncExitStack
from http import HTTPStatus
from random import Random
from time import perf_counter
from typing import Annotated, Final

import aiohttp
import psutil  # type: ignore[import-untyped] # it comes without types
from typer import Option

from homing_rig.figures.kit import MIB, FigureError, Findings, p99
from homing_rig.figures.stream_events import ALL, events, sent, site
from homing_rig.harness import Caller, NodeProcess, caller, devices

WARM: Final = 20
"""Commands or streams after which connections, scripts and imports are warm."""


async def absent(
    findings: Findings, *, times: Annotated[int, Option(min=1, help="The number of commands.")] = 1000
) -> None:
    """Commands to devices that nobody is subscribed for, every second one one-way."""
    with site(2) as cluster:
        async with caller(cluster) as client:
            states: Counter[str] = Counter()
            taken = []
            for number in range(WARM + times):
                url = f"{cluster.nodes[number % 2].url}/v1/devices/absent-{number}/commands"
                body = {"method": "cover_open", "one_way": number % 2 == 0, "if_offline": "fail"}
                began = perf_counter()
                async with client.session.post(url, json=body) as response:
                    told = await response.json(content_type=None)
                if number >= WARM:
                    taken.append((perf_counter() - began) * 1000)
                    states[f"{response.status} {told.get('type', '').rpartition(':')[2]}"] += 1
                await asyncio.sleep(0.02)
    findings.note(f"answers: {dict(states)}")
    findings.spread("an answer", taken, " ms")
    findings.figure("p99", p99(taken), " ms", most=50)
    findings.figure("answers of 409", states["409 device-not-listening"], least=times)


def resident_bytes(node: NodeProcess) -> int:
    """Resident memory of a node. `env` is replaced by what it starts, so the process is the node."""
    return int(psutil.Process(node.pid).memory_info().rss)


async def many(
    findings: Findings,
    *,
    idle: Annotated[int, Option(min=1, help="The number of idle streams.")] = 1000,
    open_at_stop: Annotated[int, Option("--open", min=1, help="The number of open streams at a stop.")] = 500,
) -> None:
    """Memory of idle streams, and a node that is stopped with open ones."""
    with site(2, HOMING_API_MAX_STREAMS="5000") as cluster:
        async with devices(cluster.broker, lambda *_: None), caller(cluster) as client:
            identity = await sent(client, 1, Random(1))
            for name, path in (("of all commands", ALL), ("of one command", f"/v1/commands/{identity}/events")):
                async with AsyncExitStack() as stack:
                    await opened(stack, client, cluster.nodes[0], path, WARM)
                    before = resident_bytes(cluster.nodes[0])
                    await opened(stack, client, cluster.nodes[0], path, idle)
                    grown = (resident_bytes(cluster.nodes[0]) - before) / MIB
                findings.figure(f"{idle} idle streams {name}", grown, " MiB", most=40)
                await asyncio.sleep(1)
            async with AsyncExitStack() as stack:
                streams = await opened(stack, client, cluster.nodes[1], ALL, open_at_stop)
                retries = [asyncio.create_task(retry_of(stream)) for stream in streams]
                began = perf_counter()
                os.kill(cluster.nodes[1].pid, signal.SIGTERM)
                told = await asyncio.gather(*retries)
                closed = perf_counter() - began
                await asyncio.to_thread(cluster.nodes[1].stop)
                ended = perf_counter() - began
    back = [milliseconds / 1000 for milliseconds in told if milliseconds]
    findings.figure(f"{open_at_stop} open streams at SIGTERM: closed in good order", len(back), least=open_at_stop)
    findings.figure("all were closed after", closed, " s")
    findings.figure("end of the node after", ended, " s", most=10)
    findings.figure("they come back over", max(back, default=0) - min(back, default=0), " s", least=2.5)
    busiest = max(Counter(int(seconds * 10) for seconds in back).values(), default=0)
    findings.figure("the most of them within 0.1 s", busiest)


async def opened(
    stack: AsyncExitStack, client: Caller, node: NodeProcess, path: str, count: int
) -> list[aiohttp.ClientResponse]:
    """Open so many streams, and return when all have begun; they last as long as the stack is open."""

    async def open_one() -> aiohttp.ClientResponse:
        call = client.session.get(f"{node.url}{path}", timeout=aiohttp.ClientTimeout(None))
        response = await stack.enter_async_context(call)
        if response.status != HTTPStatus.OK:
            raise FigureError(f"a stream was refused: {await response.text()}")
        await response.content.readline()  # it has begun
        return response

    found: list[aiohttp.ClientResponse] = []
    while len(found) < count:
        found += await asyncio.gather(*(open_one() for _ in range(min(50, count - len(found)))))
    return found


async def retry_of(response: aiohttp.ClientResponse) -> int:
    """The instant (ms) at which the stream told last to come back; 0 when it broke instead of ending."""
    told = 0
    try:
        async for event in events(response):
            told = int(event.get("retry", told))
    except aiohttp.ClientError:
        return 0
    return told
