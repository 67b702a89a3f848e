"""The MQTT sessions of a cluster under bad days of its store and strangers at its broker, seen from outside.

No answer may be lost to a session that no node looks after, and what cannot be helped has to be said. Half of these
faults leave every part of a node in order: only what becomes of the commands tells.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from redis.asyncio import Redis

from app.core.topics import share
from app.runtime.system import SystemClock
from tests.broker import running_broker
from tests.cluster.harness import NodeProcess
from tests.cluster.outside import (
    ROUND,
    WatchedBroker,
    about,
    all_ready,
    asked,
    begun,
    callers,
    health,
    scene,
    shared_subscriptions,
    stranger,
)
from tests.services import RedisProcess
from tests.stepped_redis import SteppedRedis
from tests.waiting import eventually

DAY = 24 * 60 * 60
"""Longer than sessions and leases are kept."""
DEFAULT_GROUP = "homing"
"""The group that a stranger would guess."""
ALL = {"succeeded": ROUND}
OK, UNREADY = 200, 503


@pytest.fixture
def redis_server() -> Iterator[RedisProcess]:
    """A Redis for this test alone, as it is broken."""
    with RedisProcess() as server:
        yield server


@pytest.fixture
def stepped_redis() -> Iterator[SteppedRedis]:
    with SteppedRedis() as server:
        yield server


@pytest.fixture
def broker() -> Iterator[WatchedBroker]:
    with WatchedBroker() as server:
        yield server


def flush(redis: RedisProcess) -> None:
    asyncio.run(_flush(redis))


async def _flush(redis: RedisProcess) -> None:
    async with Redis.from_url(redis.url) as client:
        await client.flushall()


def restart_without_data(redis: RedisProcess) -> None:
    redis.kill()
    shutil.rmtree(redis.folder / "appendonlydir")
    redis.start()


@pytest.mark.parametrize("forget", [flush, restart_without_data])
async def test_no_answer_is_lost_when_the_store_has_lost_its_memory(
    redis_server: RedisProcess, broker: WatchedBroker, forget: Callable[[RedisProcess], None]
) -> None:
    async with scene(redis_server, broker) as running, shared_subscriptions(broker) as counts:
        group = broker.group()
        await asyncio.to_thread(forget, redis_server)
        await running.recovers(counts)
        assert broker.group() != group


async def test_old_sessions_are_ended_also_when_the_store_forgets_again_before_that(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    """Forget again: a node that began again noted its old session in the store, and nowhere else."""
    async with scene(redis_server, broker) as running, shared_subscriptions(broker) as counts:
        for _ in range(3):
            before = await _incarnations(running.cluster.nodes)
            await _flush(redis_server)
            await eventually(partial(_all_others, running.cluster.nodes, before), 60)
        await running.recovers(counts)


async def _all_others(nodes: Sequence[NodeProcess], before: set[str]) -> bool:
    now = await _incarnations(nodes)
    return len(now) == len(nodes) and before.isdisjoint(now)


async def test_no_answer_is_lost_after_an_outage_that_outlasted_leases_and_sessions(
    stepped_redis: SteppedRedis, broker: WatchedBroker
) -> None:
    """Its data is intact when it is back, but for what ran out meanwhile."""
    async with scene(stepped_redis, broker) as running, shared_subscriptions(broker) as counts:
        await asyncio.to_thread(stepped_redis.stop)
        stepped_redis.clock.step(DAY)
        await asyncio.to_thread(stepped_redis.start)
        await running.recovers(counts)


async def test_no_answer_is_lost_when_the_clock_of_the_store_steps_forward(
    stepped_redis: SteppedRedis, broker: WatchedBroker
) -> None:
    async with scene(stepped_redis, broker) as running, shared_subscriptions(broker) as counts:
        stepped_redis.clock.step(DAY)
        await eventually(lambda: _is_tomorrow(stepped_redis), 30)
        await running.recovers(counts)


async def test_the_session_of_a_dead_node_is_found_although_the_clock_of_the_store_steps_back(
    stepped_redis: SteppedRedis, broker: WatchedBroker
) -> None:
    """A lease that was to end in five seconds ends in a day and five seconds then."""
    async with scene(stepped_redis, broker) as running, shared_subscriptions(broker) as counts:
        dead = running.cluster.nodes.pop()
        await asyncio.to_thread(dead.kill)
        stepped_redis.clock.step(-DAY)
        await running.recovers(counts)


async def _is_tomorrow(redis: RedisProcess) -> bool:
    async with Redis.from_url(redis.url) as client:
        seconds, _ = await client.time()
    return bool(seconds > _now() + DAY / 2)


def _now() -> float:
    return SystemClock().wall()


async def test_a_device_that_joins_the_group_of_the_default_name_takes_nothing(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    """Let a thief join with the rights of deploy/mosquitto/acl: Mosquitto grants it the subscription."""
    async with scene(redis_server, broker) as running:
        theirs = [share(DEFAULT_GROUP, one) for one in broker.filters()]
        async with stranger(broker, "thief", theirs, user="SN0001"):
            await running.works()


@pytest.mark.parametrize("stores", ["two databases of one Redis", "two Redis"])
async def test_two_clusters_with_default_settings_share_a_broker_and_no_answers(
    redis_server: RedisProcess, broker: WatchedBroker, stores: str
) -> None:
    with RedisProcess() as other:
        second = (other if stores == "two Redis" else redis_server).node_url
        url = second if stores == "two Redis" else second.removesuffix("/0") + "/1"
        async with (
            scene(redis_server, broker, 2) as one,
            callers(redis_server, broker, 2, HOMING_STORE_URL=url) as two,
        ):
            for _ in range(3):
                assert list(await asyncio.gather(one.round(), two.round())) == [ALL, ALL]


async def test_a_copy_of_the_store_on_the_same_broker_takes_no_answers(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    """A backup that somebody restores for staging: it knows the charter, and the sessions of the nodes that live."""
    with RedisProcess() as other:
        async with scene(redis_server, broker, 2) as one:
            await _copied(redis_server, other)
            async with callers(other, broker, 2) as two:
                for _ in range(3):
                    assert list(await asyncio.gather(one.round(), two.round())) == [ALL, ALL]
                assert sum(one.cluster.counters("taken_over")) == 0
                assert sum(two.cluster.counters("charter.copied")) >= 1


async def _copied(original: RedisProcess, copy: RedisProcess) -> None:
    """All that the original knows but its leases, which end while a backup is carried from one place to another."""
    async with Redis.from_url(original.url) as source, Redis.from_url(copy.url) as target:
        for key in [key async for key in source.scan_iter("*")]:
            content = await source.dump(key)
            if content is not None and not key.startswith(b"mqtt:lease:"):
                await target.restore(key, max(0, await source.pttl(key)), content, replace=True)
        await target.hset("mqtt:cluster", "made", 0)


async def test_a_thief_who_knows_the_group_is_noticed_by_every_node(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    async with scene(redis_server, broker) as running:
        nodes = running.cluster.nodes
        async with stranger(broker, "thief", broker.group()):
            await eventually(lambda: _all_miss_canaries(nodes), 60)
            assert all(running.cluster.counters("canary.lost"))
            for node in nodes:
                assert _metric(node, "homing_canary_lost_total") > 0
        await eventually(lambda: all_ready(running.cluster), 60)
        await running.works()


async def _all_miss_canaries(nodes: Sequence[NodeProcess]) -> bool:
    said = [await health(node) for node in nodes]
    return all(status == UNREADY and checks.get("canary", "ok") != "ok" for status, checks in said)


def _metric(node: NodeProcess, name: str) -> float:
    _, text = asked(node, "/metrics")
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))
    )


async def test_a_broker_that_knows_no_shared_subscriptions_is_named(
    redis_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the filter for a topic of that name, says SUBACK, and never delivers anything."""
    monkeypatch.setattr("app.core.broker.subscriptions.SHARED", "no such thing")
    async with running_broker() as broker:
        settings = {"HOMING_MQTT_URL": broker.url, "HOMING_MQTT_VERSION": "3.1.1"}
        anywhere = WatchedBroker()
        with begun(NodeProcess("n1", redis_server, anywhere, module="app.cli", **settings)) as node:
            await eventually(lambda: _canaries_lost(node), 90)
            status, checks = await health(node)
            assert (status, checks["mqtt"]) == (UNREADY, "ok")
            assert "the broker does not share subscriptions" in checks["canary"]


async def _canaries_lost(node: NodeProcess) -> bool:
    status, _ = await health(node)
    return status != 0 and bool((await about(node))["self"]["counters"].get("canary.lost"))


@pytest.mark.parametrize("user", [None, "SN0001"], ids=["anybody", "a device"])
async def test_a_stranger_takes_a_nodes_session_and_gets_no_answers(
    redis_server: RedisProcess, broker: WatchedBroker, user: str | None
) -> None:
    """He has its client id, and comes back whenever he is thrown out."""
    async with scene(redis_server, broker) as running, shared_subscriptions(broker) as counts:
        incarnations = await _incarnations(running.cluster.nodes)
        async with stranger(broker, broker.sessions()[-1], user=user):
            await eventually(lambda: _begun_again(running.cluster.nodes, incarnations), 60)
            await running.recovers(counts)
            await running.works()
        await running.works()


async def _incarnations(nodes: Sequence[NodeProcess]) -> set[str]:
    said = [await about(node) for node in nodes]
    return {one["incarnation"] for each in said for one in each["nodes"] if one["self"]}


async def _begun_again(nodes: Sequence[NodeProcess], before: set[str]) -> bool:
    ready = [(await health(node))[0] == OK for node in nodes]
    return all(ready) and await _incarnations(nodes) != before


async def test_nobody_is_told_under_which_client_ids_the_nodes_log_in(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    """Neither by the API nor by the logs: who connects with one takes the session over."""
    async with scene(redis_server, broker, HOMING_LOG_LEVEL="debug") as running:
        nodes = running.cluster.nodes
        said = [asked(node, path)[1] for node in nodes for path in ("/v1/nodes", "/readyz", "/metrics")]
        said += [node.log_text for node in nodes]
        known = {one for one in broker.sessions() for text in said if one in text}
    assert not known
