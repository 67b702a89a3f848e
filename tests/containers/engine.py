"""The Docker engine of these tests, and what they start on it through testcontainers."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.service_container import REDIS, mosquitto_image
from tests.services import DEPLOY, NODE_USER
from tests.waiting import PATIENCE

ROOT: Final = Path(__file__).parents[2]
IMAGE: Final = "homing:dev"
PASSWORD: Final = "for-tests-only"
"""Not that of the files in deploy/, into which it has to be put."""
SERVICES: Final = {
    "HOMING_STORE_URL": f"redis://{NODE_USER}:{PASSWORD}@redis:6379/0",
    "HOMING_MQTT_URL": "mqtt://mosquitto:1883",
    "HOMING_MQTT_USERNAME": NODE_USER,
    "HOMING_MQTT_PASSWORD": PASSWORD,
}
"""The settings of a node on the network of these services, where it has the rights of a node (S9)."""
_PREPARED: Final = os.environ.get("HOMING_TEST_DOCKER", "")
"""The finding of scripts/test: `ready`, `impossible: …`, or nothing when it did not run."""

testcontainers_config.ryuk_disabled = True  # every container is removed by its owner


def require_engine() -> None:
    """Skip, or fail in CI, when there is no engine. scripts/docker-engine says whether there could be one."""
    if _PREPARED.startswith("impossible"):
        pytest.skip(_PREPARED.removeprefix("impossible: "))
    if not shutil.which("docker") or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        sentence = "no Docker engine answers: start Docker, or run scripts/test as root"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)


def require_images() -> None:
    """Have the images of the node and of the services; quick when nothing changed."""
    require_engine()
    if _PREPARED == "ready":
        return
    made = subprocess.run(["scripts/image", "--services"], cwd=ROOT, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.fail(f"scripts/image --services failed:\n{made.stderr[-2000:]}")


def compose_command() -> list[str]:
    """`docker compose` or docker-compose; skip, or fail in CI, when there is neither."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    sentence = "neither `docker compose` nor docker-compose is installed"
    if os.environ.get("CI"):
        pytest.fail(sentence)
    pytest.skip(sentence)


def status_of(url: str) -> tuple[int, str]:
    """HTTP status and body of a GET; 0 when nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - our own http URL
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError as error:
        return 0, str(error)


def until_status(url: str, wanted: int, within: float = PATIENCE) -> str:
    """Wait until a URL answers with this status; the body."""
    deadline = time.monotonic() + within
    while True:
        status, body = status_of(url)
        if status == wanted:
            return body
        if time.monotonic() > deadline:
            pytest.fail(f"{url} still answers {status} and not {wanted} after {within:g} s: {body[:500]}")
        time.sleep(0.02)


class NodeContainer(DockerContainer):
    """A node as deploy/compose.yaml and Kubernetes run it: read-only, without capabilities, not root."""

    def __init__(self, name: str, network: Network, *command: str, **settings: str) -> None:
        super().__init__(IMAGE)
        self.node_id = name
        self.with_network(network).with_network_aliases(name).with_exposed_ports(8080)
        self.with_envs(HOMING_NODE_ID=name, HOMING_ACCESS_OPEN="true", **settings)
        if command:
            self.with_command(list(command))
        self.with_tmpfs_mount("/tmp")  # noqa: S108 - in the container
        self.with_kwargs(read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"])

    @property
    def url(self) -> str:
        """Return where to reach it from this machine."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(8080)}"

    @property
    def log_text(self) -> str:
        """Return what it wrote so far."""
        written: bytes = self.get_wrapped_container().logs()
        return written.decode(errors="replace")

    def attributes(self) -> dict[str, Any]:
        """Return what `docker inspect` says."""
        wrapped = self.get_wrapped_container()
        wrapped.reload()
        attributes: dict[str, Any] = wrapped.attrs
        return attributes


class Services:
    """Redis and Mosquitto as `redis` and `mosquitto` on a network where nobody else is, and one that callers are on."""

    def __init__(self) -> None:
        self.front, self.back = Network(), Network()
        # Docker opens the ports of a container on the first of its networks, by name. That one has to stay.
        self.front.name, self.back.name = f"a-{self.front.name}", f"b-{self.back.name}"
        self.redis = (
            DockerContainer(REDIS)
            .with_command(
                "sh /homing/start-redis --dir /data --appendonly yes --appendfsync everysec --protected-mode no"
            )
            .with_env("REDISCLI_AUTH", PASSWORD)
            .with_volume_mapping(DEPLOY / "compose/start-redis", "/homing/start-redis")
            .with_volume_mapping(DEPLOY / "redis/users.acl", "/homing/users.acl")
            .with_network(self.back)
            .with_network_aliases("redis")
        )
        self.mosquitto = (
            DockerContainer(mosquitto_image())
            .with_command("sh /homing/start-mosquitto")
            .with_kwargs(user="1883:1883")
            .with_env("NODE_PASSWORD", PASSWORD)
            .with_env("FLEET_PASSWORD", PASSWORD)
            .with_volume_mapping(DEPLOY / "compose/start-mosquitto", "/homing/start-mosquitto")
            .with_volume_mapping(DEPLOY / "mosquitto.conf", "/homing/mosquitto.conf")
            .with_volume_mapping(DEPLOY / "mosquitto/acl", "/homing/acl")
            .with_network(self.back)
            .with_network_aliases("mosquitto")
            .with_exposed_ports(1883)
        )

    @property
    def mqtt_url(self) -> str:
        """The broker as seen from this machine."""
        return f"mqtt://{self.mosquitto.get_container_host_ip()}:{self.mosquitto.get_exposed_port(1883)}"

    @contextmanager
    def node(self, name: str, **settings: str) -> Iterator[NodeContainer]:
        """A running node, reachable over the front network and with its services over the other."""
        with NodeContainer(name, self.front, **{**SERVICES, "HOMING_PROFILE": "dji", **settings}) as node:
            self.connect(node)
            yield node

    def connect(self, node: NodeContainer) -> None:
        """Give a node its way to Redis and the broker."""
        self.back.connect(node.get_wrapped_container().id)

    def cut_off(self, node: NodeContainer) -> None:
        """Take a node its way to Redis and the broker; callers still reach it."""
        wrapped = node.get_wrapped_container()
        wrapped.client.networks.get(self.back.name).disconnect(wrapped)

    @contextmanager
    def running(self) -> Iterator[Services]:
        """Started, and all gone afterwards."""
        with self.front, self.back, self.redis, self.mosquitto:
            yield self
