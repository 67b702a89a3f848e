"""Readers of all commands: one that filters, one that was away, and one that never reads (B4)."""

from __future__ import annotations

import asyncio
import socket
import sys
import urllib.error
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from time import perf_counter
from typing import Annotated, Final

import aiohttp
import orjson
from typer import Option

from homing_rig.figures.calls import HEADERS, unlimited_session
from homing_rig.figures.kit import MIB, FigureError, Findings, p99, paced, seconds_since
from homing_rig.figures.stream_events import ALL, REPORTS, demand_accepted, events, site
from homing_rig.figures.streams import resident_bytes
from homing_rig.harness import Cluster, Device, Json, devices
from homing_rig.patience import eventually

PATIENCE: Final = 170.0
"""Seconds within which a reader that never reads has to be cut off."""


@dataclass
class Reader:
    """Follows all commands: the ids it saw, and how long after the store each came (ms)."""

    seen: dict[str, str] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)
    repeated: int = 0
    gaps: int = 0
    last: str = ""

    async def read(self, session: aiohttp.ClientSession, url: str, *, timed: bool = True) -> None:
        """Read from where it was, without end."""
        headers = {"Last-Event-ID": self.last} if self.last else {}
        async with session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(None)) as response:
            if response.status != HTTPStatus.OK:
                raise FigureError(f"a reader was refused: {await response.text()}")
            async for event in events(response):
                self.gaps += event.get("event") == "gap"
                self.last = event.get("id", self.last)
                if event.get("event") in ("progress", "outcome"):
                    self.repeated += event["id"] in self.seen
                    data = event["data"]
                    self.seen[event["id"]] = f"{data['command_id']}/{data['seq']}"
                    if timed:
                        self.delays.append(seconds_since(data["at"]) * 1000)


async def filtered(
    findings: Findings,
    *,
    rate: Annotated[float, Option(min=1, help="The number of events a second.")] = 500.0,
    seconds: Annotated[float, Option(min=4, help="The seconds for which commands are sent.")] = 100.0,
    away: Annotated[float, Option(min=0, help="The seconds for which a reader is away.")] = 60.0,
) -> None:
    """Readers of all commands on two nodes: how late events come, and what a resumed and a mute reader do."""
    async with AsyncExitStack() as stack:
        cluster = stack.enter_context(site(2))
        session = await stack.enter_async_context(unlimited_session())
        first, second = (f"{node.url}{ALL}" for node in cluster.nodes)
        whole, part, resumed = Reader(), Reader(), Reader()
        chosen = f"{second}?method=cover_o*&device=dock-1*&kind=outcome,progress"
        tasks = [
            asyncio.create_task(whole.read(session, first)),
            asyncio.create_task(part.read(session, chosen)),
        ]
        leaving = asyncio.create_task(resumed.read(session, first))
        await asyncio.sleep(1)
        spec = {"urls": [node.url for node in cluster.nodes], "broker": cluster.broker.url}
        generator = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "homing_rig.figures.stream_readers"),
            orjson.dumps({**spec, "rate": rate, "seconds": seconds}).decode(),
        )
        await asyncio.sleep(seconds / 4)
        leaving.cancel()
        await asyncio.wait([leaving])
        mute = asyncio.create_task(cut_off(findings, cluster))
        await asyncio.sleep(away)
        tasks.append(asyncio.create_task(resumed.read(session, second, timed=False)))
        if await generator.wait():
            raise FigureError("the process that sends has failed")
        with suppress(TimeoutError):
            await eventually(lambda: whole.seen.keys() <= resumed.seen.keys(), 60)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        findings.figure("events", len(whole.seen) / seconds, "/s")
        for name, reader in (("all", whole), ("filtered, other node", part)):
            findings.figure(f"{name}: events", len(reader.delays))
            findings.spread(f"{name}: from the store to the reader", reader.delays, " ms")
            findings.figure(f"{name}: p99", p99(reader.delays), " ms", most=150)
        findings.note(f"away for {away:g} s, back on the other node: {resumed.repeated} repeated, {resumed.gaps} gaps")
        findings.figure("missed by the reader that was away", len(whole.seen.keys() - resumed.seen.keys()), most=0)
        await mute
        old = Reader(last="1000-0.000")
        late = asyncio.create_task(old.read(session, first))
        await asyncio.sleep(1)
        late.cancel()
        findings.figure("gaps told to a reader with an id of 1970", old.gaps, least=1, most=1)


async def cut_off(findings: Findings, cluster: Cluster) -> None:
    """A reader that never reads: when it is cut off, and how much more its node grew meanwhile than the other one."""
    node, calm = cluster.nodes[1], cluster.nodes[0]
    before, other, began = resident_bytes(node), resident_bytes(calm), perf_counter()
    with socket.create_connection(("127.0.0.1", node.port)) as mute:
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mute.sendall(f"GET {ALL} HTTP/1.1\r\nHost: 127.0.0.1:{node.port}\r\n\r\n".encode())
        most, cut = before, 0
        while not cut and perf_counter() - began < PATIENCE:
            with suppress(urllib.error.HTTPError):  # a node with much to do may refuse to tell
                cut = (await asyncio.to_thread(cluster.counters, "stream.too_slow"))[1]
            most = max(most, resident_bytes(node))
            await asyncio.sleep(0.2)
    findings.figure("mute readers that were cut off", cut, least=1)
    findings.figure("a mute reader was cut off after", perf_counter() - began, " s")
    grown = (most - before) / MIB - (resident_bytes(calm) - other) / MIB
    findings.figure("more growth of its node than of the other", grown, " MiB", most=5)


async def load(urls: list[str], broker: str, rate: float, seconds: float) -> None:
    """Send commands whose devices report, so that there are so many events a second."""
    each = rate / (REPORTS + 1)

    def react(device: Device, command: Json) -> None:
        loop = asyncio.get_running_loop()
        for number in range(REPORTS):
            loop.call_later(0.1 * number, device.report, command, number * 5)
        loop.call_later(0.1 * REPORTS, device.answer, command)

    async with devices(broker, react), aiohttp.ClientSession() as session:
        async with asyncio.TaskGroup() as group:
            async for number in paced(each, round(seconds * each)):
                group.create_task(post(session, urls[number % len(urls)], number))
        await asyncio.sleep(4)


async def post(session: aiohttp.ClientSession, url: str, number: int) -> None:
    """Send a command."""
    body = {"method": "cover_open" if number % 2 else "cover_close", "if_offline": "send", "timeout": "30s"}
    target = f"{url}/v1/devices/dock-{number % 500}/commands"
    async with session.post(target, json=body, headers=HEADERS) as response:
        await demand_accepted(response)
        await response.read()


if __name__ == "__main__":  # the load, in a process of its own
    asyncio.run(load(**orjson.loads(sys.argv[1])))
