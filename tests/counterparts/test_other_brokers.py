"""Brokers other than Mosquitto are as docs/support.md says, if they are on this machine.

Run by `scripts/test --counterparts`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import pytest

from homing_rig.programs import CONNECT_PACKET, environment
from homing_rig.services import ServiceProcess, reply_of
from tests.cluster.harness import Json, NodeProcess
from tests.counterparts.environments import node_with
from tests.services import find_binary
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.counterparts

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
NO_MQTT_5 = "it does not speak MQTT 5"
NOTHING_SHARED = "the broker takes $share and delivers nothing"


class OtherBroker(ServiceProcess):
    """A broker that lets everybody in."""

    row: str
    """Its row on the page."""

    @property
    def node_settings(self) -> Mapping[str, str]:
        """The settings of a node that stands on it."""
        return {"HOMING_MQTT_URL": f"mqtt://127.0.0.1:{self.port}", "HOMING_MQTT_VERSION": "3.1.1"}

    def version(self) -> str:
        """As it tells it."""
        raise NotImplementedError

    def _answers(self) -> bool:
        return reply_of(self.port, CONNECT_PACKET).startswith(b"\x20\x02")


class Nats(OtherBroker):
    """NATS with its MQTT gateway, which keeps sessions in JetStream."""

    row = "NATS"

    def __init__(self) -> None:
        super().__init__("nats-server")

    def version(self) -> str:
        return _said(self.binary, "--version").split()[-1].lstrip("v")

    def _find(self, binary: str) -> str:
        return find_binary(binary, "nats-server")

    def _command(self) -> Sequence[str]:
        file = self.folder / "nats.conf"
        store = f'jetstream {{ store_dir: "{self.folder}" }}'
        gateway = f"mqtt {{ host: 127.0.0.1, port: {self.port} }}"
        file.write_text(f"server_name: homing\nlisten: 127.0.0.1:-1\n{store}\n{gateway}\n", "utf-8")
        return [self.binary, "-c", str(file)]


class AedesBroker(OtherBroker):
    """Aedes of npm, with everything in memory."""

    row = "aedes"
    pinned = "1.2.0"

    def __init__(self) -> None:
        self._modules = node_with("aedes", f"aedes@{self.pinned}")
        super().__init__("node")

    def version(self) -> str:
        return str(json.loads((self._modules / "aedes" / "package.json").read_text("utf-8"))["version"])

    def _command(self) -> Sequence[str]:
        script = Path(__file__).parent / "devices" / "aedes_broker.js"
        return ["env", f"NODE_PATH={self._modules}", self.binary, str(script), str(self.port)]


class RabbitMq(OtherBroker):
    """RabbitMQ with its MQTT plugin."""

    row = "RabbitMQ"

    def __init__(self) -> None:
        super().__init__("rabbitmq-server")

    def version(self) -> str:
        return _said("rabbitmqctl", "version").strip()

    def _find(self, binary: str) -> str:
        return find_binary(binary, "rabbitmq-server")

    def _command(self) -> Sequence[str]:
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp = none\nmqtt.listeners.tcp.1 = 127.0.0.1:{self.port}\nmqtt.allow_anonymous = true\n",
            "utf-8",
        )
        (self.folder / "plugins").write_text("[rabbitmq_mqtt].\n", "utf-8")
        places = {
            "RABBITMQ_NODENAME": f"homing-{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder),
            "RABBITMQ_LOG_BASE": str(self.folder),
        }
        return ["env", *(f"{name}={value}" for name, value in places.items()), self.binary]


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


@pytest.fixture(scope="module", params=[Nats, AedesBroker, RabbitMq], ids=lambda kind: kind.row)
def broker(request: pytest.FixtureRequest) -> Iterator[OtherBroker]:
    if request.param is RabbitMq and shutil.which("rabbitmq-server", path="/usr/sbin:/usr/local/sbin") is None:
        pytest.skip("rabbitmq-server is not installed; it would start a service of its own")
    with request.param() as running:
        yield running


def doctor(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the findings of `homing doctor` about the broker, by subject."""
    command = [sys.executable, "-m", "app.cli", "doctor", "--json"]
    found = subprocess.run(
        command, env=environment(settings), capture_output=True, text=True, timeout=10 * PATIENCE, check=False
    )
    said = json.loads(found.stdout)["diagnoses"]
    return {one["subject"]: one["seen"] for one in said if one["part"] == "broker"}


def test_the_page_says_what_the_doctor_finds(broker: OtherBroker) -> None:
    seen = doctor(broker.node_settings)
    refused = doctor({**broker.node_settings, "HOMING_MQTT_VERSION": "5"})
    assert NO_MQTT_5 in " ".join(refused.values())
    assert NOTHING_SHARED in seen["shared subscriptions"]
    assert seen["queues"].startswith("1500 messages waited")
    [row] = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| {broker.row} ")]
    version, mqtt_5, shared, kept = (cell.strip() for cell in row.strip("|").split("|"))
    assert version == f"{broker.row} {broker.version()}"
    assert mqtt_5.startswith("no: ")
    assert shared == "accepted, and nothing is delivered"
    assert kept == "1,500 of 1,500"


async def test_commands_of_one_node_reach_their_device_and_come_back(broker: OtherBroker, tmp_path: Path) -> None:
    simulate = [sys.executable, "-m", "app.cli", "simulate", "--devices", "1"]
    with (
        (tmp_path / "log").open("wb") as log,
        NodeProcess("n1", None, broker, HOMING_PROFILE="homing") as node,
        subprocess.Popen(simulate, env=environment(broker.node_settings), stdout=log, stderr=log) as fleet,
    ):
        try:
            async with aiohttp.ClientSession() as session:

                async def ask() -> Json:
                    body = {"method": "reboot", "timeout": "5s"}
                    async with session.post(f"{node.url}/v1/devices/SN0001/commands", json=body) as response:
                        said: Json = await response.json(content_type=None)
                        return said

                async def answered() -> bool:
                    return (await ask()).get("state") == "succeeded"

                await eventually(answered)  # as soon as the device has subscribed
                for _ in range(5):
                    assert (await ask())["state"] == "succeeded"
        finally:
            fleet.kill()
