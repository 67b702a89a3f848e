"""The tutorial works as it is written: its shell blocks run, in order, as somebody would type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from homing_rig.ports import lasting_port
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
FIRST, _, CLUSTER = TEXT.partition("\n## Three nodes\n")


def script_of(part: str) -> str:
    blocks = re.findall(r"^```sh\n(.+?)^```$", part, re.MULTILINE | re.DOTALL)
    ours = ("./scripts/demo", ". .venv/bin/activate")
    return "set -e\n" + "".join(line for line in "".join(blocks).splitlines(keepends=True) if line.strip() not in ours)


@pytest.fixture
def environment(homing_program: Path, tmp_path: Path) -> dict[str, str]:
    """A `homing` in the path that is this one, and a home without contexts."""
    return {
        **os.environ,
        "PATH": f"{homing_program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
        "PYTHONUNBUFFERED": "1",
        "XDG_CONFIG_HOME": str(tmp_path),
    }


@pytest.fixture
def as_users_do(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same with a `homing` that starts an interpreter, and imports, each time."""
    program = tmp_path / "bin" / "homing"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m app.cli "$@"\n')
    program.chmod(0o755)
    return environment | {"PATH": f"{program.parent}:{environment['PATH']}"}


@contextmanager
def demo(environment: dict[str, str]) -> Iterator[str]:
    """Yield the URL of the demo, after its first round."""
    command = ["homing", "demo", "--port", "0", "--devices", "5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        yield next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
    finally:
        process.terminate()
        process.communicate()


def run(script: str, environment: dict[str, str], folder: Path, seconds: float = 2 * PATIENCE) -> str:
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_half(as_users_do: dict[str, str], tmp_path: Path) -> None:
    with demo(as_users_do) as url:
        said = run(script_of(FIRST).replace("http://127.0.0.1:8080", url), as_users_do | {"HOMING_URL": url}, tmp_path)
    assert "cover_open on dock-1: succeeded in" in said
    assert "exit code 2" in said
    assert "nobody is subscribed" in said
    assert "exit code 5" in said
    assert "flighttask_execute on dock-2: succeeded" in said
    assert '"method":"cover_close"' in said


def test_the_second_half(environment: dict[str, str], tmp_path: Path) -> None:
    with RedisProcess() as redis, MosquittoProcess() as mosquitto:
        script = script_of(CLUSTER).replace("redis://127.0.0.1:6379/0", redis.node_url)
        script = script.replace("mqtt://127.0.0.1:1883", mosquitto.url)
        for port in ("8081", "8082", "8083"):
            script = script.replace(port, str(lasting_port()))
        # Here, devices may not do what nodes do, and the other way round.
        script = script.replace("homing simulate", "HOMING_MQTT_USERNAME= HOMING_MQTT_PASSWORD= homing simulate")
        as_node = {"HOMING_MQTT_USERNAME": NODE_USER, "HOMING_MQTT_PASSWORD": NODE_PASSWORD}
        said = run(f"trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{script}", environment | as_node, tmp_path)
    assert "flighttask_execute on SN0002: succeeded" in said
    assert re.search(r'"home_node": "node-1".*"received_by": "node-[23]"', said)
    assert "SN0404: unsent" in said
    assert "exit code 5" in said
    assert "cover_open on SN0003: succeeded" in said
