"""Webhooks of three real nodes on a real Redis: what was decided is told, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from homing_rig.receivers import Receiver, receiving
from tests.cluster.harness import Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

SETTINGS = {
    "HOMING_WEBHOOKS_SECRET_KEY": "0123456789abcdef" * 2,
    "HOMING_WEBHOOKS_NETWORKS": "127.0.0.0/8",
    "HOMING_WEBHOOKS_PLAIN_HTTP": "true",
}
IN_FLIGHT = 8
"""The number of attempts of an endpoint that may be under way on a node, and so be repeated when it dies."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(3, redis, broker, **SETTINGS) as nodes:
        yield nodes


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


async def create(cluster: Cluster, receiver: Receiver) -> Json:
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{cluster.nodes[-1].url}/v1/webhooks",
            json={"url": receiver.url, "events": ["command.succeeded", "command.timed_out", "command.late"]},
        ) as response,
    ):
        made: Json = await response.json()
        assert response.status == 201, made

    async def known() -> bool:
        """All nodes do: each takes a command that names it, to a device that is not there."""
        body = {"method": "reboot", "if_offline": "fail", "notify": [made["id"]]}
        async with aiohttp.ClientSession() as http:
            urls = [f"{node.url}/v1/devices/NOBODY/commands" for node in cluster.nodes]
            return all([(await http.post(url, json=body)).status == 409 for url in urls])

    await eventually(known)
    return made


async def test_no_outcome_stays_untold_though_nodes_are_killed(cluster: Cluster, receiver: Receiver) -> None:
    """Each event is told under one id, in order within its command; only what was in flight at a kill comes twice."""
    kills, commands = 3, 300

    refused: set[str] = set()

    async def once_in_ten(request: web.Request) -> web.Response:
        event_id = request.headers["webhook-id"]
        if len(receiver.got) % 10 == 0 and event_id not in refused:
            refused.add(event_id)
            return web.Response(status=503)
        return web.Response(status=204)

    receiver.answer = once_in_ten

    def obey(device: Device, command: Json) -> None:
        if command["data"]["nonce"] % 10:
            device.answer(command)
        else:
            asyncio.get_running_loop().call_later(1.0, device.answer, command)  # after its deadline

    hook = await create(cluster, receiver)
    async with devices(cluster.broker, obey), caller(cluster) as client:
        sent = []
        for number in range(commands):
            if number % (commands // kills) == commands // kills - 1:
                victim = cluster.nodes[number // (commands // kills)]
                victim.kill()
                cluster.end_lease(victim.node_id)
                await asyncio.to_thread(victim.start)
            timeout = "60s" if number % 10 else "500ms"
            _, body = await client.command(
                number, f"SN{number}", {"nonce": number}, timeout=timeout, Prefer="respond-async"
            )
            sent.append(body["id"])
        expected = {f"evt_{one}_1" for one in sent}

        def told() -> bool:
            counted = Counter(headers["webhook-id"] for headers, _ in receiver.got)
            # With its home dead, a command may still be open when its answer comes.
            timed_out = {one["webhook-id"] for one, body in receiver.got if b'"command.timed_out"' in body}
            expected.update(f"{one.removesuffix('1')}2" for one in timed_out)
            return all(counted[one] > (one in refused) for one in expected)

        await eventually(told)
    order: dict[str, list[int]] = defaultdict(list)
    for headers, told_body in receiver.got:
        event = json.loads(told_body)
        Webhook(hook["secret"]).verify(told_body, headers)
        order[event["data"]["command"]["id"]].append(event["data"]["sequence"])
    assert {headers["webhook-id"] for headers, _ in receiver.got} == expected
    assert all(one == sorted(one) for one in order.values())
    assert len(receiver.got) <= len(expected) + len(refused) + kills * IN_FLIGHT
