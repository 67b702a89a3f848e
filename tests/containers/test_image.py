"""The image: small, not root, on a read-only root file system, quickly ready; and it says what is wrong."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import docker
import pytest

from tests.containers.engine import IMAGE, SERVICES, NodeContainer, Services, require_images, status_of, until_status
from tests.service_container import DEBIANS_MOSQUITTO, mosquitto_image
from tests.services import wait_until
from tests.waiting import PATIENCE

MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def image() -> dict[str, Any]:
    require_images()
    attributes: dict[str, Any] = docker.from_env().images.get(IMAGE).attrs
    return attributes


def run(*command: str, **settings: str) -> tuple[int, str]:
    """Exit code and output of a container of the image."""
    container = docker.from_env().containers.run(
        IMAGE,
        list(command),
        environment={"HOMING_ACCESS_OPEN": "true", **settings},
        detach=True,
        read_only=True,
        cap_drop=["ALL"],
    )
    try:
        code = int(container.wait(timeout=PATIENCE)["StatusCode"])
        return code, container.logs().decode()
    finally:
        container.remove(force=True)


@pytest.mark.usefixtures("image")
def test_the_broker_is_of_the_version_that_its_tag_says() -> None:
    tag = mosquitto_image()
    said = docker.from_env().containers.run(tag, ["sh", "-c", "mosquitto -h | head -n 1"], remove=True)
    version = said.decode().split()[-1]
    assert tag in (DEBIANS_MOSQUITTO, f"eclipse-mosquitto:{version}")


def test_is_smaller_than_290_megabytes(image: dict[str, Any]) -> None:
    assert image["Size"] < 290_000_000


def test_runs_as_somebody_without_rights_and_starts_without_a_shell(image: dict[str, Any]) -> None:
    config = image["Config"]

    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["homing"]
    assert config["Cmd"] == ["serve"]
    assert config["Healthcheck"]["Test"] == ["CMD", "homing-health", "/healthz"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Labels"]["org.opencontainers.image.title"] == "Homing"
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert config["Labels"]["org.opencontainers.image.version"]


def test_nothing_in_it_belongs_to_the_user_but_the_folders_of_what_it_keeps(services: Services) -> None:
    search = (
        "import os\n"
        "for place, folders, files in os.walk('/'):\n"
        "    if place == '/':\n"
        "        folders[:] = [one for one in folders if one not in ('proc', 'sys', 'dev', 'tmp')]\n"
        "    for name in [*folders, *files]:\n"
        "        path = os.path.join(place, name)\n"
        "        if not os.path.islink(path) and os.access(path, os.W_OK): print(path)\n"
    )
    found = docker.from_env().containers.run(IMAGE, ["-c", search], entrypoint="python", remove=True).decode().split()

    kept = ("access", "data", "events", "latency")
    assert sorted(found) == ["/var/lib/homing", *(f"/var/lib/homing/{name}" for name in kept)]


def test_is_ready_by_itself_and_idles_below_120_mebibytes(services: Services) -> None:
    with NodeContainer("idle", services.back, **SERVICES) as node:
        until_status(f"{node.url}/readyz", 200)
        seconds = (ready_at(node) - started_at(node)).total_seconds()
        memory = node.get_wrapped_container().stats(stream=False)["memory_stats"]
        cache = memory["stats"].get("inactive_file", memory["stats"].get("total_inactive_file", 0))
        used = (memory["usage"] - cache) / MEBIBYTE
    print(f"ready after {seconds:.2f} s; idle {used:.1f} MiB")

    assert used < 120


def ready_at(node: NodeContainer) -> datetime:
    """The instant at which it said that it is ready."""
    (said,) = (record for line in node.log_text.splitlines() if (record := json.loads(line))["event"] == "node_ready")
    return datetime.fromisoformat(said["timestamp"])


def started_at(node: NodeContainer) -> datetime:
    """The instant at which the engine started its process; given in nanoseconds, of which Python reads microseconds."""
    return datetime.fromisoformat(node.attributes()["State"]["StartedAt"][:26] + "+00:00")


def test_the_health_check_of_the_image_finds_a_node_that_is_alive(services: Services) -> None:
    with services.node("healthy") as node:
        until_status(f"{node.url}/readyz", 200)
        alive = node.exec(["homing-health"])
        ready = node.exec(["homing-health", "/readyz"])

    assert (alive.exit_code, json.loads(alive.output)) == (0, {"status": "ok"})
    assert (ready.exit_code, json.loads(ready.output)["state"]) == (0, "ready")


def test_it_stops_in_order_when_it_is_told_to(services: Services) -> None:
    with services.node("stopping", HOMING_CLUSTER_DRAIN_DELAY="100ms") as node:
        until_status(f"{node.url}/readyz", 200)
        node.get_wrapped_container().stop(timeout=20)

        assert node.attributes()["State"]["ExitCode"] == 0
        assert '"event": "node_stopped"' in node.log_text


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"HOMING_STORE_URL": "postgres://db"}, "HOMING_STORE_URL: scheme 'postgres' is unknown; allowed: memory://"),
        ({"HOMING_CLUSTER_LEASE": "5"}, "HOMING_CLUSTER_LEASE: "),
        ({"HOMING_PROFILE": "nobody"}, "HOMING_PROFILE: 'nobody' is unknown; allowed: dji, homing"),
        (
            {"HOMING_MQTT_CA_FILE": "/missing.pem", "HOMING_MQTT_URL": "mqtts://b"},
            "HOMING_MQTT_CA_FILE: /missing.pem cannot be read: No such file",
        ),
    ],
)
def test_wrong_settings_end_it_with_one_sentence(
    image: dict[str, Any], settings: dict[str, str], sentence: str
) -> None:
    code, said = run("serve", **settings)

    assert code == 2, said
    assert sentence in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "url", "part", "others"),
    [
        ("no-redis", {"HOMING_STORE_URL": "redis://nowhere.invalid:6379/0"}, "store", "not tried yet"),
        ("no-broker", {"HOMING_MQTT_URL": "mqtt://nowhere.invalid:1883"}, "mqtt", "ok"),
    ],
)
def test_what_cannot_be_reached_at_the_start_is_named_by_the_readiness(
    services: Services, name: str, url: dict[str, str], part: str, others: str
) -> None:
    with NodeContainer(name, services.back, **{**SERVICES, **url}) as node:
        until_status(f"{node.url}/healthz", 200)
        assert wait_until(lambda: '"level": "warning"' in node.log_text, PATIENCE)  # it has tried
        status, body = status_of(f"{node.url}/readyz")

        assert status == 503
        problem = json.loads(body)
        assert f"{part}: {problem['checks'].pop(part)}" in problem["detail"]
        assert all(said.startswith(others) for said in problem["checks"].values()), problem
        assert "nowhere.invalid" in node.log_text
        assert '"level": "warning"' in node.log_text
        assert "Traceback" not in node.log_text
