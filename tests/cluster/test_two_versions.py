"""A rolling update from 0.1.0: a node of that version and one of this work side by side, whichever of them dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis

from tests.cluster.harness import Caller, Cluster, Device, Json, NodeProcess, caller, devices
from tests.previous import previous_version
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

COMMANDS = 600
OLD, NEW = 0, 1
PATIENCE = timedelta(seconds=40)


@pytest.fixture(scope="module")
def previous() -> Iterator[Path]:
    with previous_version() as folder:
        yield folder


@contextmanager
def both(previous: Path, *, in_one_group: bool) -> Iterator[Cluster]:
    """Number 0 is 0.1.0, number 1 is this version.

    By themselves they form two groups, so that each gets every response; in one group they share them.
    """
    with ExitStack() as stack:
        broker, redis = stack.enter_context(MosquittoProcess()), stack.enter_context(RedisProcess())
        new = stack.enter_context(NodeProcess("new", redis, broker, module="app.cli"))
        env = {"PYTHONPATH": str(previous)}
        if in_one_group:
            with Redis.from_url(redis.url, decode_responses=True) as client:
                env["HOMING_MQTT_SHARE_GROUP"] = f"homing-{client.hget('mqtt:cluster', 'group')}"
        old = stack.enter_context(NodeProcess("old", redis, broker, module="app.cli", **env))
        yield Cluster(redis, broker, [old, new])
        assert not redis.refusals()


@pytest.fixture
def cluster(previous: Path) -> Iterator[Cluster]:
    with both(previous, in_one_group=False) as running:
        yield running


def at_once(device: Device, command: Json) -> None:
    device.answer(command)


def soon(device: Device, command: Json) -> None:
    asyncio.get_running_loop().call_later(0.5, device.answer, command)


async def listed(client: Caller, node: int) -> list[tuple[str, str, Json | None]]:
    found, cursor = [], ""
    while True:
        url = f"{client.cluster.nodes[node].url}/v1/commands?limit=200{cursor}"
        async with client.session.get(url) as response:
            page = await response.json()
            assert response.status == 200, page
        found += [(one["id"], one["state"], one["result"]) for one in page["commands"]]
        if page["cursor"] is None:
            return found
        cursor = f"&cursor={page['cursor']}"


async def test_in_an_update_each_command_has_one_answer_though_both_get_all_of_them(cluster: Cluster) -> None:
    async with devices(cluster.broker, at_once), caller(cluster) as client:
        tally = await client.many(COMMANDS, 16)
    assert tally.states == {"succeeded": COMMANDS}
    assert tally.wrong == []
    assert sum(cluster.counters("drop.duplicate")) > 0
    for counter in ("drop.bad_wake_up", "drop.unreadable_record", "drop.forged_wake_up", "store.failed", "lease.lost"):
        assert cluster.counters(counter) == [0, 0], counter


async def test_commands_through_both_are_answered_through_both(previous: Path) -> None:
    with both(previous, in_one_group=True) as cluster:
        await _sent_through_both(cluster)


async def _sent_through_both(cluster: Cluster) -> None:
    async with devices(cluster.broker, at_once), caller(cluster) as client:
        tally = await client.many(COMMANDS, 16)
        assert tally.states == {"succeeded": COMMANDS}
        assert tally.wrong == []
        # Each takes answers for the other's commands, and tells it.
        assert all(cluster.counters("response.forwarded"))
        told = [
            sum(counts) for counts in zip(*map(cluster.counters, ("wakeup.delivered", "wakeup.fetched")), strict=True)
        ]
        assert all(told)
        seen = [await listed(client, node) for node in (OLD, NEW)]
    assert seen[OLD] == seen[NEW]
    assert len(seen[NEW]) == COMMANDS
    for counter in ("drop.bad_wake_up", "drop.unreadable_record", "drop.forged_wake_up", "store.failed", "lease.lost"):
        assert cluster.counters(counter) == [0, 0], counter


async def test_a_key_stands_for_one_command_on_both(cluster: Cluster) -> None:
    async with devices(cluster.broker, at_once) as device, caller(cluster) as client:
        for first, key in ((OLD, "old-first"), (NEW, "new-first")):
            _, one = await client.command(first, "SN0001", {"n": first}, Idempotency_Key=key)
            _, other = await client.command(1 - first, "SN0001", {"n": first}, Idempotency_Key=key)
            assert one["id"] == other["id"]
            assert one["state"] == other["state"] == "succeeded"
        # A caller who joins a command that is under way is woken, too.
        device._reaction = soon
        for first, key in ((OLD, "old-waits"), (NEW, "new-waits")):
            calls = [client.command(node, "SN0001", {"n": 7}, Idempotency_Key=key) for node in (first, 1 - first)]
            (_, one), (_, other) = await asyncio.gather(*calls)
            assert one["id"] == other["id"]
            assert one["state"] == other["state"] == "succeeded"


@pytest.mark.parametrize("dead", [OLD, NEW], ids=["0.1.0 dies", "this version dies"])
async def test_the_survivor_looks_after_the_commands_of_the_dead(cluster: Cluster, dead: int) -> None:
    survivor = 1 - dead
    answers: dict[str, Json] = {}

    def keep(_device: Device, command: Json) -> None:
        answers[command["tid"]] = command

    async with devices(cluster.broker, keep) as device, caller(cluster) as client:
        ids = []
        for number in range(40):
            status, accepted = await client.command(
                dead, f"SN{number:04}", {"n": number}, timeout="25s", Prefer="respond-async"
            )
            assert status == 202
            ids.append(accepted["id"])
        _, forgotten = await client.command(dead, "SN9999", {}, timeout="3s", Prefer="respond-async")
        await eventually(lambda: set(answers) >= {*ids, forgotten["id"]})
        cluster.nodes[dead].kill()
        for one in ids:
            device.answer(answers[one])
        ended = await asyncio.gather(*(client.final(survivor, one, PATIENCE) for one in ids))
        assert {one["state"] for one in ended} == {"succeeded"}
        assert (await client.final(survivor, forgotten["id"], PATIENCE))["state"] == "timed_out"
        cluster.nodes[dead].start()
        device._reaction = at_once
        tally = await client.many(100, 8)
        assert tally.states == {"succeeded": 100}
        assert await listed(client, OLD) == await listed(client, NEW)
