"""A cluster whose events go into the cold tier, and a node that is killed while they do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.harness import NodeProcess, cluster_of
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

BATCH = 250
BATCHES = 6
VALUE = "x" * 4000
"""A batch is a generation, and more."""


async def publish(http: aiohttp.ClientSession, node: NodeProcess, first: int) -> None:
    said = [
        {"topic": f"fleet/{number % 7}/up", "data": {"n": number, "v": VALUE}} for number in range(first, first + BATCH)
    ]
    async with http.post(f"{node.url}/v1/events", json=said) as answer:
        assert answer.status == 200, await answer.text()


async def numbers(http: aiohttp.ClientSession, node: NodeProcess) -> list[int]:
    found: list[int] = []
    parameters, more = {"topic": "fleet/#", "limit": "400"}, True
    while more:
        async with http.get(f"{node.url}/v1/events", params=parameters) as answer:
            page: dict[str, Any] = await answer.json()
            assert answer.status == 200, page
        found += [event["data"]["n"] for event in page["events"]]
        parameters["cursor"], more = page["cursor"], page["more"]
    return found


async def cold_events(http: aiohttp.ClientSession, node: NodeProcess) -> int:
    async with http.get(f"{node.url}/v1/databases") as answer:
        (events,) = [one for one in (await answer.json())["databases"] if one["name"] == "events"]
    return sum(one["events"] for one in events["generations"] if one["state"] == "cold")


async def test_events_become_cold_whoever_dies_and_every_node_reads_them(
    redis_server: RedisProcess, mosquitto: MosquittoProcess, tmp_path: Path
) -> None:
    env = {"HOMING_EVENTS_URL": redis_server.node_url, "HOMING_CLUSTER_LEASE": "2s"}
    env |= {"HOMING_EVENTS_COLD": str(tmp_path / "cold"), "HOMING_EVENTS_HOT": "0s"}
    env |= {"HOMING_EVENTS_GENERATION_BYTES": "1000000", "HOMING_MQTT_SHARE_GROUP": "cold"}
    with cluster_of(2, redis_server, mosquitto, **env) as cluster:
        one, other = cluster.nodes
        async with aiohttp.ClientSession() as http:

            async def cooled(count: int) -> None:
                async def enough() -> bool:
                    return await cold_events(http, other) >= count

                await eventually(enough)

            async def opened() -> bool:
                async with http.get(f"{other.url}/v1/databases") as answer:
                    return answer.status == 200

            await eventually(opened)
            for number in range(BATCHES):
                await publish(http, other, number * BATCH)
                if number == BATCHES // 2:
                    await cooled(BATCH)
                    await asyncio.to_thread(one.kill)
                    await publish(http, other, BATCHES * BATCH)
            await cooled((BATCHES - 2) * BATCH)
            assert sorted(await numbers(http, other)) == list(range((BATCHES + 1) * BATCH))
            await asyncio.to_thread(one.start)
            assert await numbers(http, one) == await numbers(http, other)
