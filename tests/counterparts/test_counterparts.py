"""Device software that others wrote, as the device side, against a real Mosquitto and two nodes.

Run by `scripts/test --counterparts`: it is installed from the registries, which takes minutes the first time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from homing_rig import services
from tests.cluster.harness import Cluster, Json, caller, cluster_of
from tests.cluster.test_families import OpenBroker
from tests.counterparts.environments import node_with, python_with
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE

pytestmark = pytest.mark.counterparts

DEVICES = Path(__file__).parent / "devices"
TRY = "10s"
"""The time for which the first commands wait, which may come before the device can answer."""


@dataclass(frozen=True)
class Case:
    """A command, and what it comes to."""

    method: str
    params: Any = None
    state: str = "succeeded"
    result: Any = None
    error: Json | None = None


@dataclass(frozen=True)
class Counterpart:
    """Software, how it is started at a host and port, and what it is asked."""

    name: str
    profile: str
    device: str
    start: Callable[[Path, int], tuple[Sequence[str], dict[str, str]]]
    cases: list[Case]
    bridge: str = ""
    """The device has a broker of its own, which puts its topics below others at the one of the nodes: as a line of
    Mosquitto's. Its `mount_point` (2.0.11) leaves the prefix on what devices get."""
    own: dict[str, str] = field(default_factory=dict)
    """The replacements in the shipped file for this broker."""


def python(name: str, script: str, *pinned: str) -> Callable[[Path, int], tuple[Sequence[str], dict[str, str]]]:
    return lambda _folder, port: ([python_with(name, *pinned), str(DEVICES / script), "127.0.0.1", str(port)], {})


def mqttjs(_folder: Path, port: int) -> tuple[Sequence[str], dict[str, str]]:
    modules = node_with("mqttjs", "mqtt@5.16.0")
    return ["node", str(DEVICES / "mqttjs_device.js"), "127.0.0.1", str(port)], {"NODE_PATH": str(modules)}


def zigbee2mqtt(folder: Path, port: int) -> tuple[Sequence[str], dict[str, str]]:
    """Version 2.2.1 is the last on npm that runs on Node.js 20."""
    modules = node_with("zigbee2mqtt", "zigbee2mqtt@2.2.1")
    shutil.copy(DEVICES / "database.db", folder / "database.db")
    configuration = (DEVICES / "configuration.yaml").read_text("utf-8").replace("PORT", str(port))
    (folder / "configuration.yaml").write_text(configuration, encoding="utf-8")
    started = ["node", "--require", str(DEVICES / "radio.js"), str(modules / "zigbee2mqtt" / "index.js")]
    return started, {"Z2M_MODULES": str(modules), "ZIGBEE2MQTT_DATA": str(folder)}


ASKED = {"rpm": 900, "list": [1, 2.5, "x"]}
COUNTERPARTS = [
    Counterpart(
        "tb-mqtt-client",
        "thingsboard",
        "tb-1",
        python("tb-mqtt-client", "tb_device.py", "tb-mqtt-client==1.13.14", "mmh3==5.3.1"),
        [Case("setGpio", {"pin": 7}), Case("ping")],
        bridge='topic v1/# both 1 "" tb-1/',
    ),
    Counterpart(
        "awsiotsdk",
        "aws-commands",
        "thing-1",
        python("awsiotsdk", "aws_device.py", "awsiotsdk==1.31.0"),
        [
            Case("spin", ASKED),
            Case("spin", {"fail": True}, "failed", error={"code": "LOW_BATTERY", "message": "12 %"}),
        ],
        bridge='topic $aws/# both 1 "" iot/',
        own={'"$aws/': '"iot/$aws/'},
    ),
    Counterpart(
        "aiomqtt",
        "mqtt5-rr",
        "aio-1",
        python("aiomqtt", "aiomqtt_device.py", "aiomqtt==2.5.1", "paho-mqtt==2.2.0"),
        [Case("echo", ASKED, result=ASKED), Case("ping")],
    ),
    Counterpart(
        "pymavlink",
        "mavlink-json",
        "mav-1",
        python("pymavlink", "mavlink_device.py", "pymavlink==2.4.50", "paho-mqtt==2.2.0"),
        [
            Case("MAV_CMD_COMPONENT_ARM_DISARM", {"param1": 1}),
            Case("MAV_CMD_NAV_TAKEOFF", {"param7": 30}),
            Case("MAV_CMD_PREFLIGHT_REBOOT_SHUTDOWN", {"param1": 1}, "failed", error={"code": 3}),
        ],
    ),
    Counterpart(
        "pysparkplug",
        "sparkplug-b",
        "plant:press",
        python("pysparkplug", "sparkplug_node.py", "pysparkplug==0.6.1", "paho-mqtt==1.6.1", "protobuf==6.33.2"),
        [
            Case("write", {"name": "Pump/On", "boolean": True, "datatype": 11}),
            Case("write", {"name": "Setpoint", "float": 21.3, "datatype": 9}),
            Case("write_alias", {"alias": 7, "int": 900, "datatype": 7}),
            Case("write_device", {"device": "p-1", "name": "Label", "string": "A", "datatype": 12}),
            Case("write_device_alias", {"device": "p-1", "alias": 8, "string": "auto", "datatype": 12}),
            Case("rebirth"),
        ],
    ),
    Counterpart("MQTT.js, mqtt5-rr", "mqtt5-rr", "js-1", mqttjs, [Case("echo", ASKED, result={"asked": ASKED})]),
    Counterpart(
        "MQTT.js, shelly",
        "shelly",
        "js-1",
        mqttjs,
        [
            Case("Switch.Set", {"id": 0, "on": True}, result={"was_on": False}),
            Case("Nothing.Do", {}, "failed", error={"code": 404, "message": "No handler for Nothing.Do"}),
        ],
    ),
    Counterpart(
        "zigbee2mqtt, a lamp",
        "zigbee2mqtt",
        "lamp",
        zigbee2mqtt,
        [
            Case("set", {"state": "ON"}),
            Case("set", {"state": "ON"}),  # no change, and the state comes nevertheless
            Case("set", {"brightness": 128}),
            Case("toggle"),
            Case("get"),
        ],
    ),
    Counterpart(
        "zigbee2mqtt, the bridge",
        "zigbee2mqtt-bridge",
        "zigbee2mqtt",
        zigbee2mqtt,
        [
            Case("permit_join", {"time": 10}, result={"time": 10}),
            Case("health_check", {}),
            Case(
                "device/rename",
                {"from": "nobody", "to": "x"},
                "failed",
                error={"code": None, "message": "Device 'nobody' does not exist"},
            ),
        ],
    ),
]


class EdgeBroker(MosquittoProcess):
    """The broker of one device: it lets everybody in, whatever name they give, and is bridged to that of the nodes."""

    def _command(self) -> Sequence[str]:
        command = super()._command()
        config = Path(command[-1])
        kept = [line for line in config.read_text().splitlines() if not line.startswith(("acl_file", "password_file"))]
        config.write_text("\n".join(kept) + "\n")
        return command


@contextmanager
def broker_of(one: Counterpart, main: services.MosquittoProcess) -> Iterator[services.MosquittoProcess]:
    """The address to which the device connects."""
    if not one.bridge:
        yield main
        return
    address = f"connection up\naddress 127.0.0.1:{main.port}\nrestart_timeout 1\nnotifications false"
    with EdgeBroker(f"{address}\n{one.bridge}") as edge:
        yield edge


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("profiles")
    for one in COUNTERPARTS:
        if one.own:
            text = resources.files("app.profiles.shipped").joinpath(f"{one.profile}.toml").read_text("utf-8")
            for old, new in one.own.items():
                text = text.replace(old, new)
            (folder / f"{one.profile}.toml").write_text(text, encoding="utf-8")
    shipped = ",".join(sorted({one.profile for one in COUNTERPARTS if not one.own}))
    env = {"HOMING_PROFILES_SHIPPED": f"{shipped},homing", "HOMING_PROFILES_DIR": str(folder)}
    with (
        OpenBroker() as broker,
        RedisProcess() as server,
        cluster_of(2, server, broker, HOMING_PROFILE="homing", **env) as found,
    ):
        yield found


@contextmanager
def running(one: Counterpart, folder: Path, port: int) -> Iterator[Path]:
    command, env = one.start(folder, port)
    log = folder / "said"
    with log.open("wb") as said:
        process = subprocess.Popen(command, env={**os.environ, **env}, stdout=said, stderr=said, cwd=folder)
        try:
            yield log
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("one", COUNTERPARTS, ids=[one.name for one in COUNTERPARTS])
async def test_it_does_what_it_is_told(one: Counterpart, cluster: Cluster, tmp_path: Path) -> None:
    with broker_of(one, cluster.broker) as broker, running(one, tmp_path, broker.port) as log:
        async with caller(cluster) as client:

            async def ask(number: int, case: Case, timeout: str) -> Json:
                url = f"{cluster.nodes[number % 2].url}/v1/devices/{one.device}/commands"
                body = {"method": case.method, "params": case.params, "timeout": timeout, "profile": one.profile}
                async with client.session.post(url, json=body) as response:
                    received: Json = await response.json(content_type=None)
                    return received

            told: Json = {}
            try:
                async with asyncio.timeout(PATIENCE):  # until it has subscribed
                    while told.get("state") != one.cases[0].state:
                        await asyncio.sleep(0.2)
                        told = await ask(0, one.cases[0], TRY)
            except TimeoutError:
                pytest.fail(f"{told}\n{log.read_text(errors='replace')[-2000:]}")
            for number, case in enumerate(one.cases * 2):
                ended = await ask(number, case, "60s")
                assert ended.get("state") == case.state, (case, ended, log.read_text(errors="replace")[-2000:])
                if case.result is not None:
                    assert ended["result"] == case.result
                if case.error is not None:
                    assert case.error.items() <= ended["error"].items(), ended["error"]
