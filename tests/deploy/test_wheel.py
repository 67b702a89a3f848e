"""`pip install homing`, without extras, gives a command line that runs and a node that serves."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.runtime.exits import Exit
from homing_rig.services import ServiceProcess
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess, without_program
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PRIVATE = {"aiosqlite", "paho-mqtt", "uvicorn"}
"""Libraries of which Homing uses parts that are not public: any release may change those."""
LEFT_OUT = (
    "alembic",
    "duckdb",
    "homing-rig",
    "homing-simulator",
    "opentelemetry-sdk",
    "psutil",
    "pyarrow",
    "pyspark",
    "rocksdict",
    "sqlalchemy",
    "watchfiles",
    "websockets",
)


def project() -> dict[str, Any]:
    loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return loaded


def test_what_private_parts_are_used_of_has_an_upper_bound() -> None:
    asked = project()
    every = [*asked["dependencies"], *(one for extra in asked["optional-dependencies"].values() for one in extra)]
    bounded = {one.partition(">=")[0] for one in every if ",<" in one}
    assert bounded >= PRIVATE


class InstalledNode(ServiceProcess):
    """`homing serve` of an environment without extras, on a broker, with its callbacks in memory."""

    def __init__(self, program: Path, broker: MosquittoProcess) -> None:
        super().__init__(str(program))
        self._broker = broker

    def _command(self) -> Sequence[str]:
        settings = {
            "HOMING_API_PORT": self.port,
            "HOMING_STORE_URL": "memory://",
            "HOMING_MQTT_URL": self._broker.url,
            "HOMING_MQTT_USERNAME": NODE_USER,
            "HOMING_MQTT_PASSWORD": NODE_PASSWORD,
        }
        environment = [f"{name}={value}" for name, value in settings.items()]
        return ["env", "-u", "PYTHONPATH", *environment, self.binary, "serve"]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=PATIENCE) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds both wheels and what they ask for, and nothing else."""
    wheels, there = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    for source in (ROOT, ROOT / "client"):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
        subprocess.run(build, check=True, cwd=source, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", there], check=True)
    install = [str(there / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*install, *map(str, wheels.glob("*.whl"))], capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        without_program("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return there / "bin"


def ran(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", env={}).stdout


@pytest.mark.long
def test_an_installation_without_extras_has_a_command_line_and_serves(environment: Path) -> None:
    assert "serve" in ran(environment / "homing", "--help")
    there = ran(environment / "python", "-m", "pip", "list", "--format", "freeze").lower()
    assert [name for name in LEFT_OUT if f"\n{name}" in there] == []
    with MosquittoProcess() as broker, InstalledNode(environment / "homing", broker) as node:
        assert node.stop() == 0


@pytest.mark.long
def test_what_an_extra_would_bring_is_named_where_it_is_wanted(environment: Path) -> None:
    command = [str(environment / "homing"), "access", "init"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"HOME": str(environment)})
    assert done.returncode == Exit.USAGE
    assert "homing[access]" in done.stderr
