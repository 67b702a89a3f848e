"""The view of people outside the nodes: administrators of broker and store, and strangers at the broker."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_rig.chaos import broker_log, strangers
from tests.cluster.harness import Caller, Cluster, Device, Json, NodeProcess, caller, cluster_of, devices
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess, RedisProcess
from tests.waiting import eventually

ROUND: Final = 40
"""Commands in a round: with one ghost to a node twenty of them are lost, with one thief beside three nodes ten."""
ROUNDS: Final = 3
"""This number in a row without a loss, and it is over."""
LASTING: Final = 8.0
"""Seconds without a loss, after which it is over: long enough for every node to have noticed what happened."""
PAUSE: Final = 0.25
"""Seconds between rounds: thirty of them find what loses an answer, and processors are left to whoever recovers."""
RECOVERY: Final = 120.0
"""Seconds; against hanging."""


class WatchedBroker(MosquittoProcess):
    """A Mosquitto whose log tells every subscription, and which counts its sessions anew each second."""

    def __init__(self, *extra_config: str) -> None:
        super().__init__("sys_interval 1", *broker_log.LOG_TYPES, *extra_config)

    def group(self) -> list[str]:
        """Return the filters of somebody who joins the group of the nodes."""
        return broker_log.filters_of_group(self.log_text, NODE_USER)

    def filters(self) -> list[str]:
        """Return the filters that the nodes share, without the name of their group."""
        return sorted({one.topic_filter for one in broker_log.shared(self.log_text)})

    def sessions(self) -> list[str]:
        """The client ids under which nodes logged in so far; the latest comes last."""
        return broker_log.logged_in(self.log_text, NODE_USER)


@asynccontextmanager
async def shared_subscriptions(broker: MosquittoProcess) -> AsyncIterator[list[int]]:
    """Yield how many shared subscriptions the broker has, whoever made them and whether he is there or not; the list
    grows.
    """
    counts: list[int] = []

    def note(delivery: InboundDelivery) -> None:
        counts.append(int(delivery.message.payload))
        delivery.acknowledge()

    witness = PahoMqttClient(MqttOptions.from_url(broker.url, client_id="witness"), Counter())
    await witness.start([Subscription("$SYS/broker/shared_subscriptions/count")], note)
    try:
        await eventually(lambda: counts, 30)
        yield counts
    finally:
        await witness.stop()


def stranger(
    broker: MosquittoProcess, client_id: str, filters: Sequence[str] = (), *, user: str | None = None
) -> AbstractAsyncContextManager[strangers.Stranger]:
    """Somebody who takes and acknowledges what he gets. With `user` he logs in as a device."""
    options = MqttOptions.from_url(broker.url, client_id=client_id)
    if user is not None:
        options = replace(options, username=user, password=NODE_PASSWORD)
    return strangers.stranger(options, filters)


def asked(node: NodeProcess, path: str) -> tuple[int, str]:
    """Status and body of what a node says."""
    try:
        with urllib.request.urlopen(f"{node.url}{path}", timeout=10) as response:  # noqa: S310 - our own http URL
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
    except OSError as error:
        return 0, str(error)


async def health(node: NodeProcess) -> tuple[int, dict[str, str]]:
    """Status and checks of `/readyz`."""
    status, body = await asyncio.to_thread(asked, node, "/readyz")
    return status, json.loads(body)["checks"] if body.startswith("{") else {}


async def about(node: NodeProcess) -> dict[str, Any]:
    """Return what a node says of itself and of the others."""
    said: dict[str, Any] = json.loads((await asyncio.to_thread(asked, node, "/v1/nodes"))[1])
    return said


async def all_ready(cluster: Cluster) -> bool:
    """True if every node says at this moment that it is ready."""
    return all([(await health(node))[0] == 200 for node in cluster.nodes])


@dataclass
class Scene:
    """A cluster at work, and callers and devices who notice when it does not."""

    cluster: Cluster
    broker: WatchedBroker
    client: Caller

    async def round(self, *nodes: int) -> Counter[str]:
        """Forty commands at once, to all nodes in turn or to these; how they ended."""
        turns = nodes or range(len(self.cluster.nodes))
        ends = (self._one(turns[number % len(turns)], number) for number in range(ROUND))
        return Counter(await asyncio.gather(*ends))

    async def _one(self, node: int, number: int) -> str:
        status, said = await self.client.command(node, f"SN{number:04}", {"nonce": number}, timeout="10s")
        return f"{said['state']}" if status == 200 else f"{status} {said.get('detail')}"

    async def works(self) -> None:
        """Some rounds without a loss."""
        for _ in range(ROUNDS):
            told = await self.round()
            assert told == {"succeeded": ROUND}, told

    async def recovers(self, subscribed: Sequence[int]) -> None:
        """For a while all rounds are without a loss, and no session more is subscribed than there are nodes."""
        loop = asyncio.get_running_loop()
        told: list[Counter[str]] = []
        try:
            async with asyncio.timeout(RECOVERY):
                since = loop.time()
                while loop.time() < since + LASTING or not await all_ready(self.cluster):
                    told.append(await self.round())
                    if told[-1] != {"succeeded": ROUND}:
                        since = loop.time()
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise AssertionError(f"after {RECOVERY:g} s still: {told[-3:]}") from None
        expected = len(self.cluster.nodes) * len(self.broker.filters())
        try:
            await eventually(lambda: subscribed[-1] == expected, RECOVERY)
        except TimeoutError:
            raise AssertionError(f"{subscribed[-1]} shared subscriptions in place of {expected}") from None


@asynccontextmanager
async def scene(redis: RedisProcess, broker: WatchedBroker, size: int = 3, **env: str) -> AsyncIterator[Scene]:
    """`size` nodes that work, and devices that answer at once."""
    async with devices(broker, _at_once), callers(redis, broker, size, **env) as running:
        await running.works()
        yield running


@asynccontextmanager
async def callers(redis: RedisProcess, broker: WatchedBroker, size: int, **env: str) -> AsyncIterator[Scene]:
    """`size` nodes, for devices that are there already."""
    async with AsyncExitStack() as stack:
        cluster = await asyncio.to_thread(stack.enter_context, cluster_of(size, redis, broker, **env))
        yield Scene(cluster, broker, await stack.enter_async_context(caller(cluster)))


def _at_once(device: Device, command: Json) -> None:
    device.answer(command)


@contextmanager
def begun(node: NodeProcess) -> Iterator[NodeProcess]:
    """A node that need never become ready."""
    try:
        node._process = node._launch(node._command())
        yield node
    finally:
        node.__exit__(None, None, None)
