"""Device software that others wrote, as the device side, against a real Mosquitto and two nodes.

Run by `scripts/test --counterparts`: it is installed from the registries, which takes minutes the first time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import Cluster, Json, caller, cluster_of
from tests.cluster.test_families import OpenBroker
from tests.counterparts.environments import node_with, python_with
from tests.services import RedisProcess
from tests.waiting import PATIENCE

pytestmark = pytest.mark.counterparts

DEVICES = Path(__file__).parent / "devices"
TRY = "10s"
"""How long the first commands wait, which may come before the device can answer."""


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


def python(name: str, script: str, *pinned: str) -> Callable[[Path, int], tuple[Sequence[str], dict[str, str]]]:
    return lambda _folder, port: ([python_with(name, *pinned), str(DEVICES / script), "127.0.0.1", str(port)], {})


def mqttjs(_folder: Path, port: int) -> tuple[Sequence[str], dict[str, str]]:
    modules = node_with("mqttjs", "mqtt@5.16.0")
    return ["node", str(DEVICES / "mqttjs_device.js"), "127.0.0.1", str(port)], {"NODE_PATH": str(modules)}


ASKED = {"rpm": 900, "list": [1, 2.5, "x"]}
COUNTERPARTS = [
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
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    shipped = ",".join(sorted({one.profile for one in COUNTERPARTS}))
    with (
        OpenBroker() as broker,
        RedisProcess() as server,
        cluster_of(2, server, broker, HOMING_PROFILE="homing", HOMING_PROFILES_SHIPPED=f"{shipped},homing") as found,
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
    with running(one, tmp_path, cluster.broker.port) as log:
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
