"""Figures of `homing-client`; docs/performance.md has what they showed.

python -m tests.cluster.client_figures rolling --calls 10000   calls while three nodes are restarted, one after another
python -m tests.cluster.client_figures failing --calls 10000   what is offered to a server that fails every second time
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random
from time import perf_counter

from aiohttp import web

from homing_client import AsyncHoming, HomingError
from tests.cluster.harness import Cluster, Device, Json, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess

WORKERS = 16
"""Calls under way at a time, of each of three clients."""
ANSWER_SECONDS = 0.05
"""How long the device takes, so that calls wait on the nodes that stop."""


async def rolling(calls: int) -> bool:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(3, redis, broker) as cluster:
        executed: Counter[int] = Counter()

        def obey(device: Device, command: Json) -> None:
            executed[command["data"]["nonce"]] += 1
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, device.answer, command)

        urls = [node.url for node in cluster.nodes]
        errors: list[str] = []
        numbers = iter(range(calls))
        async with devices(broker, obey):
            clients = [AsyncHoming(",".join(urls[at:] + urls[:at])) for at in range(3)]
            began, stopping = perf_counter(), asyncio.Event()
            restarts = asyncio.create_task(restart(cluster, stopping))
            await asyncio.gather(*(call(one, numbers, errors) for one in clients for _ in range(WORKERS)))
            took = perf_counter() - began
            stopping.set()
            count = await restarts
            for client in clients:
                await client.aclose()
    twice = sum(times > 1 for times in executed.values())
    say(f"{calls} calls in {took:.0f} s over {count} restarts of three nodes, one after another:")
    say(f"  {len(errors)} errors, {twice} executed twice, {calls - len(executed)} not executed")
    for kind, times in Counter(one.partition(": ")[2] for one in errors).most_common(8):
        say(f"  {times} × {kind}")
    return not errors and not twice and len(executed) == calls and count >= len(urls)


async def call(homing: AsyncHoming, numbers: Iterator[int], errors: list[str]) -> None:
    for number in numbers:
        try:
            done = await homing.call(f"SN{number % 50:04}", "cover_open", {"nonce": number}, timeout="60s")
            if done.result != {"nonce": number}:
                errors.append(f"call {number} was told of another: {done.result}")
        except HomingError as error:
            errors.append(f"call {number}: {type(error).__name__}: {error}")


async def restart(cluster: Cluster, stopping: asyncio.Event) -> int:
    """How many restarts there were; at least one of each node, and on and on while there are calls."""
    count = 0
    while not stopping.is_set() or count < len(cluster.nodes):
        node = cluster.nodes[count % len(cluster.nodes)]
        await asyncio.to_thread(node.restart)
        count += 1
    return count


async def failing(calls: int) -> bool:
    offered, chance = 0, Random(1)

    async def answer(_request: web.Request) -> web.Response:
        nonlocal offered
        offered += 1
        if chance.random() < 0.5:
            return web.Response(status=503)
        return web.json_response({"id": "c", "device_id": "d", "method": "m", "state": "succeeded"})

    application = web.Application()
    application.router.add_post("/{tail:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    failed = 0
    numbers = iter(range(calls))

    async def worker(homing: AsyncHoming) -> None:
        nonlocal failed
        for _ in numbers:
            try:
                await homing.call("d", "m")
            except HomingError:
                failed += 1

    async with AsyncHoming(f"http://127.0.0.1:{runner.addresses[0][1]}") as homing:
        await asyncio.gather(*(worker(homing) for _ in range(WORKERS)))
    await runner.cleanup()
    say(f"{calls} calls to a server that fails every second request: {offered} requests, {offered / calls:.3f} ×,")
    say(f"  {failed} calls failed")
    return offered <= 1.2 * calls


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rolling", "failing"))
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args()
    return 0 if asyncio.run((rolling if options.what == "rolling" else failing)(options.calls)) else 1


if __name__ == "__main__":
    sys.exit(main())
