"""A node that is its own broker: no other process, real devices over MQTT, killed and started again."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from homing_rig.ports import lasting_port
from tests.certificates import CertificateFiles, make_certificate
from tests.cluster.harness import Device, Json, NodeProcess, devices
from tests.waiting import PATIENCE, eventually


@dataclass(frozen=True)
class OwnBroker:
    """The address of a node's broker."""

    port: int

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def node_settings(self) -> dict[str, str]:
        return {"HOMING_BROKER_URL": self.url, "HOMING_MQTT_URL": self.url}


@dataclass(frozen=True)
class TlsBroker:
    """The address of a node's broker that listens with TLS alone."""

    port: int
    files: CertificateFiles

    @property
    def url(self) -> str:
        return f"mqtts://localhost:{self.port}"

    @property
    def node_settings(self) -> dict[str, str]:
        return {
            "HOMING_BROKER_TLS_URL": f"mqtts://127.0.0.1:{self.port}",
            "HOMING_BROKER_CERT_FILE": str(self.files.certificate),
            "HOMING_BROKER_KEY_FILE": str(self.files.key),
            "HOMING_MQTT_URL": self.url,
            "HOMING_MQTT_CA_FILE": str(self.files.authority),
        }


def answer(device: Device, command: Json) -> None:
    device.answer(command)


async def test_commands_and_events_need_no_other_process(tmp_path: Path) -> None:
    broker, folder = OwnBroker(lasting_port()), f"rocks://{tmp_path}/data"
    settings = {"HOMING_STORE_URL": folder, "HOMING_EVENTS_URL": folder}
    with NodeProcess("", None, broker, **settings) as node:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * PATIENCE)) as session,
            devices(broker.url, answer) as device,
        ):

            async def send(number: int) -> Json:
                body = {"method": "return_home", "params": {"nonce": number}, "timeout": "60s"}
                async with session.post(f"{node.url}/v1/devices/SN1/commands", json=body) as response:
                    return dict(await response.json())

            async def counter(name: str) -> int:
                async with session.get(f"{node.url}/v1/nodes") as response:
                    return int((await response.json())["self"]["counters"].get(name, 0))

            outcomes = await asyncio.gather(*[send(number) for number in range(50)])
            assert {one["state"] for one in outcomes} == {"succeeded"}
            assert sorted(one["result"]["nonce"] for one in outcomes) == list(range(50))
            assert set(device.executed.values()) == {1}
            assert await counter("broker.connected") >= 3
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)
            await eventually(lambda: has_come_back(session, node))
            assert (await send(50))["state"] == "succeeded", "devices and node are connected to the new broker"
            async with session.get(f"{node.url}/v1/commands/{outcomes[7]['id']}") as response:
                assert (await response.json())["state"] == "succeeded", "commands were in the folder"
            assert await asyncio.to_thread(node.stop) == 0


async def test_a_node_and_its_devices_speak_tls_alone(tmp_path: Path) -> None:
    """The node trusts the authority of its own broker, and the doctor looks at it like at any other."""
    files, port = make_certificate(tmp_path), lasting_port()
    broker = TlsBroker(port, files)
    with NodeProcess("", None, broker) as node:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * PATIENCE)) as session:
            async with session.get(f"{node.url}/v1/nodes") as response:
                counters = (await response.json())["self"]["counters"]
            assert counters["broker.connected"] >= 1
        examined = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "app.cli", "doctor"],
            env=broker.node_settings,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert examined.returncode == 0, examined.stdout
        assert re.search(r"ok +broker +certificate +expires in 89 days", examined.stdout)
        assert re.search(r"ok +broker +protocol +MQTT 5", examined.stdout)
        assert await asyncio.to_thread(node.stop) == 0


async def has_come_back(session: aiohttp.ClientSession, node: NodeProcess) -> bool:
    """True if the fleet listens again."""
    async with session.get(f"{node.url}/v1/nodes") as response:
        return bool((await response.json())["self"]["counters"].get("broker.connected", 0) >= 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"HOMING_BROKER_URL": "mqtt://0.0.0.0:{port}"},
            "HOMING_BROKER_URL: 0.0.0.0 can be reached from outside, and this broker does not authenticate its clients",
        ),
        ({"HOMING_BROKER_URL": "mqtts://127.0.0.1"}, "HOMING_BROKER_URL: scheme 'mqtts' is unknown; allowed: mqtt://"),
        (
            {
                "HOMING_BROKER_TLS_URL": "mqtts://127.0.0.1:{port}",
                "HOMING_BROKER_CERT_FILE": "/nowhere/a.pem",
                "HOMING_BROKER_KEY_FILE": "/nowhere/a.key",
            },
            "HOMING_BROKER_CERT_FILE: /nowhere/a.pem cannot be read: No such file or directory",
        ),
        (
            {"HOMING_BROKER_TLS_URL": "mqtt://127.0.0.1:{port}"},
            "HOMING_BROKER_TLS_URL: scheme 'mqtt' is unknown; allowed: mqtts://",
        ),
        ({"HOMING_BROKER_URL": "mqtt://u:p@127.0.0.1"}, "HOMING_BROKER_URL: names no address to listen on"),
        ({"HOMING_BROKER_URL": "mqtt://203.0.113.1:{port}"}, "HOMING_BROKER_URL: cannot listen on 203.0.113.1 port"),
    ],
)
async def test_a_broker_that_cannot_be_is_refused_in_a_sentence(
    settings: dict[str, str], said: str, homing_program: Path
) -> None:
    port = lasting_port()
    ended = await asyncio.to_thread(
        subprocess.run,
        [str(homing_program), "serve", "--port", "0"],
        env={name: value.format(port=port) for name, value in settings.items()},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
