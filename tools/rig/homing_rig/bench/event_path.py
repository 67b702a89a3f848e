"""Measures the cost of an event on its whole way, and elsewhere: `python -m homing_rig.bench.event_path`.

One session publishes with QoS 1, 800 at a time, and the CPU of each process counts until all of it is stored. The ways
take turns in one run, as other programs use the machine as well: through Mosquitto and a node into Redis (AOF), into
RocksDB, and into NATS by its MQTT gateway and a stream of JetStream, where there is a `nats-server`. With `--against`
nodes of another working tree take turns as well.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from rich.console import Console
from rich.table import Table

from homing_rig.bench.nats import JetStream
from homing_rig.bench.processes import Processes, Running, Worker
from homing_rig.programs import NotInstalledError, find_binary
from homing_rig.statistics import median
from homing_rig.turns import in_turns

LOOK_SECONDS: Final = 0.1
"""Seldom, as each look costs the node something."""
STORED_SECONDS: Final = 120.0
"""A bound against hanging."""
WARM_UP: Final = 2000
"""Events."""
PARTS: Final = ("node", "broker", "store")


@dataclass(frozen=True, slots=True)
class Turn:
    """Microseconds of CPU for each event, by part of the way, and how many were stored in a second."""

    rate: float
    cpu: dict[str, float]

    @property
    def whole(self) -> float:
        """All parts together."""
        return sum(self.cpu.values())


async def _nothing() -> None:
    """There is nothing to let go of."""


@dataclass(frozen=True, slots=True)
class Way:
    """The way that events take: where they are published, the processes by part, and how many are stored so far."""

    name: str
    publisher: Worker
    parts: dict[str, Running]
    stored: Callable[[], Awaitable[int]]
    close: Callable[[], Awaitable[None]] = _nothing
    turns: list[Turn] = field(default_factory=list)

    async def take_turn(self, count: int) -> Turn:
        """Publish so many, and wait until they are stored."""
        already = await self.stored()
        before = {part: one.cpu_seconds() for part, one in self.parts.items()}
        began = time.perf_counter()
        await self.publisher.ask({"count": count})
        await self._until_stored(already + count)
        seconds = time.perf_counter() - began
        used = {part: (one.cpu_seconds() - before[part]) / count * 1e6 for part, one in self.parts.items()}
        return Turn(count / seconds, used)

    async def warm_up(self) -> None:
        """Publish until somebody stores it, and then some more: a node of 0.2.0 is ready before its intake listens."""
        async with asyncio.timeout(STORED_SECONDS):
            while not await self.stored():
                await self.publisher.ask({"count": 1})
                await asyncio.sleep(LOOK_SECONDS)
        await self.take_turn(WARM_UP)

    async def _until_stored(self, count: int) -> None:
        async with asyncio.timeout(STORED_SECONDS):
            while await self.stored() < count:  # noqa: ASYNC110 - another process counts
                await asyncio.sleep(LOOK_SECONDS)


async def homing(processes: Processes, name: str, folder: Path, *, redis: bool, tree: Path | None = None) -> Way:
    """A Mosquitto and a node that keeps events in Redis or in RocksDB. `tree`: whose code it runs."""
    broker, mqtt_port = await processes.mosquitto(f"{name}-mosquitto")
    parts = {"broker": broker}
    settings = {"HOMING_MQTT_URL": f"mqtt://127.0.0.1:{mqtt_port}", "HOMING_LOG_LEVEL": "warning"}
    if redis:
        parts["store"], redis_port = await processes.redis(f"{name}-redis")
        url = f"redis://127.0.0.1:{redis_port}/0"
        settings |= {"HOMING_STORE_URL": url, "HOMING_EVENTS_URL": url}
    else:
        settings |= {"HOMING_STORE_URL": "memory://", "HOMING_EVENTS_URL": f"rocks://{folder}/{name}-log"}
    code = () if tree is None else ("env", f"PYTHONPATH={tree}")
    parts["node"], port = await processes.node(name, (*code, sys.executable, "-m", "app.cli", "serve"), settings)
    publisher = await processes.worker("publisher", {"port": mqtt_port}, f"{name}-publisher")

    async def stored() -> int:
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/v1/nodes") as answer:
            return int((await answer.json())["self"]["counters"].get("events.appended", 0))

    return Way(name, publisher, parts, stored)


async def nats(processes: Processes) -> Way:
    """A NATS that is broker and store at once."""
    server, port, mqtt_port = await processes.nats()
    streams = await JetStream.connected(port)
    await streams.keep_events()
    publisher = await processes.worker("publisher", {"port": mqtt_port})
    return Way("nats", publisher, {"store": server}, streams.count, streams.close)


@asynccontextmanager
async def ways(against: Path | None) -> AsyncIterator[list[Way]]:
    """All of them, running and warm."""
    with tempfile.TemporaryDirectory(prefix="homing-bench-") as name:
        folder = Path(name)
        processes = Processes(folder)
        try:
            found = []
            for store in ("redis", "rocksdb"):
                redis = store == "redis"
                found.append(await homing(processes, f"homing-{store}", folder, redis=redis))
                if against is not None:
                    found.append(await homing(processes, f"before-{store}", folder, redis=redis, tree=against))
            try:
                find_binary("nats-server")
            except NotInstalledError:
                sys.stderr.write("NATS takes no part: there is no nats-server\n")
            else:
                found.append(await nats(processes))
            for way in found:
                await way.warm_up()
            yield found
            for way in found:
                await way.close()
        finally:
            await processes.stop()


async def measure(count: int, rounds: int, against: Path | None) -> list[Way]:
    """All ways in turn, so many times; who begins changes."""
    async with ways(against) as found:
        for way in in_turns(found, rounds):
            way.turns.append(await way.take_turn(count))
        return found


def render(found: Sequence[Way]) -> Table:
    """For people."""
    table = Table(title="CPU of an event, µs: median of all turns", caption="turns: the whole way")
    for heading in ("way", *PARTS, "whole", "node to broker", "events/s", "turns"):
        table.add_column(heading, justify="left" if heading in ("way", "turns") else "right")
    for way in found:
        costs = {part: median([turn.cpu[part] for turn in way.turns]) for part in way.parts}
        to_broker = [turn.cpu["node"] / turn.cpu["broker"] for turn in way.turns if "node" in turn.cpu]
        table.add_row(
            way.name,
            *(f"{costs[part]:.1f}" if part in costs else "-" for part in PARTS),
            f"{median([turn.whole for turn in way.turns]):.1f}",
            f"{median(to_broker):.2f}" if to_broker else "-",
            f"{median([turn.rate for turn in way.turns]):,.0f}",
            " ".join(f"{turn.whole:.1f}" for turn in way.turns),
        )
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="events of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another working tree, whose nodes take turns as well")
    given = parser.parse_args()
    Console().print(render(asyncio.run(measure(given.count, given.rounds, given.against))))
