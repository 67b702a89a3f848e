"""Nodes that die, freeze, restart and leave, on real processes, a real Redis and a real Mosquitto."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.cluster.harness import Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)

LEASE = "2s"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        MosquittoProcess("sys_interval 1") as broker,
        RedisProcess() as redis,
        cluster_of(3, redis, broker, HOMING_CLUSTER_LEASE=LEASE) as nodes,
    ):
        yield nodes


class Held:
    """Devices that answer when told to."""

    def __init__(self) -> None:
        self.commands: list[Json] = []

    def __call__(self, _device: Device, command: Json) -> None:
        self.commands.append(command)

    def answer_all(self, device: Device) -> None:
        for command in self.commands:
            device.answer(command)
        self.commands.clear()


def sessions(broker: MosquittoProcess) -> int:
    """How many sessions of nodes the broker keeps, connected or not."""
    total = subprocess.run(
        ["mosquitto_sub", "-p", str(broker.port), "-t", "$SYS/broker/clients/total", "-C", "1", "-W", "5"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(total.stdout)


async def test_F50_responses_parked_in_a_killed_nodes_session_are_adopted(cluster: Cluster) -> None:
    held = Held()
    async with devices(cluster.broker, held) as device, caller(cluster) as client:
        sent = [
            (await client.command(i, f"SN{i}", {"nonce": i}, timeout="60s", Prefer="respond-async"))[1]["id"]
            for i in range(300)
        ]
        await eventually(lambda: len(held.commands) == 300)
        cluster.nodes[0].kill()
        held.answer_all(device)  # a third of them goes into the dead node's session
        finals = [await client.final(1 + i % 2, one, timedelta(seconds=20)) for i, one in enumerate(sent)]
    assert [command["state"] for command in finals] == ["succeeded"] * 300
    assert [command["result"]["nonce"] for command in finals] == list(range(300))
    cluster.nodes.pop(0)
    await eventually(lambda: sum(cluster.counters("adoption.sessions")) == 1)
    assert sum(cluster.counters("adoption.responses")) > 50


async def test_F15_a_frozen_node_comes_back_as_another_incarnation(cluster: Cluster) -> None:
    held = Held()
    frozen = cluster.nodes[0]
    async with devices(cluster.broker, held) as device, caller(cluster) as client:
        sent = [
            (await client.command(i, f"SN{i}", {"nonce": i}, timeout="60s", Prefer="respond-async"))[1]["id"]
            for i in range(90)
        ]
        await eventually(lambda: len(held.commands) == 90)
        with frozen.paused():
            held.answer_all(device)
            finals = [await client.final(1, one, timedelta(seconds=20)) for one in sent]
        assert [command["state"] for command in finals] == ["succeeded"] * 90
        await eventually(lambda: cluster.counters("lease.lost")[0] == 1, 5)
        await eventually(frozen._answers, 5)
        held.commands.clear()
        one = asyncio.create_task(client.command(0, "SN-AGAIN", {"nonce": 1}))
        await eventually(lambda: bool(held.commands))
        held.answer_all(device)
        assert (await one)[1]["state"] == "succeeded"


async def test_F51_answers_given_while_no_node_runs_are_found_at_the_next_start(cluster: Cluster) -> None:
    held = Held()
    async with devices(cluster.broker, held) as device, caller(cluster) as client:
        sent = [
            (await client.command(i, f"SN{i}", {"nonce": i}, timeout="60s", Prefer="respond-async"))[1]["id"]
            for i in range(30)
        ]
        await eventually(lambda: len(held.commands) == 30)
        for node in cluster.nodes:
            await asyncio.to_thread(node.stop)
        held.answer_all(device)
        await asyncio.to_thread(cluster.nodes[1].start)
        finals = [await client.final(1, one, timedelta(seconds=20)) for one in sent]
    assert [command["state"] for command in finals] == ["succeeded"] * 30


async def test_F52_restarts_leave_no_sessions_behind(cluster: Cluster) -> None:
    for round_number in range(2):
        for node in cluster.nodes:
            await asyncio.to_thread(node.kill if round_number else node.restart)
            if round_number:
                await asyncio.to_thread(node.start)
    # $SYS counts the asking client too.
    await eventually(lambda: sessions(cluster.broker) <= 4, 30)


async def test_F71_parked_callers_of_a_stopping_node_are_told_where_to_ask(cluster: Cluster) -> None:
    held = Held()
    async with devices(cluster.broker, held) as device, caller(cluster) as client:
        parked = [asyncio.create_task(client.command(0, f"SN{i}", {"nonce": i}, timeout="60s")) for i in range(100)]
        await eventually(lambda: len(held.commands) == 100)
        began = asyncio.get_running_loop().time()
        await asyncio.to_thread(cluster.nodes[0].stop)
        took = asyncio.get_running_loop().time() - began
        answers = await asyncio.gather(*parked)
        assert {status for status, _ in answers} == {202}
        held.answer_all(device)
        finals = [await client.final(1, body["id"], timedelta(seconds=10)) for _, body in answers]
    assert {command["state"] for command in finals} == {"succeeded"}
    assert took < 15


async def test_F13_a_restarted_node_takes_up_what_it_left_open(cluster: Cluster) -> None:
    restarted = cluster.nodes[0]
    async with devices(cluster.broker, Held()), caller(cluster) as client:
        _, sent = await client.command(0, "SN-LEFT", {}, timeout="8s", Prefer="respond-async")
        restarted.kill()
        await asyncio.to_thread(restarted.start)
        assert "commands_taken_up" in restarted.log_text
        expired = await client.final(1, sent["id"], timedelta(seconds=15))
    assert expired["state"] == "timed_out"
