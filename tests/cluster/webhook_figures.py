"""Figures of webhooks on two real nodes; docs/performance.md has what they showed.

python -m tests.cluster.webhook_figures lanes --rounds 3          good receivers beside one that hangs, one that
                                                                  answers 500, and one that dies and comes back
python -m tests.cluster.webhook_figures waiting --events 100000   memory while so many wait for one that hangs
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from statistics import median, quantiles
from time import perf_counter, time

import psutil  # type: ignore[import-untyped] # it has no types
from aiohttp import web
from redis import Redis

from app.core.identifiers import command_id
from app.core.webhooks.deliveries import Delivery, OutboxEntry, event_id
from app.core.webhooks.endpoints import EventType
from app.runtime.system import new_ulid
from homing_client import AsyncHoming
from tests.cluster.harness import Cluster, Device, Json, cluster_of, devices
from tests.cluster.test_webhooks import SETTINGS
from tests.services import MosquittoProcess, RedisProcess
from tests.stores import redis_store
from tests.unit.webhooks.receivers import receiving
from tests.waiting import eventually

GOOD = 3
RATE = 25
"""Commands a second."""
SECONDS = 20
"""Of a turn."""
BODY = b'{"type":"command.succeeded","data":{"sequence":1,"command":"%s"}}' % (b"x" * 700)
"""As large as what an outcome has to say."""


@asynccontextmanager
async def site() -> AsyncIterator[tuple[Cluster, RedisProcess, AsyncHoming]]:
    def obey(device: Device, command: Json) -> None:
        device.answer(command)

    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        cluster_of(2, redis, broker, **SETTINGS) as cluster,
    ):
        async with devices(broker, obey), AsyncHoming(cluster.nodes[0].url) as homing:
            yield cluster, redis, homing


async def hang(_request: web.Request) -> web.Response:
    await asyncio.sleep(3600)
    return web.Response()


async def fail(_request: web.Request) -> web.Response:
    return web.Response(status=500)


async def lanes(rounds: int) -> bool:
    delays: list[float] = []

    async def good(request: web.Request) -> web.Response:
        finished = (await request.json())["data"]["command"]["finished_at"]
        delays.append(time() - datetime.fromisoformat(finished).timestamp())
        return web.Response(status=204)

    down = False

    async def dies(_request: web.Request) -> web.Response:
        if down:
            raise ConnectionResetError
        return web.Response(status=204)

    async with AsyncExitStack() as stack:
        _, _, homing = await stack.enter_async_context(site())
        for _ in range(GOOD):
            receiver = await stack.enter_async_context(receiving(good))
            await homing.webhooks.make(receiver.url, events=["command.succeeded"])
        bad = []
        for answer in (hang, fail, dies):
            receiver = await stack.enter_async_context(receiving(answer))
            made = await homing.webhooks.make(receiver.url, events=["command.succeeded"])
            bad.append(str(made["id"]))
        found: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * rounds):
            with_bad = turn % 2 == 1
            for one in bad:
                await homing.webhooks.change(one, enabled=with_bad)
            await asyncio.sleep(2)  # all nodes know
            delays.clear()
            down = True
            sent = asyncio.create_task(load(homing))
            await asyncio.sleep(SECONDS / 2)
            down = False
            count = await sent
            await eventually(partial(all_told, delays, GOOD * count))
            p99 = quantiles(delays, n=100)[98]
            found[with_bad].append(p99)
            say(f"{'beside three bad ones' if with_bad else 'good ones alone     '}: {len(delays)} deliveries, ")
            say(f"  median {median(delays) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms after the outcome")
        ratio = median(found[True]) / median(found[False])
        say(f"p99 of good receivers beside bad ones: {ratio:.2f} × of that without them (medians of {rounds} turns)")
        return bool(ratio <= 2)


def all_told(delays: list[float], count: int) -> bool:
    return len(delays) >= count


async def load(homing: AsyncHoming) -> int:
    count, began = RATE * SECONDS, perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / RATE - perf_counter()))
            group.create_task(homing.call(f"SN{number % 50:04}", "cover_open", {"n": number}))
    return count


async def waiting(events: int) -> bool:
    async with AsyncExitStack() as stack:
        cluster, redis, homing = await stack.enter_async_context(site())
        receiver = await stack.enter_async_context(receiving(hang))
        made = await homing.webhooks.make(receiver.url, events=["command.succeeded"])
        store = redis_store(redis.url)
        await store.start()
        stack.push_async_callback(store.close)
        processes = [psutil.Process(node.pid) for node in cluster.nodes]
        numbers, held = iter(range(events)), [memory(processes)]
        say(f"none waits: nodes {held[0]} MiB")

        async def worker() -> None:
            for number in numbers:
                notice = OutboxEntry(command_id(f"SN{number % 50:04}", new_ulid()), late=False)
                one = Delivery(event_id(notice), EventType.SUCCEEDED, BODY, 1)
                assert await store.webhooks.enqueue(str(made["id"]), one)
                if number % (events // 5) == events // 5 - 1:
                    held.append(memory(processes))
                    say(f"{number + 1} wait: nodes {held[-1]} MiB")

        await asyncio.gather(*(worker() for _ in range(64)))
        for number in range(100):  # the nodes still do their work
            await homing.call("SN0001", "cover_open", {"n": number}, timeout="60s")
        held.append(memory(processes))
        with Redis.from_url(redis.url) as client:
            used = round(client.info("memory")["used_memory"] / 2**20)
        shown = await homing.request("GET", f"/v1/webhooks/{made['id']}/deliveries?limit=1")
        grown = max(after - before for before, after in zip(held[0], held[-1], strict=True))
        say(f"{shown.value['waiting']} wait at the end, Redis has {used} MiB; the nodes grew by {grown} MiB at most")
        return grown < 20


def memory(processes: list[psutil.Process]) -> list[int]:
    return [round(one.memory_info().rss / 2**20) for one in processes]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("lanes", "waiting"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=100_000)
    options = parser.parse_args()
    return 0 if asyncio.run(lanes(options.rounds) if options.what == "lanes" else waiting(options.events)) else 1


if __name__ == "__main__":
    sys.exit(main())
