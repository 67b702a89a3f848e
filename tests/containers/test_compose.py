"""deploy/compose.yaml as people start it: three nodes behind a load balancer, and an update of all under load."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import aiohttp
import docker
import pytest

from homing_rig.ports import lasting_port
from tests.containers.engine import IMAGE, ROOT, compose_command, require_images, until_status
from tests.service_container import mosquitto_image
from tests.services import wait_until
from tests.waiting import PATIENCE

NEXT_IMAGE = "homing:next"
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"

KEY = re.findall(r"homing_DEVKEY00_\w+", COMPOSE_FILE.read_text())[0]
WITH_KEY = {"Authorization": f"Bearer {KEY}"}


@dataclass
class Stack:
    """The running stack; its ports are free ones of this machine."""

    command: list[str]
    project: str
    environment: dict[str, str]

    def compose(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.command, "-p", self.project, "-f", str(COMPOSE_FILE), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}:\n{done.stderr[-2000:]}"
        return done.stdout

    @property
    def url(self) -> str:
        """The load balancer."""
        return f"http://127.0.0.1:{self.environment['HOMING_PORT']}"

    def images(self) -> dict[str, str]:
        """Return the image of each node."""
        found = {}
        for number in (1, 2, 3):
            container = docker.from_env().containers.get(self.compose("ps", "-q", f"node-{number}").strip())
            found[f"node-{number}"] = container.attrs["Config"]["Image"]
        return found


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    command = compose_command()
    require_images()
    ports = {name: str(lasting_port()) for name in ("HOMING_PORT", "HOMING_PORT_1", "HOMING_PORT_2", "HOMING_PORT_3")}
    running = Stack(
        command,
        f"homing-test-{os.getpid()}",
        {
            **os.environ,
            **ports,
            "HOMING_IMAGE": IMAGE,
            "HOMING_IMAGE_MOSQUITTO": mosquitto_image(),
            "HOMING_LATENCY_LOG_INTERVAL": "1s",
        },
    )
    try:
        running.compose("up", "--detach", "--no-build")
        for name in ("HOMING_PORT_1", "HOMING_PORT_2", "HOMING_PORT_3"):
            until_status(f"http://127.0.0.1:{ports[name]}/readyz", 200)
        until_status(f"{running.url}/readyz", 200)
        yield running
    finally:
        running.compose("down", "--volumes", "--timeout", "1")


def test_the_curl_at_the_top_of_the_file_works(stack: Stack) -> None:
    head = [line.removeprefix("#").strip() for line in COMPOSE_FILE.read_text().splitlines()[:12]]
    first = next(number for number, line in enumerate(head) if line.startswith("curl"))
    curl = "\n".join(head[first - 1 : first + 2]).replace("127.0.0.1:8080", stack.url.removeprefix("http://"))
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout)["state"] == "succeeded"


async def test_all_commands_through_the_load_balancer_are_answered_by_three_nodes(stack: Stack) -> None:
    homes: set[str] = set()
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE):
        while homes != {"node-1", "node-2", "node-3"}:  # the load balancer may still have to see one that is ready
            answers = await asyncio.gather(*(send(session, stack.url, number) for number in range(90)))
            assert Counter(state for state, _ in answers) == {"succeeded": 90}
            homes |= {home for _, home in answers}


def test_the_latency_log_is_written_to_its_volume(stack: Stack) -> None:
    node = docker.from_env().containers.get(stack.compose("ps", "-q", "node-1").strip())
    search = "import pathlib; print(*pathlib.Path('/var/lib/homing/latency').rglob('*.parquet'))"

    assert wait_until(
        lambda: bool(node.exec_run(["python", "-c", search]).output.split()), timeout=PATIENCE, interval=0.2
    )


def test_S9_nodes_and_devices_have_the_rights_they_need_and_nobody_else_has_any(stack: Stack) -> None:
    def redis(words: str) -> str:
        return stack.compose("exec", "-T", "redis", "sh", "-c", f"{words} 2>&1 || true").strip()

    assert redis("env -u REDISCLI_AUTH redis-cli get x").startswith("NOAUTH")
    assert redis("redis-cli --user homing flushall").startswith("NOPERM")
    assert redis("redis-cli --user homing ping") == "PONG"

    anonymous = (
        "import paho.mqtt.client as m; c = m.Client(m.CallbackAPIVersion.VERSION2); "
        "c.on_connect = lambda c, _u, _f, reason, _p: (print(reason), c.disconnect()); "
        "c.connect('mosquitto'); c.loop_forever()"
    )
    assert "Not authorized" in stack.compose("exec", "-T", "node-1", "python", "-c", anonymous)
    said = stack.compose("logs", "mosquitto")
    assert "u'homing'" in said
    assert "u'fleet'" in said


def test_metrics_are_not_for_callers(stack: Stack) -> None:
    assert until_status(f"{stack.url}/metrics", 404)
    node = f"http://127.0.0.1:{stack.environment['HOMING_PORT_1']}"
    assert until_status(f"{node}/metrics", 401)
    program = "import urllib.request as r; print(r.urlopen('http://node-2:9464/metrics').status)"
    assert stack.compose("exec", "-T", "node-1", "python", "-c", program).strip() == "200"


def test_nobody_is_let_in_without_a_key(stack: Stack) -> None:
    assert until_status(f"{stack.url}/v1/commands", 401)


async def test_F70_a_rolling_update_under_load_fails_no_request(stack: Stack) -> None:
    docker.from_env().images.get(IMAGE).tag(NEXT_IMAGE)
    stack.environment["HOMING_IMAGE"] = NEXT_IMAGE
    updated = asyncio.Event()
    outcomes: list[tuple[str, str]] = []

    async def caller(session: aiohttp.ClientSession, first: int) -> None:
        number = first
        while not updated.is_set():
            outcomes.append(await send(session, stack.url, number))
            number += 1

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for first in range(0, 80_000, 10_000):
            group.create_task(caller(session, first))
        update = await asyncio.create_subprocess_exec(
            str(ROOT / "deploy" / "compose" / "rolling-update"),
            *("-p", stack.project),
            env={**stack.environment, "COMPOSE": " ".join(stack.command)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await update.communicate()
        updated.set()

    assert update.returncode == 0, said.decode()
    assert re.findall(r"^(node-\d) is ready$", said.decode(), re.MULTILINE) == ["node-1", "node-2", "node-3"]
    assert set(stack.images().values()) == {NEXT_IMAGE}
    assert Counter(state for state, _ in outcomes).keys() == {"succeeded"}
    assert len(outcomes) > 100
    print(f"{len(outcomes)} requests during the update, none failed")


async def send(session: aiohttp.ClientSession, url: str, number: int) -> tuple[str, str]:
    """State and home node of a command; one that was sent away with `202` is asked for until it has an outcome."""
    body = {"profile": "dji", "method": "cover_open", "timeout": "20s"}
    try:
        async with session.post(
            f"{url}/v1/devices/SN{number % 5 + 1:04}/commands", json=body, headers=WITH_KEY
        ) as response:
            status, said = response.status, await response.text()
            if status not in (200, 202):
                return f"{status}: {said}", ""
            command = json.loads(said)
            location = response.headers.get("Location", "")
        while status == 202:
            await asyncio.sleep(0.1)
            async with session.get(f"{url}{location}", headers=WITH_KEY) as response:
                assert response.status == 200
                command = await response.json()
            status = 202 if command["finished_at"] is None else 200
    except (aiohttp.ClientError, ValueError, AssertionError) as error:
        return f"{type(error).__name__}: {error}", ""
    return command["state"], command["home_node"]
