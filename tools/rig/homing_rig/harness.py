"""Node processes on one Redis and one Mosquitto, devices that react to commands, and a client that counts."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Any, ClassVar, Protocol

import aiohttp
from redis import Redis as RedisClient

from app.core import keys
from app.core.errors import HomingError
from app.core.identifiers import CANARY
from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_rig.fork_server import ForkedNode, can_be_forked
from homing_rig.patience import PATIENCE
from homing_rig.programs import environment
from homing_rig.services import MosquittoProcess, RedisProcess, RunningProcess, ServiceProcess

Json = dict[str, Any]


class HarnessError(HomingError):
    """An answer of a node, or of Redis, that no run expects."""


class Reachable(Protocol):
    """A broker, as far as a node needs to know of it."""

    @property
    def node_settings(self) -> Mapping[str, str]:
        """The settings with which a node connects to it."""


class NodeProcess(ServiceProcess):
    """A node as users run it: `homing serve` in a process of its own. `module` may name a variant."""

    forked: ClassVar[bool] = False
    """True if nodes are forked where that is the same: for tests, of which many start some."""

    def __init__(
        self, node_id: str, redis: RedisProcess | None, broker: Reachable, *, module: str = "app.cli", **env: str
    ) -> None:
        super().__init__(sys.executable)
        self.node_id = node_id
        self._module = module
        self._env = {
            "HOMING_NODE_ID": node_id,
            "HOMING_STORE_URL": "memory://" if redis is None else redis.node_url,
            **broker.node_settings,
            "HOMING_PROFILE": "dji",
            "HOMING_CLUSTER_DRAIN_DELAY": "200ms",
            **env,
        }

    @property
    def url(self) -> str:
        """The URL where callers reach the node."""
        return f"http://127.0.0.1:{self.port}"

    def configure(self, **env: str) -> None:
        """Change settings, as from its next start."""
        self._env |= env

    def _command(self) -> Sequence[str]:
        return ["env", *(f"{name}={value}" for name, value in self._settings.items()), self.binary, *self._arguments]

    @property
    def _settings(self) -> Mapping[str, str]:
        return {**self._env, "HOMING_API_PORT": str(self.port)}

    @property
    def _arguments(self) -> Sequence[str]:
        return "-m", self._module, "serve"

    def _launch(self, command: Sequence[str]) -> RunningProcess:
        if self.forked and can_be_forked(self._arguments, self._settings):
            return ForkedNode(environment(self._settings), self.folder, self.folder / "log")
        return super()._launch(command)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE) as response:  # noqa: S310 - our own http URL
                return bool(response.status == HTTPStatus.OK)
        except (urllib.error.URLError, OSError):
            return False


@dataclass
class Cluster:
    """Running nodes and what they stand on."""

    redis: RedisProcess
    broker: MosquittoProcess
    nodes: list[NodeProcess]

    def end_lease(self, node_id: str) -> None:
        """As if the time of a dead or frozen node's lease were over; nobody has to wait for that."""
        with RedisClient.from_url(self.redis.url) as redis:
            redis.delete(keys.lease(node_id))

    def filters(self, node_id: str) -> list[str]:
        """The subscriptions of a node, which name the group that shares them."""
        with RedisClient.from_url(self.redis.url) as redis:
            return list(json.loads(redis.get(keys.lease(node_id)))["filters"])

    def counters(self, name: str) -> list[int]:
        """A counter of every node."""
        return [self.reported(node.node_id)["counters"].get(name, 0) for node in self.nodes]

    def reported(self, node_id: str) -> Json:
        """Return what a node says of itself."""
        (url,) = (node.url for node in self.nodes if node.node_id == node_id)
        with urllib.request.urlopen(f"{url}/v1/nodes", timeout=PATIENCE) as response:  # noqa: S310
            said: Json = json.load(response)["self"]
            return said


@contextmanager
def cluster_of(
    size: int, redis: RedisProcess, broker: MosquittoProcess, *, module: str = "app.cli", **env: str
) -> Iterator[Cluster]:
    """`size` nodes called n1, n2, … that are ready. A share group of their own keeps clusters of one broker apart."""
    redis.forget_refusals()
    if env.get("HOMING_EVENTS_URL") == redis.node_url:
        redis.forget_everything()
    with ExitStack() as stack:
        nodes = [NodeProcess(f"n{i + 1}", redis, broker, module=module, **env) for i in range(size)]
        for node in nodes:
            stack.push(node)
        with ThreadPoolExecutor(size) as together:
            list(together.map(NodeProcess.start, nodes))
        yield Cluster(redis, broker, nodes)
        if refused := redis.refusals():
            raise HarnessError(f"Redis refused calls: {refused}")


Reaction = Callable[["Device", Json], None]


class Device:
    """All docks of a fleet on one MQTT session. `reaction` decides what happens with a command that came in."""

    def __init__(self, client: PahoMqttClient, reaction: Reaction) -> None:
        self._client = client
        self._reaction = reaction
        self.executed: Counter[str] = Counter()
        """The number of times that each command id was received."""
        self.methods: Counter[str] = Counter()

    def handle(self, delivery: InboundDelivery) -> None:
        """Take a command, or the question of a node whether anybody listens."""
        command: Json = json.loads(delivery.message.payload)
        command["device_id"] = delivery.message.topic.split("/")[2]
        if command["device_id"] == CANARY:  # nodes ask whether anybody listens to a device that there is not
            delivery.acknowledge()
            return
        self.executed[command["tid"]] += 1
        self.methods[command["method"]] += 1
        self._reaction(self, command)
        delivery.acknowledge()

    def report(self, command: Json, percent: int) -> None:
        """Say how far it is with it."""
        output = {"status": "in_progress", "progress": {"percent": percent}}
        reply = {"tid": command["tid"], "bid": command["bid"], "data": {"result": 0, "output": output}}
        self.say(command, json.dumps(reply).encode())

    def answer(self, command: Json) -> None:
        """Reply with success and the params, so that a caller can tell its own answer."""
        reply = {
            "tid": command["tid"],
            "bid": command["bid"],
            "timestamp": command["timestamp"],
            "method": command["method"],
            "data": {"result": 0, "output": command["data"]},
        }
        self.say(command, json.dumps(reply).encode())

    def say(self, command: Json, payload: bytes) -> None:
        """Publish this where it replies to the command."""
        topic = f"thing/product/{command['device_id']}/services_reply"
        _puback = self._client.publish(Publication(topic, payload))


@asynccontextmanager
async def devices(broker: MosquittoProcess | str, reaction: Reaction) -> AsyncIterator[Device]:
    """A fleet that answers any serial number, on a broker or at its URL."""
    options = MqttOptions.from_url(broker if isinstance(broker, str) else broker.url, client_id="fleet")
    client = PahoMqttClient(
        MqttOptions(
            client_id="fleet",
            host=options.host,
            port=options.port,
            username=options.username,
            password=options.password,
            receive_maximum=5000,
            send_window=50_000,
        ),
        counters=Counter(),
    )
    device = Device(client, reaction)
    await client.start([Subscription("thing/product/+/services")], device.handle)
    await client.wait_connected()
    try:
        yield device
    finally:
        await client.stop()


@dataclass
class Tally:
    """The outcomes of the commands of a run."""

    states: Counter[str] = field(default_factory=Counter)
    wrong: list[Json] = field(default_factory=list)
    forwarded: int = 0
    ids: set[str] = field(default_factory=set)

    def add(self, sent: Json, received: Json) -> None:
        """Count a command that was sent with these params, and its answer."""
        self.states[received["state"]] += 1
        self.forwarded += bool(received["forwarded"])
        self.ids.add(received["id"])
        if received["state"] == "succeeded" and received["result"] != sent:
            self.wrong.append(received)


@dataclass
class Caller:
    """An HTTP client that talks to the nodes in turn."""

    session: aiohttp.ClientSession
    cluster: Cluster

    async def command(
        self,
        node: int,
        device_id: str,
        params: Json,
        *,
        method: str = "cover_open",
        timeout: str = "60s",
        **headers: str,
    ) -> tuple[int, Json]:
        """Send a command to node number `node`; the status and the body of the answer."""
        url = f"{self.cluster.nodes[node % len(self.cluster.nodes)].url}/v1/devices/{device_id}/commands"
        body = {"method": method, "params": params, "timeout": timeout}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(url, json=body, headers=named) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, node: int, command_id: str) -> tuple[int, Json]:
        """Read a command from a node."""
        url = f"{self.cluster.nodes[node].url}/v1/commands/{command_id}"
        async with self.session.get(url) as response:
            return response.status, await response.json(content_type=None)

    async def many(self, count: int, in_flight: int, devices_count: int = 50) -> Tally:
        """Send `count` commands to all nodes in turn, `in_flight` at a time."""
        tally = Tally()
        numbers = iter(range(count))

        async def worker() -> None:
            for number in numbers:
                params = {"nonce": number}
                status, received = await self.command(number, f"SN{number % devices_count:04}", params)
                _demand_ok(status, received)
                tally.add(params, received)

        await asyncio.gather(*(worker() for _ in range(in_flight)))
        return tally

    async def final(self, node: int, command_id: str, within: timedelta = timedelta(seconds=PATIENCE)) -> Json:
        """Ask a node for a command until it has an outcome."""
        async with asyncio.timeout(within.total_seconds()):
            while True:
                status, command = await self.get(node, command_id)
                _demand_ok(status, command)
                if command["finished_at"] is not None:
                    return command
                await asyncio.sleep(0.05)


def _demand_ok(status: int, body: Json) -> None:
    if status != HTTPStatus.OK:
        raise HarnessError(f"a node answered {status}: {body}")


@asynccontextmanager
async def caller(cluster: Cluster) -> AsyncIterator[Caller]:
    """A client for these nodes."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=2 * PATIENCE)) as session:
        yield Caller(session, cluster)
