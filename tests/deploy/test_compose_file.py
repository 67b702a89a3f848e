"""The compose files and deploy/Dockerfile: settings that exist, and time enough to stop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.access.plane import bootstrap_key
from app.runtime.services import STOP
from app.server.run import GRACE_SECONDS
from app.settings import load_settings, variables

DEPLOY = Path(__file__).parents[2] / "deploy"


def by_default(value: str) -> str:
    """Return what Compose makes of a value where the environment says nothing."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


NODES = {"compose.yaml": "node-3", "compose.embedded.yaml": "node"}
"""One node of each file."""
Services = dict[str, dict[str, Any]]


def composed(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    return found


@pytest.fixture
def services() -> Services:
    found: Services = composed("compose.yaml")["services"]
    return found


def test_nodes_differ_by_their_name_and_port_alone(services: Services) -> None:
    nodes = [services[f"node-{number}"] for number in (1, 2, 3)]
    for node in nodes:
        assert node["environment"].pop("HOMING_NODE_ID")
        assert node.pop("ports")
    assert nodes[0] == nodes[1] == nodes[2]


@pytest.mark.parametrize("name", NODES)
def test_settings_exist_and_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dockerfile = re.findall(r"(HOMING_[A-Z_]+)=(\S+)", (DEPLOY / "Dockerfile").read_text())
    node = composed(name)["services"][NODES[name]]
    given = dict(dockerfile) | {setting: by_default(value) for setting, value in node["environment"].items()}
    del given["HOMING_DATA"]  # an option of `homing up`, which these do not run
    assert not given.keys() - variables()
    for setting, value in given.items():
        monkeypatch.setenv(setting, value)

    settings = load_settings(_env_file=None)
    assert settings.api.host == "0.0.0.0"  # noqa: S104 - what a container has to listen on
    assert not settings.access.open
    key = bootstrap_key(settings.access)
    assert key is not None
    assert key.text in (DEPLOY / name).read_text().partition("\nservices:")[0], "the example has the key"


def test_one_node_keeps_events_on_a_volume_that_it_may_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    file = composed("compose.embedded.yaml")
    node = file["services"]["node"]
    monkeypatch.setenv("HOMING_EVENTS_URL", node["environment"]["HOMING_EVENTS_URL"])
    url = load_settings(_env_file=None).events.url
    mounts = dict(one.split(":", 1) for one in node["volumes"])
    assert set(mounts) <= set(file["volumes"])
    assert url.startswith(f"rocks://{mounts['events']}/"), "in a folder, which RocksDB makes itself"
    assert node["environment"]["HOMING_STORE_URL"] == "memory://"
    assert "redis" not in file["services"]
    # A volume begins with the owner that the folder has in the image.
    made = re.search(r"install -d -o 10001 -g 10001 ((?:[^;]|\n)*);", (DEPLOY / "Dockerfile").read_text())
    assert made is not None
    assert {f"/rootfs{place}" for place in mounts.values()} <= set(made[1].replace("\\", " ").split())


@pytest.mark.parametrize("name", NODES)
def test_devices_and_nodes_log_in_as_mosquitto_knows_them(name: str) -> None:
    """By the passwords that its file of rights is made with, which both files share."""
    services = composed(name)["services"]
    mosquitto = services["mosquitto"]
    assert services[NODES[name]]["environment"]["HOMING_MQTT_PASSWORD"] == mosquitto["environment"]["NODE_PASSWORD"]
    assert services["fleet"]["environment"]["HOMING_MQTT_PASSWORD"] == mosquitto["environment"]["FLEET_PASSWORD"]
    assert mosquitto == composed("compose.yaml")["services"]["mosquitto"]


def test_prometheus_asks_the_port_without_a_key(services: Services) -> None:
    port = services["node-1"]["environment"]["HOMING_OPS_PORT"]
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    targets = config["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == [f"node-{number}:{port}" for number in (1, 2, 3)]
    assert not any(port in one for one in services["node-1"]["ports"])


def test_S9_nodes_log_in_and_all_passwords_can_be_replaced(services: Services) -> None:
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


@pytest.mark.parametrize("name", NODES)
def test_a_node_has_the_time_that_it_takes_to_stop(name: str) -> None:
    drain = load_settings(_env_file=None).cluster.drain_delay.total_seconds()
    grace = composed(name)["services"][NODES[name]]["stop_grace_period"]
    assert float(grace.removesuffix("s")) >= drain + GRACE_SECONDS + STOP.total_seconds()


@pytest.mark.parametrize("file", NODES)
def test_nothing_runs_as_root_or_can_write_to_its_root_file_system(file: str) -> None:
    for name, service in composed(file)["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        if "homing" not in service["image"] and "prom/" not in service["image"]:
            assert service["user"].split(":")[0] not in ("", "0", "root"), name


@pytest.mark.parametrize(("name", "count"), [("compose.yaml", 5), ("compose.embedded.yaml", 1)])
def test_ports_are_opened_for_this_machine_alone(name: str, count: int) -> None:
    ports = [port for service in composed(name)["services"].values() for port in service.get("ports", [])]
    assert len(ports) == count
    assert all(port.startswith("127.0.0.1:") for port in ports)
