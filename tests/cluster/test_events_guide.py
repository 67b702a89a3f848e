"""The pages about events, queues, streams and webhooks work as they are written, against a node or the demo.

They are docs/events.md, docs/fleets.md, docs/held.md, docs/queues.md, docs/schedules.md, docs/streams.md,
docs/two-persons.md and docs/webhooks.md.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from homing_rig.ports import lasting_port
from tests.cluster.test_families import OpenBroker
from tests.cluster.test_tutorial import demo, environment, run
from tests.pages import to_run
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess, find_binary

__all__ = ["environment"]  # a fixture
ADDRESS = "127.0.0.1:8080"
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl")


def on_a_node(page: str, environment: dict[str, str], folder: Path, broker: MosquittoProcess) -> str:
    """Run a page that starts a node of its own, and return what it says."""
    port = str(lasting_port())
    script = "\n".join(to_run(page, "sh")).replace(ADDRESS, f"127.0.0.1:{port}")
    # The user of nodes may not speak as a device does.
    script = script.replace("homing simulate", "env -u HOMING_MQTT_USERNAME -u HOMING_MQTT_PASSWORD homing simulate")
    for client in ("pub", "sub"):
        script = script.replace(f"mosquitto_{client}", f"mosquitto_{client} -p {broker.port}")
    settings = {
        "HOMING_API_PORT": port,
        "HOMING_URL": f"http://127.0.0.1:{port}",
        "HOMING_STORE_URL": "memory://",
        "HOMING_MQTT_URL": broker.url,
        "HOMING_MQTT_USERNAME": NODE_USER,
        "HOMING_MQTT_PASSWORD": NODE_PASSWORD,
    }
    return run(f"set -e\ntrap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{script}", environment | settings, folder)


def test_events(environment: dict[str, str], tmp_path: Path) -> None:
    find_binary("mosquitto_pub", "mosquitto-clients")
    with MosquittoProcess() as broker:
        said = on_a_node("docs/events.md", environment, tmp_path, broker)
    assert "overheated" in said
    assert '"cooled"' in (tmp_path / "followed").read_text()
    assert '"position"' in said.splitlines()[-1]


def test_fleets(environment: dict[str, str], tmp_path: Path) -> None:
    with MosquittoProcess() as broker:
        said = on_a_node("docs/fleets.md", environment, tmp_path, broker)
    assert "total" in said
    assert "exit code 9" in said
    assert "between two waves: wave 2 of 3 has ended, and a person has to resume it" in said
    assert said.count("succeeded  ") >= 4, "the targets that were shown"
    assert re.search(r"^run-\w+ +succeeded +6 +succeeded=6$", said, re.MULTILINE)
    assert "exit code 2" in said
    assert said.splitlines()[-1].endswith("succeeded=3"), "the run that was typed"


def test_schedules(environment: dict[str, str], tmp_path: Path) -> None:
    with MosquittoProcess() as broker:
        said = on_a_node("docs/schedules.md", environment, tmp_path, broker)
    assert re.search(r"^close-cover +30 2 \* \* mon +Europe/Berlin", said, re.MULTILINE)
    assert len(re.findall(r"20\d\d-\d\d-\d\dT0[01]:30:00", said)) >= 10, "02:30 in Berlin, of ten weeks"


def test_held(environment: dict[str, str], tmp_path: Path) -> None:
    with OpenBroker() as broker:
        said = on_a_node("docs/held.md", environment, tmp_path, broker)
    assert "it waits to be sent to drone-1" in said
    assert len(re.findall(r"drone-1 +fly_to +succeeded", said)) == 3, "they have ended when the landing has"
    assert re.search(r"drone-1 +land +succeeded", said)
    assert re.search(r"drone-1 +lights_on +succeeded", said)
    assert re.search(r"drone-1 +lights_on +cancelled", said)
    assert re.search(r"drone-2 +lights_on +cancelled", said)
    assert re.search(r"drone-2 +lights_off +held", said)


def test_two_persons(environment: dict[str, str], tmp_path: Path) -> None:
    with OpenBroker() as broker:
        said = on_a_node("docs/two-persons.md", environment, tmp_path, broker)
    assert "exit code 8" in said
    assert "you have asked for it yourself" in said
    assert "a second person has to approve it within" in said
    assert "take_off on drone-1: succeeded" in said
    assert "ben has refused it; the device was not told" in said
    assert "there is a crane" in said


def test_interlocks(environment: dict[str, str], tmp_path: Path) -> None:
    with OpenBroker() as broker:
        said = on_a_node("docs/interlocks.md", environment, tmp_path, broker)
    assert said.count("exit code 5") == 2
    assert "cover_open on dock-1: succeeded" in said
    assert re.search(r"on_the_ground +inputs.mode +holds +0 ", said.splitlines()[-1])


def test_webhooks(environment: dict[str, str], tmp_path: Path) -> None:
    with MosquittoProcess() as broker:
        said = on_a_node("docs/webhooks.md", environment, tmp_path, broker)
    assert said.count("whsec_") == 2


def test_queues(environment: dict[str, str], tmp_path: Path) -> None:
    with MosquittoProcess() as broker:
        said = on_a_node("docs/queues.md", environment, tmp_path, broker)
    assert "queue alarms is declared" in said
    assert said.count('"delivery": 1') == 12, "ten alarms, and two messages of the exchange"


def test_streams(environment: dict[str, str], tmp_path: Path) -> None:
    with demo(environment) as url:
        script = "set -e\n" + "\n".join(to_run("docs/streams.md", "sh")).replace(f"http://{ADDRESS}", url)
        said = run(script, environment | {"HOMING_URL": url, "PWD": os.fspath(tmp_path)}, tmp_path)
    assert said.count("event: outcome") == 2
