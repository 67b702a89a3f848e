"""The promises of the whole, on three node processes, a real Redis and a real Mosquitto."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from functools import partial

import pytest
from redis.asyncio import Redis

from homing_rig.services import NotStartedError
from tests.cluster.harness import Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

COMMANDS = 1_500
IN_FLIGHT = 64


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(3, redis, broker) as nodes:
        yield nodes


def at_once(device: Device, command: Json) -> None:
    device.answer(command)


async def test_F1_instant_echoes_reach_their_callers_whichever_node_gets_them(cluster: Cluster) -> None:
    async with devices(cluster.broker, at_once) as device, caller(cluster) as client:
        tally = await client.many(COMMANDS, IN_FLIGHT)
    assert tally.states == {"succeeded": COMMANDS}
    assert tally.wrong == []
    assert len(tally.ids) == COMMANDS
    assert set(device.executed.values()) == {1}
    # Two responses out of three come in on a node that did not ask.
    assert 0.4 < tally.forwarded / COMMANDS < 0.9
    assert all(cluster.counters("response.forwarded"))


async def test_delayed_answers_reach_their_callers(cluster: Cluster) -> None:
    rng = random.Random(7)

    def later(device: Device, command: Json) -> None:
        asyncio.get_running_loop().call_later(rng.uniform(0.005, 0.2), device.answer, command)

    async with devices(cluster.broker, later), caller(cluster) as client:
        tally = await client.many(COMMANDS, 2 * IN_FLIGHT)
    assert tally.states == {"succeeded": COMMANDS}
    assert tally.wrong == []


async def test_F7_five_copies_of_each_answer_complete_it_once(cluster: Cluster) -> None:
    def five_times(device: Device, command: Json) -> None:
        for _ in range(5):
            device.answer(command)

    count = 1_000
    before = _settled(cluster)
    async with devices(cluster.broker, five_times), caller(cluster) as client:
        tally = await client.many(count, IN_FLIGHT)
        settled = sum(before.values()) + 5 * count
        await eventually(lambda: sum(_settled(cluster).values()) >= settled)
    after = _settled(cluster)
    assert tally.states == {"succeeded": count}
    assert tally.wrong == []
    assert after["won"] - before["won"] == count
    assert after["drop.duplicate"] - before["drop.duplicate"] == 4 * count


def _settled(cluster: Cluster) -> dict[str, int]:
    names = ("response.local", "response.forwarded", "drop.duplicate")
    local, forwarded, duplicate = (sum(cluster.counters(name)) for name in names)
    return {"won": local + forwarded, "drop.duplicate": duplicate}


async def test_F10_shuffled_answers_to_commands_on_one_topic_are_not_mixed_up(cluster: Cluster) -> None:
    rng = random.Random(11)
    held: list[Json] = []

    def shuffled(device: Device, command: Json) -> None:
        held.append(command)
        if len(held) == 100:
            rng.shuffle(held)
            for one in held:
                device.answer(one)
            held.clear()

    async with devices(cluster.broker, shuffled), caller(cluster) as client:
        tally = await client.many(1_000, 100, devices_count=1)
    assert tally.states == {"succeeded": 1_000}
    assert tally.wrong == []


def _executed(device: Device, commands: int) -> bool:
    return len(device.executed) >= commands


async def test_F20_F26_lost_pubsub_connections_and_scripts_cost_no_answer(cluster: Cluster) -> None:
    redis = Redis.from_url(cluster.redis.url)

    async def harm(device: Device) -> None:
        while True:
            await redis.client_kill_filter(_type="pubsub")
            await redis.script_flush()
            goal = len(device.executed) + IN_FLIGHT  # so much gets done meanwhile, however slow the machine is
            await eventually(partial(_executed, device, goal))

    async with devices(cluster.broker, at_once) as device, caller(cluster) as client:
        harming = asyncio.create_task(harm(device))
        try:
            tally = await client.many(COMMANDS, IN_FLIGHT)
        finally:
            harming.cancel()
            await redis.aclose()
    assert tally.states == {"succeeded": COMMANDS}
    assert tally.wrong == []
    assert set(device.executed.values()) == {1}


async def test_F14_retries_with_one_key_on_all_nodes_execute_once_and_agree(cluster: Cluster) -> None:
    def slowly(device: Device, command: Json) -> None:
        asyncio.get_running_loop().call_later(0.3, device.answer, command)

    async with devices(cluster.broker, slowly) as device, caller(cluster) as client:
        answers = await asyncio.gather(
            *(client.command(node, "SN-KEY", {"nonce": 1}, Idempotency_Key="once-only") for node in range(5))
        )
        later = await client.command(1, "SN-KEY", {"nonce": 1}, Idempotency_Key="once-only")
        reused = await client.command(2, "SN-KEY", {"nonce": 2}, Idempotency_Key="once-only")
    assert [status for status, _ in (*answers, later)] == [200] * 6
    assert len({body["id"] for _, body in (*answers, later)}) == 1
    assert all(body["result"] == {"nonce": 1} for _, body in (*answers, later))
    assert reused[0] == 422
    assert sum(device.executed.values()) == 1


async def test_outcomes_can_be_read_from_every_node(cluster: Cluster) -> None:
    async with devices(cluster.broker, at_once), caller(cluster) as client:
        _, sent = await client.command(0, "SN-READ", {"nonce": 5}, Prefer="respond-async")
        read = [await client.final(node, sent["id"]) for node in range(3)]
    assert all(command == read[0] for command in read)
    assert read[0]["state"] == "succeeded"


def test_F53_a_second_node_of_the_same_id_refuses_to_start(cluster: Cluster) -> None:
    with (
        pytest.raises(NotStartedError, match="is called 'n1' already"),
        cluster_of(1, cluster.redis, cluster.broker),
    ):
        pass
    assert cluster.nodes[0]._answers()


async def test_F20_the_sweep_alone_delivers_when_every_wake_up_is_lost() -> None:
    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        cluster_of(3, redis, broker, module="tests.cluster.deaf") as cluster,
    ):
        async with devices(broker, at_once), caller(cluster) as client:
            tally = await client.many(300, IN_FLIGHT)
        assert tally.states == {"succeeded": 300}
        assert tally.wrong == []
        assert sum(cluster.counters("sweep.delivered")) >= tally.forwarded
        assert tally.forwarded > 30


async def test_F13_an_outcome_is_readable_when_its_home_node_is_gone() -> None:
    release = asyncio.Event()

    def on_release(device: Device, command: Json) -> None:
        async def wait() -> None:
            await release.wait()
            device.answer(command)

        waiting.append(asyncio.create_task(wait()))

    waiting: list[asyncio.Task[None]] = []
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(3, redis, broker) as cluster:
        async with devices(broker, on_release), caller(cluster) as client:
            answered = [
                (await client.command(0, f"SN{i}", {"nonce": i}, Prefer="respond-async"))[1]["id"] for i in range(50)
            ]
            _, silent = await client.command(0, "SN-SILENT", {}, timeout="2s", Prefer="respond-async")
            cluster.nodes[0].stop()
            expired = await client.final(2, silent["id"])
            release.set()
            finals = [await client.final(1, one) for one in answered]
    assert [command["state"] for command in finals] == ["succeeded"] * 50
    assert [command["result"]["nonce"] for command in finals] == list(range(50))
    assert expired["state"] == "timed_out"
