"""Devices that come back at once, for each of which some commands are held: order, pace, and what others notice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Final

from typer import Option

from app.core.errors import HomingError
from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_client import AsyncHoming
from homing_rig.figures.kit import FigureError, Findings, paced, timed
from homing_rig.harness import cluster_of
from homing_rig.services import MosquittoProcess, RedisProcess
from homing_rig.statistics import percentile

PROFILE: Final = """
name = "herd"
description = "Devices of a measurement"

[request]
topic = "homing/{device_id}/command"
payload = { id = "{id}", do = "{method}", with = "{params}" }

[[response]]
name = "done"
topic = "homing/{device_id}/response"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "succeeded" }]

[[lane]]
name = "work"
methods = ["work"]
order = "fifo"
pace = "PACE/s"
"""
OTHERS: Final = 50
"""Devices that never were away."""
NODES: Final = 3
POSTING: Final = 32
SLACK: Final = 0.8
"""A message may be late, and the next one not: so much of a pace lies between two commands as their device has them."""
TELL_SECONDS: Final = 5.0
BATCH_SECONDS: Final = 0.01
"""The time between two groups of devices that say something."""


@dataclass
class HerdBooks:
    """The commands that each device got, by its own book: number of the command, and when."""

    got: defaultdict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0

    def note(self, device: str, number: int) -> None:
        """Note a command."""
        self.got[device].append((number, perf_counter()))
        self.count += 1

    def disordered(self) -> int:
        """Return how many devices got theirs in another order than they were sent in, or one of them twice."""
        return sum([one for one, _ in got] != sorted({one for one, _ in got}) for got in self.got.values())

    def gaps(self) -> list[float]:
        """Return the seconds between two commands of one device."""
        return [later - earlier for got in self.got.values() for (_, earlier), (_, later) in pairwise(got)]


async def herd(
    findings: Findings,
    *,
    devices: Annotated[int, Option(min=1, max=100_000, help="The number of devices that come back.")] = 10_000,
    commands: Annotated[int, Option(min=1, max=50, help="The number of commands that are held for each.")] = 2,
    pace: Annotated[int, Option(min=1, max=10, help="The commands a second that a device takes at most.")] = 2,
    rate: Annotated[float, Option(min=1, help="The commands a second for other devices.")] = 20,
    calm: Annotated[float, Option(min=0.1, help="The seconds for which others are measured beforehand.")] = 30,
    within: Annotated[float, Option(min=0.1, help="The seconds within which all devices come back.")] = 3.0,
    hold_rate: Annotated[int, Option(min=1, help="HOMING_COMMAND_HOLD_RATE of each node.")] = 500,
    patience: Annotated[float, Option(min=1, help="The seconds that all may take.")] = 300,
) -> None:
    """Devices that come back at once: everything is sent once, in order and at its pace, and others notice little."""
    ids, total = [f"dock-{number:05}" for number in range(devices)], devices * commands
    with TemporaryDirectory() as folder, MosquittoProcess() as broker, RedisProcess() as redis:
        await asyncio.to_thread(Path(folder, "herd.toml").write_text, PROFILE.replace("PACE", str(pace)))
        settings = {
            "HOMING_PROFILES_DIR": folder,
            "HOMING_PROFILE": "herd",
            "HOMING_COMMAND_HOLD_RATE": str(hold_rate),
        }
        with cluster_of(NODES, redis, broker, **settings) as cluster:
            async with AsyncHoming(",".join(one.url for one in cluster.nodes)) as homing, _others(broker):
                began = perf_counter()
                await _hold(homing, ids, commands, patience)
                findings.note(f"{total} commands are held after {perf_counter() - began:.0f} s")
                before = await _measured(homing, rate, calm)
                books = HerdBooks()
                async with _client(broker, "herd", ["homing/+/command"], books.note) as client:
                    began = perf_counter()
                    returning = asyncio.create_task(_come_back(findings, client, ids, books, total, within, patience))
                    during = await _measured(homing, rate, until=returning)
                    seconds = await returning
    gaps = sorted(books.gaps())
    findings.figure("devices that got theirs in another order, or twice", books.disordered(), most=0)
    findings.figure("commands that no device got", total - books.count, most=0)
    findings.figure("until all have theirs", seconds, " s")
    if gaps:
        findings.figure(
            "shortest time between two commands of a device, of its pace", gaps[0] * pace, " ×", least=SLACK
        )
        findings.figure("such times that are too short", sum(one * pace < SLACK for one in gaps), most=0)
    findings.figure("plain commands of others, p99 in calm", percentile(before, 0.99) * 1000, " ms")
    findings.figure("p99 meanwhile", percentile(during, 0.99) * 1000, " ms")
    findings.figure("that is", percentile(during, 0.99) / max(percentile(before, 0.99), 1e-6), " ×", most=1.5)


async def _hold(homing: AsyncHoming, ids: Sequence[str], commands: int, patience: float) -> None:
    """Hold commands for devices that are away, those of one device after one another."""
    left = iter(ids)

    async def post() -> None:
        for device in left:
            for number in range(commands):
                lasts = f"{round(patience * 4 + len(ids) / 10)}s"
                held = await homing.send(device, "work", {"number": number}, hold=lasts, timeout="60s", wait=False)
                if held.state != "held":
                    raise FigureError(f"command {held.id} is {held.state}, and its device is away")

    await asyncio.gather(*(post() for _ in range(POSTING)))


async def _measured(
    homing: AsyncHoming, rate: float, seconds: float = 0.0, until: asyncio.Task[float] | None = None
) -> list[float]:
    """Return how long plain commands for others take, sorted."""

    async def call(number: int) -> None:
        await homing.call(f"other-{number % OTHERS:02}", "look", timeout="10s")

    return await timed(call, rate, seconds, until)


async def _come_back(
    findings: Findings,
    client: PahoMqttClient,
    ids: Sequence[str],
    books: HerdBooks,
    total: int,
    within: float,
    patience: float,
) -> float:
    """Have each device say something, and wait until all have theirs; how long that took."""
    began = told = perf_counter()
    batches = max(1, round(within / BATCH_SECONDS))
    async for number in paced(batches / within, batches):
        for device in ids[len(ids) * number // batches : len(ids) * (number + 1) // batches]:
            try:
                _ = client.publish(Publication(f"homing/{device}/response", b'{"id": "hello"}'))
            except HomingError as error:
                raise FigureError(f"device {device} could say nothing: {error}") from error
    while books.count < total and perf_counter() - began < patience:
        await asyncio.sleep(0.05)
        if perf_counter() - told >= TELL_SECONDS:
            told = perf_counter()
            findings.write(f"{told - began:.0f} s: {books.count} of {total} commands were sent")
    return perf_counter() - began


@asynccontextmanager
async def _others(broker: MosquittoProcess) -> AsyncIterator[PahoMqttClient]:
    topics = [f"homing/other-{number:02}/command" for number in range(OTHERS)]
    async with _client(broker, "others", topics, lambda _device, _number: None) as client:
        yield client


@asynccontextmanager
async def _client(
    broker: MosquittoProcess, name: str, topics: Sequence[str], note: Callable[[str, int], None]
) -> AsyncIterator[PahoMqttClient]:
    """A connection of devices, which do at once what they are told."""
    at = MqttOptions.from_url(broker.url, client_id=name)
    options = MqttOptions(
        client_id=name,
        host=at.host,
        port=at.port,
        username=at.username,
        password=at.password,
        receive_maximum=5_000,
        send_window=60_000,
    )
    client = PahoMqttClient(options, counters=Counter())

    def handle(delivery: InboundDelivery) -> None:
        device = delivery.message.topic.split("/")[1]
        command = json.loads(delivery.message.payload)
        mine = device.startswith("other-") == (name == "others") and command["do"] in ("work", "look")
        if mine:
            note(device, (command["with"] or {}).get("number", 0))
            reply = json.dumps({"id": command["id"]}).encode()
            _ = client.publish(Publication(f"homing/{device}/response", reply))
        delivery.acknowledge()

    await client.start([Subscription(one) for one in topics], handle)
    await client.wait_connected()
    try:
        yield client
    finally:
        await client.stop()
