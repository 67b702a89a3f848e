"""A whole node in this process, with the HTTP application in front and scripted devices behind it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import httpx

from app.api.application import Application
from app.cluster.local import LocalCluster
from app.core.commands.callback import Registration
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import Outcome
from app.core.errors import StoreUnavailableError
from app.core.identifiers import CANARY
from app.core.messages import Publication, ReceivedMessage
from app.kernel import Adapters
from app.main import Homing
from app.mqtt.base import InboundDelivery as MqttDelivery
from app.mqtt.base import Puback, Subscription
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient, LoopbackSessionDrain
from app.node import Node
from app.runtime.system import SystemClock, new_charter, new_secret, new_ulid
from app.runtime.telemetry import Counters
from app.settings import Settings, load_settings
from app.store.commands import CommandSlice, Finished, Joined, Query, Registered
from app.store.directory import AccessDirectory
from app.store.engine import open_events
from app.store.memory.commands.store import MemoryStateStore

DEVICE = "drone-1"
COMMANDS = f"/v1/devices/{DEVICE}/commands"


def homing_with(folder: Path, tables: str) -> Path:
    """A folder of profiles with the shipped `homing`, and these tables behind it."""
    plain = (resources.files("app.profiles.shipped") / "homing.toml").read_text("utf-8")
    folder.mkdir(exist_ok=True)
    (folder / "homing.toml").write_text(plain + tables, encoding="utf-8")
    return folder


async def until(condition: Callable[[], bool]) -> None:
    """Let time pass until something is so; the time limit of the test is the bound."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def is_ready(rig: Rig) -> bool:
    """True if the node says that it is ready."""
    return (await rig.http.get("/readyz")).status_code == 200


class Store(MemoryStateStore):
    """The memory store, which counts its registrations and can be taken away, also for `finish` alone."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.registrations: list[Registration] = []
        self.reads = 0
        self.asked: list[Query] = []
        self.away = False
        self.finish_away = False
        self.after_register: Callable[[], None] = lambda: None

    async def ping(self) -> None:
        self._check()

    async def register(self, registration: Registration) -> Registered | Joined:
        self._check()
        self.registrations.append(registration)
        registered = await super().register(registration)
        self.after_register()
        return registered

    async def finish(
        self,
        command_id: str,
        state: CommandState,
        finisher: str,
        error: bytes | None = None,
        *,
        only_held: bool = False,
    ) -> Finished:
        self._check()
        if self.finish_away:
            raise StoreUnavailableError("the store does not answer")
        return await super().finish(command_id, state, finisher, error, only_held=only_held)

    async def sweep(self, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        self._check()
        return [] if self.finish_away else await super().sweep(partitions, finisher, grace)

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        self._check()
        self.reads += 1
        return await super().get(command_ids)

    async def list_commands(self, query: Query) -> CommandSlice:
        self._check()
        self.reads += 1
        self.asked.append(query)
        return await super().list_commands(query)

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailableError("the store does not answer")


class Mqtt(LoopbackMqttClient):
    """The loopback client, whose publications can be left without PUBACK."""

    def __init__(self, broker: LoopbackBroker, counters: Counters) -> None:
        super().__init__(broker, "node-a", counters)
        self.hold_puback = False

    def publish(self, publication: Publication) -> Puback:
        puback = super().publish(publication)
        return Puback(left=True) if self.hold_puback else puback


class Device:
    """A device of the `homing` profile that obeys the method: `ok`, `ok_…`, `refuse`, `big`, or else is silent."""

    def __init__(self, broker: LoopbackBroker) -> None:
        self.client = LoopbackMqttClient(broker, "device", Counter())
        self.received: list[dict[str, Any]] = []
        self.heard = asyncio.Event()

    async def start(self) -> None:
        await self.client.start([Subscription("homing/+/command")], self._handle)
        await self.client.wait_connected()

    def answer(self, command: dict[str, Any], raw: str) -> None:
        """Send `raw`, JSON members, as the response to a command."""
        topic = f"homing/{command['device']}/response"
        payload = f'{{"id":"{command["id"]}",{raw}}}'.encode()
        _ = self.client.publish(Publication(topic, payload))

    def _handle(self, delivery: MqttDelivery) -> None:
        message: ReceivedMessage = delivery.message
        delivery.acknowledge()
        if message.topic.split("/")[1] == CANARY:
            return
        command = {**json.loads(message.payload), "device": message.topic.split("/")[1]}
        self.received.append(command)
        self.heard.set()
        match command["method"]:
            case method if method == "ok" or method.startswith("ok_"):
                self.answer(command, '"status":"ok","result":{"height":20.50,"serial":18446744073709551615}')
            case "refuse":
                self.answer(command, '"status":"error","error":{"code":42,"message":"no GPS"}')


@dataclass
class Rig:
    """Everything that a test may want to touch."""

    node: Node
    application: Application
    store: Store
    mqtt: Mqtt
    broker: LoopbackBroker
    device: Device
    open_commands: Sized
    waiters: Sized
    counters: Counters
    http: httpx.AsyncClient
    failures: list[BaseException] = field(default_factory=list)

    async def send(self, method: str, *, headers: dict[str, str] | None = None, **members: Any) -> httpx.Response:
        return await self.http.post(COMMANDS, json={"method": method, **members}, headers=headers)

    async def heard(self) -> dict[str, Any]:
        """The latest command that the device got; waits for one."""
        await self.device.heard.wait()
        self.device.heard.clear()
        return self.device.received[-1]

    async def read_until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The latest registered command, once it is as it should be."""
        while True:
            await asyncio.sleep(0)  # a call within the process gives nobody else a turn
            command: dict[str, Any] = (await self.http.get(self.location)).json()
            if condition(command):
                return command

    @property
    def location(self) -> str:
        """The path of the latest registered command."""
        return f"/v1/commands/{self.store.registrations[-1].command_id}"


def settings_of(**overrides: Any) -> Settings:
    defaults: dict[str, Any] = {
        "node": {"id": "node-a"},
        "store": {"budget": timedelta(seconds=30)},  # callers wait as long for an outcome that is late
        "cluster": {"sweep_interval": timedelta(milliseconds=10)},
    }
    return load_settings(_env_file=None, **{**defaults, **overrides})


def build(
    settings: Settings, failures: list[BaseException], directory: AccessDirectory | None = None
) -> tuple[Homing, Store, Mqtt, LoopbackBroker]:
    """As users run it, but for store and broker."""
    counters: Counters = Counter()
    store, broker = Store(), LoopbackBroker()
    mqtt = Mqtt(broker, counters)
    adapters = Adapters(
        clock=SystemClock(),
        new_ulid=new_ulid,
        counters=counters,
        store=store,
        open_cluster=lambda _delivery: LocalCluster(new_charter()),
        open_mqtt=lambda _client_id, _still_ours: mqtt,
        open_drain=lambda client_id: LoopbackSessionDrain(broker, client_id, counters),
        directory=directory,
        events=open_events(
            settings.events.url,
            clock=SystemClock(),
            counters=counters,
            new_secret=new_secret,
            cold=settings.events.cold,
        )
        if settings.events.url
        else None,
        open_intake=lambda client_id, _still_ours: LoopbackMqttClient(broker, client_id, counters),
        open_listener=lambda client_id: LoopbackMqttClient(broker, client_id, counters),
    )
    return Homing(settings, adapters, failures.append), store, mqtt, broker


@asynccontextmanager
async def running(directory: AccessDirectory | None = None, **overrides: Any) -> AsyncIterator[Rig]:
    """A node that is ready, and a device that listens."""
    settings = settings_of(**overrides)
    failures: list[BaseException] = []
    homing, store, mqtt, broker = build(settings, failures, directory)
    node, application = homing.node, homing.application
    device = Device(broker)
    await device.start()
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with (
        application.router.lifespan_context(application),
        httpx.AsyncClient(transport=transport, base_url="http://node-a") as http,
    ):
        await until(lambda: node.state == "ready")
        ports = application.ports
        at_home = (ports.commands.open_commands, ports.commands.waiters, ports.node.counters)
        yield Rig(node, application, store, mqtt, broker, device, *at_home, http, failures)
    await device.client.stop()
    assert failures == []
