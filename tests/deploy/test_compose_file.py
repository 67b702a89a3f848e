"""deploy/compose.yaml and deploy/Dockerfile: settings that exist, and time enough to stop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.server import GRACE_SECONDS
from app.main import bootstrap_key
from app.services import STOP_SECONDS
from app.settings import load_settings, variables

DEPLOY = Path(__file__).parents[2] / "deploy"


def by_default(value: str) -> str:
    """What Compose makes of a value where the environment says nothing."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@pytest.fixture
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def test_nodes_differ_by_their_name_and_port_alone(services: dict[str, dict[str, Any]]) -> None:
    nodes = [services[f"node-{number}"] for number in (1, 2, 3)]
    for node in nodes:
        assert node["environment"].pop("HOMING_NODE_ID")
        assert node.pop("ports")
    assert nodes[0] == nodes[1] == nodes[2]


def test_settings_exist_and_are_valid(services: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    dockerfile = re.findall(r"(HOMING_[A-Z_]+)=(\S+)", (DEPLOY / "Dockerfile").read_text())
    given = dict(dockerfile) | {name: by_default(value) for name, value in services["node-3"]["environment"].items()}
    assert not given.keys() - variables()
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    settings = load_settings(_env_file=None)
    assert settings.api.host == "0.0.0.0"  # noqa: S104 - what a container has to listen on
    assert not settings.access.open
    key = bootstrap_key(settings.access)
    assert key is not None
    assert key.text in (DEPLOY / "compose.yaml").read_text().partition("x-node")[0], "the example has the key"


def test_prometheus_asks_the_port_without_a_key(services: dict[str, dict[str, Any]]) -> None:
    port = services["node-1"]["environment"]["HOMING_OPS_PORT"]
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    targets = config["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == [f"node-{number}:{port}" for number in (1, 2, 3)]
    assert not any(port in one for one in services["node-1"]["ports"])


def test_S9_nodes_log_in_and_all_passwords_can_be_replaced(services: dict[str, dict[str, Any]]) -> None:
    node, fleet = services["node-1"]["environment"], services["fleet"]["environment"]
    redis, mosquitto = services["redis"]["environment"], services["mosquitto"]["environment"]
    password = node["HOMING_MQTT_PASSWORD"]
    assert node["HOMING_STORE_URL"].startswith(f"redis://homing:{password}@")
    assert node["HOMING_MQTT_USERNAME"] == "homing"
    assert password == redis["REDISCLI_AUTH"] == mosquitto["NODE_PASSWORD"]
    assert fleet["HOMING_MQTT_USERNAME"] == "fleet"
    assert fleet["HOMING_MQTT_PASSWORD"] == mosquitto["FLEET_PASSWORD"]
    for given in (password, fleet["HOMING_MQTT_PASSWORD"]):
        assert re.fullmatch(r"\$\{HOMING_(NODE|FLEET)_PASSWORD:-for-development-only\}", given)


def test_a_node_has_the_time_that_it_takes_to_stop(services: dict[str, dict[str, Any]]) -> None:
    drain = load_settings(_env_file=None).cluster.drain_delay.total_seconds()
    assert float(services["node-1"]["stop_grace_period"].removesuffix("s")) >= drain + GRACE_SECONDS + STOP_SECONDS


def test_nothing_runs_as_root_or_can_write_to_its_root_file_system(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        if "homing" not in service["image"] and "prom/" not in service["image"]:
            assert service["user"].split(":")[0] not in ("", "0", "root"), name


def test_ports_are_opened_for_this_machine_alone(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)
