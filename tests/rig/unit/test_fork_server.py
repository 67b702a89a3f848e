"""A node that is forked is a process like one that was started: the same words, exit codes and signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from homing_rig.fork_server import SERVE, ForkedNode, can_be_forked
from homing_rig.ports import lasting_port
from homing_rig.programs import environment
from homing_rig.services import RunningProcess, wait_until
from tests.waiting import PATIENCE

Start = Callable[[dict[str, str], Path], RunningProcess]


def started(settings: dict[str, str], folder: Path) -> RunningProcess:
    with (folder / "log").open("ab") as log:
        command = [sys.executable, *SERVE]
        return subprocess.Popen(command, env=environment(settings), cwd=folder, stdout=log, stderr=log)


def forked(settings: dict[str, str], folder: Path) -> RunningProcess:
    (folder / "log").touch()
    return ForkedNode(environment(settings), folder, folder / "log")


@pytest.mark.parametrize("start", [started, forked])
def test_wrong_settings_end_it_with_a_sentence_and_two(start: Start, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HOMING_STORE_URL=nothing://\n")
    node = start({}, tmp_path)
    assert node.wait(PATIENCE) == 2
    assert (node.poll(), node.returncode) == (2, 2)
    assert "HOMING_STORE_URL: scheme 'nothing' is unknown" in (tmp_path / "log").read_text(), "its folder's settings"


@pytest.mark.parametrize("start", [started, forked])
@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_it_is_stopped_killed_and_waited_for(start: Start, how: signal.Signals, code: int, tmp_path: Path) -> None:
    settings = {
        "HOMING_API_PORT": str(lasting_port()),
        "HOMING_STORE_URL": "memory://",
        "HOMING_MQTT_URL": "mqtt://[::1]:1",
    }
    node = start(settings, tmp_path)
    assert wait_until(lambda: "mqtt" in (tmp_path / "log").read_text(), PATIENCE), "it runs, and finds no broker"
    with pytest.raises(subprocess.TimeoutExpired):
        node.wait(0.01)
    assert node.poll() is None
    node.send_signal(how)
    assert node.wait(PATIENCE) == code
    node.kill()


def test_only_what_does_not_concern_the_interpreter_is_forked() -> None:
    assert can_be_forked(SERVE, {"HOMING_NODE_ID": "n1"})
    assert not can_be_forked(SERVE, {"PYTHONPATH": "/of/another/version"})
    assert not can_be_forked(SERVE, {"LD_PRELOAD": "libfaketime.so"})
    assert not can_be_forked(("-m", "homing_rig.chaos.skewed", "3"), {})
