"""Held commands beside the queue that a broker keeps for a session, and fleet runs beside a loop of one's own."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import Annotated, Final, get_args

import orjson
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from typer import Option

from app.core.messages import Publication
from app.mqtt.options import MqttOptions, MqttVersion
from app.mqtt.paho import PahoMqttClient
from homing_client import AsyncHoming
from homing_rig.figures.kit import Findings
from homing_rig.harness import cluster_of
from homing_rig.patience import eventually
from homing_rig.services import MosquittoProcess, RedisProcess

LAPSE_SECONDS: Final = 5
CANCELLED, LAPSED = range(2)
"""The places of two commands among ten: one is cancelled while its device is away, and one is of use for LAPSE_SECONDS
only."""
HELLO: Final = b'{"id": "hello", "status": "ok"}'
AT_A_TIME: Final = 64
TAKES_SECONDS: Final = 0.1
"""The time from a command of a roll-out to the answer of its device."""
QUIET_SECONDS: Final = 2.0
"""The silence after which nothing more comes, in seconds."""


class _Devices:
    """Devices on one connection, with a book of the commands that they got."""

    def __init__(self, port: int, names: Sequence[str], *, kept: bool = False, takes: float = 0) -> None:
        """`kept`: whether the broker keeps their session while they are away; `takes`: seconds until they answer."""
        self.got = Counter[str]()
        self._port, self._names, self._kept, self._takes = port, names, kept, takes
        self._client: paho.Client
        self._subscribed = 0

    async def come(self, *, hello: bool = False) -> None:
        """Connect and subscribe, and say something."""
        self._subscribed = 0
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            f"devices-{self._names[0]}",
            clean_session=not self._kept,
            protocol=MQTTProtocolVersion.MQTTv311,
        )
        self._client.on_message = self._take
        self._client.on_subscribe = self._noted
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()
        await eventually(self._client.is_connected)
        for name in self._names:
            self._client.subscribe(f"homing/{name}/command", 1)
        await eventually(lambda: self._subscribed == len(self._names))
        for name in self._names if hello else ():
            self._client.publish(f"homing/{name}/response", HELLO, 1)

    async def rest(self) -> None:
        """Return when nothing comes any more."""
        before = -1
        while self.got.total() > before:
            before = self.got.total()
            await asyncio.sleep(QUIET_SECONDS)

    def go(self) -> None:
        """Leave."""
        self._client.disconnect()
        self._client.loop_stop()

    def _noted(self, *_told: object) -> None:
        self._subscribed += 1

    def _take(self, client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        name, command = message.topic.split("/")[1], orjson.loads(message.payload)
        self.got[name] += 1
        answer = orjson.dumps({"id": command["id"], "status": "ok"})
        threading.Timer(self._takes, client.publish, (f"homing/{name}/response", answer, 1)).start()


async def peers(
    findings: Findings,
    *,
    devices: Annotated[int, Option(min=10, help="The number of devices, with a command for each.")] = 1_000,
    away: Annotated[float, Option(min=LAPSE_SECONDS + 2, help="The seconds for which they are away.")] = 600.0,
) -> None:
    """Commands for devices that are away: what was cancelled and what has lapsed, in a session's queue and held."""
    with MosquittoProcess() as broker, RedisProcess() as redis:
        for version in get_args(MqttVersion):
            names = [f"theirs-{version}-{number}" for number in range(devices)]
            found = _Devices(broker.port, names, kept=True)
            await found.come()
            found.go()
            await _publish(broker, version, names)
            await asyncio.sleep(away)
            await found.come()
            await found.rest()
            found.go()
            _tell(findings, f"the queue of a session, published with MQTT {version}", names, found.got)
        names = [f"ours-{number}" for number in range(devices)]
        with cluster_of(2, redis, broker, HOMING_PROFILE="homing") as cluster:
            async with AsyncHoming(",".join(one.url for one in cluster.nodes)) as homing:
                await _hold(homing, names)
                await asyncio.sleep(away)
                found = _Devices(broker.port, names)
                await found.come(hello=True)
                await eventually(lambda: len(found.got) >= devices - 2 * -(-devices // 10))
                await found.rest()
                found.go()
        _tell(findings, "held by Homing", names, found.got, most=0)
        await _roll_out(findings, broker.port, [f"rolled-{number}" for number in range(devices)])


async def _roll_out(findings: Findings, port: int, names: Sequence[str]) -> None:
    """Kill a loop of one's own half-way, and let it go on."""
    found = _Devices(port, names, takes=TAKES_SECONDS)
    await found.come()
    with TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "homing_rig.figures.by_hand", str(port), f"{folder}/done", *names)
        process = await asyncio.create_subprocess_exec(*command)
        await eventually(lambda: len(found.got) >= len(names) // 2)
        process.kill()
        await process.wait()
        process = await asyncio.create_subprocess_exec(*command)
        await process.wait()
    await found.rest()
    found.go()
    findings.figure(
        "a loop of one's own, killed half-way: devices that got two", sum(one > 1 for one in found.got.values())
    )
    findings.figure("a loop of one's own, killed half-way: devices that got none", len(names) - len(found.got))


async def _publish(broker: MosquittoProcess, version: MqttVersion, names: Sequence[str]) -> None:
    """Publish a command for each, which the broker keeps. What is to be cancelled cannot be taken back."""
    client = PahoMqttClient(MqttOptions.from_url(broker.url, client_id="caller", version=version), Counter())
    await client.start([], lambda _delivery: None)
    await client.wait_connected()
    for number, name in enumerate(names):
        expires = timedelta(seconds=LAPSE_SECONDS) if number % 10 == LAPSED else None
        command = orjson.dumps({"id": name, "method": "work", "params": {}})
        await client.publish(Publication(f"homing/{name}/command", command, message_expiry=expires))
    await client.stop()


async def _hold(homing: AsyncHoming, names: Sequence[str]) -> None:
    left = iter(enumerate(names))

    async def work() -> None:
        for number, name in left:
            hold = f"{LAPSE_SECONDS}s" if number % 10 == LAPSED else "2h"
            held = await homing.send(name, "work", hold=hold, timeout="60s", wait=False)
            if number % 10 == CANCELLED:
                await homing.cancel(held.id)

    await asyncio.gather(*(work() for _ in range(AT_A_TIME)))


def _tell(findings: Findings, whose: str, names: Sequence[str], got: Counter[str], most: float | None = None) -> None:
    of = {kind: sum(got[name] for name in names[kind::10]) for kind in (CANCELLED, LAPSED)}
    findings.figure(f"{whose}: commands that were cancelled and executed", of[CANCELLED], most=most)
    findings.figure(f"{whose}: that had lapsed and were executed", of[LAPSED], most=most)
    findings.figure(f"{whose}: executed twice", sum(count > 1 for count in got.values()), most=most)
    never = sum(not got[name] for number, name in enumerate(names) if number % 10 not in (CANCELLED, LAPSED))
    findings.figure(f"{whose}: that should have been executed, and were not", never, most=most)
