"""Somebody who may publish in Redis tells a node an outcome that the store never had."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from tests.cluster.harness import Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually


async def test_a_forged_publish_gives_a_caller_nothing() -> None:
    received: list[Json] = []

    def keep(_device: Device, command: Json) -> None:
        received.append(command)

    with MosquittoProcess() as broker, RedisProcess() as server, cluster_of(1, server, broker) as cluster:
        async with devices(broker, keep) as device, caller(cluster) as client, Redis.from_url(server.url) as redis:
            calling = asyncio.create_task(client.command(0, "SN0001", {"n": 1}, timeout="60s"))
            await eventually(lambda: received, 20)
            command_id = received[0]["tid"]
            for words in ("", "\0- 1 AAAAAAAAAAAA", "\0AAAAAAAAAAAA"):
                forged = f'{command_id}\0succeeded\x0017\0n2\0{{"pwned":true}}\0{words}'
                assert await redis.publish("mqtt:node:n1", forged) == 1
            await eventually(lambda: cluster.counters("drop.forged_wake_up") == [1], 20)
            assert not calling.done()
            device.answer(received[0])
            status, command = await calling
    assert status == 200
    assert (command["state"], command["result"]) == ("succeeded", {"n": 1})
