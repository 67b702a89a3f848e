"""Queues beside a group of Redis Streams as somebody would write it by hand: CPU, events a second, and delays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from math import inf
from time import perf_counter
from typing import Annotated, Any, Final

import aiohttp
import orjson
import psutil  # type: ignore[import-untyped] # it comes without types
from redis.asyncio import Redis
from typer import Option

from homing_rig.figures.kit import FigureError, Findings, p99
from homing_rig.figures.queue_delays import delays
from homing_rig.harness import Cluster, Json, cluster_of
from homing_rig.patience import eventually
from homing_rig.services import MosquittoProcess, RedisProcess
from homing_rig.statistics import median
from homing_rig.turns import in_turns

CONSUMERS: Final = 10
DEVICES: Final = 500
BYTES: Final = 200
"""The size of an event."""
PAGE: Final = 500
"""Events that are published by one call."""
IDLE_SECONDS: Final = 8.0
"""The time for which nodes are left alone, twice: until nothing is to be done, and to see what they spend then."""
STREAM: Final = "queue"
GROUP: Final = "workers"
SIDES: Final = ("128", "16", "128 in the order of devices", "group 128", "group 16")


@dataclass(slots=True)
class QueueTurns:
    """The costs of the turns of one side: µs for each settled event, and events a second."""

    redis: list[float] = field(default_factory=list)
    nodes: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    publishing: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Spent:
    redis: float
    nodes: float
    at: float


class SettlingPace:
    """Lets consumers settle so many events a second, all of them together; those that are late need not wait."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = perf_counter()
        self._settled = 0

    async def wait(self, events: int) -> None:
        """Until so many more may be settled."""
        self._settled += events
        await asyncio.sleep(max(0.0, self._began + self._settled / self._rate - perf_counter()))


class QueueBench:
    """Nodes with a log of events, and another Redis for the group."""

    def __init__(self, cluster: Cluster, redis: Redis, peer: Redis, http: aiohttp.ClientSession, events: int) -> None:
        self.cluster: Final = cluster
        self._redis = redis
        self._peer = peer
        self._http = http
        self._events = events
        self._names = (f"q{number}" for number in count())
        self._idle = (0.0, 0.0)

    async def fill(self) -> None:
        """Put the events into the log, which all turns read."""
        numbers = [{"topic": f"site/dock-{n % DEVICES}/event", "data": data_of(n)} for n in range(self._events)]
        nodes = _around(self.cluster)
        for at in range(0, self._events, PAGE):
            await self._call("POST", f"{next(nodes)}/v1/events", numbers[at : at + PAGE])

    async def rest(self) -> tuple[float, float]:
        """Measure what Redis and nodes spend when nothing is to be done, in s a second; that is taken off."""
        await asyncio.sleep(IDLE_SECONDS)
        before = await self._spent(self._redis)
        await asyncio.sleep(IDLE_SECONDS)
        after = await self._spent(self._redis)
        passed = after.at - before.at
        self._idle = ((after.redis - before.redis) / passed, (after.nodes - before.nodes) / passed)
        return self._idle

    async def memory(self) -> int:
        """Return the bytes that Redis uses."""
        return int((await self._redis.info("memory"))["used_memory"])

    async def declare(self, name: str, start: str, *topics: str) -> None:
        """Declare a queue of what is on these topics."""
        body = {"routes": [{"database": "events", "topic": one} for one in topics], "start": start}
        await self._call("PUT", f"{self.cluster.nodes[0].url}/v1/queues/{name}", body)

    async def delete(self, name: str) -> None:
        """Delete a queue."""
        await self._call("DELETE", f"{self.cluster.nodes[0].url}/v1/queues/{name}", None)

    async def turn(self, turns: QueueTurns, prefetch: int, *, ordered: bool = False, rate: float = inf) -> None:
        """Declare a queue of all events, and let ten consumers settle them, at this rate at most."""
        url, name = self.cluster.nodes[0].url, next(self._names)
        routes = [{"database": "events", "topic": "site/#"}]
        order = {"order": "device"} if ordered else {}
        before = await self._spent(self._redis)
        await self._call("PUT", f"{url}/v1/queues/{name}", {"routes": routes, "start": "-1h", "loan": "5m", **order})
        left, pace = asyncio.Semaphore(0), SettlingPace(rate)
        async with asyncio.TaskGroup() as group:
            nodes = _around(self.cluster)
            settling = [self._consume(next(nodes), name, prefetch, left, pace) for _ in range(CONSUMERS)]
            workers = [group.create_task(one) for one in settling]
            for _ in range(self._events):
                await left.acquire()
            for one in workers:
                one.cancel()
        after = await self._spent(self._redis)
        passed = after.at - before.at
        spent = (
            after.redis - before.redis - self._idle[0] * passed,
            after.nodes - before.nodes - self._idle[1] * passed,
        )
        turns.redis.append(spent[0] * 1e6 / self._events)
        turns.nodes.append(spent[1] * 1e6 / self._events)
        turns.rate.append(self._events / passed)
        await self.delete(name)

    async def feed(self, queues: Sequence[str], events: int) -> float:
        """Publish events of which each of these queues gets each, and let them be taken; µs of all for an event."""
        before = await self._spent(self._redis)
        nodes = _around(self.cluster)
        async with self._http.ws_connect(f"{next(nodes)}/v1/connect", max_msg_size=0) as wire:
            for number, name in enumerate(queues, 1):
                await wire.send_json({"id": number, "open": {"channel": number, "queue": name, "auto": True}})
            publishing = asyncio.create_task(self._publish(nodes, events))
            left = len(queues) * events
            while left:
                frame = await wire.receive_json()
                left -= len(frame.get("events", ()))
                if "problem" in frame or "closed" in frame:
                    raise FigureError(f"a consumer was told {frame}")
            await publishing
        after = await self._spent(self._redis)
        spent = after.redis - before.redis + after.nodes - before.nodes
        return (spent - sum(self._idle) * (after.at - before.at)) * 1e6 / events

    async def _publish(self, nodes: Iterator[str], events: int) -> None:
        for at in range(0, events, PAGE):
            said = [{"topic": f"fed/dock-{n % DEVICES}", "data": data_of(n)} for n in range(at, min(at + PAGE, events))]
            await self._call("POST", f"{next(nodes)}/v1/events", said)

    async def _consume(
        self, url: str, queue: str, prefetch: int, settled: asyncio.Semaphore, pace: SettlingPace
    ) -> None:
        async with self._http.ws_connect(f"{url}/v1/connect", max_msg_size=0) as wire:
            await wire.send_json({"id": 1, "open": {"channel": 1, "queue": queue, "prefetch": prefetch}})
            async for message in wire:
                frame = orjson.loads(message.data)
                if "events" in frame:
                    done = [one["loan"] for one in frame["events"]]
                    await pace.wait(len(done))
                    await wire.send_str(orjson.dumps({"id": len(done), "channel": 1, "done": done}).decode())
                elif "settled" in frame:
                    for _ in range(frame["settled"]):
                        settled.release()
                elif "ok" not in frame:
                    raise FigureError(f"a consumer was told {frame}")
            raise FigureError(f"a connection was closed with {wire.close_code}")

    async def group_turn(self, turns: QueueTurns, batch: int) -> None:
        """Copy the events into a stream, and let ten consumers of its group read, acknowledge and delete them."""
        await self._peer.delete(STREAM)
        await self._peer.xgroup_create(STREAM, GROUP, mkstream=True)
        begun = await self._spent(self._peer)
        for at in range(0, self._events, batch):
            numbers = range(at, min(at + batch, self._events))
            topics = (f"site/dock-{number % DEVICES}/event" for number in numbers)
            await self._pipe(
                ("XADD", STREAM, "*", "topic", topic, "data", data_of(number))
                for number, topic in zip(numbers, topics, strict=True)
            )
        before = await self._spent(self._peer)
        await asyncio.gather(*(self._read_group(f"w{number}", batch) for number in range(CONSUMERS)))
        after = await self._spent(self._peer)
        turns.publishing.append((before.redis - begun.redis) * 1e6 / self._events)
        turns.redis.append((after.redis - before.redis) * 1e6 / self._events)
        turns.rate.append(self._events / (after.at - before.at))

    async def _read_group(self, consumer: str, batch: int) -> None:
        while True:
            found: Any = await self._peer.xreadgroup(GROUP, consumer, {STREAM: ">"}, count=batch)
            if not found:
                return
            ids = [identity for identity, _ in found[0][1]]
            await self._pipe([("XACK", STREAM, GROUP, *ids), ("XDEL", STREAM, *ids)])

    async def _pipe(self, commands: Iterable[tuple[Any, ...]]) -> None:
        pipeline = self._peer.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        await pipeline.execute()

    async def delays(self, seconds: float) -> list[float]:
        """Publish at a steady rate to one node; the time until a consumer of another node has each (ms)."""
        return await delays(self._http, self.cluster.nodes[0].url, self.cluster.nodes[-1].url, seconds)

    async def _spent(self, redis: Redis) -> _Spent:
        told = await redis.info("cpu")
        nodes = sum(sum(psutil.Process(one.pid).cpu_times()[:2]) for one in self.cluster.nodes)
        return _Spent(told["used_cpu_user"] + told["used_cpu_sys"], nodes, perf_counter())

    async def _call(self, method: str, url: str, body: Json | list[Json] | None) -> None:
        async with self._http.request(method, url, json=body) as answer:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise FigureError(f"{method} {url}: {await answer.text()}")


def data_of(number: int) -> str:
    """The data of an event."""
    return str(number).ljust(BYTES, "x")


def _around(cluster: Cluster) -> Iterator[str]:
    return (cluster.nodes[number % len(cluster.nodes)].url for number in count())


@asynccontextmanager
async def bench(nodes: int, events: int) -> AsyncIterator[QueueBench]:
    """Nodes on a Redis, and a Redis for the peer, with the same options."""
    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        RedisProcess() as peer,
        cluster_of(nodes, redis, broker, HOMING_EVENTS_URL=redis.node_url) as cluster,
    ):
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(Redis.from_url(redis.url))
            second = await stack.enter_async_context(Redis.from_url(peer.url))
            http = await stack.enter_async_context(aiohttp.ClientSession())

            async def is_open() -> bool:
                async with http.get(f"{cluster.nodes[-1].url}/v1/queues") as answer:
                    return answer.ok

            await eventually(is_open)
            yield QueueBench(cluster, first, second, http, events)


async def queues(
    findings: Findings,
    *,
    events: Annotated[int, Option(min=1000, help="The number of events that each turn settles.")] = 50_000,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each side.")] = 3,
    nodes: Annotated[int, Option(min=1, help="The number of nodes.")] = 3,
    seconds: Annotated[float, Option(min=1, help="For how long delays are measured.")] = 20.0,
) -> None:
    """Ten consumers on a queue, over WebSockets, beside ten of a group of Redis Streams that was written by hand."""
    turns = {side: QueueTurns() for side in SIDES}
    async with bench(nodes, events) as site:
        await site.fill()
        await site.rest()
        for side in in_turns(SIDES, rounds):
            batch = 128 if "128" in side else 16
            if side.startswith("group"):
                await site.group_turn(turns[side], batch)
            else:
                await site.turn(turns[side], batch, ordered="order" in side)
        found = await site.delays(seconds)
    _tell(findings, turns)
    findings.spread("publish to handler", found, " ms", most=40)
    findings.figure("p99 of that", p99(found), " ms", most=120)


def _tell(findings: Findings, turns: Mapping[str, QueueTurns]) -> None:
    aims = {"128": 1.5, "16": 5.0, "128 in the order of devices": 10.0}
    for side, found in turns.items():
        findings.spread(f"Redis for a settled event, {side}", found.redis, " µs", most=aims.get(side))
        if found.publishing:
            findings.spread(f"the copy into the stream, {side}", found.publishing, " µs")
        if found.nodes:
            most = 25.0 if side == "128" else None
            findings.spread(f"nodes for a settled event, {side}", found.nodes, " µs", most=most)
    for batch, most in (("128", 0.5), ("16", 0.8)):
        peer = turns[f"group {batch}"]
        ratio = median(turns[batch].redis) / (median(peer.redis) + median(peer.publishing))
        findings.figure(f"Redis for a settled event to that of a group with its copy, {batch}", ratio, " ×", most=most)
    for side, found in turns.items():
        findings.spread(f"events settled a second, {side}", found.rate)
