"""The options that all subcommands share, and the wrong input that each refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import __version__
from app.settings import MqttSettings, Settings, load_settings
from homing_simulator.cli.demo import settings_for
from homing_simulator.cli.simulate import with_credentials
from tests.unit.cli.conftest import Homing

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is tested
ROOT = Path(__file__).parent.parent.parent.parent
COMMANDS = ["serve", "demo", "send", "simulate", "bench", "doctor"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(homing: Homing, command: str) -> None:
    code, out, err = homing(command, "--help")
    assert (code, err) == (0, "")
    assert f"homing {command}" in out


def test_the_version(homing: Homing) -> None:
    assert homing("--version") == (0, f"homing {__version__}\n", "")


def test_help_costs_no_driver() -> None:
    code = (
        "import sys; sys.argv = ['homing', '--help']; from app.cli.root import run; run();"
        "drivers = {'fastapi', 'paho', 'redis', 'uvicorn', 'pydantic'};"
        "print(*sorted(drivers & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stderr.strip() == ""


@pytest.mark.parametrize("arguments", [["--version"], ["send", "dock-1", "ping", "--url", "http://127.0.0.1:9"]])
def test_only_who_needs_the_access_directory_pays_for_sql(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['homing', *{arguments}]; from app.cli.root import run; run();"
        "drivers = {'sqlalchemy', 'alembic', 'psycopg', 'aiosqlite'} & set(sys.modules);"
        "sys.exit(f'imported: {sorted(drivers)}' if drivers else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr


def test_an_address_that_others_reach_is_refused_before_a_node_is_made_of_anything() -> None:
    words = ["homing", "serve", "--host", "0.0.0.0", "--port", "0"]  # noqa: S104 - it is refused
    code = (
        f"import sys; sys.argv = {words}; from app.cli.root import run; code = run();"
        "drivers = {'fastapi', 'paho', 'redis', 'uvicorn', 'sqlalchemy'};"
        "print(code, *sorted(drivers & set(sys.modules)))"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOMING_")}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=env)
    assert ended.stdout == "2\n"
    assert "this node does not authenticate its callers" in ended.stderr


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("HOMING_STORE_URL", "mysql://x", "memory://, rocks://, redis://, rediss://"),
        ("HOMING_ACCESS_URL", "mysql://x", "sqlite://, postgresql://"),
        ("HOMING_API_PORT", "many", "integer"),
        ("HOMING_LOG_LEVEL", "loud", "'debug'"),
        ("HOMING_NODE_ID", "a b", "A-Z a-z"),
    ],
)
def test_a_wrong_setting_is_named(
    homing: Homing, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv(variable, value)
    code, out, err = homing("serve")
    assert (code, out) == (2, "")
    assert err.startswith(f"homing: {variable}: ")
    assert allowed in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--workers", "2", "--port", "0"], "HOMING_STORE_URL: memory:// is for one process"),
        (["serve", "--host", "192.0.2.1"], "HOMING_API_HOST, HOMING_API_PORT: cannot listen on 192.0.2.1 port 8080"),
        (["serve", "--host", EVERYWHERE, "--port", "0"], "0.0.0.0 can be reached from outside, and this node does"),
        (["serve", "--node-id", "x/y"], "HOMING_NODE_ID: "),
        (["simulate", "--delay", "fast"], "--delay: 'fast' is not a range"),
        (["simulate", "--drop", "half"], "--drop: 'half' is not a share"),
        (["simulate", "--drop", "60%", "--late", "60%"], "drop, duplicate, late, garbage and refuse: "),
        (["simulate", "--profile", "x"], "--profile: 'x' is unknown; allowed: alibaba-rrpc, aws-"),
        (["simulate", "--profile", "x.toml"], "x.toml: cannot be read"),
        (["simulate", "--profile", "hono"], "first_device: profile 'hono' has ids of the form {tenant}:{"),
        (["simulate", "--mqtt-url", "http://x"], "HOMING_MQTT_URL: scheme 'http' is unknown"),
        (["bench", "--pending", "x"], "--pending: 'x' is no list of numbers"),
        (["bench", "--json", "/nowhere/x"], "--json: /nowhere/x cannot be written: No such file or directory"),
    ],
)
def test_wrong_options_get_a_sentence(homing: Homing, arguments: list[str], sentence: str) -> None:
    code, out, err = homing(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"homing: {sentence}")
    assert "Traceback" not in err


def test_the_demo_is_not_led_astray_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in {
        "HOMING_STORE_URL": "redis://127.0.0.1:1",
        "HOMING_MQTT_URL": "mqtts://example.org",
        "HOMING_MQTT_USERNAME": "somebody",
        "HOMING_BROKER_URL": "mqtt://127.0.0.1:1",
        "HOMING_PROFILE": "homing",
    }.items():
        monkeypatch.setenv(variable, value)
    settings = settings_for("mqtt://127.0.0.1:4711")
    assert settings.store.url == "memory://"
    assert settings.mqtt == MqttSettings(url="mqtt://127.0.0.1:4711")
    assert settings.broker.url == "mqtt://127.0.0.1:4711"
    assert settings.profile == "dji"


def test_the_fleet_gets_the_credentials_of_the_settings() -> None:
    settings = load_settings(mqtt={"url": "mqtt://host:1883", "username": "me@x", "password": "p:/w"})
    assert with_credentials(settings.mqtt) == "mqtt://me%40x:p%3A%2Fw@host:1883"
    assert with_credentials(MqttSettings(url="mqtt://a:b@host", username="c")) == "mqtt://a:b@host"
    assert with_credentials(MqttSettings()) == "mqtt://127.0.0.1:1883"


def test_the_example_environment_states_the_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    uncommented = [line.removeprefix("# ") for line in lines if line.startswith("# HOMING_")]
    (tmp_path / ".env").write_text("\n".join(uncommented), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_settings() == Settings(_env_file=None)
