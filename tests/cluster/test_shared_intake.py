"""All nodes bring events in, each its share, and one is killed and one stopped while they come."""

from __future__ import annotations

import asyncio

import aiohttp

from tests.cluster.harness import NodeProcess, cluster_of
from tests.cluster.talker import DEVICE, RECEIVE_MAXIMUM, TOPICS, Talker, everything
from tests.services import MosquittoProcess, RedisProcess

EVENTS = 3000
ENV = {"HOMING_EVENTS_INTAKE": "shared", "HOMING_EVENTS_RECEIVE_MAXIMUM": str(RECEIVE_MAXIMUM)}


async def changes_of_presence(node: NodeProcess) -> int:
    async with aiohttp.ClientSession() as http:
        parameters = {"topic": f"$homing/devices/{DEVICE}/presence"}
        async with http.get(f"{node.url}/v1/events", params=parameters) as answer:
            return len((await answer.json())["events"])


async def test_nothing_is_lost_whoever_is_killed_or_stopped(
    redis_server: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    device = Talker(mosquitto)
    env = ENV | {"HOMING_EVENTS_URL": redis_server.node_url, "HOMING_MQTT_SHARE_GROUP": "shared"}
    with cluster_of(2, redis_server, mosquitto, **env) as cluster:
        one, other = cluster.nodes
        await device.start()

        async def both_take_in() -> None:
            await device.heard_by(one)
            await device.heard_by(other)

        await both_take_in()
        saying = device.say(EVENTS)
        await device.more_taken(EVENTS // 4)
        await asyncio.to_thread(one.kill)
        await saying
        await device.judge(other, 1, ordered=False)  # what the dead one had was adopted
        await asyncio.to_thread(one.start)
        await both_take_in()

        saying = device.say(EVENTS)
        await device.more_taken(EVENTS // 4)
        await asyncio.to_thread(other.stop)  # it hands over what is to come
        await saying
        await device.judge(one, 1, ordered=False)
        assert await changes_of_presence(one) == 1, "it came once, although both nodes hear it"
        await asyncio.to_thread(one.stop)
        # The last node has left its session behind, and what is said now waits there for the next one.
        await device.say(300)
        await device.client.stop()
        await asyncio.to_thread(other.start)
        await device.judge(other, 1, ordered=False)


async def test_what_an_ordered_intake_left_is_taken_in(redis_server: RedisProcess, mosquitto: MosquittoProcess) -> None:
    device = Talker(mosquitto)
    env = {"HOMING_EVENTS_URL": redis_server.node_url, "HOMING_MQTT_SHARE_GROUP": "former"}
    with cluster_of(1, redis_server, mosquitto, **env) as cluster:
        (node,) = cluster.nodes
        await device.start()
        await device.heard_by(node)
        await device.say(30)
        await device.judge(node, 0)
        await asyncio.to_thread(node.stop)
        await device.say(300)
        node.configure(**ENV)
        await asyncio.to_thread(node.start)
        await device.judge(node, 0, ordered=False)
        await device.say(300)
        await device.client.stop()
        await device.judge(node, 0, ordered=False)
        found = await everything(node)
        assert sum(map(len, found.values())) == 630, "each once: the old session is gone"
        assert set(found) >= set(TOPICS)
