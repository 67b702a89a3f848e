"""A profile of somebody's own from its file alone: nodes speak it, a simulated fleet answers, and a trace shows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.cluster.harness import caller, cluster_of
from tests.cluster.test_families import OpenBroker
from tests.services import RedisProcess
from tests.simulator.test_played import LAMP
from tests.waiting import PATIENCE


@contextmanager
def homing(broker: OpenBroker, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", *arguments],
        env={**os.environ, "HOMING_MQTT_URL": broker.url, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_with(stream: IO[str] | None, text: str) -> str:
    assert stream is not None
    return next(line for line in stream if text in line)


async def test_a_lamp_of_ours_on_two_nodes_with_a_fleet_and_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "lamp.toml"
    file.write_text(LAMP)
    with (
        OpenBroker() as broker,
        RedisProcess() as server,
        homing(broker, "simulate", "--profile", str(file), "-n", "2", "--delay", "1ms..5ms") as fleet,
        homing(broker, "profile", "trace", str(file)) as trace,
        cluster_of(2, server, broker, HOMING_PROFILES_DIR=str(tmp_path), HOMING_PROFILE="lamp") as cluster,
    ):
        line_with(fleet.stderr, "2 lamp devices are connected")
        line_with(trace.stderr, "listening to lamps/+/done, lamps/+/set")
        async with caller(cluster) as client:
            for number in range(4):
                status, command = await client.command(number, f"SN000{number % 2 + 1}", {"echo": number}, method="on")
                assert (status, command["state"]) == (200, "succeeded")
                assert command["result"] == {"method": "on", "echo": number}
            status, problem = await client.command(0, "SN0001", {}, method="onn")
            assert (status, problem["type"]) == (422, "urn:homing:problem:invalid-input")
            assert "did you mean on?" in problem["detail"]
        line_with(trace.stdout, "lamp: done, rules.2: succeeded for command")
        trace.send_signal(signal.SIGINT)
        said, complaints = trace.communicate(timeout=PATIENCE)
        assert (trace.returncode, complaints) == (0, "")
        assert " succeeded" in said.splitlines()[-1]
        fleet.send_signal(signal.SIGTERM)
        _, summary = fleet.communicate(timeout=PATIENCE)
        assert fleet.returncode == 0
        assert "2 devices: " in summary
        assert " commands, 4 answered" in summary


def test_a_trace_ends_after_so_many_messages_or_so_long(tmp_path: Path) -> None:
    file = tmp_path / "lamp.toml"
    file.write_text(LAMP)
    with OpenBroker() as broker, homing(broker, "profile", "trace", str(file), "--for", "200ms") as trace:
        said, _ = trace.communicate(timeout=PATIENCE)
        assert (trace.returncode, said) == (0, "0 messages\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--for", "soon"], "homing: --for: 'soon' is not a duration"),
        (["--topic", "a/#/b"], "homing: --topic: level 2: '#' must be the whole of the last level"),
        (["nowhere.toml"], "homing: nowhere.toml: cannot be read"),
    ],
)
def test_wrong_arguments_of_a_trace_are_sentences(arguments: list[str], sentence: str, homing_program: Path) -> None:
    command = [str(homing_program), "profile", "trace", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(sentence)


async def test_a_node_goes_on_without_a_wrong_file_of_ours_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "lamp.toml").write_text(LAMP)
    (tmp_path / "torn.toml").write_text('name = "torn"\ndescription = \n')
    with (
        OpenBroker() as broker,
        RedisProcess() as server,
        homing(broker, "simulate", "--profile", str(tmp_path / "lamp.toml"), "-n", "1") as fleet,
        cluster_of(1, server, broker, HOMING_PROFILES_DIR=str(tmp_path), HOMING_PROFILE="lamp") as cluster,
    ):
        line_with(fleet.stderr, "1 lamp devices are connected")
        async with caller(cluster) as client:
            status, command = await client.command(0, "SN0001", {"echo": 1}, method="on")
            assert (status, command["state"]) == (200, "succeeded")
            async with client.session.get(f"{cluster.nodes[0].url}/readyz") as response:
                said = await response.json()
    assert response.status == 200
    assert said["checks"]["profiles"].startswith("ok, but not spoken: torn, as ")
    assert "torn.toml:2: is no TOML at column 15: Invalid value" in said["checks"]["profiles"]
