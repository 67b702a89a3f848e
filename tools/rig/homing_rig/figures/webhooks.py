"""Deliveries of webhooks beside receivers that fail, and the memory of those that wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Final

import psutil  # type: ignore[import-untyped] # it comes without types
from aiohttp import web
from redis.asyncio import Redis
from typer import Option

from app.core.identifiers import command_id
from app.core.webhooks.deliveries import Delivery, OutboxEntry, event_id
from app.core.webhooks.endpoints import EventType
from app.runtime.system import SystemClock, new_secret, new_ulid, new_wake_key
from app.store.engine import open_engine
from homing_client import AsyncHoming
from homing_rig.figures.kit import MIB, FigureError, Findings, p99, paced, seconds_since
from homing_rig.harness import Cluster, Device, cluster_of, devices
from homing_rig.patience import eventually
from homing_rig.receivers import Answer, receiving
from homing_rig.services import MosquittoProcess, RedisProcess
from homing_rig.turns import in_turns

SETTINGS: Final = {
    "HOMING_WEBHOOKS_SECRET_KEY": "0123456789abcdef" * 2,
    "HOMING_WEBHOOKS_NETWORKS": "127.0.0.0/8",
    "HOMING_WEBHOOKS_PLAIN_HTTP": "true",
}
GOOD: Final = 3
RATE: Final = 25
"""Commands a second."""
BODY: Final = b'{"type":"command.succeeded","data":{"sequence":1,"command":"%s"}}' % (b"x" * 700)
"""A body as large as that of an outcome."""


@asynccontextmanager
async def site() -> AsyncIterator[tuple[Cluster, AsyncHoming]]:
    """Two nodes, devices that answer at once, and a client."""
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker, **SETTINGS) as cluster:
        async with devices(broker, Device.answer), AsyncHoming(cluster.nodes[0].url) as homing:
            yield cluster, homing


async def webhook(stack: AsyncExitStack, homing: AsyncHoming, answer: Answer) -> str:
    """The id of a new webhook whose receiver answers so."""
    receiver = await stack.enter_async_context(receiving(answer))
    made = await homing.webhooks.make(receiver.url, events=["command.succeeded"])
    return str(made["id"])


async def hang(_request: web.Request) -> web.Response:
    """Answer after an hour."""
    await asyncio.sleep(3600)
    return web.Response()


async def fail(_request: web.Request) -> web.Response:
    """Answer 500."""
    return web.Response(status=500)


async def lanes(
    findings: Findings,
    *,
    rounds: Annotated[int, Option(min=1, help="The number of turns without and with bad receivers.")] = 3,
    seconds: Annotated[float, Option(min=1, help="The length of a turn.")] = 20.0,
) -> None:
    """Deliveries to three good receivers beside one that hangs, one that answers 500, and one that dies and returns."""
    delays: list[float] = []
    down = False

    async def good(request: web.Request) -> web.Response:
        delays.append(seconds_since((await request.json())["data"]["command"]["finished_at"]) * 1000)
        return web.Response(status=204)

    async def die(request: web.Request) -> web.Response:
        if down and request.transport is not None:
            request.transport.abort()
        return web.Response(status=204)

    async with AsyncExitStack() as stack:
        _, homing = await stack.enter_async_context(site())
        for _ in range(GOOD):
            await webhook(stack, homing, good)
        bad = [await webhook(stack, homing, answer) for answer in (hang, fail, die)]
        found: dict[bool, list[float]] = {False: [], True: []}
        for with_bad in in_turns((False, True), rounds):
            for one in bad:
                await homing.webhooks.change(one, enabled=with_bad)
            await asyncio.sleep(2)  # all nodes know
            delays.clear()
            down = True
            sent = asyncio.create_task(load(homing, seconds))
            await asyncio.sleep(seconds / 2)
            down = False
            expected = GOOD * await sent
            await eventually(lambda expected=expected: len(delays) >= expected)  # type: ignore[misc]
            found[with_bad].append(p99(delays))
    findings.spread("p99 from outcome to delivery without bad receivers", found[False], " ms")
    findings.spread("p99 beside bad receivers", found[True], " ms")
    ratios = [beside / alone for alone, beside in zip(found[False], found[True], strict=True)]
    findings.spread("p99 beside bad receivers against that without them", ratios, " ×", most=2)


async def load(homing: AsyncHoming, seconds: float) -> int:
    """Send commands at a steady rate and return how many succeeded."""
    count = round(RATE * seconds)
    async with asyncio.TaskGroup() as group:
        async for number in paced(RATE, count):
            group.create_task(homing.call(f"SN{number % 50:04}", "cover_open", {"n": number}))
    return count


async def waiting(
    findings: Findings,
    *,
    events: Annotated[int, Option(min=5, help="The number of events.")] = 100_000,
) -> None:
    """Memory of two nodes while so many events wait for a receiver that hangs."""
    async with AsyncExitStack() as stack:
        cluster, homing = await stack.enter_async_context(site())
        hanging = await webhook(stack, homing, hang)
        engine = open_engine(
            cluster.redis.url,
            clock=SystemClock(),
            counters=Counter(),
            wake_key=new_wake_key(),
            new_secret=new_secret,
        )
        await engine.store.start()
        stack.push_async_callback(engine.store.close)
        numbers, before = iter(range(events)), memory(cluster)

        async def work() -> None:
            for number in numbers:
                notice = OutboxEntry(command_id(f"SN{number % 50:04}", new_ulid()))
                delivery = Delivery(event_id(notice), EventType.SUCCEEDED, BODY, 1)
                if not await engine.store.webhooks.enqueue(hanging, delivery):
                    raise FigureError("an event was not taken")
                if number % (events // 5) == events // 5 - 1:
                    findings.note(f"{number + 1} wait: nodes have {memory(cluster)} MiB")

        await asyncio.gather(*(work() for _ in range(64)))
        for number in range(100):  # the nodes still do their work
            await homing.call("SN0001", "cover_open", {"n": number}, timeout="60s")
        after = memory(cluster)
        async with Redis.from_url(cluster.redis.url) as client:
            used = (await client.info("memory"))["used_memory"]
        shown = await homing.request("GET", f"/v1/webhooks/{hanging}/deliveries?limit=1")
    findings.figure("waiting at the end", shown.value["waiting"])
    findings.figure("memory of Redis", used / MIB, " MiB")
    findings.figure("the most that a node has grown by", max(map(int.__sub__, after, before)), " MiB", most=20)


def memory(cluster: Cluster) -> list[int]:
    """MiB of each node."""
    return [round(psutil.Process(node.pid).memory_info().rss / MIB) for node in cluster.nodes]
