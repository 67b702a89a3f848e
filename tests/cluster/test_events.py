"""Events of devices on a real Mosquitto, kept by a node that is killed while they come."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from urllib.error import HTTPError

from redis.asyncio import Redis

from app.core.events.keys import role
from homing_rig.services import ServiceProcess
from tests.cluster.harness import Cluster, NodeProcess, cluster_of
from tests.cluster.talker import RECEIVE_MAXIMUM, TOPICS, Talker
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess, RedisProcess
from tests.waiting import eventually

KILLS = 3
EVENTS = 3000


class LoneNode(NodeProcess):
    """`homing serve` without a cluster, with events in a folder.

    Its sessions are its own: the broker would else give it what it kept for the one of an earlier test.
    """

    def __init__(self, broker: MosquittoProcess, folder: Path) -> None:
        ServiceProcess.__init__(self, sys.executable)
        self.node_id = "lone"
        self._module = "app.cli"
        self._env = {
            "HOMING_STORE_URL": "memory://",
            "HOMING_EVENTS_URL": f"rocks://{folder}/events",
            "HOMING_EVENTS_RECEIVE_MAXIMUM": str(RECEIVE_MAXIMUM),
            "HOMING_MQTT_URL": broker.url,
            "HOMING_MQTT_SHARE_GROUP": f"lone-{token_hex(4)}",
            "HOMING_MQTT_USERNAME": NODE_USER,
            "HOMING_MQTT_PASSWORD": NODE_PASSWORD,
            "HOMING_CLUSTER_DRAIN_DELAY": "0s",
        }


def homing(*arguments: str) -> str:
    """Return what the command line prints."""
    command = [sys.executable, "-m", "app.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def test_an_intake_that_is_killed_loses_nothing_and_keeps_the_order(
    mosquitto: MosquittoProcess, tmp_path: Path
) -> None:
    node, device = LoneNode(mosquitto, tmp_path), Talker(mosquitto)
    with node:
        await device.start()
        await device.heard_by(node)
        for _ in range(KILLS):
            saying = device.say(EVENTS)
            await device.more_taken(EVENTS // 3)
            await asyncio.to_thread(node.kill)
            await saying
            await asyncio.to_thread(node.start)
        await device.say(EVENTS)
        await device.client.stop()
        await device.judge(node, KILLS)
        shown = await asyncio.to_thread(homing, "events", "read", TOPICS[0], "--limit", "2", "--node", node.url)
        assert [line.split()[1] for line in shown.splitlines()] == [TOPICS[0]] * 2
        asked = ("events", "follow", TOPICS[0], "--from", "-1h", "--count", "3", "--node", node.url)
        followed = await asyncio.to_thread(homing, *asked)
        assert [json.loads(line.split(maxsplit=2)[2])["n"] for line in followed.splitlines()] == [0, 3, 6]
        said = await asyncio.to_thread(homing, "events", "publish", "fleet/note", '{"a":1}', "--node", node.url)
        assert int(said) > 1_700_000_000_000_000


async def test_the_next_node_takes_over_when_the_intake_is_killed(
    redis_server: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    """Each time the node that has the intake is killed or frozen, while events come."""
    device = Talker(mosquitto)
    env = {"HOMING_EVENTS_URL": redis_server.node_url, "HOMING_CLUSTER_LEASE": "2s"}
    env |= {"HOMING_MQTT_SHARE_GROUP": "events", "HOMING_EVENTS_RECEIVE_MAXIMUM": str(RECEIVE_MAXIMUM)}
    with cluster_of(3, redis_server, mosquitto, **env) as cluster:
        await device.start()
        await device.heard_by(*cluster.nodes)
        holders = []
        for kill in range(KILLS):
            holder = await intake_of(cluster, device)
            holders.append(holder.node_id)
            others = Cluster(cluster.redis, cluster.broker, [one for one in cluster.nodes if one is not holder])
            before = await appended(others)
            saying = device.say(EVENTS)
            await device.more_taken(EVENTS // 3)
            freeze = kill == 1
            await asyncio.to_thread(holder.pause if freeze else holder.kill)
            await saying

            async def taken_over(others: Cluster = others, before: dict[str, int] = before) -> bool:
                await device.say(3)  # all that came before may be in already
                after = await appended(others)
                return any(after[name] > before[name] for name in before)

            await eventually(taken_over)
            await asyncio.to_thread(holder.resume if freeze else holder.start)
        await device.say(EVENTS)
        await device.client.stop()
        await device.judge(cluster.nodes[0], KILLS)
        assert len(set(holders)) > 1


async def test_a_dead_intake_is_followed_before_its_lease_is_over(
    redis_server: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    """The broker tells of the death: the lease outlasts the test."""
    device = Talker(mosquitto)
    env = {"HOMING_EVENTS_URL": redis_server.node_url, "HOMING_CLUSTER_LEASE": "1m", "HOMING_MQTT_SHARE_GROUP": "wills"}
    with cluster_of(2, redis_server, mosquitto, **env) as cluster:
        await device.start()
        await device.heard_by(*cluster.nodes)
        holder = await intake_of(cluster, device)
        (other,) = (one for one in cluster.nodes if one is not holder)
        saying = device.say(EVENTS)
        await device.more_taken(EVENTS // 3)
        await asyncio.to_thread(holder.kill)
        async with Redis.from_url(redis_server.url) as client:
            await client.pexpire(role("wills-intake"), 3_600_000)
        await saying
        await device.client.stop()
        await device.judge(other, 1)


async def intake_of(cluster: Cluster, device: Talker) -> NodeProcess:
    """The node that appends now what a device says."""
    found: list[NodeProcess] = []
    before = await appended(cluster)

    async def appends() -> bool:
        nonlocal before
        await device.say(3)
        after = await appended(cluster)
        found[:] = [node for node in cluster.nodes if after[node.node_id] > before[node.node_id]]
        before = after
        return len(found) == 1

    await eventually(appends)
    return found[0]


async def appended(cluster: Cluster) -> dict[str, int]:
    """Return how many events each node has appended; one that has just come back may not be able to say so at once."""
    found: dict[str, int] = {}

    async def said() -> bool:
        for one in cluster.nodes:
            with suppress(HTTPError):
                counters = (await asyncio.to_thread(cluster.reported, one.node_id))["counters"]
                found[one.node_id] = counters.get("events.appended", 0)
        return len(found) == len(cluster.nodes)

    await eventually(said)
    return found
