"""Nodes that die, freeze, restart and leave, on real processes, a real Redis and a real Mosquitto."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_rig import services
from homing_rig.chaos.proxy import FaultProxy
from tests.cluster.harness import Caller, Cluster, Device, Json, NodeProcess, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        MosquittoProcess("sys_interval 1") as broker,
        RedisProcess() as redis,
        cluster_of(3, redis, broker) as nodes,
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


async def sessions(broker: services.MosquittoProcess) -> int:
    """Return how many sessions the broker keeps, connected or not; the client that asks has one of them."""
    counts: asyncio.Queue[int] = asyncio.Queue()
    asking = PahoMqttClient(MqttOptions.from_url(broker.url, client_id="asking"), Counter())

    def take(delivery: InboundDelivery) -> None:
        counts.put_nowait(int(delivery.message.payload))
        delivery.acknowledge()

    await asking.start([Subscription("$SYS/broker/clients/total")], take)
    try:
        return await counts.get()
    finally:
        await asking.stop()


async def test_F50_responses_parked_in_a_killed_nodes_session_are_adopted(cluster: Cluster) -> None:
    held = Held()
    async with devices(cluster.broker, held) as device, caller(cluster) as client:
        sent = [
            (await client.command(i, f"SN{i}", {"nonce": i}, timeout="60s", Prefer="respond-async"))[1]["id"]
            for i in range(300)
        ]
        await eventually(lambda: len(held.commands) == 300)
        cluster.nodes[0].kill()
        cluster.end_lease("n1")
        held.answer_all(device)  # a third of them goes into the dead node's session
        finals = [await client.final(1 + i % 2, one) for i, one in enumerate(sent)]
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
            cluster.end_lease("n1")
            held.answer_all(device)
            finals = [await client.final(1, one) for one in sent]
        assert [command["state"] for command in finals] == ["succeeded"] * 90
        await eventually(lambda: cluster.counters("lease.lost")[0] == 1)
        await eventually(frozen._answers)
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
        finals = [await client.final(1, one) for one in sent]
    assert [command["state"] for command in finals] == ["succeeded"] * 30


async def test_F52_restarts_leave_no_sessions_behind(cluster: Cluster) -> None:
    async def only_those_of_the_living() -> bool:
        return await sessions(cluster.broker) <= len(cluster.nodes) + 1

    for round_number in range(2):
        for node in cluster.nodes:
            if round_number:
                node.kill()
                cluster.end_lease(node.node_id)
                await asyncio.to_thread(node.start)
            else:
                await asyncio.to_thread(node.restart)
    await eventually(only_those_of_the_living)


async def test_F71_parked_callers_of_a_stopping_node_are_told_where_to_ask(cluster: Cluster) -> None:
    held = Held()
    async with devices(cluster.broker, held) as device, caller(cluster) as client:
        parked = [asyncio.create_task(client.command(0, f"SN{i}", {"nonce": i}, timeout="60s")) for i in range(100)]
        await eventually(lambda: len(held.commands) == 100)
        assert await asyncio.to_thread(cluster.nodes[0].stop) == 0  # by itself, though they were parked for a minute
        answers = await asyncio.gather(*parked)
        assert {status for status, _ in answers} == {202}
        held.answer_all(device)
        finals = [await client.final(1, body["id"]) for _, body in answers]
    assert {command["state"] for command in finals} == {"succeeded"}


async def test_F13_a_restarted_node_takes_up_what_it_left_open(cluster: Cluster) -> None:
    held = Held()
    restarted = cluster.nodes[0]
    async with devices(cluster.broker, held) as device, caller(cluster) as client:
        _, sent = await client.command(0, "SN-LEFT", {}, timeout="10m", Prefer="respond-async")
        await eventually(lambda: bool(held.commands))
        restarted.kill()
        cluster.end_lease("n1")
        await asyncio.to_thread(restarted.start)
        assert "commands_taken_up" in restarted.log_text
        assert cluster.reported("n1")["pending"] == 1
        held.answer_all(device)
        assert (await client.final(1, sent["id"]))["state"] == "succeeded"
        await eventually(lambda: cluster.reported("n1")["pending"] == 0)


@pytest.mark.parametrize("comes_back", [False, True], ids=["stays dead", "comes back"])
async def test_what_a_node_did_not_send_before_it_died_is_sent_once_where_it_may_be_repeated(
    cluster: Cluster, *, comes_back: bool
) -> None:
    held = Held()
    async with (
        FaultProxy("127.0.0.1", cluster.broker.port) as proxy,
        devices(cluster.broker, held) as device,
        caller(cluster) as client,
    ):
        doomed = NodeProcess(
            "doomed",
            cluster.redis,
            cluster.broker,
            module="app.cli",
            HOMING_MQTT_URL=f"mqtt://127.0.0.1:{proxy.port}",
        )
        try:
            await asyncio.to_thread(doomed.start)
            cluster.nodes.append(doomed)
            proxy.blackhole()  # on record, and not yet at the broker: as if it died in between
            opened = [await sent(client, f"SN-OPEN-{i}", "cover_open") for i in range(20)]
            rebooted = [await sent(client, f"SN-REBOOT-{i}", "device_reboot") for i in range(5)]
            doomed.kill()
            proxy.reset()
            proxy.heal()
            if comes_back:
                await asyncio.to_thread(doomed.start)
            await eventually(lambda: len(device.executed) >= len(opened), 30)
            held.answer_all(device)
            finals = [await client.final(1, one) for one in opened]
            assert {command["state"] for command in finals} == {"succeeded"}
            assert device.executed == dict.fromkeys(opened, 1)
            assert {(await client.get(1, one))[1]["state"] for one in rebooted} == {"pending"}
        finally:
            doomed.__exit__(None, None, None)


async def sent(client: Caller, device_id: str, method: str) -> str:
    """A command of the last node."""
    status, body = await client.command(-1, device_id, {}, method=method, timeout="90s", Prefer="respond-async")
    assert status == 202
    command_id: str = body["id"]
    return command_id
