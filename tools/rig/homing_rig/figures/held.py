"""Held commands: how soon they follow a sign of life, what they cost, and what those take that wait for long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from time import perf_counter
from typing import Annotated, Final

import orjson
import psutil  # type: ignore[import-untyped] # it comes without types
from redis.asyncio import Redis
from typer import Option

from app.core.commands.callback import Expectation, HoldRequest, Registration
from app.core.commands.command import IfOffline
from app.core.identifiers import command_id
from app.core.messages import Publication
from app.core.profiles.correlation import Correlation
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from app.runtime.system import new_ulid
from homing_client import AsyncHoming
from homing_rig.figures.fleets import opened
from homing_rig.figures.kit import MIB, Findings, p99
from homing_rig.harness import Cluster, cluster_of
from homing_rig.patience import eventually
from homing_rig.services import MosquittoProcess, RedisProcess, ServiceProcess
from homing_rig.turns import in_turns

NODES: Final = 3
HELLO: Final = b'{"id": "hello", "status": "ok"}'
"""An answer to nothing that was asked: a sign of life."""
AT_A_TIME: Final = 64
EACH: Final = 50
"""The commands that are held for each device."""
SETTLE_SECONDS: Final = 30.0
"""The time for which nodes look more often for devices that they have just learned of."""
GONE_SECONDS: Final = 300.0
_SETTINGS: Final = {"HOMING_PROFILE": "homing"}


class _Device:
    """A device on a connection of its own, which answers what it gets at once."""

    def __init__(self, broker: MosquittoProcess, name: str) -> None:
        self.got = asyncio.Event()
        self.at = 0.0
        """The instant at which it got its first command."""
        self._name = name
        self._client = PahoMqttClient(MqttOptions.from_url(broker.url, client_id=name), Counter())

    async def come(self) -> float:
        """Connect, subscribe and say hello; when that was."""
        await self._client.start([Subscription(f"homing/{self._name}/command")], self._take)
        await self._client.wait_connected()
        _ = self._client.publish(Publication(f"homing/{self._name}/response", HELLO))
        return perf_counter()

    async def go(self) -> None:
        """Leave."""
        await self._client.stop()

    def _take(self, delivery: InboundDelivery) -> None:
        if not self.got.is_set():
            self.at = perf_counter()
            self.got.set()
        reply = {"id": orjson.loads(delivery.message.payload)["id"], "status": "ok"}
        _ = self._client.publish(Publication(f"homing/{self._name}/response", orjson.dumps(reply)))
        delivery.acknowledge()


async def signs(
    findings: Findings,
    *,
    times: Annotated[int, Option(min=1, help="The number of devices that come back one after the other.")] = 200,
    kills: Annotated[int, Option(min=0, help="The number of those before which a node is killed.")] = 20,
) -> None:
    """From a device's first sign of life to the command that is held for it: in calm, and with a node just killed."""
    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        cluster_of(NODES, redis, broker, **_SETTINGS) as cluster,
    ):
        async with AsyncHoming(",".join(one.url for one in cluster.nodes)) as homing:
            calm = [await _comes_back(homing, broker, f"calm-{number}") for number in range(times)]
            killed = list[float]()
            for number in range(kills):
                node = cluster.nodes[number % NODES]
                killed.append(await _comes_back(homing, broker, f"killed-{number}", node.kill))
                await asyncio.to_thread(node.start)
    findings.spread("from the sign of life to the command", [1000 * one for one in calm], " ms")
    findings.figure("p99 of it", 1000 * p99(calm), " ms", most=150)
    if killed:
        findings.spread("the same with one of three nodes just killed", killed, " s")
        findings.figure("the longest of them", max(killed), " s", most=2.5)


async def _comes_back(
    homing: AsyncHoming, broker: MosquittoProcess, name: str, before: Callable[[], object] | None = None
) -> float:
    held = await homing.send(name, "work", hold="1h", timeout="60s", wait=False)

    async def is_awaited() -> bool:
        return bool((await homing.get(held.id)).raw["hold"]["claims"])

    await eventually(is_awaited)  # somebody has tried to send it, and nobody was there
    device = _Device(broker, name)
    if before is not None:
        await asyncio.to_thread(before)
    said = await device.come()
    try:
        await eventually(device.got.is_set)
    finally:
        await device.go()
    return max(0.0, device.at - said)


async def cost(
    findings: Findings,
    *,
    commands: Annotated[int, Option(min=10, help="The number of commands of each turn.")] = 2_000,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each kind.")] = 5,
) -> None:
    """CPU of two nodes and Redis for a command that is held first, beside a plain one, for devices that are there."""
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker, **_SETTINGS) as cluster:
        async with AsyncHoming(",".join(one.url for one in cluster.nodes)) as homing, _devices(broker) as names:
            sides: dict[str | None, list[float]] = {None: [], "1h": []}
            await _turn(homing, names, commands, None)
            for hold in in_turns([*sides], rounds):
                before = sum(_cpu((*cluster.nodes, redis)))
                await _turn(homing, names, commands, hold)
                sides[hold].append((sum(_cpu((*cluster.nodes, redis))) - before) / commands * 1e6)
    findings.spread("a plain command", sides[None], " µs")
    findings.spread("one that is held first", sides["1h"], " µs")
    ratios = [held / plain for plain, held in zip(*sides.values(), strict=True)]
    findings.spread("the second to the first", ratios, " ×", most=1.6)


@asynccontextmanager
async def _devices(broker: MosquittoProcess, count: int = 50) -> AsyncIterator[Sequence[str]]:
    names = [f"dock-{number}" for number in range(count)]
    found = [_Device(broker, name) for name in names]
    await asyncio.gather(*(one.come() for one in found))
    try:
        yield names
    finally:
        await asyncio.gather(*(one.go() for one in found))


async def _turn(homing: AsyncHoming, names: Sequence[str], commands: int, hold: str | None) -> None:
    """Send so many commands, some at a time, and wait for the outcome of each."""
    left = iter(range(commands))

    async def work() -> None:
        for number in left:
            sent = await homing.send(names[number % len(names)], "work", hold=hold, timeout="60s")
            if not sent.is_final:
                await homing.wait(sent.id)

    await asyncio.gather(*(work() for _ in range(AT_A_TIME)))


def _cpu(processes: Iterable[ServiceProcess]) -> list[float]:
    """Return the seconds of CPU that each has taken."""
    times = [psutil.Process(one.pid).cpu_times() for one in processes]
    return [one.user + one.system for one in times]


async def stored(
    findings: Findings,
    *,
    commands: Annotated[int, Option(min=EACH, max=100_000, help="The number of held commands.")] = 100_000,
    seconds: Annotated[float, Option(min=1, help="The seconds for which CPU is measured.")] = 60.0,
    hold: Annotated[float, Option(min=10, help="The seconds for which they are held.")] = 300.0,
) -> None:
    """Memory and CPU that commands take which wait for devices that are away, and what is left when they have ended."""
    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        cluster_of(NODES, redis, broker, **_SETTINGS) as cluster,
    ):
        async with Redis.from_url(redis.url) as client:
            await _hold(redis.url, 1, timedelta(seconds=1))  # what stays for good is there then
            await asyncio.sleep(SETTLE_SECONDS)
            keys, memory, nodes = await client.dbsize(), await _memory(client), _resident(cluster)
            calm = await _busy(cluster, seconds)
            began = perf_counter()
            await _hold(redis.url, commands, timedelta(seconds=hold))
            findings.note(f"{commands} commands are held after {perf_counter() - began:.0f} s")
            await asyncio.sleep(SETTLE_SECONDS)
            findings.figure("Redis for them", (await _memory(client) - memory) / MIB, " MiB", most=130)
            busy = await _busy(cluster, seconds)
            grown = max(after - before for before, after in zip(nodes, _resident(cluster), strict=True))
            findings.figure("the busiest node for them", 100 * (busy - calm), " % of a core", most=2)
            findings.figure("memory of a node for them, at most", grown / MIB, " MiB", most=15)
            await asyncio.sleep(max(0.0, began + hold - perf_counter()))
            left = await _left(client, keys)
    findings.figure("keys in Redis above those before, when they have ended", left, most=0)


async def _hold(url: str, commands: int, lasts: timedelta) -> None:
    """Register held commands as nodes do, which learn of them from the store."""
    left = iter(range(commands))
    async with opened(url) as store:

        async def work() -> None:
            for number in left:
                device = f"away-{number // EACH}"
                await store.register(
                    Registration(
                        command_id=command_id(device, new_ulid()),
                        device_id=device,
                        method="work",
                        params=b"{}",
                        profile="homing",
                        home_node="n1",
                        expectations=(Expectation(f"homing/{device}/response", Correlation.ID),),
                        timeout=timedelta(seconds=10),
                        retention=timedelta(seconds=1),
                        if_offline=IfOffline.HOLD,
                        hold=HoldRequest(lasts),
                    )
                )

        await asyncio.gather(*(work() for _ in range(AT_A_TIME)))


async def _left(client: Redis, before: int) -> int:
    """Return how many keys more than before there are when no more go."""

    async def is_as_before() -> bool:
        return int(await client.dbsize()) <= before

    with suppress(TimeoutError):
        await eventually(is_as_before, GONE_SECONDS)
    return int(await client.dbsize()) - before


async def _memory(client: Redis) -> int:
    return int((await client.info("memory"))["used_memory"])


def _resident(cluster: Cluster) -> list[int]:
    return [psutil.Process(one.pid).memory_info().rss for one in cluster.nodes]


async def _busy(cluster: Cluster, seconds: float) -> float:
    """Return the share of a processor that the busiest node takes in so many seconds."""
    before = _cpu(cluster.nodes)
    await asyncio.sleep(seconds)
    return max(after - earlier for earlier, after in zip(before, _cpu(cluster.nodes), strict=True)) / seconds
