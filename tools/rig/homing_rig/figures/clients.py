"""Calls of `homing-client` while nodes are restarted, and to a server that fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from random import Random
from time import perf_counter
from typing import Annotated, Final

from aiohttp import web
from typer import Option

from homing_client import AsyncHoming, HomingError
from homing_rig.figures.kit import Findings
from homing_rig.harness import Cluster, Device, Json, cluster_of, devices
from homing_rig.receivers import receiving
from homing_rig.services import MosquittoProcess, RedisProcess

WORKERS: Final = 16
"""Calls under way at a time, of each client."""
ANSWER_SECONDS: Final = 0.05
"""The time that the device takes, so that calls wait on the nodes that stop."""


async def rolling(
    findings: Findings, *, calls: Annotated[int, Option(min=1, help="The number of calls.")] = 10_000
) -> None:
    """Calls of three clients while three nodes are restarted, one after another and again."""
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
            await asyncio.gather(*(call(client, numbers, errors) for client in clients for _ in range(WORKERS)))
            took = perf_counter() - began
            stopping.set()
            count = await restarts
            for client in clients:
                await client.aclose()
    findings.note(f"{calls} calls in {took:.0f} s")
    findings.figure("restarts", count, least=len(urls))
    findings.figure("errors", len(errors), most=0)
    findings.figure("executed twice", sum(times > 1 for times in executed.values()), most=0)
    findings.figure("not executed", calls - len(executed), most=0)
    for kind, times in Counter(error.partition(": ")[2] for error in errors).most_common(8):
        findings.note(f"{times} × {kind}")


async def call(homing: AsyncHoming, numbers: Iterator[int], errors: list[str]) -> None:
    """Make calls until there are no more numbers."""
    for number in numbers:
        try:
            done = await homing.call(f"SN{number % 50:04}", "cover_open", {"nonce": number}, timeout="60s")
            if done.result != {"nonce": number}:
                errors.append(f"call {number}: got the result of another: {done.result}")
        except HomingError as error:
            errors.append(f"call {number}: {type(error).__name__}: {error}")


async def restart(cluster: Cluster, stopping: asyncio.Event) -> int:
    """Restart nodes and return how often: each at least once, and more while there are calls."""
    count = 0
    while not stopping.is_set() or count < len(cluster.nodes):
        await asyncio.to_thread(cluster.nodes[count % len(cluster.nodes)].restart)
        count += 1
    return count


async def failing(
    findings: Findings, *, calls: Annotated[int, Option(min=1, help="The number of calls.")] = 10_000
) -> None:
    """Requests that calls become at a server that fails every second one."""
    chance, requests, failed = Random(1), Counter[int](), 0

    async def answer(_request: web.Request) -> web.Response:
        status = 503 if chance.random() < 0.5 else 200  # noqa: PLR2004 - every second one
        requests[status] += 1
        return web.json_response({"id": "c", "device_id": "d", "method": "m", "state": "succeeded"}, status=status)

    numbers = iter(range(calls))

    async def work(homing: AsyncHoming) -> None:
        nonlocal failed
        for _ in numbers:
            try:
                await homing.call("d", "m")
            except HomingError:
                failed += 1

    async with receiving(answer) as server, AsyncHoming(f"http://127.0.0.1:{server.port}") as homing:
        await asyncio.gather(*(work(homing) for _ in range(WORKERS)))
    findings.note(f"{calls} calls became {requests.total()} requests; {failed} of them failed")
    findings.figure("requests for each call", requests.total() / calls, " ×", most=1.2)
